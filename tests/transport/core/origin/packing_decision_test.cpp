#include "transport/core/origin/packing_decision.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

constexpr double kBytes = double(kGiB);

/// 1 GiB to one worker, of which packing leaves two thirds.
struct Case {
  const char* what;
  double link_bits_per_s;
  double pack_bytes_per_s;
  double unpack_bytes_per_s;
  double take_over_bytes_per_s;  // 0: the origin has its copy
  bool pays;
};

constexpr Case kCases[] = {
    // Links that both ends keep up with: a third less travels.
    {"100 Mbit/s", 100e6, 1.2e9, 2e9, 1.2e9, true},
    {"1 Gbit/s", 1e9, 1.2e9, 2e9, 1.2e9, true},
    {"2.5 Gbit/s", 2.5e9, 2.4e9, 2e9, 2.4e9, true},
    {"5 Gbit/s, two threads, a copy at 3 GB/s", 5e9, 2.4e9, 2e9, 3e9, true},
    {"5 Gbit/s, a joiner: nothing is copied", 5e9, 1.2e9, 2e9, 0, true},
    // The copy that packing reads takes as long as packing saves.
    {"5 Gbit/s, one thread", 5e9, 1.2e9, 2e9, 1.2e9, false},
    {"1 Gbit/s, a slow disk", 1e9, 1.2e9, 2e9, 0.3e9, false},
    // One end is slower than the link.
    {"10 Gbit/s", 10e9, 1.2e9, 2e9, 0, false},
    {"1 Gbit/s, a slow origin", 1e9, 0.12e9, 2e9, 0, false},
    {"1 Gbit/s, a slow worker", 1e9, 1.2e9, 0.12e9, 0, false},
    {"1 Gbit/s, scalar code", 1e9, 0.5e9, 0.7e9, 0.7e9, true},
    {"1 Gbit/s, scalar code, a slow copy", 1e9, 0.5e9, 0.7e9, 0.5e9, false},
    {"2.5 Gbit/s, scalar code", 2.5e9, 0.5e9, 0.7e9, 0.5e9, false},
};

TEST(PackingDecision, GoesByLinksAndBothEnds) {
  for (const Case& c : kCases) {
    PackingCosts costs;
    costs.as_it_is_s = 8 * kBytes / c.link_bits_per_s;
    costs.packed_share = 0.66;
    costs.pack_s = kBytes / c.pack_bytes_per_s;
    costs.unpack_s = kBytes / c.unpack_bytes_per_s;
    costs.take_over_s = c.take_over_bytes_per_s > 0 ? kBytes / c.take_over_bytes_per_s : 0;
    EXPECT_EQ(packing_pays(costs), c.pays) << c.what << ": " << packed_s(costs) << " s against " << costs.as_it_is_s;
  }
}

TEST(PackingDecision, NeedsAGainThatIsWorthTheCores) {
  PackingCosts costs;
  costs.as_it_is_s = 1;
  costs.packed_share = 1 - kPackingGainMin;
  EXPECT_FALSE(packing_pays(costs));
  costs.packed_share -= 0.001;
  EXPECT_TRUE(packing_pays(costs));
}

MadePayload made(PayloadKind kind, Duration took, std::uint64_t bytes = 30'000'000) {
  Manifest manifest;
  manifest.kind = kind;
  manifest.files = {{"model.safetensors", bytes}};
  manifest.payload_bytes = kind == PayloadKind::kFull ? bytes : bytes / 3 * 2;
  return {std::make_shared<const Manifest>(manifest), {}, took};
}

TEST(PackingSpeeds, FollowWhatPayloadsTook) {
  using namespace std::chrono_literals;
  PackingSpeeds speeds(1e9);
  EXPECT_EQ(speeds.pack_bytes_per_s(), 1e9);
  EXPECT_EQ(speeds.take_over_bytes_per_s(), 1e9) << "a copy is no slower than packing";
  speeds.handle_made(made(PayloadKind::kFull, 10ms));
  EXPECT_DOUBLE_EQ(speeds.take_over_bytes_per_s(), 3e9);
  EXPECT_EQ(speeds.pack_bytes_per_s(), 1e9);
  speeds.handle_made(made(PayloadKind::kPacked, 60ms));
  EXPECT_DOUBLE_EQ(speeds.pack_bytes_per_s(), 0.5e9) << "of unpacked bytes";
  speeds.handle_made(made(PayloadKind::kPatch, 1ms));
  speeds.handle_made(made(PayloadKind::kPacked, 0ms));
  speeds.handle_made(made(PayloadKind::kPacked, 1ms, PackingSpeeds::kBytesMin - 1));
  EXPECT_DOUBLE_EQ(speeds.pack_bytes_per_s(), 0.5e9) << "neither patches, nor what was not measured or is short";
  EXPECT_DOUBLE_EQ(speeds.take_over_bytes_per_s(), 3e9);
}

TEST(PackingSpeeds, ABusyMomentIsForgotten) {
  using namespace std::chrono_literals;
  PackingSpeeds speeds(1e9);
  speeds.handle_made(made(PayloadKind::kPacked, 3s));
  EXPECT_DOUBLE_EQ(speeds.pack_bytes_per_s(), 10e6);
  for (int version = 0; version < 5; ++version) speeds.handle_made(made(PayloadKind::kFull, 10ms));
  EXPECT_GT(speeds.pack_bytes_per_s(), 0.95e9);
}

TEST(PackingSpeeds, WithoutASampleAreKnownOnceAPayloadWasPacked) {
  using namespace std::chrono_literals;
  PackingSpeeds speeds(0);
  speeds.handle_made(made(PayloadKind::kFull, 10ms));
  EXPECT_EQ(speeds.pack_bytes_per_s(), 0);
  speeds.handle_made(made(PayloadKind::kPacked, 30ms));
  speeds.handle_made(made(PayloadKind::kFull, 10ms));
  EXPECT_DOUBLE_EQ(speeds.pack_bytes_per_s(), 1e9);
}

}  // namespace
}  // namespace weightcast
