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

/// A core, and a server in simulated time: it answers, follows, refuses, dies, comes back without what it had.
class Schedule {
 public:
  explicit Schedule(std::uint64_t seed) : random_(seed), says_versions_(random_.chance(0.5)) {
    options_.running_max = 4;
    options_.drain_time_max = 2s;
    options_.is_told = !says_versions_ && random_.chance(0.5);
    core_.emplace(options_);
  }

  void run() {
    for (int step = 0; step < 5000; ++step) {
      const bool is_calm = step > 450;
      if (is_calm && open_.empty()) break;
      now_ += is_calm ? Duration(1s) : random_.duration(1ms, 300ms);
      is_calm ? act(true, random_.below(4)) : act(false, random_.below(8));
      drain();
      if (testing::Test::HasFatalFailure()) return;
    }
    if (published_ == 0) return;
    EXPECT_TRUE(open_.empty()) << open_.size() << " requests have not ended";
  }

 private:
  void act(bool is_calm, std::uint64_t what) {
    switch (what) {
      case 0:
        is_up_ = is_up_ || is_calm || random_.chance(0.3);
        // It may hear of a version before the worker does.
        if (is_up_ && !options_.is_told) server_ = Version{published_ + random_.below(is_calm ? 1 : 2)};
        break;
      case 1:
      case 2:
        if (!answering_.empty()) answer_one();
        break;
      case 3:
        if (control_) finish(*std::exchange(control_, std::nullopt));
        break;
      case 4: core_->handle_published(now_, {1, Version{++published_}}); break;
      case 5: {
        EngineRequest request;
        request.prompt = {1};
        open_.insert(core_->add(request).value());
        break;
      }
      case 6:
        if (!random_.chance(0.1)) break;
        is_up_ = random_.chance(0.5);
        server_ = kNoVersion;
        while (!answering_.empty()) lose(answering_.begin()->first, Errc::kClosed);
        break;
      default:
        if (open_.empty() || !random_.chance(0.2)) break;
        ASSERT_TRUE(core_->abort(*open_.begin()).has_value());
    }
  }
  void lose(RequestId id, Errc code) {
    answering_.erase(id);
    core_->handle_answer(now_, id, error(code));
  }
  void answer_one() {
    auto one = answering_.begin();
    std::advance(one, static_cast<std::ptrdiff_t>(random_.below(answering_.size())));
    const auto [id, begun] = *one;
    answering_.erase(one);
    sampled_[id] = server_;
    // As Backend asks after an answer that says no version.
    core_->handle_answer(now_, id, answer_of(2, says_versions_ || server_ == begun ? server_ : kNoVersion));
  }
  void finish(const BackendAction& done) {
    if (done.kind == Kind::kAsk) {
      return core_->handle_asked(now_, is_up_ ? Result<Version>(server_) : error(Errc::kTimedOut));
    }
    if (!is_up_) return core_->handle_installed(now_, done.version, error(Errc::kIo));
    const bool fails = random_.chance(0.2);
    server_ = fails ? kNoVersion : done.version.version;
    core_->handle_installed(now_, done.version, fails ? error(Errc::kBusy) : Status());
  }
  void drain() {
    while (const auto action = core_->poll_action(now_)) {
      const RequestId id = action->request;
      if (action->kind == Kind::kSend && is_up_) {
        answering_[id] = action->version.version;
      } else if (action->kind == Kind::kSend) {
        core_->handle_answer(now_, id, error(Errc::kIo));
      } else if (action->kind == Kind::kCancel) {
        if (answering_.contains(id)) lose(id, Errc::kCancelled);
      } else {
        ASSERT_FALSE(control_);
        ASSERT_TRUE(action->kind != Kind::kInstall || answering_.empty());
        control_ = action;
      }
    }
    for (const EngineEvent& event : core_->take_events()) {
      ASSERT_EQ(open_.erase(event.id), 1u);
      for (const EngineToken& token : event.tokens) {
        ASSERT_EQ(token.version, sampled_.at(event.id)) << "a token of another version";
        ASSERT_LE(token.version.value, published_) << "of a version that the daemon does not have";
      }
    }
  }

  Random random_;
  const bool says_versions_;
  BackendCoreOptions options_;
  std::optional<BackendCore> core_;
  Instant now_{1h};
  bool is_up_ = true;
  Version server_{};                        // what it generates under
  std::map<RequestId, Version> answering_;  // the version that the core knew when it began
  std::map<RequestId, Version> sampled_;    // the one that really sampled the answer that came last
  std::optional<BackendAction> control_;
  std::set<RequestId> open_;
  std::uint64_t published_ = 0;
};

TEST(BackendCoreSchedules, NoTokenHasAnotherVersionThanSampledIt) {
  for (std::uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    Schedule(seed).run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace weightcast
