#include "trainer/loop/run_state.h"

#include <fmt/format.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/digest/content_digest.h"
#include "base/json_text.h"
#include "base/text.h"
#include "patch/snapshot/adapter_names.h"
#include "patch/snapshot/write_file.h"
#include "trainer/loop/ranks.h"
#include "trainer/replay/rollout_files.h"
#include "trainer/tasks/program/open_task.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kTaskDataBytesMax = std::uint64_t{4} << 30;
constexpr std::size_t kRefusalsShown = 20;
constexpr double kSecondsMax = 1e12;
const std::string kReferenceFile = "reference.safetensors";

Error corrupt(std::string why) { return fail(Errc::kCorrupt, Op::kRead, "checkpoint: " + std::move(why)); }

std::string digest_of(const std::string& text) { return content_digest_of(std::as_bytes(std::span(text))).hex(); }

Result<std::string> text_of(const Checkpoint& checkpoint, const std::string& name) {
  const auto found = checkpoint.texts.find(name);
  if (found != checkpoint.texts.end()) return found->second;
  return corrupt(name + " is missing");
}

}  // namespace

Result<std::unique_ptr<RunState>> RunState::open(FileSystem& files, const LearnerConfig& config,
                                                 std::shared_ptr<const Task> task) {
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
  for (const std::string& warning : warnings) state->console.warn(warning);
  state->task = std::move(task);
  WC_TRY(state->build());
  if (checkpoint) {
    WC_TRY(state->resume(*checkpoint));
  } else {
    WC_TRY(state->begin());
  }
  if (state->intake != nullptr) {
    // A run that had its rollouts from elsewhere until now has given out no groups yet, unless it did before that.
    const bool has_leased = state->resumed && (state->resumed_source == to_string(config.rollout_source) ||
                                               exists(files, directory / RolloutIntake::kRunFile));
    WC_TRY(state->intake->open(state->description(), has_leased));
    state->console.print(fmt::format("rollouts are taken at {}", state->intake->endpoint().to_string()));
  }
  const std::string text = config_text(config);
  WC_TRY(write_new_file(files, directory / "config.toml",
                        [&](FileWriter& out) { return out.write(std::as_bytes(std::span(text))); }));
  return state;
}

TrajectoryRules RunState::rules() const {
  TrajectoryRules rules;
  rules.task = task->name();
  rules.model_digest = identity_.model_digest;
  rules.tokenizer_digest = identity_.tokenizer_digest;
  rules.vocab_size = static_cast<std::int32_t>(policy->decoder().config().vocab_size);
  rules.tokens_max = rollout_tokens_max(config);
  rules.recompute_logprobs = config.behaviour_logprobs == BehaviourLogprobs::kRecompute;
  return rules;
}

Status RunState::build() {
  std::string data;
  if (!config.task_data.empty()) {
    WC_ASSIGN(data, read_file(files, config.task_data, kTaskDataBytesMax));
  }
  if (!task) {
    TaskProgramSettings program = config.task_program;
    for (const std::string& own : {config.rollout_keys, config.publish_state}) program.sandbox.hidden.push_back(own);
    WC_ASSIGN(task, open_task(config.task, config.task_options, data, program,
                              [this](const std::string& what) { console.print(what); }));
  }
  WC_ASSIGN(InitialModel model, make_initial_model(files, config));
  model_files = std::move(model.files);
  WC_ASSIGN(Tokenizer tokenizer, Tokenizer::parse(model_files.at("tokenizer.json")));
  if (tokenizer.vocab_size() > model.decoder.config().vocab_size) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("the tokenizer has ids up to {}, and the model a vocabulary of {}",
                            tokenizer.vocab_size() - 1, model.decoder.config().vocab_size));
  }
  identity_ = {digest_of(model_files.at("config.json")), tokenizer.digest()};
  WC_ASSIGN(const std::optional<QwenChat> style, chat_style());
  WC_ASSIGN(codec, PromptCodec::make(std::move(tokenizer), {style, config.enable_thinking, config.max_prompt_length}));
  RewardPoolOptions pool;
  pool.threads_max = static_cast<unsigned>(config.reward_threads);
  pool.time_max = from_seconds(config.reward_time_max);
  rewards.emplace(pool);
  prompts.emplace(*task, config.seed, config.eval_interval > 0 ? config.eval_prompts : 0);
  WC_ASSIGN(group, join_ranks(config));
  WC_ASSIGN(policy, Policy::make(std::move(model.decoder), config, group.get()));
  WC_TRY(tell_begin(group.get(), config));
  if (group) WC_TRY(policy->share());
  if (config.rollout_source == RolloutsFrom::kGenerator) {
    WC_ASSIGN(GeneratorLags lags, GeneratorLags::parse(config.generator_lag));
    auto made = std::make_unique<Generator>(policy->decoder(), task, *codec, *rewards, config, std::move(lags),
                                            identity_, [this] { return check_ranks(); });
    generator = made.get();
    source = std::move(made);
  } else if (config.rollout_source == RolloutsFrom::kHttp) {
    WC_ASSIGN(std::unique_ptr<RolloutIntake> made, make_intake(std::move(data)));
    intake = made.get();
    source = std::move(made);
  } else {
    source = std::make_unique<RolloutFiles>(config.rollout_files,
                                            [this, shown = std::size_t{0}](const std::string& why) mutable {
                                              if (shown < kRefusalsShown) console.warn("refused: " + why);
                                              if (++shown == kRefusalsShown)
                                                console.print("further refusals are only counted");
                                            });
  }
  if (!config.publish_state.empty()) {
    Publisher::Options options{config.publish_state, config.publish_sparse, {}, config.publish_new_model};
    options.files = published_files();
    publisher.emplace(std::move(options), [this](const std::string& why) { console.warn(why); });
  }
  checkpoints.emplace(files, std::filesystem::path(config.output_dir) / "checkpoints", config.checkpoints_kept);
  return {};
}

Result<std::optional<QwenChat>> RunState::chat_style() const {
  if (config.chat_template == ChatTemplate::kNone) return std::optional<QwenChat>();
  Result<std::optional<QwenChat>> style = chat_style_of(model_files);
  if (!style.has_value()) return about(config.model, std::move(style).error());
  if (*style) return style;
  return fail(Errc::kUnsupported, Op::kConfigure,
              fmt::format("{}: its chat template is none that we have, Qwen2.5's and Qwen3's; set chat_template to "
                          "'none', or put one of those there as chat_template.jinja",
                          printable(config.model)));
}

Status RunState::begin() {
  buffer.set(ReplayBuffer(replay_options(config), rules()));
  if (publisher) first_version = publisher->next_version().value_or(Version{1}).value;
  WC_ASSIGN(metrics, MetricsFile::open(files, std::filesystem::path(config.output_dir) / "metrics.jsonl", 0));
  return {};
}

std::map<std::string, std::string> RunState::published_files() const {
  // The others describe a model, which an adapter is not.
  if (publishes_adapter(config)) return {{kAdapterConfigFile, policy->adapter_json()}};
  return model_files;
}

Status RunState::check_ranks() const {
  const std::string who = group ? group->gone() : "";
  return who.empty() ? Status() : Status(fail(Errc::kClosed, Op::kReceive, who));
}

void RunState::handle_due() {
  if (generator != nullptr) generator->handle_published(version());
  if (generator != nullptr || !publisher) buffer->handle_published(version());
}

void RunState::handle_accepted() {
  accepted = version();
  if (intake != nullptr) intake->handle_published(accepted);
  // What the generator's rollouts are made of must not depend on the daemon, or a run that is resumed differs.
  if (generator == nullptr) buffer->handle_published(version());
}

void RunState::renumber(Version next) {
  WC_CHECK(next > version());
  const std::uint64_t shift = next.value - version().value;
  first_version += shift;
  buffer->handle_renumbered(shift, generator != nullptr ? NamesOfVersions::kNew : NamesOfVersions::kAsKnown);
  if (generator != nullptr) generator->handle_renumbered(shift);
}

Status RunState::set_reference(std::span<const StoredTensor> weights) {
  WC_ASSIGN(reference, twin_of(policy->decoder()));
  return set_weights(*reference, weights);
}

Status RunState::poll_checkpoint() { return checkpoints->busy() ? Status() : checkpoints->finish(); }

RunDescription RunState::description() const {
  RunDescription run;
  static_cast<GroupSettings&>(run) = config;
  static_cast<EpisodeSettings&>(run) = config;
  run.task = task->name();
  run.eval_prompts = config.eval_interval > 0 ? config.eval_prompts : 0;
  run.chat_template = chat_template_name(codec->chat_style());
  run.tokens_max = rollout_tokens_max(config);
  run.logprobs_recomputed = config.behaviour_logprobs == BehaviourLogprobs::kRecompute;
  run.model_digest = identity_.model_digest;
  run.tokenizer_digest = identity_.tokenizer_digest;
  if (publishes_adapter(config)) run.adapter_digest = digest_of(policy->adapter_json());
  return run;
}

Result<std::unique_ptr<RolloutIntake>> RunState::make_intake(std::string task_data) {
  std::map<std::string, std::string> served = model_files;
  // So that a worker knows before the first version what its server has to take.
  if (publishes_adapter(config)) served.merge(published_files());
  RolloutIntake::Options options{.listen = config.rollout_listen,
                                 .trust = {.keys = config.rollout_keys, .insecure = config.rollout_insecure},
                                 .directory = config.output_dir,
                                 .task_data = std::move(task_data),
                                 .model_files = std::move(served),
                                 .limits = {rules().tokens_max, rules().metadata_bytes_max},
                                 .warn = [this](const std::string& why) { console.warn(why); }};
  if (config.sync_drift_max) options.sync = {.drift_max = *config.sync_drift_max};
  if (!config.publish_state.empty() && !config.rollout_keys.empty()) {
    options.trust.revocation_directories = {config.publish_state};
  }
  return std::make_unique<RolloutIntake>(files, std::move(options), buffer);
}

Result<Checkpoint> RunState::copy() {
  Checkpoint checkpoint;
  checkpoint.step = step;
  WC_TRY(tell(group.get(), Command::kSave));
  WC_TRY(policy->save(checkpoint));
  if (reference) checkpoint.tensors[kReferenceFile] = copy_weights(*reference);
  if (generator != nullptr) generator->save_weights(checkpoint);
  checkpoint.texts.insert(model_files.begin(), model_files.end());
  // A copy takes milliseconds, and writing it as text many times as long: workers are answered meanwhile.
  const ReplayBuffer copied = *buffer.lock();
  checkpoint.texts["replay.json"] = copied.save(steady_now());
  checkpoint.texts["learner.json"] = nlohmann::json{
      {"step", step},
      {"first_version", first_version},
      {"accepted_version", accepted.value},
      {"seconds", seconds},
      {"worker_cost", worker_cost},
      {"metrics_bytes", metrics->size()},
      {"rollout_source", std::string(to_string(config.rollout_source))},
      {"source", source->save()}}.dump(2);
  return checkpoint;
}

Status RunState::resume(const Checkpoint& checkpoint) {
  WC_ASSIGN(const std::string found_config, text_of(checkpoint, "config.json"));
  WC_ASSIGN(const std::string found_tokenizer, text_of(checkpoint, "tokenizer.json"));
  if (found_config != model_files.at("config.json") || found_tokenizer != model_files.at("tokenizer.json")) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} has checkpoints of another model; use another output_dir, or its model and sizes",
                            printable(config.output_dir)));
  }
  WC_ASSIGN(const std::string learner, text_of(checkpoint, "learner.json"));
  WC_ASSIGN(const std::string replay, text_of(checkpoint, "replay.json"));
  WC_ASSIGN(ReplayBuffer restored, ReplayBuffer::restore(replay_options(config), rules(), replay, steady_now()));
  buffer.set(std::move(restored));
  std::uint64_t metrics_bytes = 0;
  try {
    const auto json = parse_json(learner);
    const auto found_step = natural_of(json.at("step"));
    const auto found_first = natural_of(json.at("first_version"));
    const auto found_accepted = natural_of(json.value("accepted_version", nlohmann::json(0U)));
    const auto found_bytes = natural_of(json.at("metrics_bytes"));
    seconds = json.at("seconds");
    worker_cost = json.value("worker_cost", 0.0);
    const bool times_are_sound =
        seconds >= 0 && seconds <= kSecondsMax && worker_cost >= 0 && worker_cost <= kSecondsMax;
    if (found_step != checkpoint.step || !found_first || !found_accepted || !found_bytes || !times_are_sound) {
      return corrupt(fmt::format("learner.json: it is not of step {}, or a number is none", checkpoint.step));
    }
    step = *found_step;
    first_version = *found_first;
    accepted = Version{*found_accepted};
    metrics_bytes = *found_bytes;
    resumed_source = json.at("rollout_source").get<std::string>();
    if (resumed_source == to_string(config.rollout_source)) {
      WC_TRY(source->restore(json.at("source").get<std::string>()));
    } else if (generator != nullptr) {
      return corrupt("it was written with other rollouts than the generator's; use another output_dir");
    }
  } catch (const nlohmann::json::exception& error) {
    return corrupt(fmt::format("learner.json: {}", error.what()));
  }
  WC_TRY(tell(group.get(), Command::kLoad));
  WC_TRY(policy->load(checkpoint));
  if (generator != nullptr) WC_TRY(generator->restore_weights(checkpoint));
  const auto stored = checkpoint.tensors.find(kReferenceFile);
  if (reads_reference(config) && stored == checkpoint.tensors.end()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "kl_loss_coef or kl_reward_coef is above 0, and the run began without a reference model; use 0, or "
                "another output_dir");
  }
  if (reads_reference(config)) {
    WC_TRY(set_reference(stored->second));
    WC_TRY(tell(group.get(), Command::kLoadReference));
    if (group) WC_TRY(share_weights(*group, *reference));
  }
  WC_ASSIGN(metrics,
            MetricsFile::open(files, std::filesystem::path(config.output_dir) / "metrics.jsonl", metrics_bytes));
  resumed = true;
  checkpoints->handle_resumed(step);
  console.print(fmt::format("going on from the checkpoint of step {}", step));
  return {};
}

}  // namespace weightcast
