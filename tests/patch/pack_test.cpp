#include "patch/pack.h"

#include <gtest/gtest.h>

#include "tests/patch/cells.h"

namespace weightcast {
namespace {

std::vector<std::byte> pack(const test::Snapshot& snapshot, unsigned threads = 1) {
  std::vector<std::byte> packed;
  const auto size = pack_snapshot(snapshot.layout, MemorySource(snapshot.stream), threads, [&](Bytes bytes) {
    packed.insert(packed.end(), bytes.begin(), bytes.end());
    return Status();
  });
  WC_CHECK(size.has_value() && *size == packed.size());
  return packed;
}

/// What comes out, or nothing where an error does or the end is missing.
std::optional<std::vector<std::byte>> unpack(Bytes packed, std::size_t bytes_at_once = 1u << 20) {
  Unpacker unpacker;
  std::vector<std::byte> out;
  while (!packed.empty()) {
    const auto taken = unpacker.handle_bytes(packed.first(std::min(bytes_at_once, packed.size())));
    if (!taken) return std::nullopt;
    packed = packed.subspan(*taken);
    if (const auto block = unpacker.poll_block()) out.insert(out.end(), block->begin(), block->end());
  }
  if (!unpacker.complete()) return std::nullopt;
  return out;
}

TEST(Pack, TakesBF16WeightsToTwoThirdsAndGivesThemBack) {
  test::Snapshot snapshot;
  const auto cells = test::make_cells(CellKind::kBf16, 1'200'000, test::Structure::kNone, 0, 1);
  snapshot.add("w", "BF16", {1'200'000}, cells.before);
  const std::vector<std::byte> packed = pack(snapshot);
  EXPECT_LT(double(packed.size()), 0.70 * double(snapshot.stream.size()));
  EXPECT_EQ(unpack(packed), snapshot.stream);
  EXPECT_EQ(pack(snapshot, 3), packed);
}

TEST(Pack, GivesBackEveryKindInPiecesOfAnySize) {
  const auto [snapshot, other] = test::make_versions(3000, 0, 5);
  const std::vector<std::byte> packed = pack(snapshot);
  for (const std::size_t size : {1, 7, 29, 4096}) EXPECT_EQ(unpack(packed, size), snapshot.stream);
}

TEST(Pack, RefusesEveryLengthAndEveryFlippedByte) {
  const auto [snapshot, other] = test::make_versions(400, 0, 5);
  const std::vector<std::byte> packed = pack(snapshot);
  for (std::size_t size = 0; size < packed.size(); ++size) ASSERT_FALSE(unpack(Bytes(packed).first(size)).has_value());
  for (std::size_t at = 0; at < packed.size(); ++at) {
    std::vector<std::byte> damaged = packed;
    damaged[at] ^= std::byte{1};
    ASSERT_FALSE(unpack(damaged).has_value()) << at;
  }
}

}  // namespace
}  // namespace weightcast
