// A simulated day: a learner, workers, and a network that loses, repeats and reorders. Workers send
// again what was not answered, and the learner goes on from its checkpoint and what it has acknowledged since.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"
#include "tests/trainer/replay/replay_fixture.h"

namespace weightcast {
namespace {

constexpr Duration kSecond = std::chrono::seconds(1);
constexpr std::size_t kWorkers = 20;

struct Sent {
  std::size_t worker = 0;
  Trajectory rollout;
};

/// What the trainer did between two checkpoints, in order: a rollout that it acknowledged, or a step.
struct JournalEntry {
  Instant at{};
  std::optional<Trajectory> rollout;
};

class Day {
 public:
  explicit Day(std::uint64_t seed) : random_(seed), buffer_(options(), replay_rules()) {
    buffer_.handle_step(Version{1});
    buffer_.handle_published(Version{1});
    checkpoint();
  }

  static ReplayOptions options() {
    ReplayOptions options;
    options.group_size = 4;
    options.rollout_batch_size = 16;
    options.max_staleness = 3;
    options.rollouts_max = 64;
    options.group_time_max = std::chrono::minutes(5);
    return options;
  }

  void run() {
    const Instant end = now_ + std::chrono::hours(24);
    while (now_ < end) {
      now_ += kSecond;
      for (std::size_t w = 0; w < kWorkers; ++w) work(w);
      deliver();
      if (random_.chance(1.0 / 30)) step();
      if (random_.chance(1.0 / 600)) checkpoint();
      if (random_.chance(1.0 / 5000)) restart_learner();
      if (random_.chance(1.0 / 500)) workers_[random_.below(kWorkers)].sent_until = 0;  // it sends all of it again
    }
  }

  void check() const {
    // Nothing trained on twice, nothing beyond S; both were looked at step by step. Nothing acknowledged is lost:
    const ReplayStats& stats = buffer_.stats();
    EXPECT_EQ(stats.admitted, acknowledged_.size());
    EXPECT_EQ(stats.taken, trained_.size());
    check_accounts(buffer_);
    for (const RolloutId& id : trained_) EXPECT_EQ(acknowledged_.count(id), 1u);
    // The day was worth its name.
    EXPECT_GT(stats.taken, 20'000u);
    EXPECT_GT(stats.duplicates, 100u);
    EXPECT_GT(stats.given_up, 100u);
    EXPECT_GT(stats.full, 100u);
    EXPECT_GT(stats.refused.at("stale"), 100u);
    EXPECT_GT(restarts_, 5);
    EXPECT_EQ(violations_, 0);
  }

  [[nodiscard]] const ReplayBuffer& buffer() const { return buffer_; }
  [[nodiscard]] const std::set<RolloutId>& trained() const { return trained_; }

 private:
  struct Worker {
    std::uint64_t next = 1;
    std::map<std::uint64_t, Trajectory> unanswered;  // not acknowledged
    std::uint64_t sent_until = 0;
  };

  void work(std::size_t w) {
    Worker& worker = workers_[w];
    if (random_.chance(0.05) && worker.unanswered.size() < 20) {
      // Its version is that of some seconds ago, and it is slow at times.
      const std::uint64_t lag = random_.chance(0.05) ? random_.below(6) : random_.below(3);
      const std::uint64_t learner = buffer_.learner().value;
      const std::string group = "g" + std::to_string(groups_ / Day::options().group_size);
      if (!random_.chance(0.02)) ++groups_;  // a worker died with the rollout
      worker.unanswered.emplace(
          worker.next, rollout("w" + std::to_string(w), worker.next, group, learner > lag ? learner - lag : 1));
      ++worker.next;
    }
    for (const auto& [sequence, t] : worker.unanswered) {
      // Once, and then again until somebody answers.
      if (sequence <= worker.sent_until && !random_.chance(0.05)) continue;
      worker.sent_until = std::max(worker.sent_until, sequence);
      for (int copies = random_.chance(0.05) ? 2 : 1; copies > 0; --copies) {
        if (random_.chance(0.1)) continue;
        network_.emplace(now_ + random_.duration(Duration(0), 20 * kSecond), Sent{w, t});
      }
    }
  }

  void deliver() {
    while (!network_.empty() && network_.begin()->first <= now_) {
      const Sent sent = std::move(network_.begin()->second);
      network_.erase(network_.begin());
      const Arrival arrival = buffer_.handle_trajectory(now_, sent.rollout);
      if (arrival.admission == AdmissionOutcome::kFull) continue;
      if (arrival.admission == AdmissionOutcome::kAdmitted) {
        // On disk before the reply: this is what an acknowledgement means.
        journal_.push_back({now_, sent.rollout});
        if (!acknowledged_.insert({sent.rollout.worker, sent.rollout.sequence}).second) ++violations_;
      }
      if (!random_.chance(0.1)) workers_[sent.worker].unanswered.erase(sent.rollout.sequence);
    }
  }

  void step() {
    if (buffer_.supply() != Supply::kReady) return;
    journal_.push_back({now_, std::nullopt});
    train(now_, false);
  }

  /// One training step. Again after a restart, when it must train on what it trained on before.
  void train(Instant now, bool again) {
    buffer_.handle_time(now);
    const auto batch = buffer_.take_batch(now);
    if (!batch) {
      ++violations_;
      return;
    }
    for (const RolloutGroup& group : *batch) {
      for (const Trajectory& t : group.rollouts) {
        const bool first = trained_.insert({t.worker, t.sequence}).second;
        const bool fresh = t.oldest_version.value + *options().max_staleness >= buffer_.learner().value;
        if (first == again || !fresh) ++violations_;
      }
    }
    const Version next{buffer_.learner().value + 1};
    buffer_.handle_step(next);
    buffer_.handle_published(next);
  }

  void checkpoint() {
    saved_ = buffer_.save(now_);
    saved_at_ = now_;
    journal_.clear();
  }

  void restart_learner() {
    ++restarts_;
    const ReplayBuffer before = buffer_;
    buffer_ = *ReplayBuffer::restore(options(), replay_rules(), *saved_, saved_at_);
    for (const JournalEntry& entry : journal_) {
      if (!entry.rollout) {
        train(entry.at, true);
        continue;
      }
      if (buffer_.handle_trajectory(entry.at, *entry.rollout).admission != AdmissionOutcome::kAdmitted) ++violations_;
    }
    if (buffer_.learner() != before.learner() || buffer_.buffered() != before.buffered()) ++violations_;
    // Nobody else knows what was counted while nothing was written.
    network_.clear();
  }

  Random random_;
  Instant now_{};
  ReplayBuffer buffer_;
  std::optional<std::string> saved_;
  Instant saved_at_{};
  std::vector<JournalEntry> journal_;
  std::multimap<Instant, Sent> network_;
  Worker workers_[kWorkers];
  std::uint64_t groups_ = 0;
  std::set<RolloutId> acknowledged_, trained_;
  int restarts_ = 0;
  int violations_ = 0;
};

TEST(ReplayDay, LosesNothingAcknowledgedAndCountsNothingTwice) {
  Day day(1);
  day.run();
  day.check();
}

TEST(ReplayDay, IsTheSameDayAgain) {
  Day one(2), other(2);
  one.run();
  other.run();
  one.check();
  EXPECT_EQ(one.buffer().stats(), other.buffer().stats());
  EXPECT_EQ(one.trained(), other.trained());
}

}  // namespace
}  // namespace weightcast
