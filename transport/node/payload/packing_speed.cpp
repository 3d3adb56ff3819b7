#include "transport/node/payload/packing_speed.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "patch/codec/segment_codec.h"

namespace weightcast {
namespace {

constexpr std::size_t kSampleBytes = 1 << 20;
constexpr unsigned kRounds = 4;

/// Exponents by half from each to the next lower, mantissas and signs of all kinds.
std::vector<std::byte> sample_weights() {
  std::vector<std::uint16_t> cells(kSampleBytes / sizeof(std::uint16_t));
  std::uint64_t state = 1;
  for (std::uint16_t& cell : cells) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto halvings = std::min(std::countl_zero(state | 1), 30);
    cell = std::uint16_t((state >> 20 & 0x807f) | std::uint64_t(0x7a - halvings) << 7);
  }
  const auto bytes = std::as_bytes(std::span(cells));
  return {bytes.begin(), bytes.end()};
}

double seconds_of(const auto& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

PackingSpeed measure_packing_speed() {
  const std::vector<std::byte> cells = sample_weights();
  const SegmentRange range{0, 0, kNoBase, std::uint32_t(cells.size()), CellKind::kBf16};
  std::vector<std::byte> frame, unpacked(cells.size());
  SegmentEncoder encoder;
  PackingSpeed best;
  for (unsigned round = 0; round < kRounds; ++round) {
    frame.clear();
    const double pack_s = seconds_of([&] { encoder.encode(range, {}, cells, frame); });
    Status decoded;
    const double unpack_s = seconds_of([&] {
      const Result<Segment> segment = read_segment(frame);
      WC_CHECK(segment.has_value());
      decoded = decode_segment(*segment, {}, unpacked);
    });
    WC_CHECK(decoded.has_value() && unpacked == cells);
    best.pack_bytes_per_s = std::max(best.pack_bytes_per_s, double(cells.size()) / pack_s);
    best.unpack_bytes_per_s = std::max(best.unpack_bytes_per_s, double(cells.size()) / unpack_s);
  }
  return best;
}

}  // namespace weightcast
