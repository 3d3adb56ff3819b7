#pragma once

#include <array>
#include <cstdint>

#include "patch/codec/byte_io.h"
#include "patch/codec/entropy/fixed_math.h"

namespace weightcast {

// The code of the positions of changed cells.
//
// A cell's class comes from its old exponent and gives it a hazard -ln(1 - p), where p is its probability of change.
// The cells of a segment, laid end to end, make a line on which each cell is as long as its hazard. On that line
// changes are a Poisson process, so the distance from one change to the next is exponential, whatever mix of classes
// lies between. A position is therefore one symbol: the interval that the cell owns in the exponential distribution's
// cumulative function F, counted from the end of the previous changed cell. The interval's length is the model's
// probability of "no change up to here, then this cell", so the cost is exact for light and heavy cells alike. Both
// ends need only the old cells.

inline constexpr unsigned kHazardClasses = 16;
/// A hazard of one nat is 2^scale_bits units long.
inline constexpr unsigned kScaleBitsMin = 10;
inline constexpr unsigned kScaleBitsMax = 20;
/// F is counted in 1/2^28.
inline constexpr unsigned kGapBits = 28;
/// F is linear between points 1/16 nat apart, and ends after four nats. An escape advances by four nats. It loses
/// nothing, because an exponential distribution has no memory.
inline constexpr unsigned kGapBuckets = 64;
inline constexpr unsigned kGapBucketsPerNatBits = 4;

/// The position model of one segment.
struct HazardModel {
  /// Class of key k: clamp(k - key_low, 0, 15).
  std::uint8_t key_low = 0;
  std::uint8_t scale_bits = kScaleBitsMax;
  /// Length of a cell of each class, in units; at least 1.
  std::array<std::uint16_t, kHazardClasses> weights{};

  bool operator==(const HazardModel&) const = default;
  [[nodiscard]] unsigned class_of(unsigned key) const {
    const unsigned above = key < key_low ? 0 : key - key_low;
    return above < kHazardClasses ? above : kHazardClasses - 1;
  }
};

/// Cells seen and cells changed, by key.
struct KeyCounts {
  std::array<std::uint32_t, 256> cells{};
  std::array<std::uint32_t, 256> changed{};
};

/// The model that makes the counted cells cheapest. Integer and IEEE arithmetic only: equal counts give equal models on
/// every machine.
[[nodiscard]] HazardModel fit_hazard(const KeyCounts& counts);

/// A lower bound of the counted positions' cost under the model's classes, in bits.
[[nodiscard]] double position_bits(const KeyCounts& counts, const HazardModel& model);

void write_hazard(const HazardModel& model, ByteWriter& out);
/// Returns false if fit_hazard() could not have made this model.
[[nodiscard]] bool read_hazard(ByteReader& in, HazardModel& model);

namespace gap_detail {

/// exp(-j / 16) in 1/2^32, by the recurrence that FORMAT.md gives, so that no machine's exp() takes part.
constexpr std::array<std::uint32_t, kGapBuckets + 1> make_cumulative() {
  std::array<std::uint32_t, kGapBuckets + 1> cumulative{};
  std::uint64_t survival = std::uint64_t{1} << 32;
  for (unsigned j = 0; j <= kGapBuckets; ++j) {
    cumulative[j] = std::uint32_t((std::uint64_t{1} << kGapBits) - (survival >> (32 - kGapBits)));
    survival = (survival * 4034748382u) >> 32;  // floor(2^32 exp(-1/16))
  }
  return cumulative;
}

inline constexpr auto kCumulative = make_cumulative();

/// ceil(2^64 / height) of each bucket: a product with it divides numerators below 2^40 exactly, since heights are below
/// 2^24, and the division would be a seventh of the decoder's time.
constexpr std::array<std::uint64_t, kGapBuckets> make_reciprocals() {
  std::array<std::uint64_t, kGapBuckets> reciprocals{};
  for (unsigned j = 0; j < kGapBuckets; ++j)
    reciprocals[j] = ~std::uint64_t{0} / (kCumulative[j + 1] - kCumulative[j]) + 1;
  return reciprocals;
}

inline constexpr auto kReciprocals = make_reciprocals();
static_assert(kCumulative[1] < 1u << 24 && kScaleBitsMax - kGapBucketsPerNatBits <= 16);

// Fine enough that the search which begins here seldom has a second step.
inline constexpr unsigned kFirstBucketBits = 11;

constexpr std::array<std::uint8_t, 1 << kFirstBucketBits> make_first_bucket() {
  std::array<std::uint8_t, 1 << kFirstBucketBits> first{};
  unsigned bucket = 0;
  for (unsigned high = 0; high < first.size(); ++high) {
    while (bucket < kGapBuckets && kCumulative[bucket + 1] <= (high << (kGapBits - kFirstBucketBits))) ++bucket;
    first[high] = std::uint8_t(bucket);
  }
  return first;
}

inline constexpr auto kFirstBucket = make_first_bucket();

}  // namespace gap_detail

/// F and its inverse for one scale.
class GapCurve {
 public:
  constexpr explicit GapCurve(unsigned scale_bits) : bucket_bits_(scale_bits - kGapBucketsPerNatBits) {}

  /// The first distance beyond F's end.
  [[nodiscard]] constexpr std::uint64_t reach() const { return std::uint64_t{kGapBuckets} << bucket_bits_; }
  static constexpr std::uint32_t escape_start() { return gap_detail::kCumulative[kGapBuckets]; }
  static constexpr std::uint32_t escape_frequency() { return (1u << kGapBits) - escape_start(); }

  /// Strictly increasing on [0, reach()].
  [[nodiscard]] std::uint32_t at(std::uint64_t distance) const {
    if (distance >= reach()) return escape_start();
    const auto bucket = std::size_t(distance >> bucket_bits_);
    const std::uint64_t inside = distance & ((std::uint64_t{1} << bucket_bits_) - 1);
    const std::uint64_t height = gap_detail::kCumulative[bucket + 1] - gap_detail::kCumulative[bucket];
    return gap_detail::kCumulative[bucket] + std::uint32_t((height * inside) >> bucket_bits_);
  }
  /// The greatest distance whose F is at most `slot`, for a slot below escape_start().
  [[nodiscard]] std::uint64_t inverse(std::uint32_t slot) const {
    std::size_t bucket = gap_detail::kFirstBucket[slot >> (kGapBits - gap_detail::kFirstBucketBits)];
    while (gap_detail::kCumulative[bucket + 1] <= slot) ++bucket;
    const std::uint64_t above = slot - gap_detail::kCumulative[bucket];
    const std::uint64_t numerator = ((above + 1) << bucket_bits_) - 1;
    const auto inside = multiply_high(numerator, gap_detail::kReciprocals[bucket]);
    return (std::uint64_t{bucket} << bucket_bits_) + inside;
  }

 private:
  unsigned bucket_bits_;
};

}  // namespace weightcast
