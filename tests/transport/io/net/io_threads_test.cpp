#include "transport/io/net/io_threads.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "tests/transport/io/net/frame_fixture.h"
#include "tests/transport/io/net/secure_fixture.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

/// A node whose connections are spread over three threads.
struct Host : Net {
  explicit Host(bool encrypts = true, Rate up = {}, Rate down = {}) : Net(up, down, encrypts ? tls_of("w1") : nullptr) {
    hashing.emplace(loop, 2);
    io.emplace(3);
  }
};

BufferRef numbered(BufferPool& pool, std::size_t bytes, std::uint32_t number) {
  BufferRef buffer = pool.take(std::max<std::size_t>(bytes, sizeof number));
  buffer->set_size(std::max<std::size_t>(bytes, sizeof number));
  std::memset(buffer->data(), int(number % 251), buffer->size());
  std::memcpy(buffer->data(), &number, sizeof number);
  return buffer;
}

// Messages overtake chunks, so each kind has its own order.
struct Listening {
  explicit Listening(FrameConnection& connection) {
    connection.set_handlers({.on_control =
                                 [this](const std::string& body) {
                                   check(body == std::to_string(messages++));
                                   return Status{};
                                 },
                             .on_chunk =
                                 [this](const ReceivedChunk& chunk) {
                                   check(chunk.chunk.value == chunks++);
                                   check(chunk.digest == content_digest_of(chunk.bytes->bytes()));
                                 },
                             .on_closed = [this](const Error&) { check(!std::exchange(closed, true)); }});
  }
  void check(bool holds) { in_order = in_order && holds && std::this_thread::get_id() == loop_thread; }

  const std::thread::id loop_thread = std::this_thread::get_id();
  std::uint32_t messages = 0;
  std::uint32_t chunks = 0;
  bool closed = false;
  bool in_order = true;
};

TEST(IoThreads, EachConnectionKeepsItsOrderAndCallsBackOnTheLoop) {
  for (const bool encrypts : {false, true}) {
    Host net(encrypts);
    constexpr std::uint32_t kFrames = 60;
    std::vector<std::unique_ptr<TcpPair>> pairs;
    std::vector<std::unique_ptr<Listening>> ends;
    for (int i = 0; i < 7; ++i) {
      pairs.push_back(std::make_unique<TcpPair>(net));
      ends.push_back(std::make_unique<Listening>(*pairs.back()->dialed.connection));
      ends.push_back(std::make_unique<Listening>(*pairs.back()->accepted.connection));
    }
    std::mt19937 random(1);
    for (std::uint32_t i = 0; i < kFrames; ++i) {
      for (const auto& pair : pairs) {
        for (End* end : {&pair->dialed, &pair->accepted}) {
          end->connection->send_chunk(Version{1}, ChunkIndex{i},
                                      numbered(net.buffers, std::size_t{1} << (random() % 20), i), nullptr);
          end->connection->send_control(std::to_string(i));
        }
      }
    }
    ASSERT_TRUE(net.run_until([&] {
      return std::ranges::all_of(ends, [](const auto& e) { return e->messages == kFrames && e->chunks == kFrames; });
    }));
    for (const auto& end : ends) EXPECT_TRUE(end->in_order && !end->closed);
  }
}

// Connections come, end in every way, and break, while frames flow on all of them.
TEST(IoThreads, ConnectionsComeAndGoWhileFramesFlow) {
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    Host net(seed != 2);
    std::mt19937 random(seed);
    struct Open {
      explicit Open(Net& of) : pair(of), dialed(*pair.dialed.connection), accepted(*pair.accepted.connection) {}
      TcpPair pair;
      Listening dialed, accepted;
      std::uint32_t messages = 0, chunks = 0;
    };
    std::vector<std::unique_ptr<Open>> open;
    std::uint64_t delivered = 0;
    for (int step = 0; step < 400; ++step) {
      if (open.size() < 12) open.push_back(std::make_unique<Open>(net));
      Open& one = *open[random() % open.size()];
      FrameConnection* const from = one.pair.dialed.connection.get();
      switch (random() % 8) {
        case 0: from->pause_reading(); break;
        case 1: from->resume_reading(); break;
        case 2: one.pair.accepted.connection->close(); break;
        case 3: {  // goes away, all of a sudden
          delivered += one.accepted.chunks;
          EXPECT_TRUE(one.accepted.in_order && one.dialed.in_order);
          std::swap(open[random() % open.size()], open.back());
          open.pop_back();
          break;
        }
        default:
          from->send_control(std::to_string(one.messages++));
          from->send_chunk(Version{1}, ChunkIndex{one.chunks}, numbered(net.buffers, random() % kMiB, one.chunks),
                           nullptr);
          ++one.chunks;
      }
      net.loop.run_until(net.loop.now() + milliseconds(random() % 3));
    }
    for (const auto& one : open) {
      delivered += one->accepted.chunks;
      EXPECT_TRUE(one->accepted.in_order && one->dialed.in_order);
    }
    EXPECT_GT(delivered, 0u);
  }
}

TEST(IoThreads, WhoIsNotReadHoldsBoundedMemory) {
  for (const bool encrypts : {false, true}) {
    Host net(encrypts);
    TcpPair pair(net);
    pair.accepted.connection->pause_reading();
    for (std::uint32_t i = 0; i < 2048; ++i) {
      pair.dialed.connection->send_chunk(Version{1}, ChunkIndex{i}, numbered(net.buffers, 32 * kKiB, i), nullptr);
    }
    net.run_for(milliseconds(100));
    // A read that was under way ends, and nothing more is read.
    EXPECT_LE(pair.accepted.connection->bytes_received(), 2 * kMiB);
    EXPECT_TRUE(pair.accepted.chunks.empty());
    pair.accepted.connection->resume_reading();
    ASSERT_TRUE(net.run_until([&] { return pair.accepted.chunks.size() == 2048; }));
  }
}

TEST(IoThreads, AConnectionsLastWordsArriveAlthoughItsOwnerAndItsThreadsAreGone) {
  Host sender;
  Host receiver;
  TcpPair pair(sender, receiver);
  for (int i = 0; i < 100; ++i) pair.dialed.connection->send_control(std::string(10'000, 'x'));
  pair.dialed.connection->close();
  pair.dialed.connection.reset();
  sender.io.reset();
  ASSERT_TRUE(receiver.run_until([&] {
    sender.loop.run_until(sender.loop.now());
    receiver.loop.run_until(receiver.loop.now() + milliseconds(1));
    return pair.accepted.closed.has_value();
  }));
  EXPECT_EQ(pair.accepted.controls.size(), 100u);
  EXPECT_EQ(pair.accepted.closed->code, Errc::kClosed);
}

TEST(IoThreads, TimeOutsHold) {
  Host net(false);
  net.socket.body_timeout = milliseconds(50);
  BarePeer begun(net), silent(net);
  begun.write(Bytes(control_header(100)).first(5));
  const Instant start = net.loop.now();
  ASSERT_TRUE(net.run_until([&] { return begun.end.closed.has_value(); }));
  EXPECT_EQ(begun.end.closed->code, Errc::kTimedOut);
  EXPECT_GE(net.loop.now() - start, milliseconds(50));
  EXPECT_FALSE(silent.end.closed.has_value());
}

TEST(IoThreads, SeatsGoToTheThreadWithTheFewest) {
  IoThreads threads(3);
  auto a = threads.take_seat(), b = threads.take_seat(), c = threads.take_seat();
  EXPECT_TRUE(a->loop != b->loop && b->loop != c->loop && a->loop != c->loop);
  const UvLoop* const left = b->loop;
  b.reset();
  const auto d = threads.take_seat();
  EXPECT_EQ(d->loop, left);
}

}  // namespace
}  // namespace weightcast
