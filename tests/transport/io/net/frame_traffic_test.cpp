#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/transport/io/net/frame_fixture.h"
#include "tests/transport/io/net/secure_fixture.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Whether what `count` counts grows by `rate`, within 3 %, over a second. Never more; a host that is busy with other
// things is forgiven the time for which it kept both loops from turning, and three seconds in four.
constexpr Duration kTurnMax = milliseconds(2);  // what a limiter at these rates makes up for
template <typename Count>
testing::AssertionResult fills(Rate rate, Net& limited, Net& other, Count count) {
  std::string seen;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const double before = count();
    const Instant start = limited.loop.now();
    Duration lost{};
    for (Instant turn = start; turn - start < seconds(1);) {
      limited.loop.run_until(turn + milliseconds(1));
      other.loop.run_until(other.loop.now());
      const Instant next = limited.loop.now();
      lost += std::max(Duration{}, next - turn - kTurnMax);
      turn = next;
    }
    const double elapsed_s = to_seconds(limited.loop.now() - start);
    const double share = (count() - before) / (rate.bytes_per_s * elapsed_s);
    if (share > 1.03) return testing::AssertionFailure() << share << " of the rate";
    if (share >= 0.97 - to_seconds(lost) / elapsed_s) return testing::AssertionSuccess();
    seen += " " + std::to_string(share);
  }
  return testing::AssertionFailure() << "at most" << seen << " of the rate";
}

enum class Over { kPlain, kEncrypted, kEncryptedHashedApart, kPlainIoThreads, kEncryptedIoThreads };

/// What holds of a connection whether or not it is encrypted, and whichever threads hash and move bytes.
class FrameTraffic : public ::testing::TestWithParam<Over> {
 protected:
  /// A node of the tested kind.
  struct Host : Net {
    explicit Host(Rate up = {}, Rate down = {}) : Net(up, down, is_plain() ? nullptr : tls_of("w1")) {
      if (GetParam() != Over::kPlain && GetParam() != Over::kEncrypted) hashing.emplace(loop, 2);
      if (GetParam() == Over::kPlainIoThreads || GetParam() == Over::kEncryptedIoThreads) io.emplace(2);
    }
    static bool is_plain() { return GetParam() == Over::kPlain || GetParam() == Over::kPlainIoThreads; }
  };
};

TEST_P(FrameTraffic, CarriesFramesOfAnySizeBothWays) {
  Host net;
  TcpPair pair(net);
  std::mt19937 random(1);
  std::vector<BufferRef> sent_chunks;
  std::vector<std::string> sent_controls;
  for (std::uint32_t i = 0; i < 200; ++i) {
    const std::size_t bytes = i == 0 ? 0 : std::size_t{1} << (random() % 19);
    sent_chunks.push_back(random_buffer(net.buffers, bytes + random() % 7, i));
    sent_controls.emplace_back(random() % 3000, char('a' + i % 26));
    for (End* end : {&pair.dialed, &pair.accepted}) {
      end->connection->send_chunk(patch_of(Version{9}, Version{8}), ChunkIndex{i}, sent_chunks.back(), nullptr);
      end->connection->send_control(sent_controls.back());
    }
  }
  ASSERT_TRUE(net.run_until([&] { return pair.dialed.order.size() == 400 && pair.accepted.order.size() == 400; }));
  for (const End* end : {&pair.dialed, &pair.accepted}) {
    EXPECT_EQ(end->controls, sent_controls);
    for (std::size_t i = 0; i < sent_chunks.size(); ++i) {
      const ReceivedChunk& chunk = end->chunks[i];
      EXPECT_EQ(chunk.payload, patch_of(Version{9}, Version{8}));
      EXPECT_EQ(chunk.chunk.value, i);
      ASSERT_TRUE(std::ranges::equal(chunk.bytes->bytes(), sent_chunks[i]->bytes())) << i;
      EXPECT_EQ(chunk.digest, content_digest_of(sent_chunks[i]->bytes()));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(chunk.bytes->data()) % Buffer::kAlignment, 0u);
    }
    EXPECT_EQ(end->connection->bytes_sent(), end->connection->bytes_received());
    EXPECT_EQ(end->connection->peer_host(), "127.0.0.1");
  }
}

TEST_P(FrameTraffic, StreamsLargeChunksOneAfterTheOther) {
  Host net;
  TcpPair pair(net);
  constexpr std::uint32_t kChunks = 256;
  const BufferRef buffer = random_buffer(net.buffers, kMiB, 3);
  const ContentDigest digest = content_digest_of(buffer->bytes());
  std::uint32_t sent = 0, received = 0;
  const std::function<void()> send_next = [&] {
    if (sent < kChunks) pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{sent++}, buffer, send_next);
  };
  pair.accepted.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                          .on_chunk =
                                              [&](const ReceivedChunk& chunk) {
                                                EXPECT_EQ(chunk.chunk.value, received++);
                                                EXPECT_EQ(chunk.digest, digest);
                                              },
                                          .on_closed = [](const Error& error) { FAIL() << error.message(); }});
  send_next();
  send_next();
  EXPECT_TRUE(net.run_until([&] { return received == kChunks; }, seconds(200)));
}

TEST_P(FrameTraffic, ControlOvertakesChunksThatWait) {
  Host net(Rate{10e6});
  TcpPair pair(net);
  const BufferRef buffer = random_buffer(net.buffers, 256 * kKiB, 4);
  for (std::uint32_t i = 0; i < 8; ++i) pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
  net.run_for(milliseconds(10));  // the first chunk is under way
  pair.dialed.connection->send_control("now");
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.order.size() == 9; }));
  EXPECT_LT(pair.accepted.order.find('m'), 3u);
}

TEST_P(FrameTraffic, UplinkLimitHoldsAndIsSharedEvenly) {
  const Rate rate = Rate::bits(200e6);
  Host sender(rate);
  Host receiver;
  TcpPair one(sender, receiver), two(sender, receiver);
  const BufferRef buffer = random_buffer(sender.buffers, 128 * kKiB, 5);
  for (TcpPair* pair : {&one, &two}) {
    for (std::uint32_t i = 0; i < 1800; ++i)
      pair->dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
    pair->accepted.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                             .on_chunk = [](const ReceivedChunk&) {},
                                             .on_closed = [](const Error&) {}});
  }
  const auto sent = [](const TcpPair& pair) { return double(pair.dialed.connection->bytes_sent()); };
  // A receiver that has no processor for a moment takes nothing, and then the other one has its turn: another second.
  double apart = 0;
  for (int attempt = 0; attempt < 4; ++attempt) {
    const double apart_before = sent(one) - sent(two);
    ASSERT_TRUE(fills(rate, sender, receiver, [&] { return sent(one) + sent(two); }));
    apart = std::abs(sent(one) - sent(two) - apart_before);
    if (apart <= 128.0 * kKiB) break;
  }
  EXPECT_LE(apart, 128.0 * kKiB);
}

TEST_P(FrameTraffic, DownlinkLimitHolds) {
  const Rate rate = Rate::bits(200e6);
  Host sender;
  Host receiver({}, rate);
  TcpPair pair(sender, receiver);
  const BufferRef buffer = random_buffer(sender.buffers, 128 * kKiB, 6);
  for (std::uint32_t i = 0; i < 900; ++i)
    pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
  pair.accepted.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                          .on_chunk = [](const ReceivedChunk&) {},
                                          .on_closed = [](const Error&) {}});
  EXPECT_TRUE(fills(rate, receiver, sender, [&] { return double(pair.accepted.connection->bytes_received()); }));
}

TEST_P(FrameTraffic, OnSentRunsPerChunkAndNeverInsideSendChunk) {
  Host net;
  TcpPair pair(net);
  const BufferRef buffer = random_buffer(net.buffers, 4 * kKiB, 7);
  int sent = 0;
  for (std::uint32_t i = 0; i < 20; ++i) {
    pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, [&] { ++sent; });
    EXPECT_EQ(sent, 0);
  }
  EXPECT_TRUE(net.run_until([&] { return sent == 20; }));
}

// After a chunk the reader expects another one and does not look at every packet; a message must not get lost in that.
TEST_P(FrameTraffic, ShortMessageAfterChunksDoesNotWaitForAnother) {
  Host net;
  TcpPair pair(net);
  std::size_t chunks = 0;
  std::string said;
  pair.accepted.connection->set_handlers({.on_control =
                                              [&](const std::string& body) {
                                                said += body;
                                                return Status{};
                                              },
                                          .on_chunk = [&](const ReceivedChunk&) { ++chunks; },
                                          .on_closed = [](const Error&) {}});
  const BufferRef buffer = random_buffer(net.buffers, 64 * kKiB, 8);
  for (std::uint32_t i = 0; i < 4; ++i) pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
  ASSERT_TRUE(net.run_until([&] { return chunks == 4; }));
  pair.dialed.connection->send_control("one");
  ASSERT_TRUE(net.run_until([&] { return said == "one"; }));
  pair.dialed.connection->send_control("two");
  pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{4}, buffer, nullptr);
  ASSERT_TRUE(net.run_until([&] { return said == "onetwo" && chunks == 5; }));
}

TEST_P(FrameTraffic, NothingArrivesWhileReadingIsPaused) {
  Host net;
  TcpPair pair(net);
  pair.accepted.connection->pause_reading();
  pair.dialed.connection->send_control("one");
  net.run_for(milliseconds(20));
  EXPECT_TRUE(pair.accepted.controls.empty());
  pair.accepted.connection->resume_reading();
  EXPECT_TRUE(net.run_until([&] { return pair.accepted.controls.size() == 1; }));
}

TEST_P(FrameTraffic, CloseSendsWhatIsQueuedEvenIfTheOwnerIsGone) {
  Host net;
  TcpPair pair(net);
  for (int i = 0; i < 100; ++i) pair.dialed.connection->send_control(std::string(10'000, 'x'));
  // Not read by the closing end: the kernel would reset the stream if that counted.
  pair.accepted.connection->send_control("crossing");
  net.run_for(milliseconds(1));
  pair.dialed.connection->close();
  pair.dialed.connection.reset();
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.closed.has_value(); }));
  EXPECT_EQ(pair.accepted.controls.size(), 100u);
  EXPECT_EQ(pair.accepted.closed->code, Errc::kClosed);
}

TEST_P(FrameTraffic, CloseEndsAChunkThatHasBegunAndDropsTheOthers) {
  Host net(Rate{10e6});
  TcpPair pair(net);
  const BufferRef buffer = random_buffer(net.buffers, 512 * kKiB, 9);
  for (std::uint32_t i = 0; i < 8; ++i) pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
  net.run_for(milliseconds(10));
  pair.dialed.connection->send_control("bye");
  pair.dialed.connection->close();
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.closed.has_value(); }));
  EXPECT_EQ(pair.accepted.order, "cm");
  EXPECT_EQ(pair.accepted.closed->code, Errc::kClosed);
}

TEST_P(FrameTraffic, TheLastWordsOfAPeerAreReadAlthoughWritingFails) {
  Host net;
  TcpPair pair(net);
  const BufferRef buffer = random_buffer(net.buffers, 64 * kKiB, 10);
  pair.accepted.connection->send_control("the reason");
  pair.accepted.connection->close();
  pair.accepted.connection.reset();
  for (std::uint32_t i = 0; i < 100; ++i)
    pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
  ASSERT_TRUE(net.run_until([&] { return pair.dialed.closed.has_value(); }));
  EXPECT_EQ(pair.dialed.controls, std::vector<std::string>{"the reason"});
}

TEST_P(FrameTraffic, TellsWhenAllMessagesHaveLeft) {
  Host net;
  TcpPair pair(net);
  int told = 0;
  pair.dialed.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                        .on_chunk = [](const ReceivedChunk&) {},
                                        .on_closed = [](const Error&) {},
                                        .on_control_sent = [&] { ++told; }});
  for (int i = 0; i < 3; ++i) pair.dialed.connection->send_control(std::string(kMiB, 'x'));
  EXPECT_EQ(told, 0);
  ASSERT_TRUE(net.run_until([&] { return told > 0; }));
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.controls.size() == 3; }));
  EXPECT_EQ(told, 1);
}

INSTANTIATE_TEST_SUITE_P(, FrameTraffic,
                         ::testing::Values(Over::kPlain, Over::kEncrypted, Over::kEncryptedHashedApart,
                                           Over::kPlainIoThreads, Over::kEncryptedIoThreads),
                         [](const auto& over) -> std::string {
                           switch (over.param) {
                             case Over::kPlain: return "Plain";
                             case Over::kEncrypted: return "Encrypted";
                             case Over::kEncryptedHashedApart: return "EncryptedHashedApart";
                             case Over::kPlainIoThreads: return "PlainIoThreads";
                             default: return "EncryptedIoThreads";
                           }
                         });

}  // namespace
}  // namespace weightcast
