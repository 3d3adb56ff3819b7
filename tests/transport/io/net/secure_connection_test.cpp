#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/result_matchers.h"
#include "tests/transport/io/net/dial_fixture.h"
#include "tests/transport/io/net/frame_fixture.h"
#include "tests/transport/io/net/secure_fixture.h"
#include "transport/io/net/socket.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

/// Both loops turn until `done`.
template <typename Condition>
testing::AssertionResult both_until(Net& a, Net& b, Condition done) {
  return a.run_until([&] {
    // Neither may wait for what only the other can do.
    for (int turn = 0; turn < 1000 && !done(); ++turn) {
      b.loop.run_until(b.loop.now());
      a.loop.run_until(a.loop.now() + milliseconds(1));
    }
    return done();
  });
}

/// A bare socket that is connected to `endpoint`.
UniqueFd connect_to(const Endpoint& endpoint) {
  const auto address = SocketAddress::numeric(endpoint);
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(::connect(fd.get(), address->get(), address->size), 0);
  return fd;
}

TEST(SecureConnection, KnowsThePeerBeforeAnythingArrives) {
  Net worker({}, {}, tls_of("w1")), origin({}, {}, tls_of("origin"));
  std::unique_ptr<FrameConnection> accepted;
  std::string order;
  auto listener = Listener::tcp(origin.context(), {"127.0.0.1", 0}, [&](std::unique_ptr<FrameConnection> c) {
    accepted = std::move(c);
    EXPECT_TRUE(accepted->awaits_peer());
    EXPECT_EQ(accepted->peer(), std::nullopt);
    accepted->set_handlers({.on_control =
                                [&](const std::string&) {
                                  order += 'm';
                                  return Status{};
                                },
                            .on_chunk = [](const ReceivedChunk&) {},
                            .on_closed = [](const Error&) {},
                            .on_peer =
                                [&] {
                                  order += 'p';
                                  EXPECT_FALSE(accepted->awaits_peer());
                                }});
  });
  Dialed dialled;
  Dial dial(worker.context(), (*listener)->endpoint(), store_in(dialled));
  ASSERT_TRUE(both_until(worker, origin, [&] { return dialled.has_value(); }));
  ASSERT_TRUE(dialled->has_value()) << dialled->error().message();
  End end;
  end.adopt(std::move(**dialled));
  EXPECT_FALSE(end.connection->awaits_peer());
  ASSERT_TRUE(end.connection->peer().has_value());
  EXPECT_EQ(end.connection->peer()->role, Role::kOrigin);
  end.connection->send_control("hello");
  ASSERT_TRUE(both_until(worker, origin, [&] { return order.size() == 2; }));
  EXPECT_EQ(order, "pm");
  EXPECT_EQ(accepted->peer()->role, Role::kWorker);
  EXPECT_EQ(accepted->peer()->name, "w1");
}

TEST(SecureConnection, WhatIsQueuedDuringTheHandshakeLeavesAfterIt) {
  Net worker({}, {}, tls_of("w1")), origin({}, {}, tls_of("origin"));
  std::unique_ptr<FrameConnection> accepted;
  auto listener = Listener::tcp(origin.context(), {"127.0.0.1", 0}, [&](std::unique_ptr<FrameConnection> c) {
    accepted = std::move(c);
    accepted->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                            .on_chunk = [](const ReceivedChunk&) {},
                            .on_closed = [](const Error&) {}});
    accepted->send_control("early");
    accepted->send_chunk(Version{1}, ChunkIndex{0}, random_buffer(origin.buffers, 100'000, 1), nullptr);
  });
  End end;
  Dial dial(worker.context(), (*listener)->endpoint(), [&](Result<std::unique_ptr<FrameConnection>> c) {
    ASSERT_TRUE(c.has_value());
    end.adopt(std::move(*c));
  });
  ASSERT_TRUE(both_until(worker, origin, [&] { return end.order.size() == 2; }));
  EXPECT_EQ(end.order, "mc");
}

// A record holds many frames. What a paused reader leaves inside the encryption, no socket tells of again.
TEST(SecureConnection, FramesThatWaitInsideTheEncryptionDoNotStall) {
  Net net({}, {}, tls_of("w1"));
  TcpPair pair(net);
  std::size_t seen = 0;
  pair.accepted.connection->set_handlers({.on_control =
                                              [&](const std::string&) {
                                                ++seen;
                                                pair.accepted.connection->pause_reading();
                                                return Status{};
                                              },
                                          .on_chunk = [](const ReceivedChunk&) {},
                                          .on_closed = [](const Error& error) { FAIL() << error.message(); }});
  for (int i = 0; i < 50; ++i) pair.dialed.connection->send_control("m");
  for (std::size_t i = 1; i <= 50; ++i) {
    ASSERT_TRUE(net.run_until([&] { return seen == i; }, seconds(10))) << i;
    net.run_for(milliseconds(1));
    EXPECT_EQ(seen, i);
    pair.accepted.connection->resume_reading();
  }
}

TEST(SecureConnection, AWaitForTheBudgetDoesNotStall) {
  Net net({}, {}, tls_of("w1"));
  TcpPair pair(net);
  ReceiveBudget budget(10 * kKiB);
  ReceiveBudget::Share held([] {});
  ASSERT_TRUE(held.take(budget, 10 * kKiB));
  pair.accepted.connection->set_receive_limits({.budget = &budget});
  pair.dialed.connection->send_control(std::string(8 * kKiB, 'x'));  // one record, behind whose header there is a wait
  net.run_for(milliseconds(20));
  EXPECT_TRUE(pair.accepted.controls.empty());
  held.give_back();
  EXPECT_TRUE(net.run_until([&] { return pair.accepted.controls.size() == 1; }, seconds(10)));
}

TEST(SecureConnection, MayBeDestroyedDuringTheHandshake) {
  Net net({}, {}, tls_of("w1"));
  for (int turns = 0; turns < 6; ++turns) {
    Acceptor acceptor(net);
    Dialed dialled;
    {
      Dial dial(net.context(), acceptor.listener->endpoint(), store_in(dialled));
      for (int i = 0; i < turns; ++i) net.loop.run_until(net.loop.now() + milliseconds(1));
    }
    net.run_for(milliseconds(2));
    acceptor.ends.clear();
    net.run_for(milliseconds(2));
  }
}

// ---- who does not get in

TEST(SecureConnection, APeerThatSaysNothingIsClosedInTime) {
  Net net({}, {}, tls_of("origin"));
  net.socket.handshake_timeout = milliseconds(60);
  Acceptor acceptor(net);
  const Instant start = net.loop.now();
  const UniqueFd silent = connect_to(acceptor.listener->endpoint());
  ASSERT_TRUE(net.run_until([&] { return acceptor.first_closed(); }));
  EXPECT_EQ(acceptor.first().closed->code, Errc::kTimedOut);
  EXPECT_THAT(acceptor.first().closed->detail, HasSubstr("handshake"));
  EXPECT_GE(net.loop.now() - start, milliseconds(60));
}

TEST(SecureConnection, AHandshakeThatTricklesIsClosedInTime) {
  Net net({}, {}, tls_of("origin"));
  net.socket.handshake_timeout = milliseconds(100);
  Acceptor acceptor(net);
  const UniqueFd slow = connect_to(acceptor.listener->endpoint());
  const std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  for (std::size_t i = 0; !acceptor.first_closed() && i < 400; ++i) {
    const char byte = i < hello.size() ? hello[i] : '\0';
    (void)!::send(slow.get(), &byte, 1, MSG_NOSIGNAL);
    net.run_for(milliseconds(10));
  }
  ASSERT_TRUE(acceptor.first_closed());
  EXPECT_EQ(acceptor.first().closed->code, Errc::kTimedOut);
}

TEST(SecureConnection, ADialOfSomebodyWhoDoesNotAnswerEndsInTime) {
  Net plain, worker({}, {}, tls_of("w1"));
  worker.socket.handshake_timeout = milliseconds(60);
  auto deaf = Listener::tcp(plain.context(), {"127.0.0.1", 0}, ignore());  // accepted by the kernel alone
  Dialed dialled;
  Dial dial(worker.context(), (*deaf)->endpoint(), store_in(dialled));
  ASSERT_TRUE(worker.run_until([&] { return dialled.has_value(); }));
  EXPECT_THAT(*dialled, FailsWith(Errc::kTimedOut));
}

TEST(SecureConnection, HalfOpenConnectionsTakeLittleMemory) {
  Net net({}, {}, tls_of("origin"));
  Acceptor acceptor(net);
  std::vector<UniqueFd> half_open;
  const std::size_t before = allocated_bytes();
  for (int i = 0; i < 200; ++i) half_open.push_back(connect_to(acceptor.listener->endpoint()));
  ASSERT_TRUE(net.run_until([&] { return acceptor.ends.size() == 200; }));
  const std::string begun("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11);
  for (const UniqueFd& fd : half_open) (void)!::send(fd.get(), begun.data(), begun.size(), MSG_NOSIGNAL);
  net.run_for(milliseconds(50));
  EXPECT_LT((allocated_bytes() - before) / 200, 96 * kKiB);
}

// OpenSSL's buffers go back when they are empty.
TEST(SecureConnection, AnIdleConnectionTakesLittleMemory) {
  Net net({}, {}, tls_of("w1"));
  std::vector<std::unique_ptr<TcpPair>> pairs;
  pairs.push_back(std::make_unique<TcpPair>(net));  // what all of them share
  const std::size_t before = allocated_bytes();
  for (int i = 0; i < 50; ++i) {
    pairs.push_back(std::make_unique<TcpPair>(net));
    pairs.back()->dialed.connection->send_control("a heartbeat");
    pairs.back()->accepted.connection->send_control("an answer");
    ASSERT_TRUE(net.run_until(
        [&] { return pairs.back()->dialed.controls.size() == 1 && pairs.back()->accepted.controls.size() == 1; }));
  }
  EXPECT_LT((allocated_bytes() - before) / 100, 40 * kKiB) << "an end";
}

TEST(SecureConnection, AnotherClusterIsRefusedOnBothSidesWithTheReason) {
  const ClusterKeys other;
  Net worker({}, {}, tls_of("w1")), stranger({}, {}, TlsContext::make(other.origin()));
  Acceptor acceptor(stranger);
  Dialed dialled;
  Dial dial(worker.context(), acceptor.listener->endpoint(), store_in(dialled));
  ASSERT_TRUE(both_until(worker, stranger, [&] { return dialled.has_value() && acceptor.first_closed(); }));
  EXPECT_THAT(*dialled, FailsWith(Errc::kNotAllowed, "another cluster's"));
  EXPECT_THAT(acceptor.first().closed->detail, HasSubstr("another cluster"));
}

// The dialler's handshake ends before the acceptor has looked at its certificate. It says its first words, and the
// reason has to survive that they are never read.
TEST(SecureConnection, ACertificateThatTheAcceptorRefusesIsToldWhy) {
  const ClusterKeys past(unix_now_s() - 20 * kDay_s);
  Net worker({}, {}, TlsContext::make(past.read(past.issue("old", 10)))),
      origin({}, {}, TlsContext::make(past.origin()));
  for (int i = 0; i < 10; ++i) {
    Acceptor acceptor(origin);
    End end;
    Dial dial(worker.context(), acceptor.listener->endpoint(), [&](Result<std::unique_ptr<FrameConnection>> c) {
      ASSERT_TRUE(c.has_value());
      end.adopt(std::move(*c));
      end.connection->send_control(std::string(20'000, 'j'));
    });
    ASSERT_TRUE(both_until(worker, origin, [&] { return end.closed && acceptor.first_closed(); }));
    EXPECT_EQ(acceptor.first().closed->code, Errc::kTimedOut);
    EXPECT_THAT(acceptor.first().closed->detail, HasSubstr("expired on"));
    EXPECT_EQ(end.closed->code, Errc::kNotAllowed);
    EXPECT_THAT(end.closed->detail, HasSubstr("as expired"));
    EXPECT_TRUE(acceptor.first().order.empty());
    EXPECT_EQ(acceptor.first().connection->peer(), std::nullopt) << "it has proven nothing";
  }
}

TEST(SecureConnection, APlainPeerIsRefusedOnBothSidesWithTheReason) {
  Net plain, secure({}, {}, tls_of("origin"));
  Acceptor acceptor(secure);
  End end;
  Dial dial(plain.context(), acceptor.listener->endpoint(), [&](Result<std::unique_ptr<FrameConnection>> c) {
    ASSERT_TRUE(c.has_value());
    end.adopt(std::move(*c));
    end.connection->send_control("join");
  });
  ASSERT_TRUE(both_until(plain, secure, [&] { return end.closed && acceptor.first_closed(); }));
  EXPECT_EQ(acceptor.first().closed->code, Errc::kNotAllowed);
  EXPECT_THAT(acceptor.first().closed->detail, HasSubstr("does not encrypt"));
  ASSERT_EQ(end.controls.size(), 1u) << "a Bye that it can read";
  EXPECT_THAT(end.controls[0], HasSubstr("--keys"));
}

TEST(SecureConnection, APlainAcceptorIsRefusedOnBothSidesWithTheReason) {
  Net plain, secure({}, {}, tls_of("w1"));
  Acceptor acceptor(plain);
  Dialed dialled;
  Dial dial(secure.context(), acceptor.listener->endpoint(), store_in(dialled));
  ASSERT_TRUE(both_until(plain, secure, [&] { return dialled.has_value() && acceptor.first_closed(); }));
  EXPECT_THAT(*dialled, FailsWith(Errc::kNotAllowed, "does not encrypt"));
  EXPECT_EQ(acceptor.first().closed->code, Errc::kNotAllowed);
  EXPECT_THAT(acceptor.first().closed->detail, HasSubstr("it encrypts"));
}

TEST(SecureConnection, GarbageEndsTheHandshake) {
  Net net({}, {}, tls_of("origin"));
  for (const std::string& garbage :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string(100, '\x16'), std::string(100, '\0'),
        std::string("\x16\x03\x01\xff\xff", 5) + std::string(40'000, 'x')}) {
    Acceptor acceptor(net);
    const UniqueFd peer = connect_to(acceptor.listener->endpoint());
    (void)!::send(peer.get(), garbage.data(), garbage.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    ASSERT_TRUE(net.run_until([&] { return acceptor.first_closed(); }, seconds(4)));
    EXPECT_TRUE(acceptor.first().order.empty());
  }
}

// ---- without keys

TEST(LoopbackOnly, RefusesToListenOrDialBeyondLoopback) {
  Net net;
  net.socket.loopback_only = true;
  EXPECT_THAT(Listener::tcp(net.context(), {"0.0.0.0", 0}, ignore()), FailsWith(Errc::kNotAllowed, "--keys"));
  Dialed dialled;
  Dial dial(net.context(), {"192.0.2.1", 7400}, store_in(dialled));
  ASSERT_TRUE(net.run_until([&] { return dialled.has_value(); }, seconds(4)));
  EXPECT_THAT(*dialled, FailsWith(Errc::kNotAllowed, "--insecure"));
  EXPECT_TRUE(Listener::tcp(net.context(), {"127.0.0.1", 0}, ignore()).has_value());
  EXPECT_TRUE(Listener::tcp(net.context(), {"::1", 0}, ignore()).has_value());
}

}  // namespace
}  // namespace weightcast
