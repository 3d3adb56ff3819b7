#include "worker/backend/backend_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/random.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Kind = BackendAction::Kind;

constexpr VersionName kOne{1, Version{1}}, kTwo{1, Version{2}};

BackendAnswer answer_of(std::size_t tokens, Version version = kNoVersion) {
  BackendAnswer answer;
  answer.tokens.assign(tokens, {.token = 7, .log_prob = -1, .version = version, .top = {}});
  return answer;
}
std::vector<BackendAction> installs(VersionName version, bool is_anew) {
  return {{.kind = Kind::kInstall, .version = version, .is_anew = is_anew}};
}
Error error(Errc code) { return fail(code, Op::kReceive, "so it is"); }

/// One core, and what it asked for.
class BackendCoreTest : public testing::Test {
 protected:
  void make() { core_.emplace(options_); }
  std::vector<BackendAction> poll() {
    std::vector<BackendAction> actions;
    while (const auto action = core_->poll_action(now_)) actions.push_back(*action);
    return actions;
  }
  std::vector<Kind> kinds() {
    std::vector<Kind> kinds;
    for (const BackendAction& action : poll()) kinds.push_back(action.kind);
    return kinds;
  }
  RequestId add(std::uint64_t tag = 0) {
    EngineRequest request;
    request.prompt = {1, 2};
    request.tag = tag;
    return core_->add(request).value();
  }
  /// Serves version 1.
  void serve() {
    make();
    core_->handle_published(kOne);
    ASSERT_EQ(poll(), installs(kOne, true));
    core_->handle_installed(now_, kOne, kOne.version);
    ASSERT_EQ(core_->version(), Version{1});
  }
  std::string lines() {
    std::string all;
    while (const auto line = core_->poll_line()) all += *line + "\n";
    return all;
  }

  BackendCoreOptions options_;
  std::optional<BackendCore> core_;
  Instant now_{1h};
};

TEST_F(BackendCoreTest, SendsNothingBeforeAVersionIsInstalled) {
  make();
  add();
  EXPECT_TRUE(poll().empty());
  core_->handle_published(kOne);
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
  EXPECT_FALSE(core_->version());
  core_->handle_installed(now_, kOne, kOne.version);
  EXPECT_EQ(kinds(), std::vector{Kind::kSend});
}

TEST_F(BackendCoreTest, AnAnswerCountsWhenTheVersionIsFoundAfterIt) {
  serve();
  const RequestId first = add(1), second = add(2);
  EXPECT_EQ(kinds(), (std::vector{Kind::kSend, Kind::kSend}));
  core_->handle_answer(now_, first, answer_of(3));
  EXPECT_EQ(kinds(), std::vector{Kind::kCheck});
  core_->handle_answer(now_, second, answer_of(2));  // after the check began
  core_->handle_checked(now_, Version{1});
  const auto events = core_->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tag, 1u);
  EXPECT_EQ(events[0].tokens.size(), 3u);
  EXPECT_EQ(events[0].tokens[0].version, Version{1});
  EXPECT_EQ(kinds(), std::vector{Kind::kCheck});
  core_->handle_checked(now_, Version{1});
  EXPECT_EQ(core_->take_events().size(), 1u);
}

TEST_F(BackendCoreTest, AServerThatForgotItsVersionAnswersInVain) {
  serve();
  const RequestId id = add();
  poll();
  core_->handle_answer(now_, id, answer_of(3));
  poll();
  core_->handle_checked(now_, kNoVersion);
  EXPECT_TRUE(core_->take_events().empty());
  EXPECT_THAT(lines(), HasSubstr("forgotten version 1"));
  EXPECT_EQ(poll(), installs(kOne, true));
  core_->handle_installed(now_, kOne, kOne.version);
  EXPECT_EQ(poll(), (std::vector<BackendAction>{{.kind = Kind::kSend, .request = id}})) << "and it is asked again";
  EXPECT_THAT(lines(), HasSubstr("well again"));
}

TEST_F(BackendCoreTest, WaitsForAnswersBeforeItInstalls) {
  serve();
  const RequestId id = add();
  poll();
  core_->handle_published(kTwo);
  add();
  EXPECT_TRUE(poll().empty()) << "nothing new begins";
  core_->handle_answer(now_, id, answer_of(3));
  EXPECT_EQ(kinds(), std::vector{Kind::kCheck}) << "who knows afterwards";
  core_->handle_checked(now_, Version{1});
  ASSERT_EQ(core_->take_events().size(), 1u);
  EXPECT_EQ(poll(), installs(kTwo, false));
  core_->handle_installed(now_, kTwo, kTwo.version);
  EXPECT_EQ(core_->version(), Version{2});
  EXPECT_EQ(kinds(), std::vector{Kind::kSend});
}

TEST_F(BackendCoreTest, AnswersThatTakeTooLongBeginAnew) {
  options_.drain_time_max = 10s;
  serve();
  const RequestId id = add();
  poll();
  core_->handle_published(kTwo);
  EXPECT_TRUE(poll().empty());
  now_ += 10s;
  EXPECT_EQ(poll(), (std::vector<BackendAction>{{.kind = Kind::kCancel, .request = id}}));
  EXPECT_TRUE(poll().empty());
  core_->handle_answer(now_, id, error(Errc::kCancelled));
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
  core_->handle_installed(now_, kTwo, kTwo.version);
  EXPECT_EQ(poll(), (std::vector<BackendAction>{{.kind = Kind::kSend, .request = id}}));
}

TEST_F(BackendCoreTest, RestartsAnswersIfToldSo) {
  options_.on_switch = BackendSwitch::kRestart;
  serve();
  const RequestId id = add();
  poll();
  core_->handle_published(kTwo);
  EXPECT_EQ(poll(), (std::vector<BackendAction>{{.kind = Kind::kCancel, .request = id}}));
  core_->handle_answer(now_, id, answer_of(3));  // it came all the same
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
  EXPECT_TRUE(core_->take_events().empty());
}

TEST_F(BackendCoreTest, KeepsAnswersWhereTokensHaveVersions) {
  options_.on_switch = BackendSwitch::kKeep;
  options_.says_versions = true;
  serve();
  const RequestId id = add();
  poll();
  core_->handle_published(kTwo);
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
  BackendAnswer mixed = answer_of(2, Version{1});
  mixed.tokens.push_back(answer_of(1, Version{2}).tokens[0]);
  core_->handle_answer(now_, id, mixed);  // before the install's own answer
  EXPECT_TRUE(core_->take_events().empty()) << "nobody knows yet whether it is right";
  core_->handle_installed(now_, kTwo, kTwo.version);
  const auto events = core_->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tokens[2].version, Version{2});
  EXPECT_EQ(core_->version(), Version{2});
}

TEST_F(BackendCoreTest, AnAnswerUnderAVersionThatIsRefusedThenBeginsAnew) {
  options_.on_switch = BackendSwitch::kRecompute;
  options_.says_versions = true;
  serve();
  const RequestId early = add(1), plain = add(2);
  poll();
  core_->handle_published(kTwo);
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
  core_->handle_answer(now_, early, answer_of(3, Version{2}));
  core_->handle_answer(now_, plain, answer_of(3, Version{1}));
  core_->handle_installed(now_, kTwo, error(Errc::kInvalidArgument));
  const auto events = core_->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tag, 2u);
  now_ += 10s;
  EXPECT_EQ(poll(), installs(kOne, true));
  core_->handle_installed(now_, kOne, kOne.version);
  EXPECT_EQ(poll(), (std::vector<BackendAction>{{.kind = Kind::kSend, .request = early}}));
}

TEST_F(BackendCoreTest, ARefusedVersionIsFollowedByTheOneBefore) {
  serve();
  core_->handle_published(kTwo);
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
  core_->handle_installed(now_, kTwo, error(Errc::kInvalidArgument));
  EXPECT_FALSE(core_->version()) << "who knows what it has";
  EXPECT_TRUE(poll().empty()) << "at once";
  now_ += 1s;
  EXPECT_EQ(poll(), installs(kOne, true));
  core_->handle_installed(now_, kOne, kOne.version);
  EXPECT_EQ(core_->version(), Version{1});
  now_ += 1h;
  EXPECT_TRUE(poll().empty()) << "it is not tried again";
  EXPECT_THAT(lines(), HasSubstr("version 2: cannot receive: so it is; it is to use version 1 again"));
}

TEST_F(BackendCoreTest, AServerThatIsAwayIsAskedAgainAndLessAndLessOften) {
  make();
  core_->handle_published(kOne);
  Duration last{};
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
    core_->handle_installed(now_, kOne, error(Errc::kIo));
    const Instant then = now_;
    while (kinds().empty()) now_ += 10ms;
    EXPECT_GE(now_ - then, last);
    last = now_ - then;
    EXPECT_LE(last, 5s);
    core_->handle_installed(now_, kOne, error(Errc::kTimedOut));
    now_ += 5s;
  }
  EXPECT_EQ(last, 5s);
}

TEST_F(BackendCoreTest, AVersionThatCannotBeHadChangesNothing) {
  serve();
  core_->handle_published(kTwo);
  poll();
  core_->handle_skipped(now_, kTwo, error(Errc::kInvalidArgument));
  EXPECT_EQ(core_->version(), Version{1});
  add();
  EXPECT_EQ(kinds(), std::vector{Kind::kSend});
  EXPECT_THAT(lines(), HasSubstr("version 2 is not used"));
}

TEST_F(BackendCoreTest, RequestsWaitWhileTheServerIsAway) {
  serve();
  const RequestId id = add();
  poll();
  for (int i = 0; i < 50; ++i) {
    core_->handle_answer(now_, id, error(Errc::kIo));
    EXPECT_TRUE(core_->take_events().empty());
    EXPECT_TRUE(poll().empty());
    now_ += 5s;
    EXPECT_EQ(kinds(), std::vector{Kind::kCheck});
    core_->handle_checked(now_, Version{1});
    EXPECT_EQ(kinds(), std::vector{Kind::kSend});
  }
}

TEST_F(BackendCoreTest, ARequestThatTheServerBreaksOnFailsInTheEnd) {
  serve();
  const RequestId id = add(9);
  poll();
  for (std::uint32_t i = 1; i <= options_.attempts_max; ++i) {
    core_->handle_answer(now_, id, error(Errc::kClosed));
    if (i == options_.attempts_max) break;
    now_ += 5s;
    EXPECT_EQ(kinds(), std::vector{Kind::kCheck});
    core_->handle_checked(now_, Version{1});
    EXPECT_EQ(kinds(), std::vector{Kind::kSend});
  }
  const auto events = core_->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finished, FinishReason::kFailed);
  EXPECT_THAT(events[0].failure, HasSubstr("tried 5 times"));
}

TEST_F(BackendCoreTest, NonsenseFailsAtOnce) {
  serve();
  const RequestId id = add();
  poll();
  core_->handle_answer(now_, id, error(Errc::kCorrupt));
  ASSERT_EQ(core_->take_events().size(), 1u);
  EXPECT_TRUE(poll().empty());
}

TEST_F(BackendCoreTest, AbortsWhereverTheRequestIs) {
  options_.running_max = 2;
  serve();
  const RequestId sent = add(1), answered = add(2), waiting = add(3);
  poll();
  core_->handle_answer(now_, answered, answer_of(1));
  for (const RequestId id : {sent, answered, waiting}) EXPECT_TRUE(core_->abort(id).has_value());
  EXPECT_FALSE(core_->abort(sent).has_value());
  EXPECT_EQ(core_->take_events().size(), 3u);
  EXPECT_EQ(core_->open(), 0u);
  core_->handle_answer(now_, sent, answer_of(1));
  EXPECT_TRUE(core_->take_events().empty());
}

/// A server in simulated time: it answers, refuses, dies, comes back without its weights, and is told by others.
struct ScriptedServer {
  Version weights{};  // what it generates under
  bool is_up = true;
  std::map<RequestId, Version> answering;  // under which version it began
};

/// What it decides under any order of events.
void run_schedule(std::uint64_t seed) {
  SCOPED_TRACE(seed);
  Random random(seed);
  BackendCoreOptions options;
  options.running_max = 4;
  options.says_versions = random.chance(0.5);
  options.on_switch = options.says_versions && random.chance(0.5) ? BackendSwitch::kKeep
                      : random.chance(0.5)                        ? BackendSwitch::kWait
                                                                  : BackendSwitch::kRestart;
  options.drain_time_max = 2s;
  BackendCore core(options);
  ScriptedServer server;
  Instant now{1h};
  std::optional<BackendAction> control;
  std::set<RequestId> open;
  std::map<RequestId, Version> sampled;  // the version that really sampled the answer that came last
  std::uint64_t published = 0, ended = 0;
  const auto lose = [&](RequestId id, Errc code) {
    server.answering.erase(id);
    core.handle_answer(now, id, error(code));
  };
  const auto die = [&](bool comes_back) {
    server.is_up = comes_back;
    server.weights = kNoVersion;
    while (!server.answering.empty()) lose(server.answering.begin()->first, Errc::kClosed);
  };
  const auto drain = [&] {
    while (const auto action = core.poll_action(now)) {
      switch (action->kind) {
        case Kind::kSend:
          if (server.is_up) {
            server.answering[action->request] = server.weights;
          } else {
            core.handle_answer(now, action->request, error(Errc::kIo));
          }
          break;
        case Kind::kCancel:
          if (server.answering.contains(action->request)) lose(action->request, Errc::kCancelled);
          break;
        case Kind::kInstall:
        case Kind::kCheck:
        case Kind::kRestore:
        case Kind::kUnload:
          ASSERT_FALSE(control);
          control = action;
          break;
      }
    }
    for (const EngineEvent& event : core.take_events()) {
      ASSERT_EQ(open.erase(event.id), 1u);
      ++ended;
      for (const EngineToken& token : event.tokens) {
        ASSERT_EQ(token.version, sampled.at(event.id)) << "a token of another version";
      }
    }
  };
  for (int step = 0; step < 5000; ++step) {
    const bool is_calm = step > 450;
    if (is_calm && (open.empty() || published == 0)) break;
    now += is_calm ? Duration(1s) : random.duration(1ms, 300ms);
    switch (random.below(8)) {
      case 0:
        if (!is_calm) core.handle_published({1, Version{++published}});
        break;
      case 1:
        if (!is_calm) {
          EngineRequest request;
          request.prompt = {1};
          open.insert(core.add(request).value());
        }
        break;
      case 2:
      case 3:
        if (!server.answering.empty()) {
          auto one = server.answering.begin();
          std::advance(one, static_cast<std::ptrdiff_t>(random.below(server.answering.size())));
          const RequestId id = one->first;
          // With an answer that goes on, the simulated server restarts it under its new weights.
          sampled[id] = options.on_switch == BackendSwitch::kKeep ? server.weights : one->second;
          server.answering.erase(one);
          core.handle_answer(now, id, answer_of(2, options.says_versions ? sampled[id] : kNoVersion));
        }
        break;
      case 4:
        if (control && control->kind == Kind::kInstall) {
          const BackendAction done = *std::exchange(control, std::nullopt);
          const std::uint64_t fate = is_calm ? 9 : random.below(10);
          if (!server.is_up || fate == 0) {
            core.handle_installed(now, done.version, error(Errc::kIo));
          } else if (fate == 1) {
            server.weights = kNoVersion;  // half written
            core.handle_installed(now, done.version, error(Errc::kBusy));
          } else if (fate == 2) {
            server.weights = done.version.version;
            core.handle_installed(now, done.version, error(Errc::kTimedOut));
          } else if (fate == 3 && done.is_anew) {
            core.handle_unready(now, done.version, error(Errc::kInvalidArgument));
          } else {
            server.weights = done.version.version;
            core.handle_installed(now, done.version, done.version.version);
          }
        } else if (control && control->kind == Kind::kRestore) {
          control.reset();
          ASSERT_FALSE(core.version()) << "it is told to drop a version that answers count under";
          if (server.is_up) server.weights = kNoVersion;
          core.handle_restored(now, server.is_up ? Status() : error(Errc::kIo));
        } else if (control) {
          control.reset();
          if (server.is_up) {
            core.handle_checked(now, server.weights);
          } else {
            core.handle_checked(now, error(Errc::kTimedOut));
          }
        }
        break;
      case 5:
        if (!is_calm && random.chance(0.1)) die(random.chance(0.5));
        break;
      case 6:
        if (is_calm || random.chance(0.3)) server.is_up = true;
        break;
      case 7:
        if (!is_calm && !open.empty() && random.chance(0.2)) {
          ASSERT_TRUE(core.abort(*open.begin()).has_value());
        }
        break;
      default: break;
    }
    drain();
    if (testing::Test::HasFatalFailure()) return;
  }
  // Whatever happened, all is well in the end.
  if (published > 0) {
    EXPECT_TRUE(open.empty()) << open.size() << " requests have not ended, " << ended << " have";
  }
}

TEST(BackendCoreSchedules, NoTokenHasAnotherVersionThanSampledIt) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    run_schedule(seed);
    if (testing::Test::HasFailure()) return;
  }
}

TEST_F(BackendCoreTest, AServerWhoseFirstVersionFailsGetsBackWhatItWasStartedWith) {
  make();
  core_->handle_published(kOne);
  const auto install = poll();
  ASSERT_EQ(install.size(), 1u);
  EXPECT_TRUE(install[0].is_anew);
  core_->handle_installed(now_, kOne, error(Errc::kInvalidArgument));
  EXPECT_THAT(lines(), HasSubstr("what it was started with"));
  now_ += 10s;
  EXPECT_EQ(kinds(), std::vector{Kind::kRestore});
  core_->handle_restored(now_, error(Errc::kIo));
  now_ += 10s;
  EXPECT_EQ(kinds(), std::vector{Kind::kRestore}) << "until it has it";
  core_->handle_restored(now_, {});
  now_ += 10s;
  EXPECT_TRUE(poll().empty()) << "the version is refused for good";
  EXPECT_FALSE(core_->version());
  core_->handle_published(kTwo);
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
}

TEST_F(BackendCoreTest, AServerThatBreaksOnItsFirstVersionIsAskedAgainAfterIt) {
  make();
  core_->handle_published(kOne);
  poll();
  core_->handle_installed(now_, kOne, error(Errc::kBusy));
  now_ += 10s;
  EXPECT_EQ(kinds(), std::vector{Kind::kRestore});
  core_->handle_restored(now_, {});
  EXPECT_TRUE(poll().empty()) << "not at once";
  now_ += 10s;
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
}

TEST_F(BackendCoreTest, AServerThatIsNotReadyIsAskedAgain) {
  serve();
  const RequestId id = add();
  poll();
  core_->handle_answer(now_, id, error(Errc::kClosed));
  now_ += 10s;
  EXPECT_EQ(kinds(), std::vector{Kind::kCheck});
  core_->handle_checked(now_, kNoVersion);
  const auto install = poll();
  ASSERT_EQ(install.size(), 1u);
  EXPECT_TRUE(install[0].is_anew) << "it may have been started otherwise";
  core_->handle_unready(now_, kOne, error(Errc::kInvalidArgument));
  EXPECT_THAT(lines(), HasSubstr("so it is"));
  EXPECT_FALSE(core_->version());
  now_ += 10s;
  EXPECT_EQ(kinds(), std::vector{Kind::kInstall});
  core_->handle_installed(now_, kOne, kOne.version);
  EXPECT_EQ(core_->version(), Version{1});
}

}  // namespace
}  // namespace weightcast
