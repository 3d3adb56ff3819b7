// Descriptors at the local socket: regions to publish from, files, and memory for lists of changes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include "base/files/file_system.h"
#include "client/local_channel.h"
#include "tests/transport/node/local_api_fixture.h"
#include "transport/io/net/stream.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

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
  local::Message offer(int fd) {
    local::PublishRequest request;
    request.region = true;
    return ask(request, fd);
  }
  local::Message offer_changes(std::uint64_t base, int fd, std::uint64_t version = 0) {
    local::PublishChangesRequest request;
    request.version = version;
    request.base_version = base;
    request.changes_bytes = 123;
    return ask(request, fd);
  }
  local::Message ask(local::Message::Kind request, int fd) {
    return ask(std::move(request), fd >= 0 ? std::vector<int>{fd} : std::vector<int>());
  }
  local::Message ask(local::Message::Kind request, const std::vector<int>& descriptors) {
    EXPECT_TRUE(channel->send({.kind = std::move(request)}, client::deadline_after(1000), descriptors).has_value());
    std::optional<local::Message> answer;
    EXPECT_TRUE(net.run_until([&] {
      auto got = channel->poll();
      if (got.has_value() && *got) answer = **got;
      return !got.has_value() || answer.has_value();
    }));
    return answer.value_or(local::Message{});
  }
  Errc refusal(int fd) {
    const local::Message answer = offer(fd);
    const auto* error = answer.get<local::ErrorReply>();
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
    const local::Message answer = offer(region.get());
    ASSERT_NE(answer.get<local::PublishAccepted>(), nullptr);
  }
  ASSERT_EQ(service.publications.size(), 1u);
  const FileRef file = std::move(service.publications[0].first.region);
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(file->info()->size_bytes, 5000u);
  EXPECT_EQ(open_memory(), 1u) << "the daemon's own";
  service.publications[0].second(TakenOver{5000});
}

TEST_F(RegionTest, FilesComeInMemoryOfTheirOwnAfterTheRegions) {
  local::PublishRequest request;
  request.region = true;
  request.region_bytes = 4000;
  request.files_bytes = 300;
  request.new_model = true;
  {
    const UniqueFd region = memory(5000), files = memory(400);
    EXPECT_NE(ask(request, {region.get(), files.get()}).get<local::PublishAccepted>(), nullptr);
    EXPECT_NE(ask(request, {region.get()}).get<local::ErrorReply>(), nullptr) << "the files' is missing";
    EXPECT_NE(ask(request, {region.get(), memory(400, 0).get()}).get<local::ErrorReply>(), nullptr) << "not sealed";
    request.region = false;
    request.path = "/x.safetensors";
    EXPECT_NE(ask(request, {files.get()}).get<local::PublishAccepted>(), nullptr) << "beside a path, alone";
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
  EXPECT_NE(offer(memory(5000).get()).get<local::PublishAccepted>(), nullptr) << "the connection stays";
}

TEST_F(RegionTest, ChangesAreWrittenIntoTheMemoryOfWhoeverHasTheVersion) {
  service.complete = {Version{5}};
  service.in_use.emplace().version = 5;
  const auto refused = [&](const local::Message& answer) {
    const auto* error = answer.get<local::ErrorReply>();
    return error == nullptr ? Errc::kIo : static_cast<Errc>(error->code);
  };
  const UniqueFd into = memory(0, 0), other = memory(0, 0);
  EXPECT_EQ(refused(ask(local::ChangesRequest{4, 5, "d4"}, into.get())), Errc::kNotFound) << "not acquired";
  ASSERT_NE(ask(local::AcquireRequest{5}, -1).get<local::VersionInstalled>(), nullptr);
  EXPECT_EQ(refused(ask(local::ChangesRequest{4, 5, "d4"}, -1)), Errc::kInvalidArgument) << "no memory";
  EXPECT_EQ(refused(ask(local::ChangesRequest{4, 5, "d4"}, memory(10, 0).get())), Errc::kInvalidArgument)
      << "not empty";
  EXPECT_EQ(refused(ask(local::ChangesRequest{4, 5, "d4"}, memory(0).get())), Errc::kInvalidArgument) << "sealed";
  EXPECT_TRUE(service.listings.empty());

  const int fd = into.get();
  ASSERT_TRUE(channel->send({.kind = local::ChangesRequest{4, 5, "d4", true}}, client::deadline_after(1000),
                            std::span(&fd, 1)));
  ASSERT_TRUE(net.run_until([&] { return !service.listings.empty(); }));
  EXPECT_EQ(service.listings[0].from, Version{4});
  EXPECT_EQ(service.listings[0].to, Version{5});
  EXPECT_EQ(service.listings[0].from_digest, "d4");
  EXPECT_TRUE(service.listings[0].old_values);
  EXPECT_EQ(refused(ask(local::ChangesRequest{4, 5, "d4"}, other.get())), Errc::kBusy) << "one at a time";
  // The version stays until the list is made, whatever its asker does.
  ASSERT_TRUE(channel->send({.kind = local::ReleaseRequest{5}}, client::deadline_after(1000)));
  // Both versions stay until it is written.
  ASSERT_TRUE(net.run_until([&] { return service.pinned == std::vector{Version{4}, Version{5}}; }));
  ASSERT_TRUE(service.listings[0].into->write_at(0, std::as_bytes(std::span("abc", 3))).has_value());
  service.listings[0].told(ListedChanges{.elements = 2, .bytes = 3});
  EXPECT_TRUE(service.pinned.empty());
  std::optional<local::Message> answer;
  ASSERT_TRUE(net.run_until([&] {
    auto got = channel->poll();
    if (got.has_value() && *got) answer = **got;
    return answer.has_value();
  }));
  ASSERT_NE(answer->get<local::ChangesReply>(), nullptr);
  EXPECT_EQ(answer->get<local::ChangesReply>()->bytes, 3u);
  EXPECT_EQ(answer->get<local::ChangesReply>()->elements, 2u);
  char text[3];
  EXPECT_EQ(::pread(into.get(), text, 3, 0), 3);
  EXPECT_EQ(std::string_view(text, 3), "abc");
}

TEST_F(RegionTest, WhoeverLeavesBeforeTheirChangesAreListedHarmsNothing) {
  service.complete = {Version{5}};
  const UniqueFd into = memory(0, 0);
  ASSERT_NE(ask(local::AcquireRequest{5}, -1).get<local::VersionInstalled>(), nullptr);
  const int fd = into.get();
  ASSERT_TRUE(
      channel->send({.kind = local::ChangesRequest{4, 5, "d4"}}, client::deadline_after(1000), std::span(&fd, 1)));
  ASSERT_TRUE(net.run_until([&] { return !service.listings.empty(); }));
  channel.reset();
  net.run_for(milliseconds(20));
  EXPECT_EQ(service.pinned, (std::vector{Version{4}, Version{5}}));
  service.listings[0].told(fail(Errc::kTooFar, Op::kRead, "too far"));
  EXPECT_TRUE(service.pinned.empty());
}

TEST_F(RegionTest, ChangesAreAcceptedAgainstTheVersionThatIsLastWhenTheirTurnComes) {
  service.next = Version{6};
  service.in_use.emplace().version = 5;
  const UniqueFd region = memory(5000);
  const auto accepted = [&](std::uint64_t base, std::uint64_t version = 0) -> std::uint64_t {
    const local::Message answer = offer_changes(base, region.get(), version);
    const auto* got = answer.get<local::PublishAccepted>();
    return got == nullptr ? 0 : got->version;
  };
  const auto error = [&](std::uint64_t base) -> std::string {
    const local::Message answer = offer_changes(base, region.get());
    const auto* got = answer.get<local::ErrorReply>();
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
  const auto refusal_of = [&](const local::Message& answer) {
    const auto* error = answer.get<local::ErrorReply>();
    return error == nullptr ? std::string("none") : error->detail;
  };
  EXPECT_THAT(refusal_of(offer_changes(1, region.get())), HasSubstr("there is none yet; publish one whole"));
  service.in_use.emplace().version = 5;
  EXPECT_THAT(refusal_of(offer_changes(5, -1)), HasSubstr("no descriptor"));
  EXPECT_THAT(refusal_of(offer_changes(5, memory(5000, 0).get())), HasSubstr("not sealed"));
  service.next = fail(Errc::kNotAllowed, Op::kPublish, "a worker publishes nothing");
  EXPECT_THAT(refusal_of(offer_changes(5, region.get())), HasSubstr("a worker"));
  EXPECT_TRUE(service.publications.empty());
  EXPECT_EQ(open_memory(), 1u) << "the test's own";
}

// A descriptor that no request takes stays with the connection, a few at most, and ends with it.
TEST_F(RegionTest, DescriptorsThatNobodyTakesAreBounded) {
  const UniqueFd region = memory(5000);
  for (int i = 0; i < 50; ++i) {
    const int fd = region.get();
    ASSERT_TRUE(
        channel->send({.kind = local::VersionsRequest{}}, client::deadline_after(1000), std::span(&fd, 1)).has_value());
    net.run_for(milliseconds(1));
  }
  net.run_for(milliseconds(20));
  EXPECT_LE(open_memory(), 1 + Stream::kDescriptorsMax);
  channel.reset();
  ASSERT_TRUE(net.run_until([&] { return open_memory() == 1; }));
}

}  // namespace
}  // namespace weightcast
