#include "patch/snapshot/finite.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

#include "patch/snapshot/snapshot.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

namespace weightcast {
namespace {

template <typename Word>
Bytes bytes_of(const std::vector<Word>& words) {
  return std::as_bytes(std::span(words));
}

// All bit patterns of a narrow dtype hold a known number of values that are not finite.
TEST(CountNonFinite, CountsEveryPatternOfTheNarrowDtypes) {
  std::vector<std::uint16_t> all_16(65536);
  for (std::size_t i = 0; i < all_16.size(); ++i) all_16[i] = static_cast<std::uint16_t>(i);
  std::vector<std::uint8_t> all_8(256);
  for (std::size_t i = 0; i < all_8.size(); ++i) all_8[i] = static_cast<std::uint8_t>(i);
  EXPECT_EQ(count_non_finite("BF16", bytes_of(all_16)), 2u * 128);
  EXPECT_EQ(count_non_finite("F16", bytes_of(all_16)), 2u * 1024);
  EXPECT_EQ(count_non_finite("F8_E5M2", bytes_of(all_8)), 2u * 4);
  EXPECT_EQ(count_non_finite("F8_E4M3", bytes_of(all_8)), 2u);
  EXPECT_EQ(count_non_finite("F8_E8M0", bytes_of(all_8)), 1u);
  EXPECT_EQ(count_non_finite("F8_E4M3FNUZ", bytes_of(all_8)), 1u);
  EXPECT_EQ(count_non_finite("F8_E5M2FNUZ", bytes_of(all_8)), 1u);
  EXPECT_EQ(count_non_finite("I16", bytes_of(all_16)), 0u);
  EXPECT_EQ(count_non_finite("UNKNOWN", bytes_of(all_16)), 0u);
}

template <typename Float>
void expect_found_anywhere(std::string_view dtype) {
  using Limits = std::numeric_limits<Float>;
  std::vector<Float> values(3000, Float(1.5));
  values[7] = Limits::max();
  values[8] = Limits::denorm_min();
  EXPECT_EQ(count_non_finite(dtype, bytes_of(values)), 0u);
  values[0] = Limits::quiet_NaN();
  values[1500] = -Limits::infinity();
  values[2999] = Limits::signaling_NaN();
  EXPECT_EQ(count_non_finite(dtype, bytes_of(values)), 3u);
  // Neither alignment nor an incomplete element at the end matters.
  std::vector<std::byte> shifted(1);
  const Bytes bytes = bytes_of(values);
  shifted.insert(shifted.end(), bytes.begin(), bytes.end());
  EXPECT_EQ(count_non_finite(dtype, Bytes(shifted).subspan(1)), 3u);
  EXPECT_EQ(count_non_finite(dtype, bytes.first(bytes.size() - 1)), 2u);
}

TEST(CountNonFinite, FindsThemAtAnyPlaceAndAlignment) {
  expect_found_anywhere<float>("F32");
  expect_found_anywhere<double>("F64");
}

/// What a scan in pieces of `piece_bytes`, the last one first, finds.
std::optional<NonFinite> scan_backwards(const SnapshotSource& source, std::uint64_t piece_bytes) {
  NonFiniteScan scan(source);
  const std::uint64_t pieces = (source.size_bytes() + piece_bytes - 1) / piece_bytes;
  for (std::uint64_t i = pieces; i-- > 0;) {
    std::vector<std::byte> piece(std::min(piece_bytes, source.size_bytes() - i * piece_bytes));
    EXPECT_TRUE(source.read_at(i * piece_bytes, piece).has_value());
    EXPECT_TRUE(scan.scan(i * piece_bytes, piece).has_value());
  }
  EXPECT_EQ(scan.any(), scan.result().has_value());
  return scan.result();
}

// Whatever the pieces: elements that lie across two of them count once, bytes of the header and of other tensors never.
TEST(NonFiniteScan, NamesTheFirstTensorAndCountsAll) {
  const TempDir dir;
  const std::string header =
      R"({"ok":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"bad":{"dtype":"BF16","shape":[2],"data_offsets":[4,8]},)"
      R"("worse":{"dtype":"F64","shape":[2],"data_offsets":[8,24]},"whole":{"dtype":"I32","shape":[1],"data_offsets":[24,28]}})";
  const std::string one("\x00\x00\x80\x3f", 4), bf16_nan("\x80\x3f\xc0\x7f", 4), ones("\xff\xff\xff\xff", 4);
  const std::string zero(8, '\0'), infinity("\x00\x00\x00\x00\x00\x00\xf0\xff", 8);
  const auto clean =
      SnapshotSource::open(real_files(), dir.write("clean", safetensors_bytes(header, one + one + zero + zero + ones)));
  const auto dirty = SnapshotSource::open(
      real_files(), dir.write("dirty", safetensors_bytes(header, one + bf16_nan + infinity + infinity + ones)));
  ASSERT_TRUE(clean.has_value() && dirty.has_value());
  for (std::uint64_t piece_bytes = 1; piece_bytes <= dirty->size_bytes(); ++piece_bytes) {
    EXPECT_FALSE(scan_backwards(*clean, piece_bytes)) << piece_bytes;
    const auto found = scan_backwards(*dirty, piece_bytes);
    ASSERT_TRUE(found.has_value()) << piece_bytes;
    EXPECT_EQ(found->first_tensor, "bad");
    EXPECT_EQ(found->tensors, 2u);
    EXPECT_EQ(found->elements, 3u) << piece_bytes;
  }
}

}  // namespace
}  // namespace weightcast
