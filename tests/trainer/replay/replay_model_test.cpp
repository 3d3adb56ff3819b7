// The buffer beside a model of what its header says, over random runs. The model keeps everything and looks it all over
// each time; it has none of the buffer's bookkeeping.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/random.h"
#include "tests/trainer/replay/replay_fixture.h"

namespace weightcast {
namespace {

enum class Fate { kBuffered, kGone };

struct ModelRollout {
  RolloutId id;
  std::string group;
  std::uint64_t version = 0;
  Fate fate = Fate::kBuffered;
};

/// What must be buffered, without bounds on memory.
class Model {
 public:
  explicit Model(const ReplayOptions& options) : options_(options) {}

  [[nodiscard]] std::uint64_t floor() const {
    std::uint64_t lag = options_.max_staleness.value_or(1'000'000);
    if (options_.async_generation_ratio) {
      lag = std::min(lag, static_cast<std::uint64_t>(std::ceil(*options_.async_generation_ratio)));
    }
    return learner_ > lag ? learner_ - lag : 0;
  }

  AdmissionOutcome arrive(const RolloutId& id, const std::string& group, std::uint64_t version) {
    if (version == 0 || version > learner_) return AdmissionOutcome::kRefused;
    if (std::ranges::any_of(members(group), [&](const ModelRollout* r) { return r->id == id; }) &&
        members(group).size() < options_.group_size) {
      return AdmissionOutcome::kDuplicate;
    }
    if (version < floor()) return AdmissionOutcome::kRefused;
    // Whoever began a rollout after its group was closed has opened another group.
    if (const auto closed = closed_.find(group); closed != closed_.end() && closed->second >= floor()) {
      return AdmissionOutcome::kRefused;
    }
    all_.push_back({id, group, version});
    if (members(group).size() == options_.group_size) close(group);
    return AdmissionOutcome::kAdmitted;
  }

  void step() {
    ++learner_;
    for (ModelRollout& one : all_) {
      if (one.fate != Fate::kBuffered || one.version >= floor()) continue;
      if (members(one.group).size() < options_.group_size) close(one.group);
      for (ModelRollout* member : members(one.group)) member->fate = Fate::kGone;
    }
  }

  void take(const std::string& group) {
    for (ModelRollout* member : members(group)) member->fate = Fate::kGone;
  }

  [[nodiscard]] std::vector<ModelRollout*> members(const std::string& group) {
    std::vector<ModelRollout*> found;
    for (ModelRollout& one : all_) {
      if (one.group == group && one.fate == Fate::kBuffered) found.push_back(&one);
    }
    return found;
  }

  [[nodiscard]] std::uint64_t buffered() const {
    return static_cast<std::uint64_t>(
        std::count_if(all_.begin(), all_.end(), [](const ModelRollout& r) { return r.fate == Fate::kBuffered; }));
  }
  [[nodiscard]] std::uint64_t learner() const { return learner_; }

 private:
  /// When it was closed first counts, until that is forgotten.
  void close(const std::string& group) {
    const auto [closed, is_new] = closed_.try_emplace(group, learner_);
    if (closed->second < floor()) closed->second = learner_;
  }

  ReplayOptions options_;
  std::uint64_t learner_ = 0;
  std::vector<ModelRollout> all_;
  std::map<std::string, std::uint64_t> closed_;  // and the learner's version then
};

ReplayOptions random_options(Random& random) {
  ReplayOptions options;
  options.group_size = random.between(1, 3);
  options.rollout_batch_size = options.group_size * random.between(1, 3);
  options.max_staleness = random.between(0, 4);
  if (random.chance(0.2)) options.max_staleness.reset();
  if (random.chance(0.5)) options.async_generation_ratio = static_cast<double>(random.between(0, 12)) / 4;
  options.order = static_cast<SampleOrder>(random.below(3));
  options.seed = random.next();
  options.rollouts_max = 1'000'000;
  return options;
}

RC_GTEST_PROP(ReplayModel, AdmitsDropsAndGivesWhatTheModelDoes, (std::uint64_t seed)) {
  Random random(seed);
  const ReplayOptions options = random_options(random);
  ReplayBuffer buffer(options, replay_rules());
  Model model(options);
  std::set<RolloutId> trained;
  std::map<RolloutId, std::pair<std::string, std::uint64_t>> sent_before;
  for (int event = 0; event < 300; ++event) {
    if (random.chance(0.1) || model.learner() == 0) {
      model.step();
      buffer.handle_step(Version{model.learner()});
      buffer.handle_published(Version{model.learner()});
    } else if (random.chance(0.15)) {
      const auto batch = buffer.take_batch(Instant());
      RC_ASSERT(batch.has_value() || buffer.supply() != Supply::kReady);
      if (!batch) continue;
      RC_ASSERT(batch->size() * options.group_size == options.rollout_batch_size);
      std::uint64_t lagging = 0;
      for (const RolloutGroup& group : *batch) {
        RC_ASSERT(group.rollouts.size() == options.group_size);
        RC_ASSERT(model.members(group.tag).size() == options.group_size);
        for (const Trajectory& t : group.rollouts) {
          RC_ASSERT(t.group == group.tag);
          RC_ASSERT(t.oldest_version.value >= model.floor());
          RC_ASSERT(trained.insert({t.worker, t.sequence}).second);
          lagging += t.oldest_version.value == model.floor() ? 1u : 0u;
        }
        model.take(group.tag);
      }
      if (const auto ratio = options.async_generation_ratio; ratio && *ratio > std::floor(*ratio)) {
        const auto lag = static_cast<std::uint64_t>(std::ceil(*ratio));
        const bool by_ratio = model.learner() >= lag && model.floor() == model.learner() - lag;
        const double part = (*ratio - std::floor(*ratio)) * static_cast<double>(options.rollout_batch_size);
        RC_ASSERT(!by_ratio || static_cast<double>(lagging) <= part);
      }
    } else {
      const RolloutId id{"w" + std::to_string(random.below(3)), random.below(100)};
      // A rollout that comes again is the same one.
      const std::uint64_t back = random.below(4);
      const auto [sent, first] = sent_before.try_emplace(id, "g" + std::to_string(random.below(40)),
                                                         model.learner() > back ? model.learner() - back : 0);
      const auto& [group, version] = sent->second;
      const Arrival got = buffer.handle_trajectory(Instant(), rollout(id.first, id.second, group, version));
      const AdmissionOutcome expected = model.arrive(id, group, version);
      RC_ASSERT(got.admission == expected);
    }
    RC_ASSERT(buffer.buffered() == model.buffered());
    check_accounts(buffer);
  }
}

RC_GTEST_PROP(ReplayModel, StaysWithinItsBoundsAndNeverGetsStuck, (std::uint64_t seed)) {
  Random random(seed);
  ReplayOptions options = random_options(random);
  options.rollouts_max = options.rollout_batch_size + random.below(4);
  options.max_staleness = random.between(1, 3);
  options.closed_groups_max = 5;
  ReplayBuffer buffer(options, replay_rules());
  Instant now{};
  std::uint64_t sequence = 0, version = 1;
  buffer.handle_step(Version{version});
  buffer.handle_published(Version{version});
  for (int batch = 0; batch < 10; ++batch) {
    // However the pieces arrive, whole groups of the newest version must end in a batch.
    for (std::uint64_t i = random.below(20); i > 0; --i) {
      const auto piece = "piece" + std::to_string(random.below(30));
      (void)buffer.handle_trajectory(now, rollout("w", sequence += random.between(1, 3), piece,
                                                  version - random.below(std::min<std::uint64_t>(version, 3))));
      RC_ASSERT(buffer.buffered() <= options.rollouts_max);
    }
    int groups = 0;
    while (buffer.supply() != Supply::kReady) {
      RC_ASSERT(++groups < 100);
      const auto whole = "whole" + std::to_string(sequence);
      for (std::uint64_t i = 0; i < options.group_size; ++i) {
        (void)buffer.handle_trajectory(now, rollout("w", ++sequence, whole, version));
        RC_ASSERT(buffer.buffered() <= options.rollouts_max);
      }
    }
    RC_ASSERT(buffer.take_batch(Instant()).has_value());
    check_accounts(buffer);
    ++version;
    buffer.handle_step(Version{version});
    buffer.handle_published(Version{version});
    now += std::chrono::seconds(random.below(1000));
  }
}

}  // namespace
}  // namespace weightcast
