#include "transport/node/local_api.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <filesystem>

#include "base/file_system.h"
#include "client/local_channel.h"
#include "proto/limits.h"
#include "tests/transport/io/io_fixture.h"
#include "transport/io/net/dial.h"
#include "transport/io/net/socket_network.h"
#include "transport/io/net/stream.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using Kind = local::Message::KindCase;

/// A node that says what the test wants.
struct FakeService final : LocalService {
  local::StatusReply nodes;
  local::VersionsReply kept;
  local::ReadyReply ready;
  std::optional<local::VersionInstalled> in_use;
  std::optional<local::VersionPreparing> letting_go;
  std::vector<Version> complete;
  std::vector<Version> pinned;
  Result<Version> next = Version{1};
  std::vector<std::pair<std::string, bool>> serving;
  std::vector<std::string> forgotten;
  bool provisioned = false;
  std::vector<std::pair<PublishOrder, std::function<void(Result<TakenOver>)>>> publications;
  std::optional<local::PublishResult> result;
  struct Listing {
    Version from{}, to{};
    std::string from_digest;
    FileRef into;
    std::function<void(Result<ListedChanges>)> told;
  };
  std::vector<Listing> listings;

  local::StatusReply status() override { return nodes; }
  local::VersionsReply versions() override { return kept; }
  local::ReadyReply readiness() override { return ready; }
  std::optional<local::VersionInstalled> installed() override { return in_use; }
  std::optional<local::VersionInstalled> installed_version(Version version) override {
    if (std::ranges::find(complete, version) == complete.end()) return std::nullopt;
    local::VersionInstalled found;
    found.set_version(version.value);
    return found;
  }
  void pin(std::vector<Version> versions) override { pinned = std::move(versions); }
  void changes(Version from, std::string from_digest, Version to, FileRef into,
               std::function<void(Result<ListedChanges>)> told) override {
    listings.push_back({from, to, std::move(from_digest), std::move(into), std::move(told)});
  }
  std::optional<local::VersionPreparing> preparing() override { return letting_go; }
  Result<Version> next_version() override { return next; }
  Status set_serving(std::string_view name, bool serves) override {
    if (name == "nobody") return fail(Errc::kNotFound, Op::kPlan, "nobody");
    serving.emplace_back(name, serves);
    return {};
  }
  Status forget(std::string_view name) override {
    if (name == "nobody") return fail(Errc::kNotFound, Op::kPlan, "nobody");
    forgotten.emplace_back(name);
    return {};
  }
  Status set_provisioned(bool is) override {
    provisioned = is;
    return {};
  }
  void publish(PublishOrder order, std::function<void(Result<TakenOver>)> taken) override {
    publications.emplace_back(std::move(order), std::move(taken));
  }
  std::optional<local::PublishResult> publish_result(Version, double) override { return result; }
  local::PublishProgress publish_progress(Version) override { return {}; }
};

/// A program at the other end of the socket.
struct Program : End {
  std::optional<DialLocal> dial;

  Program(Net& net, const std::string& path) {
    dial.emplace(net.context(), path, [this](Result<std::unique_ptr<FrameConnection>> made) {
      ASSERT_TRUE(made.has_value()) << made.error().message();
      adopt(std::move(*made));
    });
    EXPECT_TRUE(net.run_until([&] { return connection != nullptr; }));
  }
  void ask(std::uint64_t id, local::Message message) {
    message.set_request_id(id);
    connection->send_control(message.SerializeAsString());
  }
  [[nodiscard]] local::Message answer(std::size_t i) const {
    local::Message message;
    EXPECT_TRUE(message.ParseFromString(controls.at(i)));
    return message;
  }
};

local::Message status_request() {
  local::Message message;
  message.mutable_status_request();
  return message;
}
local::Message versions_request() {
  local::Message message;
  message.mutable_versions_request();
  return message;
}
local::Message subscribe_request() {
  local::Message message;
  message.mutable_subscribe_request();
  return message;
}
local::Message publish_request(std::uint64_t version, const std::string& path) {
  local::Message message;
  message.mutable_publish_request()->set_version(version);
  message.mutable_publish_request()->set_path(path);
  return message;
}
local::Message wait_request(std::uint64_t version, double timeout_s = 60) {
  local::Message message;
  message.mutable_wait_request()->set_version(version);
  message.mutable_wait_request()->set_fraction(1);
  message.mutable_wait_request()->set_timeout_s(timeout_s);
  return message;
}
std::uint32_t number(Errc code) { return static_cast<std::uint32_t>(code); }

struct LocalApiTest : testing::Test {
  std::filesystem::path directory = [] {
    std::string name = (std::filesystem::temp_directory_path() / "weightcast-api-XXXXXX").string();
    return std::filesystem::path(::mkdtemp(name.data()));
  }();
  std::string path = (directory / "api.sock").string();
  Net net;
  SocketNetwork network{net.loop, Rate{}, Rate{}, SocketOptions{}};
  FakeService service;
  std::unique_ptr<LocalApi> api = [this] {
    auto opened = LocalApi::open(net.loop, network, path, service);
    EXPECT_TRUE(opened.has_value());
    return std::move(*opened);
  }();

  ~LocalApiTest() override { std::filesystem::remove_all(directory); }

  [[nodiscard]] testing::AssertionResult answered(const Program& program, std::size_t count) {
    return net.run_until([&] { return program.controls.size() >= count || program.closed; });
  }
};

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

// ---- regions

/// A memfd with these bytes.
UniqueFd memory(std::size_t bytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW) {
  UniqueFd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(::ftruncate(fd.get(), off_t(bytes)), 0);
  EXPECT_EQ(::fcntl(fd.get(), F_ADD_SEALS, seals), 0);
  return fd;
}

struct RegionTest : LocalApiTest {
  client::Cancellation cancellation;
  std::unique_ptr<client::LocalChannel> channel = [this] {
    auto opened = client::LocalChannel::open(directory.string(), client::deadline_after(1000), cancellation);
    EXPECT_TRUE(opened.has_value());
    return std::move(*opened);
  }();

  /// Offers a descriptor; the daemon's answer.
  client::Message offer(int fd) {
    client::PublishRequest request;
    request.region = true;
    return ask(request, fd);
  }
  client::Message offer_changes(std::uint64_t base, int fd, std::uint64_t version = 0) {
    client::PublishChangesRequest request;
    request.version = version;
    request.base_version = base;
    request.changes_bytes = 123;
    return ask(request, fd);
  }
  client::Message ask(client::Message::Kind request, int fd) {
    return ask(std::move(request), fd >= 0 ? std::vector<int>{fd} : std::vector<int>());
  }
  client::Message ask(client::Message::Kind request, const std::vector<int>& descriptors) {
    EXPECT_TRUE(channel->send({.kind = std::move(request)}, client::deadline_after(1000), descriptors).has_value());
    std::optional<client::Message> answer;
    EXPECT_TRUE(net.run_until([&] {
      auto got = channel->poll();
      if (got.has_value() && *got) answer = **got;
      return !got.has_value() || answer.has_value();
    }));
    return answer.value_or(client::Message{});
  }
  Errc refusal(int fd) {
    const client::Message answer = offer(fd);
    const auto* error = answer.get<client::ErrorReply>();
    EXPECT_NE(error, nullptr);
    return error == nullptr ? Errc::kIo : static_cast<Errc>(error->code);
  }
  /// Descriptors of this process that lead to memory.
  static std::size_t open_memory() {
    std::size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      count += std::filesystem::read_symlink(entry, error).string().find("/memfd:test") == 0;
    }
    return count;
  }
};

TEST_F(RegionTest, SealedMemoryIsAcceptedAndLetGoOfAfterwards) {
  {
    const UniqueFd region = memory(5000);
    const client::Message answer = offer(region.get());
    ASSERT_NE(answer.get<client::PublishAccepted>(), nullptr);
  }
  ASSERT_EQ(service.publications.size(), 1u);
  const FileRef file = std::move(service.publications[0].first.region);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->info()->size_bytes, 5000u);
  EXPECT_EQ(open_memory(), 1u) << "the daemon's own";
  service.publications[0].second(TakenOver{5000});
}

TEST_F(RegionTest, FilesComeInMemoryOfTheirOwnAfterTheRegions) {
  client::PublishRequest request;
  request.region = true;
  request.region_bytes = 4000;
  request.files_bytes = 300;
  request.new_model = true;
  {
    const UniqueFd region = memory(5000), files = memory(400);
    EXPECT_NE(ask(request, {region.get(), files.get()}).get<client::PublishAccepted>(), nullptr);
    EXPECT_NE(ask(request, {region.get()}).get<client::ErrorReply>(), nullptr) << "the files' is missing";
    EXPECT_NE(ask(request, {region.get(), memory(400, 0).get()}).get<client::ErrorReply>(), nullptr) << "not sealed";
    request.region = false;
    request.path = "/x.safetensors";
    EXPECT_NE(ask(request, {files.get()}).get<client::PublishAccepted>(), nullptr) << "beside a path, alone";
  }
  ASSERT_EQ(service.publications.size(), 1u);
  PublishOrder order = std::move(service.publications[0].first);
  EXPECT_EQ(order.region->info()->size_bytes, 5000u);
  EXPECT_EQ(order.region_bytes, 4000u);
  EXPECT_EQ(order.files->info()->size_bytes, 400u);
  EXPECT_EQ(order.files_bytes, 300u);
  EXPECT_TRUE(order.new_model);
  service.publications[0].second(TakenOver{4000, "something"});
  order = {};
  ASSERT_TRUE(net.run_until([&] { return service.publications.size() == 2; }));
  EXPECT_EQ(service.publications[1].first.region, nullptr);
  service.publications[1].second(TakenOver{1});
  service.publications.clear();
  EXPECT_EQ(open_memory(), 0u);
}

TEST_F(RegionTest, WhatIsNoRegionIsRefusedAndLetGoOf) {
  EXPECT_EQ(refusal(-1), Errc::kInvalidArgument) << "no descriptor";
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  EXPECT_EQ(refusal(null.get()), Errc::kInvalidArgument);
  const UniqueFd file(::open((directory / "file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  EXPECT_EQ(refusal(file.get()), Errc::kInvalidArgument) << "not memory";
  const UniqueFd folder(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_EQ(refusal(folder.get()), Errc::kInvalidArgument);
  EXPECT_EQ(refusal(memory(5000, 0).get()), Errc::kInvalidArgument) << "not sealed";
  EXPECT_EQ(refusal(memory(5000, F_SEAL_GROW).get()), Errc::kInvalidArgument) << "it could be cut short";
  EXPECT_EQ(refusal(memory(5000, F_SEAL_SHRINK).get()), Errc::kInvalidArgument);
  EXPECT_EQ(refusal(memory(0).get()), Errc::kInvalidArgument) << "empty";
  EXPECT_EQ(refusal(memory(kPayloadBytesMax + 1).get()), Errc::kTooLarge);
  {
    const UniqueFd region = memory(5000);
    const std::string name = "/proc/self/fd/" + std::to_string(region.get());
    EXPECT_EQ(refusal(UniqueFd(::open(name.c_str(), O_WRONLY | O_CLOEXEC)).get()), Errc::kInvalidArgument);
  }
  EXPECT_EQ(open_memory(), 0u);
  EXPECT_TRUE(service.publications.empty());
  EXPECT_NE(offer(memory(5000).get()).get<client::PublishAccepted>(), nullptr) << "the connection stays";
}

TEST_F(RegionTest, ChangesAreWrittenIntoTheMemoryOfWhoeverHasTheVersion) {
  service.complete = {Version{5}};
  service.in_use.emplace().set_version(5);
  const auto refused = [&](const client::Message& answer) {
    const auto* error = answer.get<client::ErrorReply>();
    return error == nullptr ? Errc::kIo : static_cast<Errc>(error->code);
  };
  const UniqueFd into = memory(0, 0), other = memory(0, 0);
  EXPECT_EQ(refused(ask(client::ChangesRequest{4, 5, "d4"}, into.get())), Errc::kNotFound) << "not acquired";
  ASSERT_NE(ask(client::AcquireRequest{5}, -1).get<client::VersionInstalled>(), nullptr);
  EXPECT_EQ(refused(ask(client::ChangesRequest{4, 5, "d4"}, -1)), Errc::kInvalidArgument) << "no memory";
  EXPECT_EQ(refused(ask(client::ChangesRequest{4, 5, "d4"}, memory(10, 0).get())), Errc::kInvalidArgument)
      << "not empty";
  EXPECT_EQ(refused(ask(client::ChangesRequest{4, 5, "d4"}, memory(0).get())), Errc::kInvalidArgument) << "sealed";
  EXPECT_TRUE(service.listings.empty());

  const int fd = into.get();
  ASSERT_TRUE(
      channel->send({.kind = client::ChangesRequest{4, 5, "d4"}}, client::deadline_after(1000), std::span(&fd, 1)));
  ASSERT_TRUE(net.run_until([&] { return !service.listings.empty(); }));
  EXPECT_EQ(service.listings[0].from, Version{4});
  EXPECT_EQ(service.listings[0].to, Version{5});
  EXPECT_EQ(service.listings[0].from_digest, "d4");
  EXPECT_EQ(refused(ask(client::ChangesRequest{4, 5, "d4"}, other.get())), Errc::kBusy) << "one at a time";
  // The version stays until the list is made, whatever its asker does.
  ASSERT_TRUE(channel->send({.kind = client::ReleaseRequest{5}}, client::deadline_after(1000)));
  ASSERT_TRUE(net.run_until([&] { return service.pinned.size() == 1; }));
  ASSERT_TRUE(service.listings[0].into->write_at(0, std::as_bytes(std::span("abc", 3))).has_value());
  service.listings[0].told(ListedChanges{.elements = 2, .bytes = 3});
  EXPECT_TRUE(service.pinned.empty());
  std::optional<client::Message> answer;
  ASSERT_TRUE(net.run_until([&] {
    auto got = channel->poll();
    if (got.has_value() && *got) answer = **got;
    return answer.has_value();
  }));
  ASSERT_NE(answer->get<client::ChangesReply>(), nullptr);
  EXPECT_EQ(answer->get<client::ChangesReply>()->bytes, 3u);
  EXPECT_EQ(answer->get<client::ChangesReply>()->elements, 2u);
  char text[3];
  EXPECT_EQ(::pread(into.get(), text, 3, 0), 3);
  EXPECT_EQ(std::string_view(text, 3), "abc");
}

TEST_F(RegionTest, WhoeverLeavesBeforeTheirChangesAreListedHarmsNothing) {
  service.complete = {Version{5}};
  const UniqueFd into = memory(0, 0);
  ASSERT_NE(ask(client::AcquireRequest{5}, -1).get<client::VersionInstalled>(), nullptr);
  const int fd = into.get();
  ASSERT_TRUE(
      channel->send({.kind = client::ChangesRequest{4, 5, "d4"}}, client::deadline_after(1000), std::span(&fd, 1)));
  ASSERT_TRUE(net.run_until([&] { return !service.listings.empty(); }));
  channel.reset();
  net.run_for(milliseconds(20));
  EXPECT_EQ(service.pinned, std::vector<Version>{Version{5}});
  service.listings[0].told(fail(Errc::kTooFar, Op::kRead, "too far"));
  EXPECT_TRUE(service.pinned.empty());
}

// A descriptor that no request takes stays with the connection, a few at most, and ends with it.
TEST_F(RegionTest, ChangesAreAcceptedAgainstTheVersionThatIsLastWhenTheirTurnComes) {
  service.next = Version{6};
  service.in_use.emplace().set_version(5);
  const UniqueFd region = memory(5000);
  const auto accepted = [&](std::uint64_t base, std::uint64_t version = 0) -> std::uint64_t {
    const client::Message answer = offer_changes(base, region.get(), version);
    const auto* got = answer.get<client::PublishAccepted>();
    return got == nullptr ? 0 : got->version;
  };
  const auto error = [&](std::uint64_t base) -> std::string {
    const client::Message answer = offer_changes(base, region.get());
    const auto* got = answer.get<client::ErrorReply>();
    if (got == nullptr) return "none";
    EXPECT_EQ(got->code, number(Errc::kWrongBase));
    return got->detail;
  };
  EXPECT_THAT(error(4), HasSubstr("version 6: it changes version 4, and the last one is 5"));
  EXPECT_THAT(error(6), HasSubstr("the last one is 5"));
  EXPECT_THAT(error(0), HasSubstr("the last one is 5"));
  EXPECT_EQ(accepted(5), 6u);  // taken over
  EXPECT_THAT(error(5), HasSubstr("the last one is 6"));
  EXPECT_EQ(accepted(6, 9), 9u);  // waits
  EXPECT_THAT(error(6), HasSubstr("the last one is 9"));
  EXPECT_EQ(accepted(9), 10u);
  ASSERT_EQ(service.publications.size(), 1u);
  const PublishOrder& order = service.publications[0].first;
  EXPECT_TRUE(order.changes);
  EXPECT_EQ(order.base, Version{5});
  EXPECT_EQ(order.changes_bytes, 123u);
  EXPECT_NE(order.region, nullptr);
  EXPECT_FALSE(order.allow_nonfinite);
}

TEST_F(RegionTest, ChangesNeedAVersionAndARegion) {
  const UniqueFd region = memory(5000);
  const auto refusal_of = [&](const client::Message& answer) {
    const auto* error = answer.get<client::ErrorReply>();
    return error == nullptr ? std::string("none") : error->detail;
  };
  EXPECT_THAT(refusal_of(offer_changes(1, region.get())), HasSubstr("there is none yet; publish one whole"));
  service.in_use.emplace().set_version(5);
  EXPECT_THAT(refusal_of(offer_changes(5, -1)), HasSubstr("no descriptor"));
  EXPECT_THAT(refusal_of(offer_changes(5, memory(5000, 0).get())), HasSubstr("not sealed"));
  service.next = fail(Errc::kNotAllowed, Op::kPublish, "a worker publishes nothing");
  EXPECT_THAT(refusal_of(offer_changes(5, region.get())), HasSubstr("a worker"));
  EXPECT_TRUE(service.publications.empty());
  EXPECT_EQ(open_memory(), 1u) << "the test's own";
}

TEST_F(RegionTest, DescriptorsThatNobodyTakesAreBounded) {
  const UniqueFd region = memory(5000);
  for (int i = 0; i < 50; ++i) {
    const int fd = region.get();
    ASSERT_TRUE(channel->send({.kind = client::VersionsRequest{}}, client::deadline_after(1000), std::span(&fd, 1))
                    .has_value());
    net.run_for(milliseconds(1));
  }
  net.run_for(milliseconds(20));
  EXPECT_LE(open_memory(), 1 + Stream::kDescriptorsMax);
  channel.reset();
  ASSERT_TRUE(net.run_until([&] { return open_memory() == 1; }));
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
