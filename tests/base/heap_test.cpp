#include "base/heap.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace weightcast {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kOwnAllocator = true;
#else
constexpr bool kOwnAllocator = false;
#endif

std::size_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssAnon:")) return std::stoul(line.substr(8)) * 1024;
  }
  return 0;
}

TEST(Heap, GivesBackWhatLiesFreeBetweenBlocksInUse) {
  if (kOwnAllocator) GTEST_SKIP() << "the sanitizer brings an allocator of its own";
  constexpr std::size_t kBlocks = 4000, kBytes = 16 * 1024;
  std::vector<std::unique_ptr<char[]>> blocks(kBlocks);
  for (auto& block : blocks) {
    block = std::make_unique<char[]>(kBytes);
    std::memset(block.get(), 1, kBytes);
  }
  for (std::size_t i = 0; i < kBlocks; ++i) {
    if (i % 4 != 0) blocks[i].reset();
  }
  const std::size_t before = resident_bytes();
  EXPECT_TRUE(return_free_memory(kBlocks * kBytes / 4));
  EXPECT_LT(resident_bytes(), before - kBlocks * kBytes / 4);
  EXPECT_FALSE(return_free_memory(2 * kBlocks * kBytes)) << "there is less";
  EXPECT_EQ(blocks[0][0], 1);
}

}  // namespace
}  // namespace weightcast
