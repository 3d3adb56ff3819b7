#include "trainer/learner/run_state.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/content_digest.h"
#include "base/text.h"
#include "patch/snapshot/write_file.h"
#include "tasks/registry.h"
#include "trainer/learner/rollout_files.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kTaskDataBytesMax = std::uint64_t{4} << 30;
constexpr std::size_t kRefusalsShown = 20;
const std::string kReferenceFile = "reference.safetensors";

Error corrupt(std::string why) { return fail(Errc::kCorrupt, Op::kRead, "checkpoint: " + std::move(why)); }

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Result<std::string> text_of(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.texts.find(name);
  if (found != checkpoint.texts.end()) return found->second;
  return corrupt(name + " is missing");
}

}  // namespace

Instant steady_now() { return Instant(std::chrono::steady_clock::now().time_since_epoch()); }

Result<std::unique_ptr<RunState>> RunState::open(FileSystem& files, const LearnerConfig& config) {
  if (config.output_dir.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "output_dir is empty; name the directory of the run");
  }
  const std::filesystem::path directory = config.output_dir;
  WC_TRY(make_directories(files, directory));
  std::unique_ptr<RunState> state(new RunState(files, config));
  WC_ASSIGN(state->lock, files.open(directory / "lock", {.write = true, .create = Create::kIfMissing}));
  if (Status locked = state->lock->lock(); !locked.has_value()) {
    if (locked.error().code != Errc::kBusy) return std::move(locked).error();
    return fail(Errc::kBusy, Op::kLock, fmt::format("{}: another run is using it", printable(config.output_dir)));
  }
  std::vector<std::string> warnings;
  WC_ASSIGN(const std::optional<Checkpoint> checkpoint,
            read_newest_checkpoint(files, directory / "checkpoints", warnings));
  for (const std::string& warning : warnings) state->console.print(warning);
  WC_TRY(state->build());
  if (checkpoint) {
    WC_TRY(state->resume(*checkpoint));
  } else {
    WC_TRY(state->begin());
  }
  const std::string text = config_text(config);
  WC_TRY(write_new_file(files, directory / "config.toml",
                        [&](FileWriter& out) { return out.write(std::as_bytes(std::span(text))); }));
  return state;
}

TrajectoryRules RunState::rules() const {
  TrajectoryRules rules;
  rules.task = config.task;
  rules.model_digest = identity_.model_digest;
  rules.tokenizer_digest = identity_.tokenizer_digest;
  rules.vocab_size = static_cast<std::int32_t>(policy->decoder().config().vocab_size);
  rules.tokens_max = config.max_prompt_length + config.max_new_tokens;
  rules.recompute_logprobs = config.behaviour_logprobs == "recompute";
  return rules;
}

Status RunState::build() {
  std::string data;
  if (!config.task_data.empty()) {
    WC_ASSIGN(data, read_file(files, config.task_data, kTaskDataBytesMax));
  }
  WC_ASSIGN(task, make_task(config.task, config.task_options, data));
  WC_ASSIGN(InitialModel model, make_initial_model(files, config));
  config_json = std::move(model.config_json);
  tokenizer_json = std::move(model.tokenizer_json);
  WC_ASSIGN(Tokenizer tokenizer, Tokenizer::parse(tokenizer_json));
  if (tokenizer.vocab_size() > model.decoder.config().vocab_size) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("the tokenizer has ids up to {}, and the model a vocabulary of {}",
                            tokenizer.vocab_size() - 1, model.decoder.config().vocab_size));
  }
  identity_ = {content_digest_of(std::as_bytes(std::span(config_json))).hex(), tokenizer.digest()};
  WC_ASSIGN(codec, PromptCodec::make(std::move(tokenizer),
                                     {config.chat_template, config.enable_thinking, config.max_prompt_length}));
  prompts.emplace(*task, config.seed, config.eval_interval > 0 ? config.eval_prompts : 0);
  WC_ASSIGN(policy, Policy::make(std::move(model.decoder), config));
  if (config.rollout_source == "generator") {
    auto made = std::make_unique<Generator>(policy->decoder(), *task, *codec, config, identity_);
    generator = made.get();
    source = std::move(made);
  } else {
    source = std::make_unique<RolloutFiles>(split(config.rollout_files),
                                            [this, shown = std::size_t{0}](const std::string& why) mutable {
                                              if (shown < kRefusalsShown) console.print("refused: " + why);
                                              if (++shown == kRefusalsShown)
                                                console.print("further refusals are only counted");
                                            });
  }
  if (!config.publish_state.empty()) {
    publisher.emplace(Publisher::Options{config.publish_state, config.publish_sparse},
                      [this](const std::string& why) { console.print(why); });
  }
  checkpoints.emplace(files, std::filesystem::path(config.output_dir) / "checkpoints", config.checkpoints_kept);
  return {};
}

Status RunState::begin() {
  WC_ASSIGN(buffer, ReplayBuffer::make(replay_options(config), rules()));
  if (publisher) first_version = publisher->next_version().value_or(Version{1}).value;
  WC_ASSIGN(metrics, MetricsFile::open(files, std::filesystem::path(config.output_dir) / "metrics.jsonl", 0));
  return {};
}

Status RunState::handle_published() {
  if (generator != nullptr) WC_TRY(generator->handle_published(version()));
  buffer->handle_published(version());
  return {};
}

Status RunState::set_reference() {
  if (config.kl_loss_coef == 0) return {};
  WC_ASSIGN(reference, Decoder::random(policy->decoder().config(), 0, policy->decoder().options()));
  return set_weights(*reference, copy_weights(policy->decoder()));
}

Checkpoint RunState::copy() const {
  Checkpoint checkpoint;
  checkpoint.step = step;
  policy->save(checkpoint);
  if (reference) checkpoint.tensors[kReferenceFile] = copy_weights(*reference);
  if (generator != nullptr) generator->save_weights(checkpoint);
  const AdamWCounters counters = policy->optimiser().counters();
  checkpoint.texts["config.json"] = config_json;
  checkpoint.texts["tokenizer.json"] = tokenizer_json;
  checkpoint.texts["replay.json"] = buffer->save(steady_now());
  checkpoint.texts["learner.json"] = nlohmann::json{
      {"step", step},
      {"first_version", first_version},
      {"seconds", seconds},
      {"metrics_bytes", metrics->size()},
      {"updates_applied", counters.applied},
      {"updates_skipped", counters.skipped},
      {"rollout_source", config.rollout_source},
      {"source", source->save()}}.dump(2);
  return checkpoint;
}

Status RunState::resume(const Checkpoint& checkpoint) {
  WC_ASSIGN(const std::string found_config, text_of(checkpoint, "config.json"));
  WC_ASSIGN(const std::string found_tokenizer, text_of(checkpoint, "tokenizer.json"));
  if (found_config != config_json || found_tokenizer != tokenizer_json) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} has checkpoints of another model; use another output_dir, or its model and sizes",
                            printable(config.output_dir)));
  }
  WC_ASSIGN(const std::string learner, text_of(checkpoint, "learner.json"));
  WC_ASSIGN(const std::string replay, text_of(checkpoint, "replay.json"));
  WC_ASSIGN(buffer, ReplayBuffer::restore(replay_options(config), rules(), replay, steady_now()));
  std::uint64_t metrics_bytes = 0;
  try {
    const auto json = nlohmann::json::parse(learner);
    step = json.at("step");
    first_version = json.at("first_version");
    seconds = json.at("seconds");
    metrics_bytes = json.at("metrics_bytes");
    policy->optimiser().restore_counters({json.at("updates_applied"), json.at("updates_skipped")});
    if (json.at("rollout_source") == config.rollout_source) {
      WC_TRY(source->restore(json.at("source").get<std::string>()));
    } else if (generator != nullptr) {
      return corrupt("it was written with other rollouts than the generator's; use another output_dir");
    }
  } catch (const nlohmann::json::exception& error) {
    return corrupt(fmt::format("learner.json: {}", error.what()));
  }
  WC_TRY(policy->load(checkpoint));
  if (generator != nullptr) WC_TRY(generator->restore_weights(checkpoint));
  const auto stored = checkpoint.tensors.find(kReferenceFile);
  if (config.kl_loss_coef > 0 && stored == checkpoint.tensors.end()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "kl_loss_coef is above 0, and the run began without a reference model; use kl_loss_coef 0, or another "
                "output_dir");
  }
  WC_TRY(set_reference());
  if (reference) WC_TRY(set_weights(*reference, stored->second));
  WC_ASSIGN(metrics,
            MetricsFile::open(files, std::filesystem::path(config.output_dir) / "metrics.jsonl", metrics_bytes));
  resumed = true;
  checkpoints->handle_resumed(step);
  console.print(fmt::format("going on from the checkpoint of step {}", step));
  return {};
}

}  // namespace weightcast
