#include "transport/node/payload/sampled_share.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>

#include "base/files/posix_file_system.h"
#include "base/random.h"
#include "patch/snapshot/snapshot_stream.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

constexpr std::size_t kCells = 200'000;

class SampledShareTest : public testing::Test {
 protected:
  static std::uint16_t bfloat16_of(double value) {
    const auto narrow = static_cast<float>(value);
    std::uint32_t bits = 0;
    std::memcpy(&bits, &narrow, sizeof(bits));
    return static_cast<std::uint16_t>((bits + 0x7fff) >> 16);
  }
  /// Weights as a trained model has them, after `step` times up to one.
  SnapshotSource snapshot(const std::string& name, double step, std::uint64_t seed = 1, std::size_t cells = kCells) {
    Random weights(seed), steps(7);
    std::string data(2 * cells, '\0');
    for (std::size_t i = 0; i < cells; ++i) {
      const double weight = 0.1 * (weights.unit() + weights.unit() + weights.unit() - 1.5);
      const std::uint16_t cell = bfloat16_of(weight + step * (2 * steps.unit() - 1));
      std::memcpy(&data[2 * i], &cell, 2);
    }
    const std::string header = R"({"w":{"dtype":"BF16","shape":[)" + std::to_string(cells) + R"(],"data_offsets":[0,)" +
                               std::to_string(data.size()) + "]}}";
    const std::string path = temp_.file(name);
    std::ofstream(path, std::ios::binary) << safetensors_bytes(header, data);
    return SnapshotSource::open(files_, path).value();
  }

  static double share_of_patch(const SnapshotSource& base, const SnapshotSource& result) {
    return patch_share(make_head({}, layout_of(base), layout_of(result)).value(), base, result).value();
  }

  TempDir temp_;
  PosixFileSystem files_;
};

TEST_F(SampledShareTest, PatchOfCellsThatNearlyAllMovedALittleIsSmall) {
  const SnapshotSource base = snapshot("base", 0), result = snapshot("result", 1e-3);
  const double share = share_of_patch(base, result);
  EXPECT_GT(share, 0.1);
  EXPECT_LT(share, 0.4);
}

TEST_F(SampledShareTest, PatchToUnrelatedWeightsIsNoSmallerThanThese) {
  const SnapshotSource base = snapshot("base", 0), result = snapshot("result", 0, 2);
  EXPECT_GT(share_of_patch(base, result), 0.6);
}

TEST_F(SampledShareTest, PatchOfNothingIsNothing) {
  const SnapshotSource base = snapshot("base", 0), result = snapshot("result", 0);
  EXPECT_LT(share_of_patch(base, result), 0.01);
}

TEST_F(SampledShareTest, TensorsWithoutABaseCountWhole) {
  const SnapshotSource base = snapshot("base", 0, 1, 1000), result = snapshot("result", 0);
  EXPECT_NEAR(share_of_patch(base, result), packed_share(result).value(), 0.05);
}

TEST_F(SampledShareTest, WeightsPackToTwoThirds) { EXPECT_NEAR(packed_share(snapshot("base", 0)).value(), 0.67, 0.05); }

}  // namespace
}  // namespace weightcast
