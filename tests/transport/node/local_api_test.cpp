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

/// With a program that is connected.
struct OneProgram : LocalApiTest {
  Program program{net, path};
};

TEST_F(OneProgram, StatusOfTenThousandMembersComesInPagesThatFit) {
  service.nodes.latest_version = 7;
  for (int i = 0; i < 10'000; ++i) {
    local::NodeStatus& node = service.nodes.nodes.emplace_back();
    node.name = std::to_string(i) + std::string(250, 'n');
    node.parent = std::string(255, 'p');
    node.last_error = std::string(1024, '\xff');
  }
  program.ask(3, local::StatusRequest{});
  int nodes = 0;
  std::size_t pages = 0;
  for (bool last = false; !last; ++pages) {
    ASSERT_TRUE(answered(program, pages + 1));
    ASSERT_FALSE(program.closed.has_value()) << program.closed->message();
    EXPECT_EQ(program.answer(pages).request_id, 3u);
    const auto page = as<local::StatusReply>(program.answer(pages));
    EXPECT_EQ(page.latest_version, 7u);
    EXPECT_LT(program.controls[pages].size(), LocalApi::kStatusPageBytes + 4 * kKiB);
    for (const local::NodeStatus& node : page.nodes) {
      ASSERT_EQ(std::stoi(node.name), nodes);
      ++nodes;
    }
    last = page.last;
  }
  EXPECT_EQ(nodes, 10'000);
  EXPECT_GT(pages, 50u);
}

TEST_F(OneProgram, StatusOfNobodyIsOnePage) {
  program.ask(1, local::StatusRequest{});
  ASSERT_TRUE(answered(program, 1));
  EXPECT_TRUE(as<local::StatusReply>(program.answer(0)).last);
}

// Requests pile up at whoever sends them: a program that asks and does not read costs one answer.
TEST_F(OneProgram, AProgramThatDoesNotReadIsAnsweredOnce) {
  for (int i = 0; i < 2000; ++i) service.nodes.nodes.emplace_back().last_error = std::string(1024, 'x');
  program.connection->pause_reading();
  for (std::uint64_t id = 1; id <= 3; ++id) program.ask(id, local::StatusRequest{});
  net.run_for(milliseconds(50));
  program.connection->resume_reading();
  std::vector<std::uint64_t> ended;
  for (std::size_t i = 0; ended.size() < 3; ++i) {
    ASSERT_TRUE(answered(program, i + 1));
    const local::Message answer = program.answer(i);
    EXPECT_EQ(answer.request_id, ended.size() + 1) << "in order, one after the other";
    if (as<local::StatusReply>(answer).last) ended.push_back(answer.request_id);
  }
  EXPECT_EQ(ended, (std::vector<std::uint64_t>{1, 2, 3}));
}

TEST_F(OneProgram, AnAnswerAboveTheLimitIsAnError) {
  for (int i = 0; i < 1500; ++i) service.kept.versions.push_back({.path = std::string(4000, 'x')});
  program.ask(1, local::VersionsRequest{});
  program.ask(2, local::StatusRequest{});
  ASSERT_TRUE(answered(program, 2));
  EXPECT_EQ(program.answer(0).request_id, 1u);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(0)).code, number(Errc::kTooLarge));
  EXPECT_EQ(program.answer(1).request_id, 2u) << "the connection stays";
}

TEST_F(OneProgram, PathsThatAreNoneAreRefused) {
  program.ask(1, publish_request(1, ""));
  program.ask(2, publish_request(1, std::string(PATH_MAX, 'x')));
  program.ask(3, publish_request(1, std::string("/weights\0/elsewhere", 19)));
  ASSERT_TRUE(answered(program, 3));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(program.answer(i).request_id, i + 1);
    EXPECT_EQ(as<local::ErrorReply>(program.answer(i)).code, number(Errc::kInvalidArgument));
  }
  EXPECT_TRUE(service.publications.empty());
}

TEST_F(OneProgram, ARequestOfFourMegabytesIsClosedAndOthersGoOn) {
  program.ask(1, publish_request(1, std::string(kControlBytesMax - 64, 'x')));
  ASSERT_TRUE(net.run_until([&] { return program.closed.has_value(); }));
  EXPECT_TRUE(service.publications.empty());
  Program other(net, path);
  other.ask(1, local::StatusRequest{});
  EXPECT_TRUE(answered(other, 1));
}

TEST_F(OneProgram, ALongErrorIsCutBetweenCharacters) {
  program.ask(1, publish_request(1, "/weights"));
  ASSERT_TRUE(net.run_until([&] { return service.publications.size() == 1; }));
  std::string detail;
  for (int i = 0; i < 100'000; ++i) detail += "ä";
  service.publications[0].second(fail(Errc::kCorrupt, Op::kPublish, detail));
  ASSERT_TRUE(answered(program, 2));
  EXPECT_LE(as<local::ErrorReply>(program.answer(1)).detail.size(), 8 * kKiB);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(1)).detail.size() % 2, 0u);
}

TEST_F(OneProgram, PublicationsAreTakenOverInTurnAndTooManyAreRefused) {
  const std::size_t all = 1 + LocalApi::kPublishQueueMax;
  for (std::uint64_t i = 1; i <= all; ++i) program.ask(i, publish_request(i, std::to_string(i)));
  program.ask(100, publish_request(100, "100"));
  ASSERT_TRUE(answered(program, all + 1));
  for (std::size_t i = 0; i < all; ++i) {
    EXPECT_EQ(program.answer(i).request_id, i + 1);
    EXPECT_EQ(as<local::PublishAccepted>(program.answer(i)).version, i + 1);
  }
  EXPECT_EQ(program.answer(all).request_id, 100u);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(all)).code, number(Errc::kBusy));
  for (std::size_t i = 0; i < all; ++i) {
    ASSERT_EQ(service.publications.size(), i + 1) << "one at a time";
    EXPECT_EQ(service.publications[i].first.path, std::to_string(i + 1));
    service.publications[i].second(fail(Errc::kCorrupt, Op::kPublish, "not weights"));
  }
  ASSERT_TRUE(answered(program, 2 * all + 1));
  for (std::size_t i = 1; i <= all; ++i) EXPECT_EQ(program.answer(all + i).request_id, i);
}

TEST_F(OneProgram, NumbersPublicationsThatHaveNoneAndRefusesThoseThatDoNotGrow) {
  service.next = Version{5};
  const local::NextVersionRequest ask_next;
  program.ask(1, ask_next);
  program.ask(2, publish_request(0, "a"));   // taken over
  program.ask(3, publish_request(9, "b"));   // waits
  program.ask(4, publish_request(0, "c"));   // waits
  program.ask(5, publish_request(10, "d"));  // not greater than the one that waits
  program.ask(6, ask_next);
  program.ask(7, publish_request(kVersionMax.value + 1, "e"));
  ASSERT_TRUE(answered(program, 7));
  EXPECT_EQ(as<local::NextVersionReply>(program.answer(0)).version, 5u);
  EXPECT_EQ(as<local::PublishAccepted>(program.answer(1)).version, 5u);
  EXPECT_EQ(as<local::PublishAccepted>(program.answer(2)).version, 9u);
  EXPECT_EQ(as<local::PublishAccepted>(program.answer(3)).version, 10u);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(4)).code, number(Errc::kAlreadyExists));
  EXPECT_THAT(as<local::ErrorReply>(program.answer(4)).detail, HasSubstr("the latest is 10"));
  EXPECT_EQ(as<local::NextVersionReply>(program.answer(5)).version, 11u);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(6)).code, number(Errc::kInvalidArgument));
}

TEST_F(LocalApiTest, WhoServesIsSetAndProvisioningEndsWithTheLastConnection) {
  const local::ServeRequest release{.name = "a"}, activate{.name = "b", .serves = true}, unknown{.name = "nobody"},
      provision{.provisions = true};
  Program command(net, path);
  command.ask(1, release);
  command.ask(2, activate);
  command.ask(3, unknown);
  ASSERT_TRUE(answered(command, 3));
  EXPECT_TRUE(command.answer(1).get<local::ServeReply>());
  EXPECT_EQ(as<local::ErrorReply>(command.answer(2)).code, number(Errc::kNotFound));
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
  Program command(net, path);
  command.ask(1, local::ForgetRequest{"a"});
  command.ask(2, local::ForgetRequest{"nobody"});
  ASSERT_TRUE(answered(command, 2));
  EXPECT_TRUE(command.answer(0).get<local::ForgetReply>());
  EXPECT_EQ(as<local::ErrorReply>(command.answer(1)).code, number(Errc::kNotFound));
  EXPECT_THAT(service.forgotten, testing::ElementsAre("a"));
}

TEST_F(OneProgram, ANodeThatPublishesNothingRefusesAtOnce) {
  service.next = fail(Errc::kNotAllowed, Op::kPublish, "a worker");
  program.ask(1, publish_request(1, "/weights"));
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(as<local::ErrorReply>(program.answer(0)).code, number(Errc::kNotAllowed));
  EXPECT_TRUE(service.publications.empty());
}

TEST_F(OneProgram, AWaitEndsWhenItIsReachedAndLastsWhileTheVersionWaitsItself) {
  program.ask(1, publish_request(1, "a"));
  program.ask(2, publish_request(2, "b"));
  program.ask(3, wait_request(2));
  program.ask(4, wait_request(7));
  ASSERT_TRUE(answered(program, 3));
  EXPECT_EQ(program.answer(2).request_id, 4u);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(2)).code, number(Errc::kNotFound)) << "nobody publishes version 7";
  service.publications[0].second(TakenOver{1000});
  service.publications[1].second(TakenOver{1000});
  ASSERT_TRUE(answered(program, 6));
  EXPECT_EQ(as<local::PublishTaken>(program.answer(3)).snapshot_bytes, 1000u);
  EXPECT_EQ(program.answer(4).request_id, 2u);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(5)).code, number(Errc::kNotFound)) << "the service knows of no result";

  service.result.emplace();
  program.ask(5, wait_request(2));
  net.run_for(milliseconds(20));
  EXPECT_EQ(program.controls.size(), 6u);
  service.result->reached = true;
  api->handle_change();
  ASSERT_TRUE(answered(program, 7));
  EXPECT_EQ(program.answer(6).request_id, 5u);
  EXPECT_TRUE(as<local::PublishResult>(program.answer(6)).reached);
}

TEST_F(OneProgram, AWaitEndsInTime) {
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
  EXPECT_TRUE(waiting.answer(0).get<local::PublishResult>());
  program.ask(1, wait_request(1, 0.03));
  ASSERT_TRUE(answered(program, 1));
  program.ask(2, publish_request(1, "a"));
  program.ask(3, wait_request(1, 0.03));
  ASSERT_TRUE(answered(program, 3));
  EXPECT_EQ(as<local::ErrorReply>(program.answer(2)).code, number(Errc::kTimedOut)) << "it is not even taken over";
  program.ask(4, wait_request(1, std::nan("")));
  ASSERT_TRUE(answered(program, 4));
  EXPECT_EQ(as<local::ErrorReply>(program.answer(3)).code, number(Errc::kInvalidArgument));
}

TEST_F(OneProgram, TooManyWaitsOfOneProgramAreRefused) {
  service.result.emplace();
  for (std::uint64_t id = 1; id <= LocalApi::kWaitsMax + 1; ++id) program.ask(id, wait_request(1));
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(program.answer(0).request_id, LocalApi::kWaitsMax + 1);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(0)).code, number(Errc::kBusy));
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
  other.ask(1, local::StatusRequest{});
  EXPECT_TRUE(answered(other, 1));
}

TEST_F(OneProgram, SubscribersHearOfEachVersionUnderTheirRequest) {
  program.ask(5, local::SubscribeRequest{});
  service.in_use.emplace().version = 1;
  net.run_for(milliseconds(20));
  api->handle_change();
  api->handle_change();
  ASSERT_TRUE(answered(program, 1));
  service.letting_go.emplace().version = 2;
  api->handle_change();
  ASSERT_TRUE(answered(program, 2));
  service.letting_go.reset();
  api->handle_change();
  ASSERT_TRUE(answered(program, 3));
  net.run_for(milliseconds(10));
  ASSERT_EQ(program.controls.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(program.answer(i).request_id, 5u);
  EXPECT_EQ(as<local::VersionPreparing>(program.answer(1)).version, 2u);
  EXPECT_EQ(as<local::VersionInstalled>(program.answer(2)).version, 1u) << "it can have the old one again";
}

TEST_F(OneProgram, AcquiredVersionsArePinnedUntilTheyAreReleased) {
  service.complete = {Version{1}, Version{2}};
  program.ask(1, local::AcquireRequest{0});
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(as<local::ErrorReply>(program.answer(0)).code, number(Errc::kNotFound)) << "none is in use";
  EXPECT_THAT(as<local::ErrorReply>(program.answer(0)).detail, testing::HasSubstr("no version is in use yet"));
  service.in_use.emplace().version = 2;
  program.ask(2, local::AcquireRequest{0});
  program.ask(3, local::AcquireRequest{1});
  program.ask(4, local::AcquireRequest{1});
  program.ask(5, local::AcquireRequest{7});
  ASSERT_TRUE(answered(program, 5));
  EXPECT_EQ(as<local::VersionInstalled>(program.answer(1)).version, 2u);
  EXPECT_EQ(as<local::VersionInstalled>(program.answer(2)).version, 1u);
  EXPECT_EQ(as<local::ErrorReply>(program.answer(4)).code, number(Errc::kNotFound));
  EXPECT_THAT(service.pinned, testing::UnorderedElementsAre(Version{2}, Version{1}, Version{1}));
  program.ask(0, local::ReleaseRequest{1});
  program.ask(0, local::ReleaseRequest{9});  // never acquired
  program.ask(6, local::StatusRequest{});
  ASSERT_TRUE(answered(program, 6));
  EXPECT_THAT(service.pinned, testing::UnorderedElementsAre(Version{2}, Version{1}));
}

TEST_F(LocalApiTest, PinsEndWithTheirConnectionAndAreBounded) {
  service.complete = {Version{1}};
  Program other(net, path);
  other.ask(1, local::AcquireRequest{1});
  ASSERT_TRUE(answered(other, 1));
  {
    Program program(net, path);
    for (std::uint64_t id = 1; id <= LocalApi::kPinsMax + 1; ++id) program.ask(id, local::AcquireRequest{1});
    ASSERT_TRUE(answered(program, LocalApi::kPinsMax + 1));
    EXPECT_EQ(as<local::ErrorReply>(program.answer(LocalApi::kPinsMax)).code, number(Errc::kBusy));
    EXPECT_EQ(service.pinned.size(), 1 + LocalApi::kPinsMax);
  }
  ASSERT_TRUE(net.run_until([&] { return service.pinned.size() == 1; }));
}

TEST_F(OneProgram, NothingIsAcquiredWhileTheOnlyCopyIsToBecomeAnother) {
  service.complete = {Version{1}};
  service.letting_go.emplace().version = 2;
  program.ask(1, local::AcquireRequest{1});
  ASSERT_TRUE(answered(program, 1));
  EXPECT_EQ(as<local::ErrorReply>(program.answer(0)).code, number(Errc::kBusy));
  EXPECT_TRUE(service.pinned.empty());
}

TEST_F(OneProgram, BytesThatAreNoRequestCloseTheConnection) {
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
  taken.ask(1, local::StatusRequest{});
  ASSERT_TRUE(answered(taken, 1));
  EXPECT_FALSE(taken.closed.has_value());
}

}  // namespace
}  // namespace weightcast
