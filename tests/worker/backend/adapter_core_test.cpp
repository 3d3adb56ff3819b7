// BackendCore where versions are adapters, which a server has side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/backend/backend_core_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = BackendAction::Kind;

VersionName version(std::uint64_t number) { return {1, Version{number}}; }
BackendAction install(std::uint64_t number, bool is_anew = false) {
  return {.kind = Kind::kInstall, .version = version(number), .is_anew = is_anew};
}
BackendAction unload(std::uint64_t number) { return {.kind = Kind::kUnload, .version = version(number)}; }
BackendAction send(RequestId id, std::uint64_t number) {
  return {.kind = Kind::kSend, .request = id, .version = version(number)};
}
BackendAction cancel(RequestId id) { return {.kind = Kind::kCancel, .request = id}; }

class AdapterCore : public BackendCoreFixture {
 protected:
  AdapterCore() {
    options_.adapters_max = 3;
    options_.drain_time_max = 10s;
  }
  /// Serves version 1.
  void serve() {
    make();
    core_->handle_published(version(1));
    ASSERT_THAT(poll(), ElementsAre(install(1, true)));
    core_->handle_installed(now_, version(1), Version{1});
  }
  void publish_and_install(std::uint64_t number) {
    core_->handle_published(version(number));
    ASSERT_THAT(poll(), ElementsAre(install(number)));
    core_->handle_installed(now_, version(number), Version{number});
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

}  // namespace
}  // namespace weightcast
