// BackendCore's decisions under any order of events.
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/random.h"
#include "tests/worker/backend/backend_core_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Kind = BackendAction::Kind;

/// A core, and a server in simulated time: it answers, refuses, dies, comes back without what it had.
class Schedule {
 public:
  explicit Schedule(std::uint64_t seed) : random_(seed) { options_.drain_time_max = 2s; }
  virtual ~Schedule() = default;

  void run() {
    core_.emplace(options_);
    for (int step = 0; step < 5000; ++step) {
      const bool is_calm = step > 450;
      if (is_calm && (open_.empty() || published_ == 0)) break;
      now_ += is_calm ? Duration(1s) : random_.duration(1ms, 300ms);
      switch (random_.below(8)) {
        case 0:
          if (!is_calm || publishes_in_calm(step)) core_->handle_published({1, Version{++published_}});
          break;
        case 1:
          if (!is_calm) {
            EngineRequest request;
            request.prompt = {1};
            open_.insert(core_->add(request).value());
          }
          break;
        case 2:
        case 3:
          if (!answering_.empty()) answer_one();
          break;
        case 4:
          if (control_) finish(*std::exchange(control_, std::nullopt), is_calm ? 9 : random_.below(10));
          break;
        case 5:
          if (!is_calm && random_.chance(0.1)) {
            is_up_ = random_.chance(0.5);
            forget();
            while (!answering_.empty()) lose(answering_.begin()->first, Errc::kClosed);
          }
          break;
        case 6:
          if (is_calm || random_.chance(0.3)) is_up_ = true;
          break;
        default:
          if (!is_calm && !open_.empty() && random_.chance(0.2)) {
            ASSERT_TRUE(core_->abort(*open_.begin()).has_value());
          }
      }
      drain();
      if (testing::Test::HasFatalFailure()) return;
    }
    // Whatever happened, all is well in the end.
    if (published_ > 0) {
      EXPECT_TRUE(open_.empty()) << open_.size() << " requests have not ended, " << ended_ << " have";
    }
  }

 protected:
  /// The version under which a server that is up begins to answer; absent if it has not the one asked for.
  [[nodiscard]] virtual std::optional<VersionName> begins_under(const BackendAction& send) const = 0;
  /// The version that really samples an answer that began under `begun`.
  [[nodiscard]] virtual Version sampled_under(VersionName begun) const = 0;
  [[nodiscard]] virtual bool publishes_in_calm(int) const { return false; }
  [[nodiscard]] virtual bool answers_say_versions() const { return false; }
  /// The server loses what it has.
  virtual void forget() = 0;
  /// `fate`, below 10, says how an action ends that is no answer.
  virtual void finish(const BackendAction& done, std::uint64_t fate) = 0;

  Random random_;
  BackendCoreOptions options_;
  std::optional<BackendCore> core_;
  Instant now_{1h};
  bool is_up_ = true;
  std::map<RequestId, VersionName> answering_;  // under which version it began

 private:
  void lose(RequestId id, Errc code) {
    answering_.erase(id);
    core_->handle_answer(now_, id, error(code));
  }
  void answer_one() {
    auto one = answering_.begin();
    std::advance(one, static_cast<std::ptrdiff_t>(random_.below(answering_.size())));
    const auto [id, begun] = *one;
    const Version version = sampled_[id] = sampled_under(begun);
    answering_.erase(one);
    core_->handle_answer(now_, id, answer_of(2, answers_say_versions() ? version : kNoVersion));
  }
  void drain() {
    while (const auto action = core_->poll_action(now_)) {
      const RequestId id = action->request;
      if (action->kind == Kind::kSend) {
        const std::optional<VersionName> begun = begins_under(*action);
        if (is_up_ && begun) {
          answering_[id] = *begun;
        } else {
          core_->handle_answer(now_, id, error(is_up_ ? Errc::kBusy : Errc::kIo));
        }
      } else if (action->kind == Kind::kCancel) {
        if (answering_.contains(id)) lose(id, Errc::kCancelled);
      } else {
        ASSERT_FALSE(control_);
        control_ = action;
      }
    }
    for (const EngineEvent& event : core_->take_events()) {
      ASSERT_EQ(open_.erase(event.id), 1u);
      ++ended_;
      for (const EngineToken& token : event.tokens) {
        ASSERT_EQ(token.version, sampled_.at(event.id)) << "a token of another version";
      }
    }
  }

  std::optional<BackendAction> control_;
  std::set<RequestId> open_;
  std::map<RequestId, Version> sampled_;  // the version that really sampled the answer that came last
  std::uint64_t published_ = 0, ended_ = 0;
};

/// A server with one set of weights.
class WeightsSchedule final : public Schedule {
 public:
  explicit WeightsSchedule(std::uint64_t seed) : Schedule(seed) {
    options_.running_max = 4;
    options_.says_versions = random_.chance(0.5);
    options_.on_switch = options_.says_versions && random_.chance(0.5) ? BackendSwitch::kKeep
                         : random_.chance(0.5)                         ? BackendSwitch::kWait
                                                                       : BackendSwitch::kRestart;
  }

 private:
  std::optional<VersionName> begins_under(const BackendAction&) const override { return VersionName{1, weights_}; }
  // With an answer that goes on, the simulated server restarts it under its new weights.
  Version sampled_under(VersionName begun) const override {
    return options_.on_switch == BackendSwitch::kKeep ? weights_ : begun.version;
  }
  bool answers_say_versions() const override { return options_.says_versions; }
  void forget() override { weights_ = kNoVersion; }
  void finish(const BackendAction& done, std::uint64_t fate) override {
    if (done.kind == Kind::kCheck) {
      return core_->handle_checked(now_, is_up_ ? Result<Version>(weights_) : error(Errc::kTimedOut));
    }
    if (done.kind == Kind::kRestore) {
      ASSERT_FALSE(core_->version()) << "it is told to drop a version that answers count under";
      if (is_up_) weights_ = kNoVersion;
      return core_->handle_restored(now_, is_up_ ? Status() : error(Errc::kIo));
    }
    ASSERT_EQ(done.kind, Kind::kInstall);
    if (!is_up_ || fate == 0) return core_->handle_installed(now_, done.version, error(Errc::kIo));
    if (fate == 3 && done.is_anew) return core_->handle_unready(now_, done.version, error(Errc::kInvalidArgument));
    weights_ = fate == 1 ? kNoVersion : done.version.version;  // 1: half written
    if (fate == 1) return core_->handle_installed(now_, done.version, error(Errc::kBusy));
    if (fate == 2) return core_->handle_installed(now_, done.version, error(Errc::kTimedOut));
    core_->handle_installed(now_, done.version, weights_);
  }

  Version weights_{};  // what it generates under
};

/// A server with places for adapters.
class AdaptersSchedule final : public Schedule {
 public:
  explicit AdaptersSchedule(std::uint64_t seed) : Schedule(seed) {
    options_.running_max = 5;
    options_.adapters_max = 2 + random_.below(3);
    options_.says_versions = random_.chance(0.5);
    options_.on_switch = random_.chance(0.5) ? BackendSwitch::kWait : BackendSwitch::kRestart;
  }

 private:
  std::optional<VersionName> begins_under(const BackendAction& send) const override {
    return adapters_.contains(send.version) ? std::optional(send.version) : std::nullopt;
  }
  Version sampled_under(VersionName begun) const override { return begun.version; }
  // One comes after the trouble, so that there is one that nobody has refused.
  bool publishes_in_calm(int step) const override { return step % 50 == 0; }
  void forget() override { adapters_.clear(); }
  void finish(const BackendAction& done, std::uint64_t fate) override {
    const bool is_lost = !is_up_ || fate == 0;
    if (done.kind == Kind::kCheck) {
      const VersionName last = core_->last_installed().value();
      if (is_lost) return core_->handle_checked(now_, error(Errc::kTimedOut));
      return core_->handle_checked(now_, adapters_.contains(last) ? last.version : kNoVersion);
    }
    if (done.kind == Kind::kUnload) {
      for (const auto& [id, name] : answering_) ASSERT_NE(name, done.version) << "a call names it";
      if (is_lost) return core_->handle_unloaded(now_, done.version, error(Errc::kTimedOut));
      adapters_.erase(done.version);
      return core_->handle_unloaded(now_, done.version, fate == 1 ? error(Errc::kInvalidArgument) : Status());
    }
    ASSERT_EQ(done.kind, Kind::kInstall);
    if (is_lost) return core_->handle_installed(now_, done.version, error(Errc::kIo));
    if (fate == 1) return core_->handle_installed(now_, done.version, error(Errc::kInvalidArgument));
    if (fate == 3 && done.is_anew) return core_->handle_unready(now_, done.version, error(Errc::kUnsupported));
    if (fate == 4) return core_->handle_skipped(now_, done.version, error(Errc::kNotFound));
    adapters_.insert(done.version);
    ASSERT_LE(adapters_.size(), options_.adapters_max);
    if (fate == 2) return core_->handle_installed(now_, done.version, error(Errc::kTimedOut));
    core_->handle_installed(now_, done.version, done.version.version);
  }

  std::set<VersionName> adapters_;
};

template <typename OneSchedule>
void run_all() {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    OneSchedule(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

TEST(BackendCoreSchedules, NoTokenHasAnotherVersionThanSampledIt) { run_all<WeightsSchedule>(); }
TEST(BackendCoreSchedules, EachTokenHasTheAdapterThatSampledItAndNoneIsUnloadedUnderACall) {
  run_all<AdaptersSchedule>();
}

}  // namespace
}  // namespace weightcast
