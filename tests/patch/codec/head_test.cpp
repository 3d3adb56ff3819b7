#include "patch/codec/head.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <zstd.h>

#include <fstream>
#include <functional>

#include "patch/codec/byte_io.h"
#include "patch/snapshot/safetensors.h"
#include "tests/patch/cells.h"

namespace weightcast {
namespace {

using Body = std::vector<std::byte>;

/// A head as someone forges it who can make digests: `packed` as it is, `body_bytes` as it is claimed.
std::vector<std::byte> frame_of(Bytes packed, std::uint32_t body_bytes) {
  std::vector<std::byte> fields, frame;
  ByteWriter writer(fields);
  writer.fixed(kHeadMagic);
  writer.fixed(std::uint32_t(packed.size()));
  writer.fixed(body_bytes);
  ChecksumStream digest;
  digest.update(fields);
  digest.update(packed);
  ByteWriter out(frame);
  out.bytes(fields);
  out.digest(digest.digest());
  out.bytes(packed);
  return frame;
}

std::vector<std::byte> compressed(Bytes body) {
  std::vector<std::byte> packed(ZSTD_compressBound(body.size()));
  packed.resize(ZSTD_compress(packed.data(), packed.size(), body.data(), body.size(), 3));
  return packed;
}

std::vector<std::byte> forge(const Body& body) { return frame_of(compressed(body), std::uint32_t(body.size())); }

struct Claims {
  std::uint64_t result_bytes = 0;
  std::uint64_t segment_bytes = kSegmentBytesDefault;
  std::uint64_t tensors = 0;
};

/// A body with these fields; `rest` writes what follows the number of tensors.
Body body_with(const Claims& claims, const std::function<void(ByteWriter&)>& rest) {
  Body body;
  ByteWriter writer(body);
  writer.text("model");
  writer.varint(1);
  writer.varint(2);
  writer.digest({});
  writer.digest({});
  writer.varint(0);
  writer.varint(claims.result_bytes);
  writer.varint(claims.segment_bytes);
  writer.varint(claims.tensors);
  rest(writer);
  return body;
}

void write_tensor(ByteWriter& writer, std::string_view name, std::size_t rank, std::uint64_t gap, std::uint64_t size) {
  writer.text(name);
  writer.text("U8");
  writer.varint(rank);
  for (std::size_t i = 0; i < rank; ++i) writer.varint(1);
  writer.varint(gap);
  writer.varint(size);
}

/// As many bytes, each zero: tensors of no name and no bytes, removed tensors of no name.
void write_zeros(ByteWriter& writer, std::size_t bytes) { writer.bytes(std::vector<std::byte>(bytes)); }

/// How far resident memory rises while `work` runs; 0 where the kernel does not tell. Sanitizers have an allocator of
/// their own.
std::uint64_t peak_rise_bytes(const std::function<void()>& work) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  work();
  return 0;
#else
  const auto status_bytes = [](std::string_view key) -> std::uint64_t {
    std::ifstream status("/proc/self/status");
    std::string word;
    std::uint64_t kib = 0;
    while (status >> word) {
      if (word == key && status >> kib) return kib * 1024;
    }
    return 0;
  };
  ::malloc_trim(0);
  std::ofstream("/proc/self/clear_refs") << "5" << std::flush;
  const std::uint64_t start = status_bytes("VmRSS:");
  work();
  const std::uint64_t peak = status_bytes("VmHWM:");
  return peak > start ? peak - start : 0;
#endif
}

std::vector<std::byte> forged(const Claims& claims, const std::function<void(ByteWriter&)>& rest) {
  return forge(body_with(claims, rest));
}

/// With as many bytes of zero behind the number of tensors.
std::vector<std::byte> forged(const Claims& claims, std::size_t zeros) {
  return forged(claims, [zeros](ByteWriter& out) { write_zeros(out, zeros); });
}

/// With one tensor.
std::vector<std::byte> forged_tensor(std::string_view name, std::size_t rank) {
  return forged({.tensors = 1}, [&](ByteWriter& out) {
    write_tensor(out, name, rank, 0, 0);
    write_zeros(out, 64);
  });
}

/// With a number of removed tensors, of which `there` follow.
std::vector<std::byte> forged_removed(std::size_t claimed, std::size_t there) {
  return forged({}, [&](ByteWriter& out) {
    out.varint(claimed);
    write_zeros(out, there);
  });
}

std::vector<std::byte> forged_extents() {
  const std::size_t tensors = kHeadExtentsMax / kTensorRankMax + 1;
  return forged({.tensors = tensors}, [&](ByteWriter& out) {
    for (std::size_t i = 0; i < tensors; ++i) write_tensor(out, "", kTensorRankMax, 0, 0);
    out.varint(0);
  });
}

/// Each tensor has raw bytes before it.
std::vector<std::byte> forged_ranges() {
  return forged({.result_bytes = 2 * kHeadTensorsMax, .tensors = kHeadTensorsMax}, [](ByteWriter& out) {
    for (std::size_t i = 0; i < kHeadTensorsMax; ++i) write_tensor(out, "", 0, 1, 1);
    write_zeros(out, 2 * kHeadTensorsMax + 1);
  });
}

std::vector<std::byte> two_frames() {
  Body twice = compressed(Body(100));
  const Body more = compressed(Body(std::size_t{60} << 20));
  twice.insert(twice.end(), more.begin(), more.end());
  return frame_of(twice, 100);
}

struct Refusal {
  std::string what;
  std::vector<std::byte> frame;
  Errc code;
  std::string says;
  std::uint64_t memory_mib_max;
};

TEST(PatchHead, RefusesWhatExceedsALimitBeforeItTakesTheMemory) {
  constexpr std::size_t kMost = 12 << 20, kMostRemoved = kHeadBytesMax - 128;
  const Body packed = compressed(Body(100));
  const std::vector<Refusal> refusals{
      {"tensors", forged({.tensors = kHeadTensorsMax + 1}, 5 * (kHeadTensorsMax + 1) + 1), Errc::kTooLarge, "tensors",
       8},
      {"tensors, as many as the longest body holds", forged({.tensors = kMost}, 5 * kMost), Errc::kTooLarge, "tensors",
       80},
      {"tensors that are not there", forged({.tensors = kHeadTensorsMax}, 1), Errc::kCorrupt, "cut short", 1},
      {"a name's length", forged_tensor(std::string(kTensorNameBytesMax + 1, 'n'), 0), Errc::kCorrupt,
       "outside the stream", 1},
      {"the dimensions of one tensor", forged_tensor("w", kTensorRankMax + 1), Errc::kTooLarge,
       "dimensions of a tensor", 1},
      {"the dimensions of all tensors", forged_extents(), Errc::kTooLarge, "dimensions of all tensors", 64},
      {"removed tensors", forged_removed(kHeadRemovedMax + 1, kHeadRemovedMax + 1), Errc::kTooLarge, "removed tensors",
       4},
      {"removed tensors, as many as the longest body holds", forged_removed(kMostRemoved, kMostRemoved),
       Errc::kTooLarge, "removed tensors", 70},
      {"removed tensors that are not there", forged_removed(kHeadRemovedMax, 0), Errc::kCorrupt, "cut short", 1},
      {"segments of one range", forged({.result_bytes = std::uint64_t{1} << 60, .segment_bytes = kSegmentBytesMin}, 2),
       Errc::kTooLarge, "segments", 1},
      {"segments of many ranges", forged_ranges(), Errc::kTooLarge, "segments", 200},
      {"segments that are too short", forged({.segment_bytes = kSegmentBytesMin - 1}, 1), Errc::kCorrupt,
       "segment size", 1},
      {"segments that are too long", forged({.segment_bytes = kSegmentBytesMax + 1}, 1), Errc::kCorrupt, "segment size",
       1},
      {"a body above its limit", frame_of(packed, kHeadBytesMax + 1), Errc::kTooLarge, "exceeds", 1},
      {"a longer body than its compressed bytes can hold", frame_of(packed, kHeadBytesMax), Errc::kCorrupt,
       "too short for the length", 1},
      {"another length than the zstd frame's", frame_of(packed, 101), Errc::kCorrupt, "length", 1},
      {"no zstd frame", frame_of(Body(4096), 100), Errc::kCorrupt, "length", 1},
      {"two zstd frames", two_frames(), Errc::kCorrupt, "decompress", 4},
  };
  for (const Refusal& refusal : refusals) {
    std::optional<Error> error;
    const std::uint64_t rise = peak_rise_bytes([&] {
      const Result<PatchHead> head = read_head(refusal.frame);
      if (!head.has_value()) error = head.error();
    });
    ASSERT_TRUE(error.has_value()) << refusal.what;
    EXPECT_EQ(error->code, refusal.code) << refusal.what << ": " << error->message();
    EXPECT_NE(error->detail.find(refusal.says), std::string::npos) << refusal.what << ": " << error->message();
    // Two MiB for what the allocator and zstd have of their own.
    EXPECT_LT(rise, (refusal.memory_mib_max + 2) << 20) << refusal.what;
  }
}

TEST(PatchHead, RefusesALengthBeforeTheBytesThatItSpeaksOf) {
  std::vector<std::byte> prefix;
  ByteWriter writer(prefix);
  writer.fixed(kHeadMagic);
  writer.fixed(kHeadBytesMax + 1);
  writer.fixed(std::uint32_t{100});
  writer.digest({});
  EXPECT_EQ(peek_head(prefix).error().code, Errc::kTooLarge);
}

// All limits at once, from a few kilobytes.
TEST(PatchHead, TakesNoMoreMemoryThanItSaysAtAllOfItsLimits) {
  constexpr std::size_t kTensors = kHeadTensorsMax - 1;  // and a range of raw bytes behind the last
  const Body body = body_with({.result_bytes = kTensors + 1, .tensors = kTensors}, [](ByteWriter& out) {
    // Too long to lie within the string itself.
    for (std::size_t i = 0; i < kTensors; ++i) write_tensor(out, "sixteen letters.", i % 2 == 0 ? 15 : 1, 0, 1);
    write_zeros(out, kTensors + 1);
    out.varint(kHeadRemovedMax);
    for (std::size_t i = 0; i < kHeadRemovedMax; ++i) out.text(std::string(90, 'n'));
  });
  ASSERT_LE(body.size(), kHeadBytesMax);
  ASSERT_GT(body.size(), kHeadBytesMax / 10 * 9);
  const std::vector<std::byte> frame = forge(body);
  EXPECT_LT(frame.size(), 64u * 1024);
  std::size_t segments = 0;
  const std::uint64_t rise = peak_rise_bytes([&] {
    const Result<PatchHead> head = read_head(frame);
    ASSERT_TRUE(head.has_value()) << head.error().message();
    segments = plan_segments(*head).size();
  });
  EXPECT_GT(segments, 0u);
  EXPECT_LT(rise, kHeadMemoryBytesMax);
  RecordProperty("rise_mib", std::to_string(rise >> 20));
}

TEST(PatchHead, WritesNothingThatAReaderRefuses) {
  const auto code = [](const SnapshotLayout& base, const SnapshotLayout& result) {
    const Result<PatchHead> head = make_head({}, base, result);
    return head.has_value() ? std::optional<Errc>() : head.error().code;
  };
  const auto layout_of = [](std::size_t tensors, std::size_t rank, std::string_view name) {
    SnapshotLayout layout;
    layout.tensors.resize(tensors);
    for (std::size_t i = 0; i < tensors; ++i) {
      layout.tensors[i].name = std::string(name) + std::to_string(i);
      layout.tensors[i].shape.assign(rank, 1);
    }
    return layout;
  };
  EXPECT_EQ(code({}, layout_of(kHeadTensorsMax, 8, "")), std::nullopt);
  EXPECT_EQ(code({}, layout_of(kHeadTensorsMax + 1, 1, "")), Errc::kTooLarge);
  EXPECT_EQ(code({}, layout_of(kHeadTensorsMax, 9, "")), Errc::kTooLarge);
  EXPECT_EQ(code({}, layout_of(1, kTensorRankMax + 1, "")), Errc::kTooLarge);
  EXPECT_EQ(code(layout_of(kHeadRemovedMax, 0, ""), {}), std::nullopt);
  EXPECT_EQ(code(layout_of(kHeadRemovedMax + 1, 0, ""), {}), Errc::kTooLarge);
  EXPECT_EQ(code({}, layout_of(5000, 0, std::string(16'000, 'n'))), Errc::kTooLarge);
}

}  // namespace
}  // namespace weightcast
