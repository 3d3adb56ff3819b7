#include "transport/io/net/frame_connection.h"

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/transport/io/io_fixture.h"
#include "transport/io/net/dial.h"
#include "transport/io/net/listener.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

BufferRef random_buffer(BufferPool& pool, std::size_t bytes, std::uint64_t seed) {
  BufferRef buffer = pool.take(bytes);
  buffer->set_size(bytes);
  std::mt19937_64 random(seed);
  for (std::size_t i = 0; i < bytes; i += 8) {
    const std::uint64_t word = random();
    std::memcpy(buffer->data() + i, &word, std::min<std::size_t>(8, bytes - i));
  }
  return buffer;
}

// Two ends of one TCP connection over loopback, each with limits of its own.
class TcpPair {
 public:
  explicit TcpPair(Net& net) : TcpPair(net, net) {}
  TcpPair(Net& dialer, Net& acceptor) {
    auto listener = Listener::tcp(acceptor.context(), {"127.0.0.1", 0},
                                  [this](std::unique_ptr<FrameConnection> c) { accepted.adopt(std::move(c)); });
    EXPECT_TRUE(listener.has_value());
    Dial dial(dialer.context(), (*listener)->endpoint(), [this](Result<std::unique_ptr<FrameConnection>> c) {
      ASSERT_TRUE(c.has_value()) << c.error().message();
      dialed.adopt(std::move(*c));
    });
    EXPECT_TRUE(acceptor.run_until([&] {
      if (&dialer != &acceptor) dialer.loop.run_until(dialer.loop.now());
      return dialed.connection && accepted.connection;
    }));
  }

  End dialed;
  End accepted;
};

// A FrameConnection whose peer is a bare socket in the test's hands.
class BarePeer {
 public:
  explicit BarePeer(Net& net) {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    socket.reset(fds[0]);
    end.adopt(FrameConnection::over(net.context(), UniqueFd(fds[1]), "peer"));
  }

  void write(Bytes bytes) {
    while (!bytes.empty()) {
      const ssize_t put = ::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(put, 0);
      bytes = bytes.subspan(std::size_t(put));
    }
  }

  // The same to a connection that may have ended.
  void try_write(Bytes bytes) { (void)!::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL); }

  // What has arrived by now; nothing at the end of the stream, too.
  [[nodiscard]] std::string read() {
    std::string out(64 * kKiB, '\0');
    const ssize_t got = ::recv(socket.get(), out.data(), out.size(), 0);
    out.resize(got > 0 ? std::size_t(got) : 0);
    return out;
  }

  UniqueFd socket;
  End end;
};

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

FrameHeaderBytes control_header(std::uint32_t body_bytes) {
  return encode_frame_header({.type = FrameType::kControl, .body_bytes = body_bytes});
}

TEST(FrameConnection, CarriesFramesOfAnySizeBothWays) {
  Net net;
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
      EXPECT_EQ(chunk.digest, digest_of(sent_chunks[i]->bytes()));
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(chunk.bytes->data()) % Buffer::kAlignment, 0u);
    }
    EXPECT_EQ(end->connection->bytes_sent(), end->connection->bytes_received());
    EXPECT_EQ(end->connection->peer_host(), "127.0.0.1");
  }
}

TEST(FrameConnection, StreamsLargeChunksOneAfterTheOther) {
  Net net;
  TcpPair pair(net);
  constexpr std::uint32_t kChunks = 256;
  const BufferRef buffer = random_buffer(net.buffers, kMiB, 3);
  const Digest digest = digest_of(buffer->bytes());
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
  EXPECT_TRUE(net.run_until([&] { return received == kChunks; }, seconds(30)));
}

TEST(FrameConnection, ControlOvertakesChunksThatWait) {
  Net net(Rate{10e6});
  TcpPair pair(net);
  const BufferRef buffer = random_buffer(net.buffers, 256 * kKiB, 4);
  for (std::uint32_t i = 0; i < 8; ++i) pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
  net.run_for(milliseconds(10));  // the first chunk is under way
  pair.dialed.connection->send_control("now");
  ASSERT_TRUE(net.run_until([&] { return pair.accepted.order.size() == 9; }));
  EXPECT_LT(pair.accepted.order.find('m'), 3u);
}

TEST(FrameConnection, UplinkLimitHoldsAndIsSharedEvenly) {
  const Rate rate = Rate::bits(200e6);
  Net sender(rate);
  Net receiver;
  TcpPair one(sender, receiver), two(sender, receiver);
  const BufferRef buffer = random_buffer(sender.buffers, 128 * kKiB, 5);
  for (TcpPair* pair : {&one, &two}) {
    for (std::uint32_t i = 0; i < 900; ++i)
      pair->dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
    pair->accepted.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                             .on_chunk = [](const ReceivedChunk&) {},
                                             .on_closed = [](const Error&) {}});
  }
  const auto sent = [](const TcpPair& pair) { return double(pair.dialed.connection->bytes_sent()); };
  EXPECT_TRUE(fills(rate, sender, receiver, [&] { return sent(one) + sent(two); }));
  EXPECT_NEAR(sent(one), sent(two), 128.0 * kKiB);
}

TEST(FrameConnection, DownlinkLimitHolds) {
  const Rate rate = Rate::bits(200e6);
  Net sender;
  Net receiver({}, rate);
  TcpPair pair(sender, receiver);
  const BufferRef buffer = random_buffer(sender.buffers, 128 * kKiB, 6);
  for (std::uint32_t i = 0; i < 900; ++i)
    pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, nullptr);
  pair.accepted.connection->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                                          .on_chunk = [](const ReceivedChunk&) {},
                                          .on_closed = [](const Error&) {}});
  EXPECT_TRUE(fills(rate, receiver, sender, [&] { return double(pair.accepted.connection->bytes_received()); }));
}

TEST(FrameConnection, OnSentRunsPerChunkAndNeverInsideSendChunk) {
  Net net;
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
TEST(FrameConnection, ShortMessageAfterChunksDoesNotWaitForAnother) {
  Net net;
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

TEST(FrameConnection, NothingArrivesWhileReadingIsPaused) {
  Net net;
  TcpPair pair(net);
  pair.accepted.connection->pause_reading();
  pair.dialed.connection->send_control("one");
  net.run_for(milliseconds(20));
  EXPECT_TRUE(pair.accepted.controls.empty());
  pair.accepted.connection->resume_reading();
  EXPECT_TRUE(net.run_until([&] { return pair.accepted.controls.size() == 1; }));
}

TEST(FrameConnection, EndBetweenFramesIsAClose) {
  Net net;
  BarePeer peer(net);
  peer.write(control_header(2));
  peer.write(std::as_bytes(std::span("hi", 2)));
  peer.socket.reset();
  ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
  EXPECT_EQ(peer.end.closed->code, Errc::kClosed);
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

TEST(FrameConnection, FramesThatComeByteByByteAreFrames) {
  Net net;
  BarePeer peer(net);
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

TEST(FrameConnection, GarbageClosesWithoutWaitingForMore) {
  Net net;
  BarePeer peer(net);
  const std::string garbage = "GET / HTTP/1.1\r\nHost: example.org\r\nUser-Agent: a\r\n\r\n";
  peer.write(std::as_bytes(std::span(garbage)));
  ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
  EXPECT_EQ(peer.end.closed->code, Errc::kCorrupt);
}

TEST(FrameConnection, AWildLengthIsRefusedByTheHeadersCheck) {
  Net net;
  BarePeer peer(net);
  FrameHeaderBytes header = control_header(0);
  header[15] = std::byte{0x80};  // 2^63, where a reader of a 64-bit length would see it
  peer.write(header);
  ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
  EXPECT_EQ(peer.end.closed->code, Errc::kCorrupt);
}

TEST(FrameConnection, ALengthAboveItsLimitIsRefused) {
  Net net;
  BarePeer peer(net);
  peer.write(encode_frame_header({.type = FrameType::kChunk, .body_bytes = 0xffff'ffff}));
  ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
  EXPECT_EQ(peer.end.closed->code, Errc::kTooLarge);
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

// Eight times, `act` and then a turn of the loop for `step`. Says whether the host let each take less than `limit`: if
// not, what timed out proves nothing.
template <typename Act>
bool keeps_step(Net& net, Duration step, Duration limit, Act act) {
  bool kept = true;
  for (int i = 0; i < 8; ++i) {
    const Instant before = net.loop.now();
    act();
    net.run_for(step);
    kept = kept && net.loop.now() - before < limit;
  }
  return kept;
}

constexpr int kAttempts = 20;  // for a host that is busy with other things

TEST(FrameConnection, AFrameThatComesSlowlyDoesNotTimeOut) {
  for (int attempt = 1;; ++attempt) {
    ASSERT_LE(attempt, kAttempts) << "the host never let the loop turn in time";
    Net net;
    net.socket.body_timeout = milliseconds(500);
    BarePeer peer(net);
    peer.write(control_header(8));
    const std::byte b{'x'};
    if (!keeps_step(net, milliseconds(75), milliseconds(400), [&] { peer.try_write({&b, 1}); })) continue;
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

TEST(FrameConnection, APeerThatDoesNotReadIsGivenUp) {
  Net net;
  BarePeer peer(net);
  const std::string body(kControlBytesMax, 'x');
  for (int i = 0; i < 9; ++i) peer.end.connection->send_control(body);
  ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
  EXPECT_EQ(peer.end.closed->code, Errc::kTooLarge);
}

TEST(FrameConnection, AnErrorOfOnControlCloses) {
  Net net;
  BarePeer peer(net);
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

TEST(FrameConnection, MayBeDestroyedByOnSent) {
  Net net;
  BarePeer peer(net);
  const BufferRef buffer = random_buffer(net.buffers, 100, 8);
  for (std::uint32_t i = 0; i < 3; ++i) {
    peer.end.connection->send_chunk(Version{1}, ChunkIndex{i}, buffer, [&] { peer.end.connection.reset(); });
  }
  EXPECT_TRUE(net.run_until([&] { return peer.end.connection == nullptr; }));
}

TEST(FrameConnection, CloseSendsWhatIsQueuedEvenIfTheOwnerIsGone) {
  Net net;
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

TEST(FrameConnection, CloseEndsAChunkThatHasBegunAndDropsTheOthers) {
  Net net(Rate{10e6});
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

TEST(FrameConnection, TheLastWordsOfAPeerAreReadAlthoughWritingFails) {
  Net net;
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

// ---- what a peer can make this end hold

// Bytes that the allocator has handed out.
std::size_t allocated_bytes() {
  const struct mallinfo2 info = ::mallinfo2();
  return info.uordblks + info.hblkhd;
}

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

TEST(FrameConnection, MemoryOfAMessageGrowsWithWhatHasCome) {
  Net net;
  BarePeer peer(net);
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

TEST(FrameConnection, LimitsThatWereWidenedCountFromTheNextFrameOn) {
  Net net;
  BarePeer peer(net);
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
    net.run_for(milliseconds(5));
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
TEST(FrameConnection, ManySmallMessagesThatNobodyReadsAreBoundedByTheirMemory) {
  Net net;
  BarePeer peer(net);
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

TEST(FrameConnection, TellsWhenAllMessagesHaveLeft) {
  Net net;
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

// ---- connections on which nothing happens

TEST(FrameConnection, AnIdleConnectionIsClosedInTime) {
  Net net;
  net.socket.idle_timeout = milliseconds(60);
  BarePeer peer(net);
  const Instant start = net.loop.now();
  ASSERT_TRUE(net.run_until([&] { return peer.end.closed.has_value(); }));
  EXPECT_EQ(peer.end.closed->code, Errc::kTimedOut);
  EXPECT_GE(net.loop.now() - start, milliseconds(60));
}

TEST(FrameConnection, TrafficOfEitherDirectionKeepsAConnection) {
  for (int attempt = 1;; ++attempt) {
    ASSERT_LE(attempt, kAttempts) << "the host never let the loop turn in time";
    Net net;
    net.socket.idle_timeout = milliseconds(100);
    BarePeer writes(net), reads(net);
    const bool kept = keeps_step(net, milliseconds(30), milliseconds(80), [&] {
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
