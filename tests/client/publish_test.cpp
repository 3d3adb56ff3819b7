#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <map>
#include <thread>

#include "patch/snapshot/safetensors.h"
#include "tests/client/code_of.h"
#include "tests/client/publish_fixture.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using testing::HasSubstr;

TEST_F(PublishTest, WhatIsFilledArrivesAsASealedSafetensorsFile) {
  tensors = {{.name = "b", .dtype = "U8", .shape = {3}, .data = nullptr, .size_bytes = 3},
             {.name = "a", .dtype = "F32", .shape = {2, 2}, .data = nullptr, .size_bytes = 0},
             {.name = "none", .dtype = "BF16", .shape = {0, 7}, .data = nullptr, .size_bytes = 0},
             {.name = "one", .dtype = "F64", .shape = {}, .data = nullptr, .size_bytes = 8}};
  const std::vector<void*> places = client.begin(tensors, {.version = 12}, 1s);
  const float a[4] = {1, 2, 3, 4};
  const double one = 5;
  std::memcpy(places[0], "xyz", 3);
  std::memcpy(places[1], a, sizeof a);
  std::memcpy(places[3], &one, sizeof one);
  const Offered offered = commit(12);
  EXPECT_TRUE(as<local::PublishRequest>(offered.request).region);
  EXPECT_EQ(as<local::PublishRequest>(offered.request).version, 12u);
  EXPECT_EQ(as<local::PublishRequest>(offered.request).path, "");
  ASSERT_GE(offered.fd, 0);
  EXPECT_EQ(::fcntl(offered.fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW), F_SEAL_SHRINK | F_SEAL_GROW);

  const std::string file = offered.bytes();
  const auto header = parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), "region");
  ASSERT_TRUE(header.has_value()) << header.error().message();
  EXPECT_EQ(header->data_offset_bytes % 64, 0u);
  ASSERT_EQ(header->tensors.size(), 4u);
  for (const TensorInfo& tensor : header->tensors) {
    const std::string bytes = file.substr(tensor.offset_bytes, tensor.size_bytes);
    if (tensor.name == "a") {
      EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(a), sizeof a));
      EXPECT_EQ(tensor.shape, (std::vector<std::uint64_t>{2, 2}));
    } else if (tensor.name == "b") {
      EXPECT_EQ(bytes, "xyz");
    } else if (tensor.name == "one") {
      EXPECT_EQ(bytes, std::string(reinterpret_cast<const char*>(&one), sizeof one));
    } else {
      EXPECT_EQ(tensor.name, "none");
    }
  }
}

// The origin reads version 1 slowly. Whatever the trainer tries meanwhile, the bytes stay those of version 1.
TEST_F(PublishTest, DoesNotHandOutWhatTheOriginMayStillBeReading) {
  const Offered first = publish(1, 'a');
  const std::string version_1 = first.bytes();
  ASSERT_THAT(version_1, HasSubstr(std::string(kBytes, 'a')));
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto start = Clock::now();
    EXPECT_EQ(code_of([&] { return fill('b', {}, 20ms), 0; }), WC_TIMED_OUT);
    EXPECT_LT(Clock::now() - start, 10s);
    EXPECT_EQ(first.bytes(), version_1) << attempt;
  }
  daemon.send(taken_reply(1), first.id());
  const Offered second = publish(2, 'b');
  EXPECT_THAT(second.bytes(), HasSubstr(std::string(kBytes, 'b')));
}

TEST_F(PublishTest, BeginsInASecondRegionWhereThatIsAskedFor) {
  const wc::PublishOptions options{.second_region = true};
  const Offered first = publish(1, 'a', options);
  const Offered second = publish(2, 'b', options);
  EXPECT_THAT(first.bytes(), HasSubstr(std::string(kBytes, 'a')));
  EXPECT_THAT(second.bytes(), HasSubstr(std::string(kBytes, 'b')));
  EXPECT_EQ(code_of([&] { return fill('c', options, 20ms), 0; }), WC_TIMED_OUT) << "there is no third one";
  // Either may be taken over first.
  daemon.send(taken_reply(2), second.id());
  const Offered third = publish(3, 'c', options);
  EXPECT_THAT(first.bytes(), HasSubstr(std::string(kBytes, 'a')));
  struct stat of_second {
  }, of_third{};
  ASSERT_EQ(::fstat(second.fd, &of_second), 0);
  ASSERT_EQ(::fstat(third.fd, &of_third), 0);
  EXPECT_EQ(of_second.st_ino, of_third.st_ino) << "the memory is used again";
}

TEST_F(PublishTest, UsesTheSameAddressesAgain) {
  const void* const first = client.begin(tensors, {}, 1s).at(0);
  client.abort();
  EXPECT_EQ(client.begin(tensors, {}, 1s).at(0), first);
  client.abort();
  tensors[0].shape = {kBytes + 100'000};
  EXPECT_NO_THROW(static_cast<void>(client.begin(tensors, {}, 1s)));
}

// A daemon that has closed the connection may live on and read on, so its region is never written again.
TEST_F(PublishTest, DoesNotWriteAfterTheConnectionsEndWhatTheDaemonMayStillRead) {
  const Offered first = publish(1, 'a');
  const std::string version_1 = first.bytes();
  daemon.end();
  const Offered second = publish(2, 'b');
  EXPECT_EQ(first.bytes(), version_1);
  EXPECT_THAT(second.bytes(), HasSubstr(std::string(kBytes, 'b')));
}

// The request left whole, so the origin may be reading: the region is not the caller's any more.
TEST_F(PublishTest, ACommitThatTimesOutLeavesTheRegionToTheOrigin) {
  fill('a');
  EXPECT_EQ(code_of([&] { return client.commit(20ms); }), WC_TIMED_OUT);
  EXPECT_EQ(code_of([&] { return client.commit(20ms); }), WC_INVALID_ARGUMENT) << "nothing is begun";
  EXPECT_EQ(code_of([&] { return fill('b', {}, 20ms), 0; }), WC_TIMED_OUT);
  const Offered first = receive();
  EXPECT_THAT(first.bytes(), HasSubstr(std::string(kBytes, 'a')));
  // It was published after all; the last committed one can be waited for.
  daemon.send(accepted_reply(5), first.id());
  daemon.send(taken_reply(5), first.id());
  daemon.play([this] {
    const auto wait = daemon.receive();
    ASSERT_TRUE(wait && wait->get<local::WaitRequest>());
    EXPECT_EQ(as<local::WaitRequest>(*wait).version, 5u);
    daemon.send(result_reply(5), wait->request_id);
  });
  EXPECT_EQ(client.wait(0, {}, 5s).version, 5u);
}

TEST_F(PublishTest, ACommitThatIsCancelledLeavesTheRegionToTheOrigin) {
  fill('a');
  std::thread other([this] {
    const Offered first = receive();
    client.cancel();
  });
  EXPECT_EQ(code_of([&] { return client.commit(20s); }), WC_CANCELLED);
  other.join();
  EXPECT_EQ(code_of([&] { return fill('b', {}, 20ms), 0; }), WC_TIMED_OUT);
}

TEST_F(PublishTest, WhatTheOriginRefusesCanBeCommittedAgain) {
  fill('a', {.version = 3});
  daemon.play([this] {
    const Offered refused = receive();
    EXPECT_EQ(as<local::PublishRequest>(refused.request).version, 3u);
    daemon.send(error_reply(Errc::kAlreadyExists, "not greater"), refused.id());
    const Offered accepted = receive();
    EXPECT_EQ(as<local::PublishRequest>(accepted.request).version, 0u);
    EXPECT_THAT(accepted.bytes(), HasSubstr(std::string(kBytes, 'a')));
    daemon.send(accepted_reply(9), accepted.id());
  });
  EXPECT_EQ(code_of([&] { return client.commit(5s); }), WC_ALREADY_EXISTS);
  EXPECT_EQ(code_of([&] { return fill('b', {}, 20ms), 0; }), WC_BUSY) << "it is still begun";
  EXPECT_EQ(client.commit(wc::PublishOptions{}, 5s), 9u);
}

TEST_F(PublishTest, AnAbortedRegionIsHandedOutAgain) {
  fill('a');
  client.abort();
  client.abort();
  const Offered offered = publish(1, 'b');
  EXPECT_THAT(offered.bytes(), HasSubstr(std::string(kBytes, 'b')));
}

TEST_F(PublishTest, AFailedTakeoverFreesTheRegionAndIsToldByWait) {
  const Offered first = publish(1, 'a');
  daemon.send(error_reply(Errc::kInvalidArgument, "a tensor is not finite"), first.id());
  const Offered second = publish(1, 'b');
  daemon.send(taken_reply(1), second.id());
  daemon.answer(result_reply(1));
  EXPECT_EQ(client.wait(0, {}, 5s).version, 1u) << "the last one";

  const Offered third = publish(2, 'c');
  daemon.send(error_reply(Errc::kNoSpace, "the disk is full"), third.id());
  daemon.answer(error_reply(Errc::kNotFound, "not known"));
  EXPECT_EQ(code_of([&] { return client.wait(2, {}, 5s); }), WC_NO_SPACE) << "why it is not known";
}

TEST_F(PublishTest, WaitAsksForTheShareOfWorkersAndTellsProgress) {
  const Offered first = publish(1, 'a');
  daemon.send(taken_reply(1), first.id());
  daemon.play([this] {
    const auto wait = daemon.receive();
    ASSERT_TRUE(wait && wait->get<local::WaitRequest>());
    EXPECT_EQ(as<local::WaitRequest>(*wait).fraction, 0.5);
    EXPECT_TRUE(as<local::WaitRequest>(*wait).progress);
    EXPECT_GT(as<local::WaitRequest>(*wait).timeout_s, 4);
    EXPECT_LE(as<local::WaitRequest>(*wait).timeout_s, 5);
    local::PublishProgress progress;
    progress.workers_total = 3;
    progress.workers.push_back({.name = "gpu-1"});
    daemon.send(progress, wait->request_id);
    local::PublishResult outcome;
    outcome.version = 1;
    outcome.kind = static_cast<std::uint32_t>(PayloadKind::kPatch);
    outcome.workers = 3;
    outcome.installed = 1;
    outcome.t50_s = 0.25;
    outcome.missing = {"gpu-2", "gpu-3"};
    outcome.topology = "chain";
    daemon.send(outcome, wait->request_id);
  });
  std::vector<std::string> seen;
  const wc::Outcome outcome = client.wait(
      1, {.fraction = 0.5, .on_progress = [&](const wc_progress& p) { seen.push_back(p.worker[0].name); }}, 5s);
  EXPECT_EQ(seen, std::vector<std::string>{"gpu-1"});
  EXPECT_FALSE(outcome.reached);
  EXPECT_EQ(outcome.payload, WC_PATCH);
  EXPECT_EQ(outcome.t50_s, 0.25);
  EXPECT_FALSE(outcome.t90_s.has_value());
  EXPECT_EQ(outcome.missing, (std::vector<std::string>{"gpu-2", "gpu-3"}));
  EXPECT_EQ(outcome.topology, "chain");
}

TEST_F(PublishTest, AWaitEndsInTimeWhenNobodyAnswers) {
  const Offered first = publish(1, 'a');
  const auto start = Clock::now();
  EXPECT_EQ(code_of([&] { return client.wait(1, {}, 50ms); }), WC_TIMED_OUT);
  EXPECT_LT(Clock::now() - start, 10s);
  EXPECT_EQ(code_of([&] { return client.wait(1, {.fraction = 2, .on_progress = {}}, 50ms); }), WC_INVALID_ARGUMENT);
}

TEST_F(PublishTest, NothingCanBeWaitedForBeforeACommit) {
  EXPECT_EQ(code_of([&] { return client.wait(0, {}, 50ms); }), WC_NOT_FOUND);
  EXPECT_EQ(code_of([&] { return client.region_fd(); }), WC_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { return client.commit(50ms); }), WC_INVALID_ARGUMENT);
}

TEST_F(PublishTest, RefusesWhatIsNoSnapshot) {
  const auto begin = [&](std::vector<wc::Tensor> given) {
    return code_of([&] { return client.begin(given, {}, 50ms); });
  };
  EXPECT_EQ(begin({}), WC_INVALID_ARGUMENT);
  EXPECT_EQ(begin({{.name = "w", .dtype = "U8", .shape = {3}, .data = nullptr, .size_bytes = 4}}), WC_INVALID_ARGUMENT);
  EXPECT_EQ(begin({{.name = "\xff", .dtype = "U8", .shape = {3}, .data = nullptr}}), WC_INVALID_ARGUMENT);
  EXPECT_EQ(begin({{.name = "w", .dtype = "what", .shape = {3}, .data = nullptr}}), WC_INVALID_ARGUMENT);
  EXPECT_EQ(begin({{.name = "__metadata__", .dtype = "U8", .shape = {3}, .data = nullptr}}), WC_INVALID_ARGUMENT);
  EXPECT_EQ(begin({tensors[0], tensors[0]}), WC_INVALID_ARGUMENT);
  EXPECT_EQ(begin({{.name = "w", .dtype = "U8", .shape = {1ull << 40, 1ull << 40}, .data = nullptr}}), WC_TOO_LARGE);
  EXPECT_EQ(begin({{.name = "w", .dtype = "U8", .shape = {1ull << 50}, .data = nullptr}}), WC_NO_SPACE);
  EXPECT_EQ(begin({{.name = "w", .dtype = "U8", .shape = std::vector<std::uint64_t>(65, 1), .data = nullptr}}),
            WC_INVALID_ARGUMENT);
  EXPECT_EQ(begin(tensors), WC_OK) << "after all of these";
}

TEST_F(PublishTest, PublishCopiesTheTensors) {
  const std::string bytes(kBytes, 'q');
  EXPECT_EQ(code_of([&] { return client.publish(tensors, {}, 1s); }), WC_INVALID_ARGUMENT) << "their data is NULL";
  tensors[0].data = bytes.data();
  const Offered offered = accept_during(1, [&] { EXPECT_EQ(client.publish(tensors, {}, 5s), 1u); });
  EXPECT_THAT(offered.bytes(), HasSubstr(bytes));
}

TEST_F(PublishTest, ReserveTakesTheMemoryAheadOfTime) {
  client.reserve(tensors, 2);
  EXPECT_EQ(code_of([&] { return client.reserve(tensors, 3), 0; }), WC_INVALID_ARGUMENT);
  fill('a');
  const int fd = client.region_fd();
  struct stat info {};
  ASSERT_EQ(::fstat(fd, &info), 0);
  EXPECT_GE(std::uint64_t(info.st_blocks) * 512, kBytes);
  EXPECT_EQ(code_of([&] { return client.reserve(tensors, 1), 0; }), WC_BUSY);
}

TEST_F(PublishTest, AnotherProcessFillsItsPart) {
  tensors.push_back({.name = "theirs", .dtype = "I64", .shape = {4}, .data = nullptr, .size_bytes = 0});
  const std::vector<void*> places = client.begin(tensors, {}, 1s);
  std::memset(places[0], 'm', kBytes);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // By the number that another program would be told, not by what fork() has given it.
    const std::string path = "/proc/" + std::to_string(::getppid()) + "/fd/" + std::to_string(client.region_fd());
    const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    try {
      wc::Region region(fd);
      ::close(fd);
      const wc_slot slot = region.find("theirs");
      if (region.size() != 2 || slot.size_bytes != 32 || slot.rank != 1 || slot.shape[0] != 4) ::_exit(2);
      std::memset(slot.address, 't', slot.size_bytes);
      ::_exit(region.slot(0).name == std::string("theirs") ? 0 : 3);
    } catch (const wc::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ::_exit(1);
    }
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const Offered offered = commit(1);
  EXPECT_THAT(offered.bytes(), HasSubstr(std::string(kBytes, 'm')));
  EXPECT_THAT(offered.bytes(), HasSubstr(std::string(32, 't')));
}

TEST(Region, RefusesWhatIsNone) {
  const auto attach = [](int fd) { return code_of([&] { return wc::Region(fd); }); };
  EXPECT_EQ(attach(-1), WC_INVALID_ARGUMENT);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(attach(null), WC_INVALID_ARGUMENT);
  ::close(null);
  const int unsealed = ::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  constexpr std::uint64_t kBehindBytes = 8 * WC_PARTS_MAX + 64, kFileBytes = 4096 + kBehindBytes;
  ASSERT_EQ(::ftruncate(unsealed, kFileBytes), 0);
  EXPECT_EQ(attach(unsealed), WC_INVALID_ARGUMENT) << "it could be cut short under the mapping";
  ASSERT_EQ(::fcntl(unsealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  EXPECT_EQ(attach(unsealed), WC_INVALID_ARGUMENT) << "it is all zero";
  // Whoever shares it may have written anything.
  const std::array<std::uint64_t, 5> footer{0x326f696765726377, kFileBytes - kBehindBytes, 7, 0, kFileBytes};
  ASSERT_EQ(::pwrite(unsealed, footer.data(), sizeof footer, kFileBytes - 64), ssize_t(sizeof footer));
  EXPECT_EQ(attach(unsealed), WC_CORRUPT) << "its header is all zero";
  const std::uint64_t beyond = kFileBytes - kBehindBytes + 1;
  ASSERT_EQ(::pwrite(unsealed, &beyond, sizeof beyond, kFileBytes - 64 + 8), ssize_t(sizeof beyond));
  EXPECT_EQ(attach(unsealed), WC_INVALID_ARGUMENT);
  ::close(unsealed);
}

TEST_F(PublishTest, ARegionSaysWhichPublicationItIsFilledFor) {
  fill('a');
  const std::uint64_t first = client.region_id();
  const wc::Region attached(client.region_fd());
  EXPECT_NE(first, 0u);
  EXPECT_EQ(attached.filled_for(), first);
  const Offered offered = commit(1);
  EXPECT_EQ(attached.filled_for(), 0u) << "the origin reads it";
  EXPECT_EQ(code_of([&] { return client.region_id(); }), WC_INVALID_ARGUMENT);
  daemon.send(taken_reply(1), offered.id());
  fill('b');
  const std::uint64_t second = client.region_id();
  EXPECT_NE(second, first);
  EXPECT_EQ(attached.filled_for(), second) << "the same memory is another publication's";
  client.abort();
  EXPECT_EQ(attached.filled_for(), 0u);
}

TEST_F(PublishTest, ARegionThatIsRefusedIsFilledForTheSamePublicationAgain) {
  fill('a');
  const std::uint64_t id = client.region_id();
  const wc::Region attached(client.region_fd());
  daemon.play([this] {
    const Offered offered = receive();
    daemon.send(error_reply(Errc::kBusy, "later"), offered.id());
  });
  EXPECT_EQ(code_of([&] { return client.commit(5s); }), WC_BUSY);
  EXPECT_EQ(attached.filled_for(), id);
  EXPECT_EQ(client.region_id(), id);
}

TEST_F(PublishTest, IsCommittedWhenAllPartsAreDone) {
  fill('a', {.parts = 3});
  const std::uint64_t first = client.region_id();
  wc::Region mine(client), theirs(client.region_fd());
  const auto message_of = [&] {
    try {
      client.commit(20ms);
      return std::string("committed");
    } catch (const wc::Error& error) {
      EXPECT_EQ(error.code(), WC_BUSY);
      return std::string(error.what());
    }
  };
  EXPECT_THAT(message_of(), HasSubstr("3 of 3 parts are not done (0, 1, 2)"));
  mine.done(first, 0);
  theirs.done(first, 2);
  theirs.done(first, 2);
  EXPECT_THAT(message_of(), HasSubstr("1 of 3 parts are not done (1)"));
  EXPECT_EQ(code_of([&] { return theirs.done(first, 3), 0; }), WC_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { return theirs.done(first + 1, 1), 0; }), WC_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { return theirs.done(0, 1), 0; }), WC_INVALID_ARGUMENT);
  theirs.done(first, 1);
  const Offered offered = commit(1);
  EXPECT_EQ(code_of([&] { return theirs.done(first, 1), 0; }), WC_INVALID_ARGUMENT) << "the origin reads it";
  daemon.send(taken_reply(1), offered.id());

  // What was done for the one before does not count for the next one in the same memory, and neither does what is late.
  fill('b', {.parts = 3});
  EXPECT_EQ(theirs.filled_for(), client.region_id());
  EXPECT_EQ(code_of([&] { return theirs.done(first, 0), 0; }), WC_INVALID_ARGUMENT);
  EXPECT_THAT(message_of(), HasSubstr("3 of 3 parts are not done"));
  client.abort();
  fill('c');
  EXPECT_EQ(code_of([&] { return theirs.done(client.region_id(), 0), 0; }), WC_INVALID_ARGUMENT) << "no parts";
  const Offered whole = commit(2);
  EXPECT_THAT(whole.bytes(), HasSubstr(std::string(kBytes, 'c')));
}

TEST_F(PublishTest, PartsAreAtMostSoManyAndOnlyOfWhatIsBegun) {
  EXPECT_EQ(code_of([&] { return client.begin(tensors, {.parts = WC_PARTS_MAX + 1}, 1s); }), WC_TOO_LARGE);
  EXPECT_EQ(code_of([&] { return client.publish(tensors, {.parts = 1}, 1s); }), WC_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { return client.publish_sparse(1, {}, {.parts = 1}, 1s); }), WC_INVALID_ARGUMENT);
  EXPECT_EQ(code_of([&] { return client.publish_path("/weights", {.parts = 1}, 1s); }), WC_INVALID_ARGUMENT);
  fill('a', {.parts = WC_PARTS_MAX});
  wc::Region region(client);
  for (std::uint32_t part = 0; part < WC_PARTS_MAX; ++part) region.done(client.region_id(), part);
  commit(1);
}

TEST_F(PublishTest, AMappingIsRenewedForTheNextPublicationInTheSameMemory) {
  const auto begin = [&] { ASSERT_EQ(client.begin(tensors, {}, 1s).size(), 2u); };
  tensors[0].shape = {300};
  tensors.push_back({.name = "v", .dtype = "U8", .shape = {700}, .data = nullptr, .size_bytes = 0});
  begin();
  wc::Region attached(client.region_fd());
  EXPECT_NE(attached.memory(), 0u);
  EXPECT_EQ(attached.memory(), wc::Region(client).memory());
  const void* const place = attached.find("v").address;
  client.abort();
  // As large, but otherwise arranged.
  std::swap(tensors[0].shape, tensors[1].shape);
  begin();
  EXPECT_EQ(wc::Region(client).memory(), attached.memory());
  attached.renew();
  EXPECT_EQ(attached.find("v").size_bytes, 300u);
  EXPECT_EQ(attached.find("w").size_bytes, 700u);
  EXPECT_NE(attached.find("w").address, place);
  client.abort();
  tensors[0].shape = {2 * kBytes};
  begin();
  EXPECT_NE(wc::Region(client).memory(), attached.memory());
}

TEST_F(PublishTest, MemoryThatIsHeldOutlivesAnAbortAndAnotherLayout) {
  wc_client* raw = nullptr;
  ASSERT_EQ(wc_open(daemon.state_dir().c_str(), 1000, &raw, nullptr), WC_OK);
  const auto begin = [&](std::uint64_t bytes) {
    const std::uint64_t shape[] = {bytes};
    wc_tensor tensor{};
    tensor.name = "w", tensor.dtype = "U8", tensor.shape = shape, tensor.rank = 1;
    void* place = nullptr;
    EXPECT_EQ(wc_begin(raw, nullptr, &tensor, 1, &place, 1000, nullptr), WC_OK);
    return static_cast<char*>(place);
  };
  wc_region* region = nullptr;
  EXPECT_EQ(wc_region_hold(raw, &region, nullptr), WC_INVALID_ARGUMENT) << "nothing was begun";
  char* const place = begin(kBytes);
  ASSERT_EQ(wc_region_hold(raw, &region, nullptr), WC_OK);
  wc_slot slot = WC_INIT(slot);
  ASSERT_EQ(wc_region_find(region, "w", &slot, nullptr), WC_OK);
  EXPECT_EQ(slot.address, place) << "the same mapping";
  EXPECT_EQ(slot.size_bytes, kBytes);
  std::memset(place, 'a', kBytes);
  EXPECT_EQ(wc_abort(raw, nullptr), WC_OK);
  std::memset(begin(2 * kBytes), 'b', 2 * kBytes);
  wc_close(raw);
  EXPECT_EQ(std::string(place, kBytes), std::string(kBytes, 'a'));
  wc_region_close(region);
}

// ---- files beside the weights, and another model

TEST_F(PublishTest, FilesTravelBesideTheWeights) {
  fill('a', {.files = {{"config.json", "{}", 2, 0}, {"empty.txt", nullptr, 0, 0}}});
  Offered offered = commit(1);
  EXPECT_EQ(offered.files(), (std::map<std::string, std::string>{{"config.json", "{}"}, {"empty.txt", ""}}));
  EXPECT_FALSE(as<local::PublishRequest>(offered.request).new_model);
  daemon.send(taken_reply(1), offered.id());
  fill('b', {.new_model = true});
  offered = commit(2);
  EXPECT_EQ(offered.files_fd, -1);
  EXPECT_EQ(as<local::PublishRequest>(offered.request).files_bytes, 0u);
  EXPECT_TRUE(as<local::PublishRequest>(offered.request).new_model);
  daemon.play([this] { daemon.send(accepted_reply(3), receive().id()); });
  EXPECT_EQ(code_of([&] { return client.publish_path("/x.safetensors", {.files_directory = "/nowhere"}, 5s); }),
            WC_NOT_FOUND);
  client.publish_path("/x.safetensors", {.files = {{"config.json", "{}", 2, 0}}}, 5s);
}

TEST_F(PublishTest, WhatTheOriginNoticedIsToldByWait) {
  const Offered offered = publish(1, 'a');
  local::PublishTaken taken = taken_reply(1);
  taken.notice = "without tokenizer.json";
  daemon.send(taken, offered.id());
  daemon.answer(result_reply(1));
  EXPECT_EQ(client.wait(1, {}, 5s).notice, "without tokenizer.json");
}

TEST_F(PublishTest, ARegionHasNoNameAndGoesWithItsClient) {
  fill('a');
  const int fd = client.region_fd();
  const std::string link = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd)).string();
  EXPECT_THAT(link, HasSubstr("memfd:weightcast"));
  const auto regions = [] {
    int count = 0;
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code error;
      count += std::filesystem::read_symlink(entry, error).string().find("memfd:weightcast") != std::string::npos;
    }
    return count;
  };
  EXPECT_EQ(regions(), 1);
  client = wc::Client(daemon.state_dir());
  EXPECT_EQ(regions(), 0);
}

}  // namespace
}  // namespace weightcast
