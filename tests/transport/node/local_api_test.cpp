#include "transport/node/local_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <cmath>

#include "proto/limits.h"
#include "tests/transport/node/local_api_fixture.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

TEST_F(LocalApiTest, StatusOfTenThousandMembersComesInPagesThatFit) {
  service.nodes.set_latest_version(7);
  for (int i = 0; i < 10'000; ++i) {
    local::NodeStatus* node = service.nodes.add_nodes();
    node->set_name(std::to_string(i) + std::string(250, 'n'));
    node->set_parent(std::string(255, 'p'));
    node->set_last_error(std::string(1024, '\xff'));
  }
  Program program(net, path);
  program.ask(3, status_request());
  int nodes = 0;
  std::size_t pages = 0;
  for (bool last = false; !last; ++pages) {
    ASSERT_TRUE(answered(program, pages + 1));
    ASSERT_FALSE(program.closed.has_value()) << program.closed->message();
    const local::Message answer = program.answer(pages);
    EXPECT_EQ(answer.request_id(), 3u);
    EXPECT_EQ(answer.status_reply().latest_version(), 7u);
    EXPECT_LT(program.controls[pages].size(), LocalApi::kStatusPageBytes + 4 * kKiB);
    for (const local::NodeStatus& node : answer.status_reply().nodes()) {
      ASSERT_EQ(std::stoi(node.name()), nodes);
      ++nodes;
    }
    last = answer.status_reply().last();
  }
  EXPECT_EQ(nodes, 10'000);
  EXPECT_GT(pages, 50u);
}

TEST_F(LocalApiTest, StatusOfNobodyIsOnePage) {
  Program program(net, path);
  program.ask(1, status_request());
  ASSERT_TRUE(answered(program, 1));
  EXPECT_TRUE(program.answer(0).status_reply().last());
}

// Requests pile up at whoever sends them: a program that asks and does not read costs one answer.
TEST_F(LocalApiTest, AProgramThatDoesNotReadIsAnsweredOnce) {
  for (int i = 0; i < 2000; ++i) service.nodes.add_nodes()->set_last_error(std::string(1024, 'x'));
  Program program(net, path);
  program.connection->pause_reading();
  for (std::uint64_t id = 1; id <= 3; ++id) program.ask(id, status_request());
  net.run_for(milliseconds(50));
  program.connection->resume_reading();
  std::vector<std::uint64_t> ended;
  for (std::size_t i = 0; ended.size() < 3; ++i) {
    ASSERT_TRUE(answered(program, i + 1));
    const local::Message answer = program.answer(i);
    EXPECT_EQ(answer.request_id(), ended.size() + 1) << "in order, one after the other";
    if (answer.status_reply().last()) ended.push_back(answer.request_id());
  }
  EXPECT_EQ(ended, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(LocalApiTest, AnAnswerAboveTheLimitIsAnError) {
  for (int i = 0; i < 1500; ++i) service.kept.add_versions()->set_path(std::string(4000, 'x'));
  Program program(net, path);
  program.ask(1, versions_request());
  program.ask(2, status_request());
  ASSERT_TRUE(answered(program, 2));
  EXPECT_EQ(program.answer(0).request_id(), 1u);
  EXPECT_EQ(program.answer(0).error_reply().code(), number(Errc::kTooLarge));
  EXPECT_EQ(program.answer(1).request_id(), 2u) << "the connection stays";
}

TEST_F(LocalApiTest, PathsThatAreNoneAreRefused) {
  Program program(net, path);
  program.ask(1, publish_request(1, ""));
  program.ask(2, publish_request(1, std::string(PATH_MAX, 'x')));
  program.ask(3, publish_request(1, std::string("/weights\0/elsewhere", 19)));
  ASSERT_TRUE(answered(program, 3));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(program.answer(i).request_id(), i + 1);
    EXPECT_EQ(program.answer(i).error_reply().code(), number(Errc::kInvalidArgument));
  }
  EXPECT_TRUE(service.publications.empty());
}

TEST_F(LocalApiTest, ARequestOfFourMegabytesIsClosedAndOthersGoOn) {
  Program program(net, path);
  program.ask(1, publish_request(1, std::string(kControlBytesMax - 64, 'x')));
  ASSERT_TRUE(net.run_until([&] { return program.closed.has_value(); }));
  EXPECT_TRUE(service.publications.empty());
  Program other(net, path);
  other.ask(1, status_request());
  EXPECT_TRUE(answered(other, 1));
}

TEST_F(LocalApiTest, ALongErrorIsCutBetweenCharacters) {
  Program program(net, path);
  program.ask(1, publish_request(1, "/weights"));
  ASSERT_TRUE(net.run_until([&] { return service.publications.size() == 1; }));
  std::string detail;
  for (int i = 0; i < 100'000; ++i) detail += "ä";
  service.publications[0].second(fail(Errc::kCorrupt, Op::kPublish, detail));
  ASSERT_TRUE(answered(program, 2));
  EXPECT_LE(program.answer(1).error_reply().detail().size(), 8 * kKiB);
  EXPECT_EQ(program.answer(1).error_reply().detail().size() % 2, 0u);
}

TEST_F(LocalApiTest, PublicationsAreTakenOverInTurnAndTooManyAreRefused) {
  Program program(net, path);
  const std::size_t all = 1 + LocalApi::kPublishQueueMax;
  for (std::uint64_t i = 1; i <= all; ++i) program.ask(i, publish_request(i, std::to_string(i)));
  program.ask(100, publish_request(100, "100"));
  ASSERT_TRUE(answered(program, all + 1));
  for (std::size_t i = 0; i < all; ++i) {
    EXPECT_EQ(program.answer(i).request_id(), i + 1);
    EXPECT_EQ(program.answer(i).publish_accepted().version(), i + 1);
  }
  EXPECT_EQ(program.answer(all).request_id(), 100u);
  EXPECT_EQ(program.answer(all).error_reply().code(), number(Errc::kBusy));
  for (std::size_t i = 0; i < all; ++i) {
    ASSERT_EQ(service.publications.size(), i + 1) << "one at a time";
    EXPECT_EQ(service.publications[i].first.path, std::to_string(i + 1));
    service.publications[i].second(fail(Errc::kCorrupt, Op::kPublish, "not weights"));
  }
  ASSERT_TRUE(answered(program, 2 * all + 1));
  for (std::size_t i = 1; i <= all; ++i) EXPECT_EQ(program.answer(all + i).request_id(), i);
}

TEST_F(LocalApiTest, NumbersPublicationsThatHaveNoneAndRefusesThoseThatDoNotGrow) {
  service.next = Version{5};
  Program program(net, path);
  local::Message ask_next;
  ask_next.mutable_next_version_request();
  program.ask(1, ask_next);
  program.ask(2, publish_request(0, "a"));   // taken over
  program.ask(3, publish_request(9, "b"));   // waits
  program.ask(4, publish_request(0, "c"));   // waits
  program.ask(5, publish_request(10, "d"));  // not greater than the one that waits
  program.ask(6, ask_next);
  program.ask(7, publish_request(kVersionMax.value + 1, "e"));
  ASSERT_TRUE(answered(program, 7));
  EXPECT_EQ(program.answer(0).next_version_reply().version(), 5u);
  EXPECT_EQ(program.answer(1).publish_accepted().version(), 5u);
  EXPECT_EQ(program.answer(2).publish_accepted().version(), 9u);
  EXPECT_EQ(program.answer(3).publish_accepted().version(), 10u);
  EXPECT_EQ(program.answer(4).error_reply().code(), number(Errc::kAlreadyExists));
  EXPECT_THAT(program.answer(4).error_reply().detail(), HasSubstr("the latest is 10"));
  EXPECT_EQ(program.answer(5).next_version_reply().version(), 11u);
  EXPECT_EQ(program.answer(6).error_reply().code(), number(Errc::kInvalidArgument));
}

TEST_F(LocalApiTest, WhoServesIsSetAndProvisioningEndsWithTheLastConnection) {
  local::Message release, activate, unknown, provision;
  release.mutable_serve_request()->set_name("a");
  activate.mutable_serve_request()->set_name("b");
  activate.mutable_serve_request()->set_serves(true);
  unknown.mutable_serve_request()->set_name("nobody");
  provision.mutable_serve_request()->set_provisions(true);
  Program command(net, path);
  command.ask(1, release);
  command.ask(2, activate);
  command.ask(3, unknown);
  ASSERT_TRUE(answered(command, 3));
  EXPECT_TRUE(command.answer(1).has_serve_reply());
  EXPECT_EQ(command.answer(2).error_reply().code(), number(Errc::kNotFound));
  EXPECT_THAT(service.serving, testing::ElementsAre(testing::Pair("a", false), testing::Pair("b", true)));
  EXPECT_FALSE(service.provisioned);
  std::optional<Program> one(std::in_place, net, path), two(std::in_place, net, path);
  for (Program* program : {&*one, &*two}) {
    program->ask(1, provision);
    ASSERT_TRUE(answered(*program, 1));
  }
  EXPECT_TRUE(service.provisioned);
  one.reset();
  net.run_for(milliseconds(50));
  EXPECT_TRUE(service.provisioned);
  two.reset();
  EXPECT_TRUE(net.run_until([&] { return !service.provisioned; }));
}

TEST_F(LocalApiTest, AWorkerIsForgottenOrTheErrorSaysWhyNot) {
  local::Message forget, unknown;
  forget.mutable_forget_request()->set_name("a");
  unknown.mutable_forget_request()->set_name("nobody");
  Program command(net, path);
  command.ask(1, forget);
  command.ask(2, unknown);
  ASSERT_TRUE(answered(command, 2));
  EXPECT_TRUE(command.answer(0).has_forget_reply());
  EXPECT_EQ(command.answer(1).error_reply().code(), number(Errc::kNotFound));
  EXPECT_THAT(service.forgotten, testing::ElementsAre("a"));
}

TEST_F(LocalApiTest, ANodeThatPublishesNothingRefusesAtOnce) {
  service.next = fail(Errc::kNotAllowed, Op::kPublish, "a worker");
  Program program(net, path);
  program.ask(1, publish_request(1, "/weights"));
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(program.answer(0).error_reply().code(), number(Errc::kNotAllowed));
  EXPECT_TRUE(service.publications.empty());
}

TEST_F(LocalApiTest, AWaitEndsWhenItIsReachedAndLastsWhileTheVersionWaitsItself) {
  Program program(net, path);
  program.ask(1, publish_request(1, "a"));
  program.ask(2, publish_request(2, "b"));
  program.ask(3, wait_request(2));
  program.ask(4, wait_request(7));
  ASSERT_TRUE(answered(program, 3));
  EXPECT_EQ(program.answer(2).request_id(), 4u);
  EXPECT_EQ(program.answer(2).error_reply().code(), number(Errc::kNotFound)) << "nobody publishes version 7";
  service.publications[0].second(TakenOver{1000});
  service.publications[1].second(TakenOver{1000});
  ASSERT_TRUE(answered(program, 6));
  EXPECT_EQ(program.answer(3).publish_taken().snapshot_bytes(), 1000u);
  EXPECT_EQ(program.answer(4).request_id(), 2u);
  EXPECT_EQ(program.answer(5).error_reply().code(), number(Errc::kNotFound)) << "the service knows of no result";

  service.result.emplace();
  program.ask(5, wait_request(2));
  net.run_for(milliseconds(20));
  EXPECT_EQ(program.controls.size(), 6u);
  service.result->set_reached(true);
  api->handle_change();
  ASSERT_TRUE(answered(program, 7));
  EXPECT_EQ(program.answer(6).request_id(), 5u);
  EXPECT_TRUE(program.answer(6).publish_result().reached());
}

TEST_F(LocalApiTest, AWaitEndsInTime) {
  service.result.emplace();
  Program waiting(net, path);
  auto least = std::chrono::steady_clock::duration::max();
  for (std::uint64_t id = 1; id <= 5; ++id) {  // a busy host may be late each time but one
    const auto start = std::chrono::steady_clock::now();
    waiting.ask(id, wait_request(1, 0.03));
    ASSERT_TRUE(answered(waiting, id));
    least = std::min(least, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(least, milliseconds(90)) << "not at the next look a tenth later";
  EXPECT_TRUE(waiting.answer(0).has_publish_result());
  Program program(net, path);
  program.ask(1, wait_request(1, 0.03));
  ASSERT_TRUE(answered(program, 1));
  program.ask(2, publish_request(1, "a"));
  program.ask(3, wait_request(1, 0.03));
  ASSERT_TRUE(answered(program, 3));
  EXPECT_EQ(program.answer(2).error_reply().code(), number(Errc::kTimedOut)) << "it is not even taken over";
  program.ask(4, wait_request(1, std::nan("")));
  ASSERT_TRUE(answered(program, 4));
  EXPECT_EQ(program.answer(3).error_reply().code(), number(Errc::kInvalidArgument));
}

TEST_F(LocalApiTest, TooManyWaitsOfOneProgramAreRefused) {
  service.result.emplace();
  Program program(net, path);
  for (std::uint64_t id = 1; id <= LocalApi::kWaitsMax + 1; ++id) program.ask(id, wait_request(1));
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(program.answer(0).request_id(), LocalApi::kWaitsMax + 1);
  EXPECT_EQ(program.answer(0).error_reply().code(), number(Errc::kBusy));
}

TEST_F(LocalApiTest, AProgramThatHasGoneIsNotAnswered) {
  {
    Program program(net, path);
    program.ask(1, publish_request(1, "/weights"));
    ASSERT_TRUE(net.run_until([&] { return service.publications.size() == 1; }));
  }
  net.run_for(milliseconds(20));
  service.publications[0].second(TakenOver{1000});
  Program other(net, path);
  other.ask(1, status_request());
  EXPECT_TRUE(answered(other, 1));
}

TEST_F(LocalApiTest, SubscribersHearOfEachVersionUnderTheirRequest) {
  Program program(net, path);
  program.ask(5, subscribe_request());
  service.in_use.emplace().set_version(1);
  net.run_for(milliseconds(20));
  api->handle_change();
  api->handle_change();
  ASSERT_TRUE(answered(program, 1));
  service.letting_go.emplace().set_version(2);
  api->handle_change();
  ASSERT_TRUE(answered(program, 2));
  service.letting_go.reset();
  api->handle_change();
  ASSERT_TRUE(answered(program, 3));
  net.run_for(milliseconds(10));
  ASSERT_EQ(program.controls.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(program.answer(i).request_id(), 5u);
  EXPECT_EQ(program.answer(1).version_preparing().version(), 2u);
  EXPECT_EQ(program.answer(2).version_installed().version(), 1u) << "it can have the old one again";
}

local::Message acquire_request(std::uint64_t version) {
  local::Message message;
  message.mutable_acquire_request()->set_version(version);
  return message;
}
local::Message release_request(std::uint64_t version) {
  local::Message message;
  message.mutable_release_request()->set_version(version);
  return message;
}

TEST_F(LocalApiTest, AcquiredVersionsArePinnedUntilTheyAreReleased) {
  service.complete = {Version{1}, Version{2}};
  Program program(net, path);
  program.ask(1, acquire_request(0));
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(program.answer(0).error_reply().code(), number(Errc::kNotFound)) << "none is in use";
  service.in_use.emplace().set_version(2);
  program.ask(2, acquire_request(0));
  program.ask(3, acquire_request(1));
  program.ask(4, acquire_request(1));
  program.ask(5, acquire_request(7));
  ASSERT_TRUE(answered(program, 5));
  EXPECT_EQ(program.answer(1).version_installed().version(), 2u);
  EXPECT_EQ(program.answer(2).version_installed().version(), 1u);
  EXPECT_EQ(program.answer(4).error_reply().code(), number(Errc::kNotFound));
  EXPECT_THAT(service.pinned, testing::UnorderedElementsAre(Version{2}, Version{1}, Version{1}));
  program.ask(0, release_request(1));
  program.ask(0, release_request(9));  // never acquired
  program.ask(6, status_request());
  ASSERT_TRUE(answered(program, 6));
  EXPECT_THAT(service.pinned, testing::UnorderedElementsAre(Version{2}, Version{1}));
}

TEST_F(LocalApiTest, PinsEndWithTheirConnectionAndAreBounded) {
  service.complete = {Version{1}};
  Program other(net, path);
  other.ask(1, acquire_request(1));
  ASSERT_TRUE(answered(other, 1));
  {
    Program program(net, path);
    for (std::uint64_t id = 1; id <= LocalApi::kPinsMax + 1; ++id) program.ask(id, acquire_request(1));
    ASSERT_TRUE(answered(program, LocalApi::kPinsMax + 1));
    EXPECT_EQ(program.answer(LocalApi::kPinsMax).error_reply().code(), number(Errc::kBusy));
    EXPECT_EQ(service.pinned.size(), 1 + LocalApi::kPinsMax);
  }
  ASSERT_TRUE(net.run_until([&] { return service.pinned.size() == 1; }));
}

TEST_F(LocalApiTest, NothingIsAcquiredWhileTheOnlyCopyIsToBecomeAnother) {
  service.complete = {Version{1}};
  service.letting_go.emplace().set_version(2);
  Program program(net, path);
  program.ask(1, acquire_request(1));
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(program.answer(0).error_reply().code(), number(Errc::kBusy));
  EXPECT_TRUE(service.pinned.empty());
}

TEST_F(LocalApiTest, BytesThatAreNoRequestCloseTheConnection) {
  Program program(net, path);
  program.connection->send_control("\xff\xff\xff");
  ASSERT_TRUE(net.run_until([&] { return program.closed.has_value(); }));
  Program chunk(net, path);
  chunk.connection->send_chunk(Version{1}, ChunkIndex{0}, net.buffers.take(1), nullptr);
  ASSERT_TRUE(net.run_until([&] { return chunk.closed.has_value(); }));
}

TEST_F(LocalApiTest, TooManyConnectionsAreClosedAndOneThatEndsMakesRoom) {
  std::vector<std::unique_ptr<Program>> programs;
  for (std::size_t i = 0; i < LocalApi::kSessionsMax; ++i) programs.push_back(std::make_unique<Program>(net, path));
  Program refused(net, path);
  ASSERT_TRUE(net.run_until([&] { return refused.closed.has_value(); }));
  EXPECT_EQ(api->refused_count(), 1u);
  programs.pop_back();
  net.run_for(milliseconds(20));
  Program taken(net, path);
  taken.ask(1, status_request());
  ASSERT_TRUE(answered(taken, 1));
  EXPECT_FALSE(taken.closed.has_value());
}

}  // namespace
}  // namespace weightcast
