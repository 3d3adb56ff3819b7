#include "transport/io/net/arrived_frames.h"

#include <gtest/gtest.h>

#include <latch>
#include <vector>

#include "tests/transport/io/net/frame_fixture.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t kApart = ArrivedFrames::kHashedApartBytesMin;

/// A node whose other thread hashes nothing before open().
class HashedApart : public ::testing::Test {
 protected:
  HashedApart() {
    net.hashing.emplace(net.loop);
    net.hashing->run([this] { gate.wait(); }, [] {});
  }
  ~HashedApart() override { open(); }

  void open() {
    if (!std::exchange(is_open, true)) gate.count_down();
  }

  /// The other thread has done all that it was given, and has told the loop.
  [[nodiscard]] testing::AssertionResult hashing_is_done() {
    bool done = false;
    net.hashing->run([] {}, [&] { done = true; });
    return net.run_until([&] { return done; });
  }

  BufferRef send_chunk(End& from, std::uint32_t chunk, std::size_t bytes) {
    const BufferRef buffer = random_buffer(net.buffers, bytes, chunk);
    from.connection->send_chunk(Version{1}, ChunkIndex{chunk}, buffer, nullptr);
    return buffer;
  }

  /// All that `from` has sent has come to `to`.
  [[nodiscard]] testing::AssertionResult comes(const End& from, const End& to, std::uint64_t bytes) {
    return net.run_until(
        [&] { return from.connection->bytes_sent() >= bytes && to.connection->bytes_received() >= bytes; });
  }

  Net net;
  std::latch gate{1};
  bool is_open = false;
};

TEST_F(HashedApart, KeepTheirPlaceAmongOtherFrames) {
  TcpPair pair(net);
  const std::vector<BufferRef> sent{send_chunk(pair.dialed, 0, kApart), send_chunk(pair.dialed, 1, kApart - 1),
                                    send_chunk(pair.dialed, 2, kMiB)};
  ASSERT_TRUE(comes(pair.dialed, pair.accepted, 2 * kApart + kMiB));
  pair.dialed.connection->send_control("a");
  ASSERT_TRUE(comes(pair.dialed, pair.accepted, 2 * kApart + kMiB + 4 * FrameHeader::kBytes));
  EXPECT_EQ(pair.accepted.order, "");
  open();
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.order.size() == 4; }));
  EXPECT_EQ(pair.accepted.order, "cccm");
  for (std::uint32_t i = 0; i < sent.size(); ++i) {
    EXPECT_EQ(pair.accepted.chunks[i].chunk.value, i);
    EXPECT_EQ(pair.accepted.chunks[i].digest, content_digest_of(sent[i]->bytes()));
  }
}

TEST_F(HashedApart, ArriveBeforeThePeersEndAlthoughNobodyHasHashedThem) {
  TcpPair pair(net);
  const BufferRef sent = send_chunk(pair.dialed, 0, kMiB);
  ASSERT_TRUE(comes(pair.dialed, pair.accepted, kMiB));
  pair.dialed.connection->send_control("bye");
  pair.dialed.connection->close();
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.closed.has_value(); }));
  EXPECT_EQ(pair.accepted.order, "cm");
  EXPECT_EQ(pair.accepted.chunks[0].digest, content_digest_of(sent->bytes()));
  EXPECT_EQ(pair.accepted.closed->code, Errc::kClosed);
}

TEST_F(HashedApart, ArriveBeforeTheConnectionBreaksOrTurnsMalformed) {
  for (const bool breaks : {true, false}) {
    BarePeer peer(net);
    // Unix sockets hold less than the chunk.
    const FrameHeader header{
        .type = FrameType::kChunk, .body_bytes = std::uint32_t{kApart}, .chunk = ChunkIndex{0}, .payload = Version{1}};
    peer.write(encode_frame_header(header));
    const std::vector<std::byte> piece(kApart / 8, std::byte{7});
    for (std::uint64_t i = 1; i <= 8; ++i) {
      peer.write(piece);
      ASSERT_TRUE(net.run_until([&] { return peer.end.connection->bytes_received() >= i * piece.size(); }));
    }
    if (breaks) {
      peer.socket.reset();
      peer.end.connection->send_control("nobody reads this");
    } else {
      peer.write(std::vector<std::byte>(FrameHeader::kBytes, std::byte{0xff}));
    }
    ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
    ASSERT_EQ(peer.end.order, "c");
    EXPECT_EQ(peer.end.chunks[0].digest, content_digest_of(std::vector<std::byte>(kApart, std::byte{7})));
  }
}

TEST_F(HashedApart, AreDroppedWithTheirConnection) {
  for (const bool says_so : {true, false}) {
    TcpPair pair(net);
    send_chunk(pair.dialed, 0, kMiB);
    ASSERT_TRUE(comes(pair.dialed, pair.accepted, kMiB));
    if (says_so) {
      pair.accepted.connection->send_control("enough");
      pair.accepted.connection->close();
    }
    pair.accepted.connection.reset();
    ASSERT_TRUE(net.run_until([&] { return pair.dialed.closed.has_value(); }));
    EXPECT_EQ(pair.dialed.order, says_so ? "m" : "");
    EXPECT_EQ(pair.accepted.order, "");
  }
  open();
  EXPECT_TRUE(hashing_is_done());
}

TEST_F(HashedApart, AreDroppedWhileTheyAreHashed) {
  open();
  for (int i = 0; i < 20; ++i) {
    TcpPair pair(net);
    send_chunk(pair.dialed, 0, kChunkBytesMax);
    ASSERT_TRUE(comes(pair.dialed, pair.accepted, kChunkBytesMax));
    pair.accepted.connection.reset();
  }
  EXPECT_TRUE(hashing_is_done());
}

TEST_F(HashedApart, MayDestroyTheirConnection) {
  TcpPair pair(net);
  int came = 0;
  pair.accepted.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                          .on_chunk =
                                              [&](const ReceivedChunk&) {
                                                ++came;
                                                pair.accepted.connection.reset();
                                              },
                                          .on_closed = [](const Error&) { ADD_FAILURE(); }});
  send_chunk(pair.dialed, 0, kApart);
  send_chunk(pair.dialed, 1, kApart);
  ASSERT_TRUE(comes(pair.dialed, pair.accepted, 2 * kApart));
  open();
  ASSERT_TRUE(net.run_until([&] { return pair.dialed.closed.has_value(); }));
  ASSERT_TRUE(hashing_is_done());
  EXPECT_EQ(came, 1);
}

TEST_F(HashedApart, WaitWhileReadingIsPaused) {
  TcpPair pair(net);
  send_chunk(pair.dialed, 0, kApart);
  ASSERT_TRUE(comes(pair.dialed, pair.accepted, kApart));
  pair.accepted.connection->pause_reading();
  open();
  ASSERT_TRUE(hashing_is_done());
  EXPECT_EQ(pair.accepted.order, "");
  pair.accepted.connection->resume_reading();
  EXPECT_EQ(pair.accepted.order, "");  // not from inside the call
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.order == "c"; }));
}

TEST_F(HashedApart, APauseHoldsTheEndOfTheStreamBack) {
  TcpPair pair(net);
  pair.accepted.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                          .on_chunk =
                                              [&](const ReceivedChunk&) {
                                                pair.accepted.order += 'c';
                                                pair.accepted.connection->pause_reading();
                                              },
                                          .on_closed = [&](const Error& why) { pair.accepted.closed = why; }});
  send_chunk(pair.dialed, 0, kApart);
  send_chunk(pair.dialed, 1, kApart);
  ASSERT_TRUE(comes(pair.dialed, pair.accepted, 2 * kApart));
  pair.dialed.connection->close();
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.order == "c"; }));
  net.run_for(milliseconds(5));
  EXPECT_EQ(pair.accepted.order, "c");
  EXPECT_FALSE(pair.accepted.closed.has_value());
  pair.accepted.connection->resume_reading();
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.order == "cc"; }));
  EXPECT_FALSE(pair.accepted.closed.has_value());
  pair.accepted.connection->resume_reading();
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.closed.has_value(); }));
  EXPECT_EQ(pair.accepted.closed->code, Errc::kClosed);
}

TEST_F(HashedApart, TakeBoundedMemoryWhileTheyWait) {
  TcpPair pair(net);
  constexpr std::uint32_t kChunks = 8;
  for (std::uint32_t i = 0; i < kChunks; ++i) send_chunk(pair.dialed, i, kChunkBytesMax);
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.connection->bytes_received() >= ArrivedFrames::kBytesMax; }));
  net.run_for(milliseconds(20));
  EXPECT_LT(pair.accepted.connection->bytes_received(), ArrivedFrames::kBytesMax + kChunkBytesMax);
  EXPECT_EQ(pair.accepted.order, "");
  open();
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.chunks.size() == kChunks; }));
  for (std::uint32_t i = 0; i < kChunks; ++i) EXPECT_EQ(pair.accepted.chunks[i].chunk.value, i);
}

}  // namespace
}  // namespace weightcast
