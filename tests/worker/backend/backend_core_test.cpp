#include "worker/backend/backend_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/backend/backend_core_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = BackendAction::Kind;

class Core : public BackendCoreFixture {
 protected:
  Core() { make(); }
  /// The question for the server's version, once it is due, is answered.
  void server_has(std::uint64_t version, Duration later = 1s) {
    now_ += later;
    const auto action = core_->poll_action(now_);
    ASSERT_TRUE(action && action->kind == Kind::kAsk);
    core_->handle_asked(now_, Version{version});
  }
  void serve(std::uint64_t version) {
    core_->handle_published(now_, {1, Version{version}});
    server_has(version);
    ASSERT_EQ(core_->version(), Version{version});
  }
  /// What is sent now.
  std::vector<RequestId> sent() {
    std::vector<RequestId> ids;
    for (const BackendAction& action : poll()) {
      if (action.kind == Kind::kSend) ids.push_back(action.request);
    }
    return ids;
  }
};

TEST_F(Core, SendsOnlyWhileTheServerHasAVersionOfTheDaemons) {
  add();
  EXPECT_TRUE(sent().empty());
  core_->handle_asked(now_, Version{1});
  EXPECT_TRUE(sent().empty()) << "the daemon has not published it";
  serve(1);
  EXPECT_EQ(sent().size(), 1u);
  server_has(9);
  add();
  EXPECT_TRUE(sent().empty());
  EXPECT_FALSE(core_->version());
  EXPECT_EQ(lines(), "");
  server_has(9, 6s);
  EXPECT_THAT(lines(), HasSubstr("it has version 9, which this host's daemon does not"));
  server_has(1);
  EXPECT_EQ(sent().size(), 1u);
  EXPECT_THAT(lines(), HasSubstr("well again"));
}

TEST_F(Core, AnAnswerThatGoesOnUnderAnotherVersionCounts) {
  serve(1);
  const RequestId id = add(5);
  ASSERT_EQ(sent().size(), 1u);
  core_->handle_published(now_, {1, Version{2}});
  BackendAnswer answer = answer_of(2, Version{1});
  answer.tokens[1].version = Version{2};
  core_->handle_answer(now_, id, answer);
  const auto events = core_->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].tag, 5u);
  EXPECT_EQ(events[0].tokens[1].version, Version{2});
}

TEST_F(Core, AnAnswerOfAVersionThatIsNotPublishedWaitsForItAWhile) {
  serve(1);
  for (int i = 0; i < 2; ++i) {
    const RequestId id = add();
    ASSERT_EQ(sent().size(), 1u);
    core_->handle_answer(now_, id, answer_of(2, Version{7}));
    EXPECT_THAT(core_->take_events(), IsEmpty());
    if (i == 1) break;
    now_ += 6s;
    server_has(1);
    EXPECT_EQ(sent(), std::vector{id}) << "it begins anew";
    core_->handle_answer(now_, id, answer_of(2, Version{1}));
    EXPECT_EQ(core_->take_events().size(), 1u);
  }
  core_->handle_published(now_, {1, Version{7}});
  EXPECT_EQ(core_->take_events().size(), 1u);
}

TEST_F(Core, AnAnswerOfNobodyKnowsWhichVersionBeginsAnew) {
  serve(1);
  const RequestId id = add();
  ASSERT_EQ(sent().size(), 1u);
  for (int i = 0; i < 20; ++i) {
    core_->handle_answer(now_, id, answer_of(2));
    server_has(1);
    ASSERT_EQ(sent(), std::vector{id}) << "as often as it takes";
  }
}

TEST_F(Core, ARequestThatTheServerBreaksOnFailsInTheEnd) {
  options_.attempts_max = 3;
  make();
  serve(1);
  const RequestId id = add();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(sent(), std::vector{id});
    core_->handle_answer(now_, id, error(Errc::kBusy));
    if (i < 2) server_has(1, 6s);
  }
  const auto events = core_->take_events();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(events[0].failure, HasSubstr("tried 3 times"));
}

TEST_F(Core, AServerThatFailedIsExaminedBeforeItGetsWork) {
  serve(1);
  const RequestId id = add();
  ASSERT_EQ(sent().size(), 1u);
  core_->handle_answer(now_, id, error(Errc::kIo));
  now_ += 6s;
  const auto actions = poll();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kAsk);
  EXPECT_TRUE(actions[0].is_anew);
  core_->handle_asked(now_, error(Errc::kUnsupported));
  EXPECT_THAT(lines(), HasSubstr("so it is"));
  EXPECT_TRUE(poll().empty());
  server_has(1, 6s);
  EXPECT_EQ(sent(), std::vector{id});
}

TEST_F(Core, AbortsWhereverARequestIs) {
  serve(1);
  options_.running_max = 1;
  const RequestId answering = add(), early = add(), waiting = add();
  ASSERT_EQ(sent().size(), 3u);
  core_->handle_answer(now_, early, answer_of(1, Version{8}));
  for (const RequestId id : {answering, early, waiting}) ASSERT_TRUE(core_->abort(id).has_value());
  EXPECT_EQ(core_->take_events().size(), 3u);
  EXPECT_FALSE(core_->abort(early).has_value());
  core_->handle_answer(now_, answering, answer_of(1, Version{1}));
  core_->handle_answer(now_, waiting, error(Errc::kCancelled));
  EXPECT_EQ(core_->open(), 0u);
  EXPECT_THAT(core_->take_events(), IsEmpty());
}

class ToldCore : public Core {
 protected:
  ToldCore() {
    options_.is_told = true;
    options_.drain_time_max = 2s;
    make();
  }
  std::optional<VersionName> order() {
    for (const BackendAction& action : poll()) {
      if (action.kind == Kind::kInstall) return action.version;
    }
    return std::nullopt;
  }
  void install(std::uint64_t version) {
    core_->handle_published(now_, {1, Version{version}});
    server_has(0);
    ASSERT_EQ(order(), (VersionName{1, Version{version}}));
    core_->handle_installed(now_, {1, Version{version}}, {});
    ASSERT_EQ(core_->version(), Version{version});
  }
};

TEST_F(ToldCore, AnswersEndBeforeAnInstallOrBeginAnew) {
  install(1);
  const RequestId id = add();
  ASSERT_EQ(sent().size(), 1u);
  core_->handle_published(now_, {1, Version{2}});
  server_has(1);
  add();
  EXPECT_TRUE(poll().empty()) << "nothing new begins";
  now_ += 3s;
  server_has(1);
  const auto actions = poll();
  ASSERT_EQ(actions.size(), 1u);
  EXPECT_EQ(actions[0].kind, Kind::kCancel);
  core_->handle_answer(now_, id, error(Errc::kCancelled));
  EXPECT_EQ(order(), (VersionName{1, Version{2}}));
  core_->handle_installed(now_, {1, Version{2}}, {});
  EXPECT_EQ(sent().size(), 2u);
}

TEST_F(ToldCore, ARefusedVersionIsToldAgain) {
  core_->handle_published(now_, {1, Version{1}});
  server_has(0);
  ASSERT_TRUE(order());
  core_->handle_installed(now_, {1, Version{1}}, error(Errc::kBusy));
  EXPECT_THAT(lines(), HasSubstr("version 1: "));
  EXPECT_FALSE(order());
  server_has(0, 6s);
  EXPECT_EQ(order(), (VersionName{1, Version{1}}));
}

}  // namespace
}  // namespace weightcast
