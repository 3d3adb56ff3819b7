#include "transport/io/net/frame_connection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/transport/io/net/frame_fixture.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A connection over which the test plays the peer.
struct OnePeer : testing::Test {
  Net net;
  BarePeer peer{net};

  /// Waits until this end closes it.
  void expect_closed(Errc why) {
    ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
    EXPECT_EQ(peer.end.closed->code, why);
  }
};

TEST_F(OnePeer, EndBetweenFramesIsAClose) {
  peer.write(control_header(2));
  peer.write(std::as_bytes(std::span("hi", 2)));
  peer.socket.reset();
  expect_closed(Errc::kClosed);
  EXPECT_EQ(peer.end.controls, std::vector<std::string>{"hi"});
}

TEST(FrameConnection, EndInsideAFrameIsAnErrorAtEveryLength) {
  const std::string body = "a body";
  std::vector<std::byte> frame(FrameHeader::kBytes + body.size());
  std::ranges::copy(control_header(std::uint32_t(body.size())), frame.begin());
  std::ranges::copy(std::as_bytes(std::span(body)), frame.begin() + FrameHeader::kBytes);
  for (std::size_t cut = 1; cut < frame.size(); ++cut) {
    Net net;
    BarePeer peer(net);
    peer.write(Bytes(frame).first(cut));
    peer.socket.reset();
    ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
    EXPECT_EQ(peer.end.closed->code, Errc::kIo) << cut;
    EXPECT_TRUE(peer.end.controls.empty());
  }
}

TEST_F(OnePeer, FramesThatComeByteByByteAreFrames) {
  const std::string body = "slowly";
  for (const std::byte b : control_header(std::uint32_t(body.size()))) {
    peer.write({&b, 1});
    net.run_for(milliseconds(1));
  }
  for (const std::byte b : std::as_bytes(std::span(body))) {
    peer.write({&b, 1});
    net.run_for(milliseconds(1));
  }
  ASSERT_TRUE(net.run_until([&] { return !peer.end.controls.empty(); }));
  EXPECT_EQ(peer.end.controls.front(), body);
}

TEST_F(OnePeer, GarbageClosesWithoutWaitingForMore) {
  const std::string garbage = "GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: a\r\n\r\n";
  peer.write(std::as_bytes(std::span(garbage)));
  expect_closed(Errc::kCorrupt);
}

TEST_F(OnePeer, AWildLengthIsRefusedByTheHeadersCheck) {
  FrameHeaderBytes header = control_header(0);
  header[15] = std::byte{0x80};  // 2^63, where a reader of a 64-bit length would see it
  peer.write(header);
  expect_closed(Errc::kCorrupt);
}

TEST_F(OnePeer, ALengthAboveItsLimitIsRefused) {
  peer.write(encode_frame_header({.type = FrameType::kChunk, .body_bytes = 0xffff'ffff}));
  expect_closed(Errc::kTooLarge);
}

TEST(FrameConnection, AFrameThatNeverEndsTimesOut) {
  Net net;
  net.socket.body_timeout = milliseconds(50);
  const FrameHeaderBytes header = control_header(100);
  for (const std::size_t part : {std::size_t{1}, FrameHeader::kBytes}) {
    BarePeer peer(net);
    peer.write(Bytes(header).first(part));
    const Instant start = net.loop.now();
    ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
    EXPECT_EQ(peer.end.closed->code, Errc::kTimedOut);
    EXPECT_GE(net.loop.now() - start, milliseconds(50));
  }
}

// Eight times, `act` and then a turn of the loop for `step`. Says whether the host let each take less than `limit`, the
// first one from `begin` on: if not, what timed out proves nothing.
template <typename Act>
bool keeps_step(Net& net, Instant begin, Duration step, Duration limit, Act act) {
  bool kept = true;
  for (int i = 0; i < 8; ++i) {
    act();
    net.run_for(step);
    const Instant end = net.loop.now();
    kept = kept && end - std::exchange(begin, end) < limit;
  }
  return kept;
}

constexpr int kAttempts = 20;  // for a host that is busy with other things

TEST(FrameConnection, AFrameThatComesSlowlyDoesNotTimeOut) {
  for (int attempt = 1;; ++attempt) {
    ASSERT_LE(attempt, kAttempts) << "the host never let the loop turn in time";
    Net net;
    net.socket.body_timeout = milliseconds(500);
    const Instant begin = net.loop.now();
    BarePeer peer(net);
    peer.write(control_header(8));
    const std::byte b{'x'};
    if (!keeps_step(net, begin, milliseconds(75), milliseconds(400), [&] { peer.try_write({&b, 1}); })) continue;
    EXPECT_TRUE(net.run_until([&] { return peer.end.controls.size() == 1; }));
    EXPECT_FALSE(peer.end.closed.has_value());
    break;
  }
}

TEST(FrameConnection, APeerThatSaysNothingIsLeftAlone) {
  Net net;
  net.socket.body_timeout = milliseconds(10);
  BarePeer peer(net);
  net.run_for(milliseconds(50));
  EXPECT_FALSE(peer.end.closed.has_value());
}

TEST_F(OnePeer, APeerThatDoesNotReadIsGivenUp) {
  const std::string body(kControlBytesMax, 'x');
  for (int i = 0; i < 9; ++i) peer.end.connection->send_control(body);
  expect_closed(Errc::kTooLarge);
}

TEST_F(OnePeer, AnErrorOfOnControlCloses) {
  std::optional<Error> closed;
  peer.end.connection->set_handlers(
      {.on_control = [](const std::string&) { return Status(fail(Errc::kNotAllowed, Op::kJoin, "no")); },
       .on_chunk = [](const ReceivedChunk&) {},
       .on_closed = [&](const Error& error) { closed = error; }});
  peer.write(control_header(0));
  peer.write(control_header(0));
  ASSERT_TRUE(net.run_until([&] { return closed.has_value(); }));
  EXPECT_EQ(closed->code, Errc::kNotAllowed);
}

TEST(FrameConnection, MayBeDestroyedByEachOfItsHandlers) {
  for (const char* who : {"control", "chunk", "closed"}) {
    Net net;
    BarePeer peer(net);
    bool ran = false;
    const auto drop = [&](std::string_view name) {
      if (name != who) return;
      peer.end.connection.reset();
      ran = true;
    };
    peer.end.connection->set_handlers({.on_control =
                                           [&](const std::string&) {
                                             drop("control");
                                             return Status{};
                                           },
                                       .on_chunk = [&](const ReceivedChunk&) { drop("chunk"); },
                                       .on_closed = [&](const Error&) { drop("closed"); }});
    peer.write(control_header(0));
    peer.write(encode_frame_header({.type = FrameType::kChunk, .body_bytes = 0}));
    peer.socket.reset();
    EXPECT_TRUE(net.run_until([&] { return ran; })) << who;
  }
}

TEST_F(OnePeer, MayBeDestroyedByOnSent) {
  const BufferRef buffer = random_buffer(net.buffers, 100, 8);
  for (std::uint32_t i = 0; i < 3; ++i) {
    peer.end.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, [&] { peer.end.connection.reset(); });
  }
  EXPECT_TRUE(net.run_until([&] { return peer.end.connection == nullptr; }));
}

TEST(FrameConnection, CloseGivesUpAfterASecond) {
  Net net;
  BarePeer peer(net);  // does not read
  peer.end.connection->send_control(std::string(kControlBytesMax, 'x'));
  peer.end.connection->close();
  peer.end.connection.reset();
  const Instant start = net.loop.now();
  net.loop.run();
  EXPECT_GE(net.loop.now() - start, milliseconds(900));
  EXPECT_LE(net.loop.now() - start, seconds(20)) << "more than a second only because the host is busy";
}

// ---- what a peer can make this end hold

TEST(FrameConnection, HeadersAloneTakeNoMemory) {
  Net net;
  std::vector<std::unique_ptr<BarePeer>> peers;
  for (int i = 0; i < 100; ++i) peers.push_back(std::make_unique<BarePeer>(net));
  const std::size_t before = allocated_bytes();
  for (const auto& peer : peers) peer->write(control_header(kControlBytesMax));
  net.run_for(milliseconds(50));
  EXPECT_LT(allocated_bytes() - before, 100 * 16 * kKiB) << "the headers promise " << 100 * kControlBytesMax;
  for (const auto& peer : peers) EXPECT_FALSE(peer->end.closed.has_value());
}

TEST_F(OnePeer, MemoryOfAMessageGrowsWithWhatHasCome) {
  peer.write(control_header(kControlBytesMax));
  std::string sent;
  const std::size_t before = allocated_bytes();
  const std::string piece = "0123456789abcdef";
  while (sent.size() < kControlBytesMax) {
    std::string part;
    while (part.size() < 64 * kKiB) part += piece;
    sent += part;
    peer.write(std::as_bytes(std::span(part)));
    net.run_for(milliseconds(1));
    if (sent.size() == 256 * kKiB) {
      EXPECT_LT(allocated_bytes() - before, 2 * kMiB);
    }
  }
  ASSERT_TRUE(net.run_until([&] { return peer.end.controls.size() == 1; }));
  EXPECT_EQ(peer.end.controls[0], sent);
}

TEST(FrameConnection, FramesAboveThePeersLimitsAreRefusedByTheirHeaders) {
  Net net;
  BarePeer message(net), chunk(net), empty_chunk(net);
  for (BarePeer* peer : {&message, &chunk, &empty_chunk}) {
    peer->end.connection->set_receive_limits({.control_bytes_max = 4 * kKiB, .chunk_bytes_max = 0});
  }
  message.write(control_header(4 * kKiB + 1));
  chunk.write(encode_frame_header({.type = FrameType::kChunk, .body_bytes = 4096}));
  empty_chunk.write(encode_frame_header({.type = FrameType::kChunk, .body_bytes = 0}));
  ASSERT_TRUE(net.run_until([&] { return message.end.closed && chunk.end.closed && empty_chunk.end.closed; }));
  EXPECT_EQ(message.end.closed->code, Errc::kTooLarge);
  EXPECT_EQ(chunk.end.closed->code, Errc::kNotAllowed);
  EXPECT_EQ(empty_chunk.end.closed->code, Errc::kNotAllowed);
  EXPECT_TRUE(empty_chunk.end.chunks.empty());
}

TEST_F(OnePeer, LimitsThatWereWidenedCountFromTheNextFrameOn) {
  peer.end.connection->set_receive_limits({.control_bytes_max = 4});
  peer.write(control_header(4));
  peer.write(std::as_bytes(std::span("join", 4)));
  ASSERT_TRUE(net.run_until([&] { return peer.end.controls.size() == 1; }));
  peer.end.connection->set_receive_limits({.control_bytes_max = 9});
  peer.write(control_header(9));
  peer.write(std::as_bytes(std::span("subscribe", 9)));
  ASSERT_TRUE(net.run_until([&] { return peer.end.controls.size() == 2; }));
}

// Two large messages at a time, of four; small ones pass meanwhile.
TEST(FrameConnection, LargeFramesWaitForTheBudgetAndSmallOnesDoNot) {
  constexpr std::size_t kBody = 64 * kKiB;
  Net net;
  ReceiveBudget budget(2 * kBody);
  const std::string body(kBody, 'x');
  const std::string half(kBody / 2, 'x');
  std::vector<std::unique_ptr<BarePeer>> peers;
  for (int i = 0; i < 5; ++i) {
    peers.push_back(std::make_unique<BarePeer>(net));
    peers.back()->end.connection->set_receive_limits({.budget = &budget});
  }
  const auto has = [&](std::size_t i) { return peers[i]->end.controls.size() == 1; };
  for (std::size_t i = 0; i < 4; ++i) {
    peers[i]->write(control_header(kBody));
    peers[i]->write(std::as_bytes(std::span(i < 2 ? half : body)));
    ASSERT_TRUE(net.run_until([&] { return budget.taken_bytes() == std::min<std::size_t>(i + 1, 2) * kBody; }));
    net.run_for(milliseconds(5));
  }
  peers[4]->write(control_header(5));
  peers[4]->write(std::as_bytes(std::span("small", 5)));
  ASSERT_TRUE(net.run_until([&] { return has(4); }));
  EXPECT_EQ(budget.taken_bytes(), 2 * kBody);
  EXPECT_FALSE(has(2) || has(3)) << "they came whole, but are not read";

  peers[0]->write(std::as_bytes(std::span(half)));
  ASSERT_TRUE(net.run_until([&] { return has(0) && has(2); }));
  peers[1]->socket.reset();  // ends inside its frame
  ASSERT_TRUE(net.run_until([&] { return has(3) && peers[1]->end.closed; }));
  EXPECT_EQ(budget.taken_bytes(), 0u);
}

TEST(FrameConnection, AConnectionThatGoesAwayGivesItsBudgetBack) {
  Net net;
  ReceiveBudget budget(10 * kKiB);
  const std::string body(8 * kKiB, 'x');
  BarePeer first(net), second(net);
  for (BarePeer* peer : {&first, &second}) {
    peer->end.connection->set_receive_limits({.budget = &budget});
    peer->write(control_header(8 * kKiB));
    ASSERT_TRUE(net.run_until([&] { return budget.taken_bytes() > 0; }));
  }
  second.write(std::as_bytes(std::span(body)));
  net.run_for(milliseconds(5));
  EXPECT_TRUE(second.end.controls.empty());
  first.end.connection.reset();
  ASSERT_TRUE(net.run_until([&] { return second.end.controls.size() == 1; }));
  EXPECT_EQ(budget.taken_bytes(), 0u);
}

TEST(FrameConnection, WaitingForTheBudgetIsNotThePeersSilence) {
  Net net;
  net.socket.body_timeout = milliseconds(40);
  ReceiveBudget budget(10 * kKiB);
  ReceiveBudget::Share held([] {});
  const std::string body(8 * kKiB, 'x');
  ASSERT_TRUE(held.take(budget, 10 * kKiB));
  BarePeer peer(net);
  peer.end.connection->set_receive_limits({.budget = &budget});
  peer.write(control_header(8 * kKiB));
  peer.write(std::as_bytes(std::span(body)));
  net.run_for(milliseconds(120));
  ASSERT_FALSE(peer.end.closed.has_value());
  held.give_back();
  EXPECT_TRUE(net.run_until([&] { return peer.end.controls.size() == 1; }));
}

// What an acknowledgement costs while it waits is several times its bytes.
TEST_F(OnePeer, ManySmallMessagesThatNobodyReadsAreBoundedByTheirMemory) {
  const std::size_t before = allocated_bytes();
  std::size_t most = 0;
  for (int i = 0; i < 2'000'000 && !peer.end.closed; ++i) {
    peer.end.connection->send_control("\x22");
    if (i % 1000 == 0) {
      net.run_for(milliseconds(1));
      most = std::max(most, allocated_bytes() - before);
    }
  }
  ASSERT_TRUE(peer.end.closed.has_value());
  EXPECT_EQ(peer.end.closed->code, Errc::kTooLarge);
  EXPECT_LT(most, FrameConnection::kControlQueueBytesMax * 5 / 4);
}

TEST(FrameConnection, AMessageTooLargeToSendClosesTheConnectionAndNothingElse) {
  Net net;
  BarePeer message(net), chunk(net);
  message.end.connection->send_control(std::string(kControlBytesMax + 1, 'x'));
  chunk.end.connection->send_chunk(Version{1}, ChunkIndex{0}, random_buffer(net.buffers, kChunkBytesMax + 1, 1),
                                   nullptr);
  EXPECT_FALSE(message.end.closed.has_value()) << "not from inside the call";
  ASSERT_TRUE(net.run_until([&] { return message.end.closed && chunk.end.closed; }));
  EXPECT_EQ(message.end.closed->code, Errc::kTooLarge);
  EXPECT_EQ(chunk.end.closed->code, Errc::kTooLarge);
}

// ---- connections on which nothing happens

TEST(FrameConnection, AnIdleConnectionIsClosedInTime) {
  Net net;
  net.socket.idle_timeout = milliseconds(60);
  const Instant start = net.loop.now();  // before the connection's time begins
  BarePeer peer(net);
  ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
  EXPECT_EQ(peer.end.closed->code, Errc::kTimedOut);
  EXPECT_GE(net.loop.now() - start, milliseconds(60));
}

TEST(FrameConnection, TrafficOfEitherDirectionKeepsAConnection) {
  for (int attempt = 1;; ++attempt) {
    ASSERT_LE(attempt, kAttempts) << "the host never let the loop turn in time";
    Net net;
    net.socket.idle_timeout = milliseconds(100);
    const Instant begin = net.loop.now();
    BarePeer writes(net), reads(net);
    const bool kept = keeps_step(net, begin, milliseconds(30), milliseconds(80), [&] {
      writes.try_write(control_header(0));
      reads.end.connection->send_control("");
    });
    if (!kept) continue;
    EXPECT_FALSE(writes.end.closed.has_value());
    EXPECT_FALSE(reads.end.closed.has_value());
    EXPECT_TRUE(net.run_until([&] { return writes.end.closed && reads.end.closed; }));
    break;
  }
}

TEST(FrameConnection, AFrameThatNeverEndsTimesOutBeforeIdlenessDoes) {
  Net net;
  net.socket.idle_timeout = seconds(60);
  net.socket.body_timeout = milliseconds(50);
  BarePeer peer(net);
  peer.write(Bytes(control_header(100)).first(8));
  EXPECT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }, seconds(30)));
}

}  // namespace
}  // namespace weightcast
