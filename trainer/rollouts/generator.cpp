#include "trainer/rollouts/generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/draws.h"
#include "base/json_text.h"
#include "trainer/update/policy.h"
#include "worker/rollout/prompts.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kAttempts = 3;

std::string weights_file(std::size_t index) { return fmt::format("behaviour-{}.safetensors", index); }

}  // namespace

Generator::Generator(const Decoder& decoder, std::shared_ptr<const Task> task, const PromptCodec& codec,
                     RewardPool& rewards, const LearnerConfig& config, GeneratorLags lags, RunIdentity identity,
                     std::function<Status()> check)
    : decoder_(decoder),
      task_(std::move(task)),
      codec_(codec),
      rewards_(rewards),
      config_(config),
      lags_(std::move(lags)),
      identity_(std::move(identity)),
      check_(std::move(check)),
      prompts_(*task_, config.seed, config.eval_interval > 0 ? config.eval_prompts : 0) {}

std::size_t Generator::publication_at(Version learner, std::uint64_t lag) const {
  const Version newest{learner.value - std::min(lag, learner.value)};
  const auto after = std::ranges::upper_bound(publications_, newest, {}, &Publication::version);
  return after == publications_.begin() ? 0 : static_cast<std::size_t>(after - publications_.begin()) - 1;
}

Result<const Decoder*> Generator::sampler(const Publication& publication) {
  if (publication.weights.empty()) return &decoder_;
  if (!behaviour_) {
    WC_ASSIGN(behaviour_, twin_of(decoder_));
  }
  if (behaving_ != publication.version) {
    WC_TRY(set_weights(*behaviour_, publication.weights));
    behaving_ = publication.version;
  }
  return &*behaviour_;
}

void Generator::handle_published(Version version) {
  publications_.push_back({version, is_learner() ? std::vector<StoredTensor>() : copy_weights(decoder_)});
  drop_old();
}

void Generator::handle_renumbered(std::uint64_t shift) {
  for (Publication& publication : publications_) publication.version.value += shift;
  behaving_.reset();
}

bool Generator::is_learner() const { return config_.publish_interval == 1 && lags_.most() == 0; }

void Generator::drop_old() {
  if (publications_.empty()) return;
  const std::size_t first = publication_at(publications_.back().version, lags_.most());
  publications_.erase(publications_.begin(), publications_.begin() + static_cast<std::ptrdiff_t>(first));
  if (!publications_.back().weights.empty()) return;
  behaviour_.reset();
  behaving_.reset();
}

Result<bool> Generator::fill(Instant now, SharedReplayBuffer& buffer) {
  const std::uint64_t missing = config_.rollout_batch_size - std::min(config_.rollout_batch_size, buffer->buffered());
  const std::uint64_t groups = std::clamp<std::uint64_t>(
      missing / config_.group_size, 1, std::max<std::uint64_t>(1, config_.generator_batch_size / config_.group_size));
  const Version learner = buffer->learner();
  std::vector<EpisodeRequest> requests;
  for (std::uint64_t group = groups_; group < groups_ + groups; ++group) {
    const std::uint64_t index = prompts_.training_index(group);
    for (std::uint64_t member = 0; member < config_.group_size; ++member) {
      requests.push_back({index, sampling_seed(config_.seed, config_.group_size, group, member), group});
    }
  }
  WC_ASSIGN(std::vector<PlayedEpisode> played, play(learner, requests));
  const auto failed =
      std::ranges::find_if(played, [](const PlayedEpisode& episode) { return !episode.failure.empty(); });
  std::vector<Trajectory> made;
  for (std::uint64_t group = 0; group < groups; ++group) {
    const std::span<PlayedEpisode> members(&played[group * config_.group_size], config_.group_size);
    // Rewards are compared within whole groups.
    if (std::ranges::any_of(members, [](const PlayedEpisode& e) { return !e.failure.empty(); })) continue;
    for (std::uint64_t member = 0; member < config_.group_size; ++member) {
      Trajectory& t = made.emplace_back(std::move(members[member].rollout));
      t.worker = "generator";
      t.sequence = (groups_ + group) * config_.group_size + member;
    }
  }
  if (made.empty()) {
    return fail(Errc::kInvalidArgument, Op::kVerify,
                fmt::format("no group of {} has all of its rewards: {}", groups, failed->failure));
  }
  // Nothing has changed until here, so a fill that fails can be repeated.
  groups_ += groups;
  for (Trajectory& trajectory : made) {
    const Arrival arrival = buffer->handle_trajectory(now, std::move(trajectory));
    const bool is_drawn_too_old = arrival.admission == AdmissionOutcome::kRefused && arrival.reason == "stale";
    if (arrival.admission == AdmissionOutcome::kAdmitted || is_drawn_too_old) continue;
    return fail(Errc::kInvalidArgument, Op::kVerify,
                fmt::format("the buffer does not take the generator's rollout: {} {}", arrival.reason, arrival.detail));
  }
  return true;
}

Result<std::vector<PlayedEpisode>> Generator::play(Version learner, std::span<const EpisodeRequest> requests) {
  std::map<std::size_t, std::vector<std::size_t>> members;  // by place of their publication
  for (std::size_t i = 0; i < requests.size(); ++i) {
    members[publication_at(learner, lags_.of_group(config_.seed, requests[i].group))].push_back(i);
  }
  std::vector<PlayedEpisode> played(requests.size());
  for (const auto& [place, indices] : members) {
    std::vector<EpisodeRequest> of_publication;
    for (const std::size_t i : indices) of_publication.push_back(requests[i]);
    WC_ASSIGN(std::vector<PlayedEpisode> episodes, play(publications_[place], of_publication));
    for (std::size_t i = 0; i < indices.size(); ++i) played[indices[i]] = std::move(episodes[i]);
  }
  return played;
}

Result<std::vector<PlayedEpisode>> Generator::play(const Publication& publication,
                                                   std::span<const EpisodeRequest> requests) {
  WC_ASSIGN(const Decoder* decoder, sampler(publication));
  EpisodeOptions options = episode_options(config_);
  options.version = publication.version;
  options.identity = identity_;
  CompletionOptions sampling = completion_options(config_, codec_, config_.temperature, config_.top_p);
  sampling.check = check_;
  WC_ASSIGN(Completer completer, Completer::make(*decoder, std::move(sampling)));
  WC_ASSIGN(std::vector<PlayedEpisode> played, play_episodes(completer, task_, codec_, rewards_, requests, options));
  for (std::uint64_t attempt = 1; attempt < kAttempts; ++attempt) {
    std::vector<std::size_t> failed;
    std::vector<EpisodeRequest> again;
    for (std::size_t i = 0; i < played.size(); ++i) {
      if (played[i].failure.empty()) continue;
      failed.push_back(i);
      again.push_back({requests[i].index, attempt_seed(requests[i].seed, attempt), requests[i].group});
    }
    if (failed.empty()) break;
    unrewarded_ += failed.size();
    WC_ASSIGN(std::vector<PlayedEpisode> others, play_episodes(completer, task_, codec_, rewards_, again, options));
    for (std::size_t i = 0; i < failed.size(); ++i) played[failed[i]] = std::move(others[i]);
  }
  for (const PlayedEpisode& episode : played) unrewarded_ += episode.failure.empty() ? 0 : 1;
  return played;
}

std::string Generator::save() const {
  nlohmann::json versions = nlohmann::json::array();
  for (const Publication& publication : publications_) versions.push_back(publication.version.value);
  return nlohmann::json{{"groups", groups_}, {"unrewarded", unrewarded_}, {"versions", std::move(versions)}}.dump();
}

Status Generator::restore(std::string_view state) {
  try {
    const auto json = parse_json(state);
    const auto groups = natural_of(json.at("groups"));
    const auto unrewarded = natural_of(json.value("unrewarded", nlohmann::json(0U)));
    if (!groups || !unrewarded) return fail(Errc::kCorrupt, Op::kParse, "generator: a count is none");
    groups_ = *groups;
    unrewarded_ = *unrewarded;
    publications_.clear();
    for (const auto& version : json.at("versions")) {
      const auto number = natural_of(version);
      if (!number || (!publications_.empty() && publications_.back().version.value >= *number)) {
        return fail(Errc::kCorrupt, Op::kParse, "generator: its versions do not ascend");
      }
      publications_.push_back({Version{*number}, {}});
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
  behaving_.reset();
  return {};
}

}  // namespace weightcast
