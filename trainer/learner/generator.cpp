#include "trainer/learner/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trainer/learner/policy.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kSampleStream = 4;

std::string weights_file(std::size_t index) { return fmt::format("behaviour-{}.safetensors", index); }

}  // namespace

Generator::Generator(const Decoder& decoder, const Task& task, const PromptCodec& codec, const LearnerConfig& config,
                     RunIdentity identity)
    : decoder_(decoder),
      task_(task),
      codec_(codec),
      config_(config),
      identity_(std::move(identity)),
      prompts_(task, config.seed, config.eval_interval > 0 ? config.eval_prompts : 0) {}

Status Generator::set_behaviour() {
  if (publications_.front().weights.empty()) {
    behaviour_.reset();
    return {};
  }
  if (!behaviour_) {
    WC_ASSIGN(behaviour_, Decoder::random(decoder_.config(), 0, decoder_.options()));
  }
  return set_weights(*behaviour_, publications_.front().weights);
}

Status Generator::handle_published(Version version) {
  publications_.push_back({version, is_learner() ? std::vector<StoredTensor>() : copy_weights(decoder_)});
  drop_old();
  return set_behaviour();
}

bool Generator::is_learner() const { return config_.publish_interval == 1 && config_.generator_lag == 0; }

void Generator::drop_old() {
  while (publications_.size() > config_.generator_lag + 1) publications_.pop_front();
}

Result<bool> Generator::fill(Instant now, ReplayBuffer& buffer) {
  const std::uint64_t missing = config_.rollout_batch_size - std::min(config_.rollout_batch_size, buffer.buffered());
  const std::uint64_t groups = std::clamp<std::uint64_t>(
      missing / config_.group_size, 1, std::max<std::uint64_t>(1, config_.generator_batch_size / config_.group_size));
  std::vector<Prompt> prompts;
  std::vector<CompletionRequest> requests;
  for (std::uint64_t group = groups_; group < groups_ + groups; ++group) {
    WC_ASSIGN(Prompt prompt, prompts_.training(group));
    // A prompt that comes again in a later epoch is another group.
    prompt.tag += fmt::format("#{}", group);
    WC_ASSIGN(const std::vector<TokenId> ids, codec_.prompt_ids(prompt));
    for (std::uint64_t i = 0; i < config_.group_size; ++i) {
      requests.push_back({ids, drawn(config_.seed, kSampleStream, rollouts_ + requests.size())});
    }
    prompts.push_back(std::move(prompt));
  }
  const CompletionOptions options{config_.temperature, config_.top_p, config_.max_new_tokens, codec_.end_token()};
  const std::vector<Completion> completions = complete(sampler(), requests, options);
  std::vector<Trajectory> made;
  for (std::size_t i = 0; i < completions.size(); ++i) {
    WC_ASSIGN(made.emplace_back(),
              rollout(prompts[i / config_.group_size], requests[i].prompt, completions[i], rollouts_ + i));
  }
  // Nothing has changed until here, so a fill that fails can be repeated.
  groups_ += groups;
  rollouts_ += made.size();
  for (Trajectory& trajectory : made) {
    const Arrival arrival = buffer.handle_trajectory(now, std::move(trajectory));
    if (arrival.admission == Admission::kAdmitted) continue;
    return fail(Errc::kInvalidArgument, Op::kVerify,
                fmt::format("the buffer does not take the generator's rollout: {} {}", arrival.reason, arrival.detail));
  }
  return true;
}

Result<Trajectory> Generator::rollout(const Prompt& prompt, std::span<const std::int32_t> prompt_ids,
                                      const Completion& completion, std::uint64_t sequence) {
  WC_ASSIGN(const double reward, task_.score(prompt.metadata, codec_.response_text(completion.tokens)));
  const Version version = publications_.front().version;
  Trajectory t;
  t.task = task_.name();
  t.worker = "generator";
  t.sequence = sequence;
  t.group = prompt.tag;
  t.model_digest = identity_.model_digest;
  t.tokenizer_digest = identity_.tokenizer_digest;
  t.tokens.assign(prompt_ids.begin(), prompt_ids.end());
  t.tokens.insert(t.tokens.end(), completion.tokens.begin(), completion.tokens.end());
  t.response_mask.assign(t.tokens.size(), 0);
  std::fill(t.response_mask.begin() + static_cast<std::ptrdiff_t>(prompt_ids.size()), t.response_mask.end(), 1);
  t.logprobs = completion.log_probs;
  t.version_runs = {{version, completion.tokens.size()}};
  t.oldest_version = version;
  t.reward = reward;
  t.metadata = prompt.metadata;
  return t;
}

std::string Generator::save() const {
  nlohmann::json versions = nlohmann::json::array();
  for (const Publication& publication : publications_) versions.push_back(publication.version.value);
  return nlohmann::json{{"groups", groups_}, {"rollouts", rollouts_}, {"versions", std::move(versions)}}.dump();
}

Status Generator::restore(std::string_view state) {
  try {
    const auto json = nlohmann::json::parse(state);
    groups_ = json.at("groups");
    rollouts_ = json.at("rollouts");
    publications_.clear();
    for (const auto& version : json.at("versions")) {
      publications_.push_back({Version{version.get<std::uint64_t>()}, {}});
    }
  } catch (const nlohmann::json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("generator: {}", error.what()));
  }
  if (!publications_.empty()) return {};
  return fail(Errc::kCorrupt, Op::kParse, "generator: no version");
}

void Generator::save_weights(Checkpoint& checkpoint) const {
  for (std::size_t i = 0; i < publications_.size(); ++i) {
    if (!publications_[i].weights.empty()) checkpoint.tensors[weights_file(i)] = publications_[i].weights;
  }
}

Status Generator::restore_weights(const Checkpoint& checkpoint) {
  for (std::size_t i = 0; i < publications_.size(); ++i) {
    const auto found = checkpoint.tensors.find(weights_file(i));
    if (found != checkpoint.tensors.end()) {
      publications_[i].weights = found->second;
    } else if (!is_learner()) {
      // The run that wrote it published each step at once. This one keeps what it publishes.
      publications_[i].weights = copy_weights(decoder_);
    }
  }
  drop_old();
  return set_behaviour();
}

}  // namespace weightcast
