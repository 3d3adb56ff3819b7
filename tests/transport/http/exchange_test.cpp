#include "transport/http/exchange.h"

#include <gtest/gtest.h>

#include <vector>

namespace weightcast {
namespace {

struct HttpExchangeTest : testing::Test {
  HttpLimits limits{.stream_bytes_max = 4 * kMiB, .streams_bytes_max = 16 * kMiB};
  std::shared_ptr<std::atomic<std::size_t>> unsent = std::make_shared<std::atomic<std::size_t>>(0);

  std::unique_ptr<HttpExchange> stream() {
    auto made = std::make_unique<HttpExchange>(limits, unsent, [] {});
    made->answer({}, true);
    return made;
  }
};

TEST_F(HttpExchangeTest, StreamsThatNobodyReadsShareTheRoomAndOneThatIsReadStays) {
  std::vector<std::unique_ptr<HttpExchange>> unread;
  for (int i = 0; i < 300; ++i) unread.push_back(stream());
  const auto read = stream();
  const std::string token(4 * kKiB, 'x');
  for (int i = 0; i < 1024; ++i) {
    for (const auto& one : unread) static_cast<void>(one->write(token));
    ASSERT_TRUE(read->write(token)) << "after " << i;
    ASSERT_TRUE(read->take());
    read->handle_sent(0);
    ASSERT_LE(*unsent, limits.streams_bytes_max);
  }
  for (const auto& one : unread) EXPECT_FALSE(one->write(token)) << "4 MiB of each would be 1.2 GiB";
  unread.clear();
  EXPECT_EQ(*unsent, 0u);
}

TEST_F(HttpExchangeTest, AStreamAloneMayHoldWhatOneMay) {
  const auto one = stream();
  EXPECT_TRUE(one->write(std::string(4 * kMiB, 'x')));
  EXPECT_FALSE(one->write("x"));
  one->handle_gone(true);
  EXPECT_EQ(*unsent, 0u);
}

}  // namespace
}  // namespace weightcast
