#include "transport/node/payload/archive_reader.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/transport/core/payload_fixture.h"
#include "tests/transport/io/io_fixture.h"
#include "transport/io/buffer.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kChunks = 100;
constexpr std::uint32_t kLastBytes = 100;

/// Payload bytes by their place, in pieces that end within chunks; stands still when it is told to.
class MemoryArchive final : public PayloadArchive {
 public:
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    bool stands_still = false, stopped = false;
    int waiting = 0;
    std::uint64_t extra_bytes = 0;
    std::uint64_t missing_bytes = 0;
  };
  explicit MemoryArchive(Shared& shared) : shared_(shared) {}

  static std::byte at(std::uint64_t place) { return std::byte(place * 7 + place / 4096); }

  Result<std::vector<ContentDigest>> find(const Manifest& manifest) override {
    WC_TRY(wait());
    return chunk_digests(manifest.version, manifest.chunk_count());
  }
  Status read(const Manifest&, std::uint64_t offset, std::uint64_t size, const Sink& sink) override {
    WC_TRY(wait());
    size += shared_.extra_bytes;
    size -= shared_.missing_bytes;
    while (size > 0) {
      std::vector<std::byte> piece(std::min<std::uint64_t>(size, 1000));
      for (std::byte& byte : piece) byte = at(offset++);
      size -= piece.size();
      WC_TRY(sink(piece));
    }
    return {};
  }
  void stop() override {
    const std::lock_guard lock(shared_.mutex);
    shared_.stopped = true;
    shared_.changed.notify_all();
  }

 private:
  Status wait() {
    std::unique_lock lock(shared_.mutex);
    ++shared_.waiting;
    shared_.changed.wait(lock, [&] { return !shared_.stands_still || shared_.stopped; });
    if (!shared_.stopped) return {};
    return fail(Errc::kIo, Op::kReceive, "stopped");
  }
  Shared& shared_;
};

struct ArchiveReaderTest : testing::Test {
  Net net;
  MemoryArchive::Shared shared;
  std::shared_ptr<const Manifest> manifest = [] {
    auto made = std::make_shared<Manifest>(*manifest_of(Version{3}, kChunks));
    made->payload_bytes -= kChunkBytesMin - kLastBytes;
    return made;
  }();
  std::optional<std::size_t> found;
  std::vector<ChunkArrival> chunks;
  std::vector<std::pair<std::uint32_t, Status>> ended;
  std::optional<ArchiveReader> reader;

  void SetUp() override {
    reader.emplace(net.loop, std::make_unique<MemoryArchive>(shared), 2,
                   ArchiveReader::Handlers{
                       .on_found =
                           [this](PayloadId, std::uint32_t, Result<std::vector<ContentDigest>> digests) {
                             found = digests.has_value() ? digests->size() : 0;
                           },
                       .on_chunk = [this](std::uint32_t, ChunkArrival chunk) { chunks.push_back(std::move(chunk)); },
                       .on_ended = [this](PayloadId, std::uint32_t request,
                                          const Status& status) { ended.emplace_back(request, status); }});
  }
  void read(std::uint32_t request, std::uint32_t first, std::uint32_t count, Rate rate = {}) {
    reader->read({request, manifest, ChunkIndex{first}, count, rate});
  }
  void stand_still(bool yes) {
    const std::lock_guard lock(shared.mutex);
    shared.stands_still = yes;
    shared.changed.notify_all();
  }
  bool is_waited_for() {
    const std::lock_guard lock(shared.mutex);
    return shared.waiting > 0;
  }
};

TEST_F(ArchiveReaderTest, BringsChunksInOrderWithTheirDigests) {
  reader->find({1, manifest});
  ASSERT_TRUE(net.run_until([&] { return found.has_value(); }));
  EXPECT_EQ(*found, kChunks);
  read(2, 90, 10);
  ASSERT_TRUE(net.run_until([&] { return !ended.empty(); }));
  EXPECT_EQ(ended[0].first, 2u);
  EXPECT_TRUE(ended[0].second.has_value());
  ASSERT_EQ(chunks.size(), 10u);
  for (std::uint32_t i = 0; i < 10; ++i) {
    const ChunkArrival& chunk = chunks[i];
    EXPECT_EQ(chunk.chunk.value, 90 + i);
    EXPECT_EQ(chunk.size_bytes, i == 9 ? kLastBytes : kChunkBytesMin);
    EXPECT_EQ(chunk.digest, content_digest_of(chunk.bytes->bytes()));
    EXPECT_EQ(chunk.bytes->bytes()[50], MemoryArchive::at((90ull + i) * kChunkBytesMin + 50));
  }
}

TEST_F(ArchiveReaderTest, OneThatSendsMoreOrLessThanWasAskedForHasFailed) {
  shared.extra_bytes = 1;
  read(1, 0, 2);
  ASSERT_TRUE(net.run_until([&] { return ended.size() == 1; }));
  EXPECT_EQ(ended[0].second.error().code, Errc::kCorrupt);
  shared.extra_bytes = 0;
  shared.missing_bytes = 1;
  read(2, 0, 2);
  ASSERT_TRUE(net.run_until([&] { return ended.size() == 2; }));
  EXPECT_EQ(ended[1].second.error().code, Errc::kCorrupt);
}

TEST_F(ArchiveReaderTest, WhatIsEndedSaysNothingMore) {
  stand_still(true);
  read(1, 0, 2);
  ASSERT_TRUE(net.run_until([&] {
    net.run_for(1ms);
    return is_waited_for();
  }));
  reader->end(1);
  stand_still(false);
  read(2, 5, 1);
  ASSERT_TRUE(net.run_until([&] { return !ended.empty(); }));
  EXPECT_EQ(ended[0].first, 2u);
  ASSERT_EQ(chunks.size(), 1u);
  EXPECT_EQ(chunks[0].chunk.value, 5u);
}

TEST_F(ArchiveReaderTest, EndsThoughTheArchiveStandsStill) {
  stand_still(true);
  read(1, 0, 2);
  while (!is_waited_for()) std::this_thread::yield();
  reader.reset();
  net.run_for(10ms);
  EXPECT_TRUE(ended.empty());
}

TEST_F(ArchiveReaderTest, EndsThoughAReadWaitsForItsTurn) {
  read(1, 0, kChunks, Rate{1000});  // seven minutes
  while (!is_waited_for()) std::this_thread::yield();
  reader.reset();
  EXPECT_TRUE(ended.empty());
}

TEST_F(ArchiveReaderTest, TakesNoMoreThanTheRate) {
  const Instant begun = net.loop.now();
  read(1, 0, 50, Rate{400'000});
  read(2, 50, 50, Rate{400'000});
  ASSERT_TRUE(net.run_until([&] { return ended.size() == 2; }));
  // What may pass at once beside.
  EXPECT_GE(to_seconds(net.loop.now() - begun), (double(manifest->payload_bytes) - 128 * kKiB) / 400'000);
}

}  // namespace
}  // namespace weightcast
