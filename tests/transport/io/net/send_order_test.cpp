#include "transport/io/net/send_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weightcast {
namespace {

using testing::ElementsAre;

struct SendOrderTest : testing::Test {
  SendOrder order;
  std::uint64_t add(std::uint32_t chunk, bool in_memory) {
    return order.add({Version{1}, ChunkIndex{chunk}, in_memory ? std::make_shared<Buffer>(1) : nullptr});
  }
  std::vector<std::uint32_t> ready() {
    std::vector<std::uint32_t> chunks;
    while (const auto next = order.poll()) chunks.push_back(next->chunk.value);
    return chunks;
  }
};

TEST_F(SendOrderTest, WhatIsInMemoryLeavesAtOnce) {
  add(0, true), add(1, true);
  EXPECT_THAT(ready(), ElementsAre(0, 1));
  EXPECT_THAT(ready(), ElementsAre());
}

TEST_F(SendOrderTest, WhatIsInMemoryDoesNotOvertakeWhatTheDiskStillReads) {
  const std::uint64_t first = add(0, false), second = add(1, false);
  add(2, true);
  EXPECT_THAT(ready(), ElementsAre());
  order.fill(second, std::make_shared<Buffer>(1));
  EXPECT_THAT(ready(), ElementsAre());
  order.fill(first, std::make_shared<Buffer>(1));
  EXPECT_THAT(ready(), ElementsAre(0, 1, 2));
  const std::uint64_t later = add(3, false);
  order.fill(later, std::make_shared<Buffer>(1));
  EXPECT_THAT(ready(), ElementsAre(3));
}

}  // namespace
}  // namespace weightcast
