#include "worker/backend/backend_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/worker/backend/backend_core_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Kind = BackendAction::Kind;

constexpr VersionName kOne{1, Version{1}}, kTwo{1, Version{2}};

std::vector<BackendAction> installs(VersionName version, bool is_anew) {
  return {{.kind = Kind::kInstall, .version = version, .is_anew = is_anew}};
}

class BackendCoreTest : public BackendCoreFixture {
 protected:
  std::vector<Kind> kinds() {
    std::vector<Kind> kinds;
    for (const BackendAction& action : poll()) kinds.push_back(action.kind);
    return kinds;
  }
  /// Serves version 1.
  void serve() {
    make();
    core_->handle_published(kOne);
    ASSERT_EQ(poll(), installs(kOne, true));
    core_->handle_installed(now_, kOne, kOne.version);
    ASSERT_EQ(core_->version(), Version{1});
  }
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
