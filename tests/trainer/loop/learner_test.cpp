#include "trainer/loop/learner.h"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/version.h>
#include <nlohmann/json.hpp>

#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <new>

#include "base/digest/content_digest.h"
#include "base/files/posix_file_system.h"
#include "tests/trainer/loop/learner_fixture.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/loop/run_state.h"
#include "trainer/metrics/metrics.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "trainer/tasks/trajectory/trajectory_json.h"
#include "transport/http/client.h"
#include "worker/engine/sampling/end_tokens.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

struct LearnerTest : testing::Test {
  TempDir dir;
  PosixFileSystem files;
  std::atomic<bool> stop = false;

  std::string out(const std::string& name) { return dir.file(name); }
  Status run(const std::string& name, const std::vector<Setting>& more = {}) {
    WC_ASSIGN(const LearnerConfig config, make_config(with(tiny_run(out(name)), more)));
    WC_ASSIGN(const auto learner, Learner::make(files, config));
    return learner->run(stop);
  }
  /// Of a task that has other options than arithmetic.
  Status run_task(const std::string& name, const std::vector<Setting>& more) {
    std::vector<Setting> settings = tiny_run(out(name));
    std::erase_if(settings, [](const Setting& setting) { return setting.name.starts_with("task_options."); });
    WC_ASSIGN(const LearnerConfig config, make_config(with(std::move(settings), more)));
    WC_ASSIGN(const auto learner, Learner::make(files, config));
    return learner->run(stop);
  }
  Checkpoint last(const std::string& name) {
    std::vector<std::string> warnings;
    return read_newest_checkpoint(files, out(name) + "/checkpoints", warnings).value().value();
  }
  std::vector<Metrics> metrics(const std::string& name) {
    return read_metrics(files, out(name) + "/metrics.jsonl").value();
  }
  /// A rollout that a learner with this model takes.
  static Trajectory rollout_of(const Checkpoint& model) {
    Trajectory t;
    t.task = "arithmetic";
    t.worker = "w";
    t.model_digest = content_digest_of(std::as_bytes(std::span(model.texts.at("config.json")))).hex();
    t.tokenizer_digest = Tokenizer::parse(model.texts.at("tokenizer.json"))->digest();
    t.tokens = {'1', '+', '1', '=', '2', 256};
    t.response_mask = {0, 0, 0, 0, 1, 1};
    t.logprobs = {-1, -1};
    t.version_runs = {{Version{1}, 2}};
    t.oldest_version = Version{1};
    return t;
  }
  /// 40 of them in groups of 4: right and wrong answers in turn.
  static std::string rollouts_of(const Checkpoint& model) {
    Trajectory t = rollout_of(model);
    std::string lines;
    for (std::uint64_t i = 0; i < 40; ++i) {
      t.sequence = i;
      t.group = std::to_string(i / 4);
      t.reward = static_cast<double>(i % 2);
      t.tokens[4] = i % 2 == 1 ? '2' : '3';
      lines += write_trajectory(t) + "\n";
    }
    return lines;
  }
  /// Whether two runs came to the same weights and optimiser, and saw the same rewards.
  void expect_same(const std::string& a, const std::string& b) {
    const Checkpoint one = last(a), other = last(b);
    EXPECT_EQ(one.step, other.step);
    ASSERT_EQ(one.tensors.size(), other.tensors.size());
    for (const auto& [file, tensors] : one.tensors) {
      const auto& theirs = other.tensors.at(file);
      ASSERT_EQ(tensors.size(), theirs.size());
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        EXPECT_EQ(tensors[i].bytes, theirs[i].bytes) << file << " " << tensors[i].info.name;
      }
    }
    const auto mine = metrics(a), theirs = metrics(b);
    ASSERT_EQ(mine.size(), theirs.size());
    for (std::size_t i = 0; i < mine.size(); ++i) {
      for (const auto& [name, value] : mine[i]) {
        if (name.starts_with("timing_s/") || name.starts_with("perf/") || name == "cost_total" ||
            name == "bubble_ratio") {
          continue;
        }
        EXPECT_EQ(value, theirs[i].at(name)) << name << " of line " << i;
      }
    }
  }
};

TEST_F(LearnerTest, WritesALinePerStep) {
  ASSERT_TRUE(run("a", {{"eval_interval", "3"}, {"eval_prompts", "4"}}).has_value());
  const auto lines = metrics("a");
  ASSERT_EQ(lines.size(), 4u + 6u);
  EXPECT_EQ(lines[9].at("training/global_step"), 6);
  EXPECT_EQ(lines[9].at("training/version"), 7);
  for (const char* name : {"actor/pg_loss", "actor/grad_norm", "actor/entropy", "critic/score/mean",
                           "rollouts/admitted", "off_policy/median", "response_length/mean", "timing_s/update",
                           "rollout_corr/kl", "eval/avg@4", "eval/pass@4"}) {
    EXPECT_EQ(lines[9].count(name), 1u) << name;
  }
  // What samples and what learns have the same weights at the step's first update.
  EXPECT_LT(std::abs(lines[4].at("rollout_corr/kl")), 1e-3);
}

TEST_F(LearnerTest, KeepsAPaceWithoutLearning) {
  ASSERT_TRUE(run("still", {{"total_training_steps", "0"}}).has_value());
  ASSERT_TRUE(run("paced", {{"total_training_steps", "3"}, {"paced_step_s", "0.05"}}).has_value());
  const auto before = last("still").tensors.at("model.safetensors"),
             after = last("paced").tensors.at("model.safetensors");
  ASSERT_EQ(before.size(), after.size());
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i].bytes, after[i].bytes) << before[i].info.name;
  for (const Metrics& step : metrics("paced")) {
    if (!step.contains("training/global_step")) continue;
    EXPECT_GE(step.at("timing_s/update"), 0.05);
    EXPECT_GT(step.at("bubble_ratio"), 0);  // it generates between its steps
    EXPECT_LT(step.at("bubble_ratio"), 1);
    EXPECT_FALSE(step.contains("mu_min"));  // there are no workers
  }
}

TEST_F(LearnerTest, ComesToTheSameBitsWithAndWithoutStops) {
  for (const std::vector<Setting>& kind : std::vector<std::vector<Setting>>{
           {},
           {{"generator_lag", "1"}, {"publish_interval", "2"}},
           {{"generator_lag", "0,1,2,2"}, {"max_staleness", "1"}, {"rollout_batch_size", "8"}},
           {{"dtype", "bfloat16"}, {"kl_loss_coef", "0.01"}, {"advantage_norm", "rloo"}, {"ppo_epochs", "2"}},
           {{"dtype", "bfloat16"},
            {"stochastic_rounding", "true"},
            {"activation_checkpointing", "true"},
            {"pg_variant", "tis"},
            {"ratio_low", "0.1"},
            {"ratio_high", "2"},
            {"ratio_level", "sequence"}},
           {{"lora_rank", "4"},
            {"lora_dropout", "0.2"},
            {"generator_lag", "1"},
            {"kl_loss_coef", "0.01"},
            {"sft_steps", "1"}},
           {{"advantage_estimator", "gae"},
            {"value_learning_rate", "1e-2"},
            {"gae_lambda", "0.9"},
            {"kl_reward_coef", "0.1"},
            {"value_clip_range", "0.2"},
            {"updates_per_step", "1"},
            {"pg_variant", "decoupled_ppo"},
            {"tis_cap", "2"},
            {"tis_level", "sequence"}}}) {
    const std::string whole = "whole" + std::to_string(kind.size()), parts = "parts" + std::to_string(kind.size());
    ASSERT_TRUE(run(whole, kind).has_value());
    for (const char* steps : {"2", "3", "6"}) {
      ASSERT_TRUE(run(parts, with(kind, {{"total_training_steps", steps}})).has_value());
    }
    expect_same(whole, parts);
  }
}

TEST_F(LearnerTest, SamplesWithOldWeightsWhereItIsToldTo) {
  ASSERT_TRUE(run("a", {{"generator_lag", "2"}}).has_value());
  const auto lines = metrics("a");
  EXPECT_EQ(lines[4].at("off_policy/max"), 0);
  EXPECT_EQ(lines[9].at("off_policy/max"), 2);
  EXPECT_GT(lines[9].at("rollout_corr/kl") * lines[9].at("rollout_corr/kl"), 0);
}

TEST_F(LearnerTest, HearsOfEachPublicationLateByItsLag) {
  // Publications after steps 0, 3 and 6, each of which is used two steps later.
  ASSERT_TRUE(run("a", {{"generator_lag", "2"}, {"publish_interval", "3"}, {"total_training_steps", "9"}}).has_value());
  const auto lines = metrics("a");
  const std::vector<double> lags{0, 1, 2, 3, 4, 2, 3, 4, 2};
  ASSERT_EQ(lines.size(), 4u + lags.size());
  for (std::size_t i = 0; i < lags.size(); ++i) {
    EXPECT_EQ(lines[4 + i].at("off_policy/max"), lags[i]) << "step " << i + 1;
    EXPECT_EQ(lines[4 + i].at("off_policy/mean"), lags[i]) << "step " << i + 1;
  }
}

TEST_F(LearnerTest, RefusesAndCountsGroupsThatDrewTooGreatALag) {
  ASSERT_TRUE(
      run("a", {{"generator_lag", "0,1,5"}, {"max_staleness", "3"}, {"total_training_steps", "12"}}).has_value());
  const auto lines = metrics("a");
  double most = 0;
  for (std::size_t i = 4; i < lines.size(); ++i) most = std::max(most, lines[i].at("off_policy/max"));
  EXPECT_LE(most, 3) << "what is older was refused";
  const double refused = lines.back().at("rollouts/refused/stale");
  EXPECT_GT(refused, 0);
  EXPECT_EQ(lines.back().at("off_policy/dropped"), refused);
  EXPECT_NEAR(lines.back().at("off_policy/admissible_share"), 12 * 16.0 / (12 * 16 + refused), 1e-9);
}

TEST_F(LearnerTest, TellsAnObserverOfEachStep) {
  WC_CHECK(run("plain").has_value());
  const LearnerConfig config = make_config(tiny_run(out("observed"))).value();
  std::vector<LearnerStep> steps;
  const auto learner = Learner::make(files, config, [&](LearnerStep step) -> Status {
    steps.push_back(std::move(step));
    return {};
  });
  ASSERT_TRUE(learner.has_value()) << learner.error().message();
  ASSERT_TRUE((*learner)->run(stop).has_value());
  expect_same("plain", "observed");
  ASSERT_EQ(steps.size(), 1u + 6u);
  EXPECT_TRUE(steps[0].metrics.empty());
  // A file has its tensors in another order.
  const auto by_name = [](const std::vector<StoredTensor>& tensors) {
    std::map<std::string, std::vector<std::byte>> bytes;
    for (const StoredTensor& tensor : tensors) bytes[tensor.info.name] = tensor.bytes;
    return bytes;
  };
  EXPECT_TRUE(by_name(steps[6].weights) == by_name(last("observed").tensors.at("model.safetensors")));
  EXPECT_NE(steps[5].weights[0].bytes, steps[6].weights[0].bytes);
  for (std::size_t i = 1; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].step, i);
    EXPECT_EQ(steps[i].metrics.at("training/global_step"), static_cast<double>(i));
    EXPECT_EQ(steps[i].lags.size(), 16u);
  }
}

TEST_F(LearnerTest, EndsWithTheErrorOfItsObserver) {
  const LearnerConfig config = make_config(tiny_run(out("a"))).value();
  const auto learner = Learner::make(files, config, [](const LearnerStep& at) -> Status {
    if (at.step < 2) return {};
    return fail(Errc::kInvalidArgument, Op::kVerify, "enough");
  });
  ASSERT_TRUE(learner.has_value()) << learner.error().message();
  const Status ran = (*learner)->run(stop);
  ASSERT_FALSE(ran.has_value());
  EXPECT_THAT(ran.error().message(), HasSubstr("enough"));
  EXPECT_EQ(last("a").step, 2u) << "what is done stays";
}

TEST_F(LearnerTest, SamplesWithTheRightWeightsAfterAChangeOfPublication) {
  const std::vector<Setting> at_once{{"learning_rate", "0.01"}};
  const std::vector<Setting> late = with(at_once, {{"publish_interval", "2"}, {"generator_lag", "1"}});
  const std::vector<Setting> begin{{"total_training_steps", "2"}};
  ASSERT_TRUE(run("a", with(late, begin)).has_value());
  ASSERT_TRUE(run("a", at_once).has_value());
  ASSERT_TRUE(run("b", with(at_once, begin)).has_value());
  ASSERT_TRUE(run("b", late).has_value());
  for (const char* name : {"a", "b"}) {
    const auto lines = metrics(name);
    for (std::size_t i = 4 + 2; i < lines.size(); ++i) {
      // The sampler and the learner differ where the rollouts say that they lag, and there alone.
      const double kl = std::abs(lines[i].at("rollout_corr/k3_kl"));
      if (lines[i].at("off_policy/max") == 0) {
        EXPECT_LT(kl, 1e-5) << name << " step " << lines[i].at("training/global_step");
      } else {
        EXPECT_GT(kl, 1e-5) << name << " step " << lines[i].at("training/global_step");
      }
    }
  }
  EXPECT_EQ(metrics("a").back().at("off_policy/max"), 0);
  EXPECT_GT(metrics("b").back().at("off_policy/max"), 0);
}

TEST_F(LearnerTest, PlaysSeveralTurns) {
  const std::vector<Setting> sokoban{{"task", "sokoban"},          {"turns_max", "3"},
                                     {"max_prompt_length", "700"}, {"sft_steps", "0"},
                                     {"rollout_batch_size", "4"},  {"total_training_steps", "2"},
                                     {"eval_interval", "2"},       {"eval_prompts", "1"},
                                     {"eval_samples", "2"},        {"advantage_estimator", "gae"}};
  ASSERT_TRUE(run_task("whole", sokoban).has_value());
  const auto lines = metrics("whole");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_LE(lines[0].at("critic/score/mean"), -0.3 + 1e-9) << "each of three turns costs a step at least";
  EXPECT_GT(lines[0].at("response_length/min"), 4) << "of one turn";
  EXPECT_LT(lines[1].at("eval/avg@2"), 0);
  ASSERT_TRUE(run_task("parts", with(sokoban, {{"total_training_steps", "1"}})).has_value());
  ASSERT_TRUE(run_task("parts", sokoban).has_value());
  expect_same("whole", "parts");
}

TEST_F(LearnerTest, KeepsTheFilesThatSayHowAModelGenerates) {
  ASSERT_TRUE(run("base", {{"total_training_steps", "1"}}).has_value());
  const std::filesystem::path model = out("base") + "/checkpoints/checkpoint-00000001";
  EXPECT_THAT(read_end_tokens(files, model).value(), ElementsAre(256, 258)) << "no tool would end an answer";
  std::vector<std::string> weights;
  for (const auto& entry : std::filesystem::directory_iterator(model)) {
    if (entry.path().extension() == ".safetensors") weights.push_back(entry.path().filename());
  }
  EXPECT_THAT(weights, ElementsAre("model.safetensors")) << "vLLM would take another one for weights, too";

  std::ofstream(model / "generation_config.json") << R"({"eos_token_id": 258, "top_k": 20} )";
  ASSERT_TRUE(run("a", {{"model", model.string()}}).has_value());
  const Checkpoint trained = last("a");
  EXPECT_EQ(trained.texts.at("generation_config.json"), R"({"eos_token_id": 258, "top_k": 20} )");
  EXPECT_EQ(trained.texts.at("config.json"), last("base").texts.at("config.json"));
}

TEST_F(LearnerTest, AdaptsAModelOfADirectory) {
  ASSERT_TRUE(run("base", {{"total_training_steps", "1"}}).has_value());
  const std::vector<Setting> lora{{"model", out("base") + "/checkpoints/checkpoint-00000001"},
                                  {"lora_rank", "4"},
                                  {"lora_target_modules", "q_proj,down_proj"}};
  ASSERT_TRUE(run("a", lora).has_value());
  const Checkpoint adapted = last("a");
  EXPECT_EQ(adapted.tensors.count("model.safetensors"), 0u) << "the weights below lie in `model`";
  EXPECT_EQ(adapted.tensors.at("adapter_model.safetensors").size(), 2u * 2 * 2);
  EXPECT_THAT(adapted.texts.at("adapter_config.json"), HasSubstr("checkpoint-00000001"));

  ASSERT_TRUE(run("other", {{"total_training_steps", "1"}, {"seed", "9"}}).has_value());
  std::filesystem::copy(out("other") + "/checkpoints/checkpoint-00000001/model.safetensors",
                        out("base") + "/checkpoints/checkpoint-00000001/model.safetensors",
                        std::filesystem::copy_options::overwrite_existing);
  EXPECT_THAT(run("a", lora).error().message(), HasSubstr("are not those that the run's adapter is for"));
}

TEST_F(LearnerTest, StopsWhenToldAndGoesOn) {
  stop = true;
  ASSERT_TRUE(run("a").has_value());
  std::vector<std::string> warnings;
  EXPECT_EQ(read_newest_checkpoint(files, out("a") + "/checkpoints", warnings).value(), std::nullopt);
  stop = false;
  ASSERT_TRUE(run("a", {{"total_training_steps", "1"}}).has_value());
  stop = true;
  ASSERT_TRUE(run("a").has_value());
  EXPECT_EQ(last("a").step, 1u);
}

TEST_F(LearnerTest, LeavesACheckpointAloneThatItWentOnFrom) {
  const std::vector<Setting> one_step{{"total_training_steps", "1"}};
  ASSERT_TRUE(run("a", one_step).has_value());
  const auto number = [&] { return files.info(out("a") + "/checkpoints/checkpoint-00000001").value().number; };
  const std::uint64_t before = number();
  ASSERT_TRUE(run("a", one_step).has_value());
  EXPECT_EQ(number(), before);
}

TEST_F(LearnerTest, TrainsOnFilesUntilTheyEnd) {
  ASSERT_TRUE(run("a", {{"total_training_steps", "0"}}).has_value());
  const Checkpoint model = last("a");
  Trajectory t = rollout_of(model);
  std::string lines = "nonsense\n" + rollouts_of(model);
  t.sequence = 40;
  t.model_digest = "another";
  lines += write_trajectory(t) + "\n";
  const std::vector<Setting> files_of{{"rollout_source", "files"}, {"rollout_files", dir.write("r.jsonl", lines)}};
  ASSERT_TRUE(run("b", files_of).has_value());
  const auto steps = metrics("b");
  // 40 rollouts make two batches of 16; the rest and the one of another model make none.
  ASSERT_EQ(steps.size(), 4u + 2u);
  EXPECT_EQ(steps[5].at("critic/score/mean"), 0.5);
  EXPECT_EQ(steps[5].at("off_policy/max"), 1);
  // Both answers were equally probable to the sampler, so the loss begins at zero and the right one gains.
  EXPECT_GT(steps[5].at("actor/grad_norm"), 0);

  ASSERT_TRUE(run("c", with(files_of, {{"total_training_steps", "1"}})).has_value());
  ASSERT_TRUE(run("c", files_of).has_value());
  expect_same("b", "c");
}

TEST_F(LearnerTest, KeepsItsStepsWhenRolloutsFail) {
  ASSERT_TRUE(run("a", {{"total_training_steps", "0"}}).has_value());
  const std::string rollouts = dir.write("r.jsonl", rollouts_of(last("a")));
  const std::vector<Setting> settings{{"rollout_source", "files"},
                                      {"rollout_files", rollouts + "," + dir.file("nowhere.jsonl")}};
  EXPECT_THAT(run("b", settings).error().message(), HasSubstr("nowhere.jsonl"));
  EXPECT_EQ(last("b").step, 2u);
  EXPECT_EQ(metrics("b").back().at("training/global_step"), 2);
}

/// LibTorch's memory comes from here; nothing comes while `thrown` is set.
class ThrowingAllocator final : public c10::Allocator {
 public:
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(std::size_t bytes) override { return give(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
#else
  c10::DataPtr allocate(std::size_t bytes) const override { return give(bytes); }
#endif
  ThrowingAllocator() { c10::SetCPUAllocator(this, 1); }
  ~ThrowingAllocator() override { c10::SetCPUAllocator(usual_, 1); }

  std::exception_ptr thrown;

 private:
  c10::DataPtr give(std::size_t bytes) const {
    if (thrown) std::rethrow_exception(thrown);
    return usual_->allocate(bytes);
  }
  c10::Allocator* const usual_ = c10::GetCPUAllocator();
};

TEST_F(LearnerTest, SpeaksOfMemoryOnlyWhereItIsMissing) {
  ThrowingAllocator allocator;
  const auto error_of = [&](const char* name, std::exception_ptr thrown) {
    const auto learner = Learner::make(files, make_config(tiny_run(out(name))).value()).value();
    allocator.thrown = std::move(thrown);
    const Status status = learner->run(stop);
    allocator.thrown = nullptr;
    return status.error();
  };
  const Error broken = error_of("a", std::make_exception_ptr(std::runtime_error("a tensor has no storage")));
  EXPECT_EQ(broken.code, Errc::kIo);
  EXPECT_THAT(broken.detail, HasSubstr("a library says: a tensor has no storage"));
  EXPECT_THAT(broken.detail, Not(HasSubstr("memory")));
  const Error full = error_of("b", std::make_exception_ptr(std::bad_alloc()));
  EXPECT_EQ(full.code, Errc::kTooLarge);
  EXPECT_THAT(full.detail, HasSubstr("memory is short: lower generator_batch_size"));
}

TEST_F(LearnerTest, RefusesADirectoryInUseAndAnotherModel) {
  const LearnerConfig config = make_config(tiny_run(out("a"))).value();
  {
    const auto holder = Learner::make(files, config);
    ASSERT_TRUE(holder.has_value());
    EXPECT_THAT(Learner::make(files, config).error().message(), HasSubstr("another run is using it"));
  }
  ASSERT_TRUE(run("a", {{"total_training_steps", "1"}}).has_value());
  EXPECT_THAT(run("a", {{"init_hidden_size", "64"}}).error().message(), HasSubstr("checkpoints of another model"));
}

TEST_F(LearnerTest, RefusesToGoOnWithKeysThatItsCheckpointDoesNotFit) {
  ASSERT_TRUE(run("a", {{"total_training_steps", "1"}}).has_value());
  EXPECT_THAT(run("a", {{"group_size", "8"}}).error().message(),
              HasSubstr("groups of 4 rollouts, and group_size is 8"));
  EXPECT_THAT(run("a", {{"kl_loss_coef", "0.1"}}).error().message(), HasSubstr("began without a reference model"));
  EXPECT_THAT(run("a", {{"kl_reward_coef", "0.1"}}).error().message(), HasSubstr("began without a reference model"));
  EXPECT_THAT(run("a", {{"advantage_estimator", "gae"}}).error().message(), HasSubstr("began without a value head"));
  EXPECT_THAT(run("a", {{"lora_rank", "2"}}).error().message(), HasSubstr("began without an adapter"));
  ASSERT_TRUE(run("b", {{"total_training_steps", "1"}, {"lora_rank", "2"}}).has_value());
  EXPECT_THAT(run("b").error().message(), HasSubstr("began with an adapter"));
}

// With checksums that are right: whoever can write a checkpoint can make them.
TEST_F(LearnerTest, RefusesACheckpointWhosePlaceInTheRunIsNone) {
  ASSERT_TRUE(run("a", {{"total_training_steps", "1"}}).has_value());
  const Checkpoint whole = last("a");
  using Json = nlohmann::json;
  const Json place = Json::parse(whole.texts.at("learner.json"));
  for (const auto& [name, value] : std::vector<std::pair<const char*, Json>>{{"step", 2},
                                                                             {"step", -1},
                                                                             {"step", 1e300},
                                                                             {"first_version", ~std::uint64_t{0}},
                                                                             {"first_version", -1},
                                                                             {"accepted_version", ~std::uint64_t{0}},
                                                                             {"seconds", -1},
                                                                             {"seconds", "long"},
                                                                             {"worker_cost", 1e300},
                                                                             {"metrics_bytes", -1},
                                                                             {"rollout_source", 7},
                                                                             {"source", "[[]]"},
                                                                             {"source", "{\"groups\": -1}"}}) {
    Checkpoint changed = whole;
    Json json = place;
    json[name] = value;
    changed.texts["learner.json"] = json.dump();
    ASSERT_TRUE(write_checkpoint(files, out("a") + "/checkpoints", changed, 2).has_value());
    const Status refused = run("a");
    ASSERT_FALSE(refused.has_value()) << name << " " << value;
    EXPECT_EQ(refused.error().code, Errc::kCorrupt) << refused.error().message();
  }
  ASSERT_TRUE(write_checkpoint(files, out("a") + "/checkpoints", whole, 2).has_value());
  EXPECT_TRUE(run("a").has_value()) << "nothing else was touched";
}

TEST_F(LearnerTest, SaysWhatIsMissing) {
  EXPECT_THAT(Learner::make(files, LearnerConfig()).error().message(), HasSubstr("output_dir is empty"));
  EXPECT_THAT(run("a", {{"model", dir.file("nowhere")}}).error().message(), HasSubstr("nowhere"));
  EXPECT_THAT(run("b", {{"task", "knights_and_knaves"}, {"task_options.digits_max", "1"}}).error().message(),
              HasSubstr("digits_max"));
  EXPECT_THAT(run("c", {{"chat_template", "qwen"}, {"max_prompt_length", "3"}}).error().message(),
              HasSubstr("max_prompt_length is 3"));
}

TEST_F(LearnerTest, AsksInTheModelsOwnChatTemplate) {
  ASSERT_TRUE(run("made", {{"total_training_steps", "0"}}).has_value());
  const std::string model = out("made") + "/checkpoints/checkpoint-00000000";
  const std::vector<Setting> chat{{"model", model}, {"chat_template", "qwen"}, {"total_training_steps", "1"}};
  std::ofstream(model + "/chat_template.jinja")
      << R"('<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n')";
  ASSERT_TRUE(run("a", with(chat, {{"eval_interval", "1"}, {"eval_prompts", "4"}})).has_value());
  {
    const LearnerConfig config = make_config(with(with(tiny_run(out("b")), chat),
                                                  {{"rollout_source", "http"}, {"rollout_listen", "127.0.0.1:0"}}))
                                     .value();
    const auto state = RunState::open(files, config).value();
    const auto ids = state->codec->prompt_ids(state->prompts->training(0).value()).value();
    EXPECT_THAT(state->codec->tokenizer().decode(ids).value(), testing::StartsWith("<|im_start|>system\nYou are Qwen"));
    const auto client = HttpClient::make({.server = state->intake->endpoint()}).value();
    const HttpResponse run = client->call({.target = "/v1/run"}, std::chrono::seconds(30)).value();
    EXPECT_EQ(read_run_description(run.body)->chat_template, "qwen2.5") << "what its workers are told";
  }
  std::ofstream(model + "/chat_template.jinja") << "[INST]";
  const Status refused = run("c", chat);
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().message(), HasSubstr(model + ": its chat template is none that we have"));
  EXPECT_THAT(refused.error().message(), HasSubstr("set chat_template to 'none'"));
  EXPECT_TRUE(run("c", with(chat, {{"chat_template", "none"}})).has_value());
}

TEST_F(LearnerTest, TellsItsWorkersWhichRolloutsCount) {
  const LearnerConfig config = make_config(with(tiny_run(out("a")), {{"rollout_source", "http"},
                                                                     {"rollout_listen", "127.0.0.1:0"},
                                                                     {"group_size_redundancy", "2"},
                                                                     {"filter_equal_rewards", "true"}}))
                                   .value();
  const auto state = RunState::open(files, config).value();
  const auto client = HttpClient::make({.server = state->intake->endpoint()}).value();
  const HttpResponse response = client->call({.target = "/v1/run"}, std::chrono::seconds(30)).value();
  const RunDescription run = read_run_description(response.body).value();
  EXPECT_EQ(run.group_size, 4u);
  EXPECT_EQ(run.group_size_redundancy, 2u);
  EXPECT_TRUE(run.filter_equal_rewards);
}

TEST_F(LearnerTest, LearnsFromExamplesInAFile) {
  std::ofstream(dir.file("sft.jsonl")) << R"({"prompt": "1+1=", "response": "2"})"
                                       << "\n"
                                       << R"({"messages": [{"role": "user", "content": "1+2="},)"
                                       << R"( {"role": "assistant", "content": "3"},)"
                                       << R"( {"role": "user", "content": "2+2="},)"
                                       << R"( {"role": "assistant", "content": "4"}]})"
                                       << "\n";
  ASSERT_TRUE(run("a", {{"sft_data", dir.file("sft.jsonl")},
                        {"sft_steps", "40"},
                        {"sft_learning_rate", "0.01"},
                        {"total_training_steps", "0"}})
                  .has_value());
  const auto lines = metrics("a");
  EXPECT_LT(lines.back().at("sft/loss"), 0.5 * lines.front().at("sft/loss"));
  dir.write("bad.jsonl", "{\"prompt\": \"1+1=\", \"response\": \"2\"}\n{\"prompt\": 1}\n");
  EXPECT_THAT(run("b", {{"sft_data", dir.file("bad.jsonl")}}).error().message(), HasSubstr("bad.jsonl line 2"));
}

}  // namespace
}  // namespace weightcast
