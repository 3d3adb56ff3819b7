#include "patch/cuda/device_cells.h"

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include "tests/patch/cells.h"

namespace weightcast {
namespace {

// The same changes that the host finds, and the same cells after applying them, bit for bit.
TEST(DeviceCells, FindAndApplyWhatTheHostDoes) {
  if (!cuda_available()) GTEST_SKIP() << "no CUDA device here";
  for (const CellKind kind : test::kAllKinds) {
    const unsigned width = geometry_of(kind).bytes;
    const std::size_t count = 100'003;
    const auto pair = test::make_cells(kind, count, test::Structure::kIndependent, 0.02, 3);
    void *before = nullptr, *after = nullptr;
    ASSERT_EQ(cudaMalloc(&before, pair.before.size()), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&after, pair.after.size()), cudaSuccess);
    cudaMemcpy(before, pair.before.data(), pair.before.size(), cudaMemcpyHostToDevice);
    cudaMemcpy(after, pair.after.data(), pair.after.size(), cudaMemcpyHostToDevice);
    const auto changes = find_changes_on_device(before, after, count, width);
    ASSERT_TRUE(changes.has_value()) << changes.error().message();
    DeviceChanges expected;
    for (std::size_t i = 0; i < count; ++i) {
      const Bytes cell = Bytes(pair.after).subspan(i * width, width);
      if (std::memcmp(cell.data(), pair.before.data() + i * width, width) == 0) continue;
      expected.indices.push_back(std::uint32_t(i));
      expected.cells.insert(expected.cells.end(), cell.begin(), cell.end());
    }
    EXPECT_EQ(changes->indices, expected.indices);
    EXPECT_EQ(changes->cells, expected.cells);
    ASSERT_TRUE(apply_changes_on_device(before, count, width, *changes).has_value());
    std::vector<std::byte> result(pair.after.size());
    cudaMemcpy(result.data(), before, result.size(), cudaMemcpyDeviceToHost);
    EXPECT_EQ(result, pair.after);
    cudaFree(before);
    cudaFree(after);
  }
}

TEST(DeviceCells, RefuseAnIndexBeyondTheLastCell) {
  DeviceChanges changes;
  changes.indices = {8};
  changes.cells.resize(2);
  EXPECT_EQ(apply_changes_on_device(nullptr, 8, 2, changes).error().code, Errc::kInvalidArgument);
  changes.cells.resize(3);
  EXPECT_EQ(apply_changes_on_device(nullptr, 9, 2, changes).error().code, Errc::kInvalidArgument);
}

}  // namespace
}  // namespace weightcast
