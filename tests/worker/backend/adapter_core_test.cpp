// BackendCore where versions are adapters, which a server has side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/random.h"
#include "worker/backend/backend_core.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = BackendAction::Kind;

VersionName version(std::uint64_t number) { return {1, Version{number}}; }
BackendAnswer answer_of(std::size_t tokens) {
  BackendAnswer answer;
  answer.tokens.assign(tokens, {.token = 7, .log_prob = -1, .version = kNoVersion, .top = {}});
  return answer;
}
Error error(Errc code) { return fail(code, Op::kReceive, "so it is"); }
BackendAction install(std::uint64_t number, bool is_anew = false) {
  return {.kind = Kind::kInstall, .version = version(number), .is_anew = is_anew};
}
BackendAction unload(std::uint64_t number) { return {.kind = Kind::kUnload, .version = version(number)}; }
BackendAction send(RequestId id, std::uint64_t number) {
  return {.kind = Kind::kSend, .request = id, .version = version(number)};
}
BackendAction cancel(RequestId id) { return {.kind = Kind::kCancel, .request = id}; }

class AdapterCore : public testing::Test {
 protected:
  AdapterCore() {
    options_.adapters_max = 3;
    options_.drain_time_max = 10s;
  }
  /// Serves version 1.
  void serve() {
    core_.emplace(options_);
    core_->handle_published(version(1));
    ASSERT_THAT(poll(), ElementsAre(install(1, true)));
    core_->handle_installed(now_, version(1), Version{1});
  }
  void publish_and_install(std::uint64_t number) {
    core_->handle_published(version(number));
    ASSERT_THAT(poll(), ElementsAre(install(number)));
    core_->handle_installed(now_, version(number), Version{number});
  }
  std::vector<BackendAction> poll() {
    std::vector<BackendAction> actions;
    while (const auto action = core_->poll_action(now_)) actions.push_back(*action);
    return actions;
  }
  RequestId add() {
    EngineRequest request;
    request.prompt = {1, 2};
    return core_->add(request).value();
  }
  /// A request that is under way.
  RequestId begin(std::uint64_t under) {
    const RequestId id = add();
    EXPECT_THAT(poll(), ElementsAre(send(id, under)));
    return id;
  }
  void expect_answer(RequestId id, std::uint64_t under) {
    core_->handle_answer(now_, id, answer_of(3));
    const auto events = core_->take_events();
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].id, id);
    for (const EngineToken& token : events[0].tokens) EXPECT_EQ(token.version, Version{under});
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

TEST_F(AdapterCore, AnInstallWaitsForNoAnswerAndHoldsNoneBack) {
  serve();
  const RequestId first = begin(1);
  core_->handle_published(version(2));
  EXPECT_THAT(poll(), ElementsAre(install(2))) << "beside the answer";
  const RequestId second = begin(1);
  core_->handle_installed(now_, version(2), Version{2});
  EXPECT_EQ(core_->version(), Version{2});
  const RequestId third = begin(2);
  expect_answer(third, 2);
  expect_answer(first, 1);
  EXPECT_TRUE(poll().empty()) << "one still names version 1";
  expect_answer(second, 1);
  EXPECT_THAT(poll(), ElementsAre(unload(1)));
  core_->handle_unloaded(now_, version(1), {});
  EXPECT_FALSE(core_->is_loaded(version(1)));
  EXPECT_TRUE(poll().empty());
}

TEST_F(AdapterCore, AnswersCountAtOnce) {
  serve();
  expect_answer(begin(1), 1);
  EXPECT_TRUE(poll().empty()) << "nobody has to be asked which weights they were of";
}

TEST_F(AdapterCore, WithRestartAnswersBeginAnewUnderTheNewOne) {
  options_.on_switch = BackendSwitch::kRestart;
  serve();
  const RequestId id = begin(1);
  core_->handle_published(version(2));
  EXPECT_THAT(poll(), ElementsAre(install(2))) << "they go on until there is something to begin anew under";
  core_->handle_installed(now_, version(2), Version{2});
  EXPECT_THAT(poll(), ElementsAre(cancel(id)));
  core_->handle_answer(now_, id, error(Errc::kCancelled));
  EXPECT_THAT(poll(), ElementsAre(unload(1), send(id, 2)));
  expect_answer(id, 2);
}

TEST_F(AdapterCore, WaitsForAFreePlaceAndServesMeanwhile) {
  options_.adapters_max = 2;
  serve();
  const RequestId old = begin(1);
  publish_and_install(2);
  core_->handle_published(version(3));
  const RequestId next = begin(2);
  expect_answer(next, 2);
  EXPECT_TRUE(poll().empty());
  core_->handle_published(version(4));
  EXPECT_TRUE(poll().empty());
  expect_answer(old, 1);
  EXPECT_THAT(poll(), ElementsAre(unload(1)));
  core_->handle_unloaded(now_, version(1), {});
  EXPECT_THAT(poll(), ElementsAre(install(4))) << "the newest; nobody needs version 3";
}

TEST_F(AdapterCore, WhatHoldsAPlaceForTooLongBeginsAnew) {
  options_.adapters_max = 2;
  serve();
  const RequestId old = begin(1);
  publish_and_install(2);
  const RequestId young = begin(2);
  core_->handle_published(version(3));
  EXPECT_TRUE(poll().empty());
  now_ += 10s;
  EXPECT_THAT(poll(), ElementsAre(cancel(old)));
  core_->handle_answer(now_, old, error(Errc::kCancelled));
  EXPECT_THAT(poll(), ElementsAre(unload(1), send(old, 2)));
  core_->handle_unloaded(now_, version(1), {});
  EXPECT_THAT(poll(), ElementsAre(install(3)));
  core_->handle_installed(now_, version(3), Version{3});
  expect_answer(young, 2);
}

TEST_F(AdapterCore, AnAbortedCallHoldsItsVersionUntilItEnds) {
  serve();
  const RequestId id = begin(1);
  publish_and_install(2);
  ASSERT_TRUE(core_->abort(id).has_value());
  EXPECT_THAT(poll(), ElementsAre(cancel(id))) << "the server may still compute it";
  core_->handle_answer(now_, id, error(Errc::kCancelled));
  EXPECT_THAT(poll(), ElementsAre(unload(1)));
}

TEST_F(AdapterCore, ARefusedVersionChangesNothing) {
  serve();
  const RequestId id = begin(1);
  core_->handle_published(version(2));
  poll();
  core_->handle_installed(now_, version(2), error(Errc::kInvalidArgument));
  EXPECT_THAT(lines(), HasSubstr("version 2: cannot receive: so it is; version 1 stays in use"));
  EXPECT_EQ(core_->version(), Version{1});
  expect_answer(id, 1);
  now_ += 10s;
  EXPECT_THAT(poll(), ElementsAre(BackendAction{.kind = Kind::kCheck}));
  core_->handle_checked(now_, Version{1});
  EXPECT_THAT(poll(), ElementsAre(unload(2))) << "the server may have it all the same";
  core_->handle_unloaded(now_, version(2), {});
  EXPECT_TRUE(poll().empty()) << "it is not tried again";
  publish_and_install(3);
}

TEST_F(AdapterCore, AServerThatHasForgottenTheNameGetsItAgain) {
  serve();
  const RequestId id = begin(1);
  core_->handle_answer(now_, id, error(Errc::kBusy));  // what the protocol makes of 404
  now_ += 10s;
  EXPECT_THAT(poll(), ElementsAre(BackendAction{.kind = Kind::kCheck}));
  core_->handle_checked(now_, kNoVersion);
  EXPECT_THAT(lines(), HasSubstr("forgotten version 1"));
  EXPECT_THAT(poll(), ElementsAre(install(1, true))) << "it may have been started otherwise";
  core_->handle_installed(now_, version(1), Version{1});
  EXPECT_THAT(poll(), ElementsAre(send(id, 1)));
  expect_answer(id, 1);
}

TEST_F(AdapterCore, AServerThatIsInDoubtIsAskedBeforeItGetsAnotherVersion) {
  serve();
  const RequestId id = begin(1);
  core_->handle_answer(now_, id, error(Errc::kClosed));
  core_->handle_published(version(2));
  now_ += 10s;
  EXPECT_THAT(poll(), ElementsAre(BackendAction{.kind = Kind::kCheck}));
  core_->handle_checked(now_, kNoVersion);
  EXPECT_THAT(poll(), ElementsAre(install(2, true)));
  core_->handle_installed(now_, version(2), Version{2});
  EXPECT_THAT(poll(), ElementsAre(unload(1), send(id, 2)));
}

TEST_F(AdapterCore, AnUnloadThatIsLostIsRepeated) {
  serve();
  publish_and_install(2);
  EXPECT_THAT(poll(), ElementsAre(unload(1)));
  core_->handle_unloaded(now_, version(1), error(Errc::kTimedOut));
  EXPECT_TRUE(core_->is_loaded(version(1)));
  now_ += 10s;
  EXPECT_THAT(poll(), ElementsAre(BackendAction{.kind = Kind::kCheck}));
  core_->handle_checked(now_, Version{2});
  EXPECT_THAT(poll(), ElementsAre(unload(1)));
  core_->handle_unloaded(now_, version(1), error(Errc::kInvalidArgument));
  EXPECT_TRUE(poll().empty()) << "what the server refuses it would refuse again";
  EXPECT_FALSE(core_->is_loaded(version(1)));
}

/// A server with places for adapters in simulated time: it answers, refuses, dies, comes back without its adapters.
struct AdapterServer {
  std::set<VersionName> adapters;
  bool is_up = true;
  std::map<RequestId, VersionName> answering;
};

/// What it decides under any order of events.
void run_schedule(std::uint64_t seed) {
  SCOPED_TRACE(seed);
  Random random(seed);
  BackendCoreOptions options;
  options.running_max = 5;
  options.adapters_max = 2 + random.below(3);
  options.says_versions = random.chance(0.5);
  options.on_switch = random.chance(0.5) ? BackendSwitch::kWait : BackendSwitch::kRestart;
  options.drain_time_max = 2s;
  BackendCore core(options);
  AdapterServer server;
  Instant now{1h};
  std::optional<BackendAction> control;
  std::set<RequestId> open;
  std::map<RequestId, Version> sampled;  // the adapter that really answered
  std::uint64_t published = 0;
  const auto lose = [&](RequestId id, Errc code) {
    server.answering.erase(id);
    core.handle_answer(now, id, error(code));
  };
  const auto drain = [&] {
    while (const auto action = core.poll_action(now)) {
      switch (action->kind) {
        case Kind::kSend:
          if (!server.is_up) {
            core.handle_answer(now, action->request, error(Errc::kIo));
          } else if (!server.adapters.contains(action->version)) {
            core.handle_answer(now, action->request, error(Errc::kBusy));
          } else {
            server.answering[action->request] = action->version;
          }
          break;
        case Kind::kCancel:
          if (server.answering.contains(action->request)) lose(action->request, Errc::kCancelled);
          break;
        default: ASSERT_FALSE(control); control = action;
      }
    }
    for (const EngineEvent& event : core.take_events()) {
      ASSERT_EQ(open.erase(event.id), 1u);
      for (const EngineToken& token : event.tokens) ASSERT_EQ(token.version, sampled.at(event.id));
    }
  };
  const auto finish = [&](const BackendAction& done, std::uint64_t fate) {
    const bool is_lost = !server.is_up || fate == 0;
    if (done.kind == Kind::kCheck) {
      const VersionName last = core.last_installed().value();
      if (is_lost) return core.handle_checked(now, error(Errc::kTimedOut));
      return core.handle_checked(now, server.adapters.contains(last) ? last.version : kNoVersion);
    }
    if (done.kind == Kind::kUnload) {
      for (const auto& [id, name] : server.answering) ASSERT_NE(name, done.version) << "a call names it";
      if (is_lost) return core.handle_unloaded(now, done.version, error(Errc::kTimedOut));
      server.adapters.erase(done.version);
      return core.handle_unloaded(now, done.version, fate == 1 ? error(Errc::kInvalidArgument) : Status());
    }
    ASSERT_EQ(done.kind, Kind::kInstall);
    if (is_lost) return core.handle_installed(now, done.version, error(Errc::kIo));
    if (fate == 1) return core.handle_installed(now, done.version, error(Errc::kInvalidArgument));
    if (fate == 3 && done.is_anew) return core.handle_unready(now, done.version, error(Errc::kUnsupported));
    if (fate == 4) return core.handle_skipped(now, done.version, error(Errc::kNotFound));
    server.adapters.insert(done.version);
    ASSERT_LE(server.adapters.size(), options.adapters_max);
    if (fate == 2) return core.handle_installed(now, done.version, error(Errc::kTimedOut));
    core.handle_installed(now, done.version, done.version.version);
  };
  for (int step = 0; step < 5000; ++step) {
    const bool is_calm = step > 450;
    if (is_calm && (open.empty() || published == 0)) break;
    now += is_calm ? Duration(1s) : random.duration(1ms, 300ms);
    switch (random.below(7)) {
      case 0:
        // One comes after the trouble, so that there is one that nobody has refused.
        if (!is_calm || step % 50 == 0) core.handle_published(version(++published));
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
          const auto [id, name] = *one;
          sampled[id] = name.version;
          server.answering.erase(one);
          core.handle_answer(now, id, answer_of(2));
        }
        break;
      case 4:
        if (control) finish(*std::exchange(control, std::nullopt), is_calm ? 9 : random.below(10));
        break;
      case 5:
        if (!is_calm && random.chance(0.1)) {
          server.is_up = random.chance(0.5);
          server.adapters.clear();
          while (!server.answering.empty()) lose(server.answering.begin()->first, Errc::kClosed);
        } else if (is_calm || random.chance(0.3)) {
          server.is_up = true;
        }
        break;
      default:
        if (!is_calm && !open.empty() && random.chance(0.2)) {
          ASSERT_TRUE(core.abort(*open.begin()).has_value());
        }
    }
    drain();
    if (testing::Test::HasFatalFailure()) return;
  }
  if (published > 0) {
    EXPECT_TRUE(open.empty()) << open.size() << " requests have not ended";
  }
}

TEST(AdapterCoreSchedules, EachTokenHasTheAdapterThatSampledItAndNoneIsUnloadedUnderACall) {
  for (std::uint64_t seed = 1; seed <= 500; ++seed) {
    run_schedule(seed);
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace weightcast
