#include "transport/io/net/dial.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>

#include "tests/result_matchers.h"
#include "tests/transport/io/io_fixture.h"
#include "tests/transport/io/net/dial_fixture.h"
#include "transport/io/net/listener.h"
#include "transport/io/net/socket.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

TEST(Dial, RefusedSaysSo) {
  Net net;
  const Endpoint endpoint = Acceptor(net).listener->endpoint();
  Dialed result;
  Dial dial(net.context(), endpoint, store_in(result));
  EXPECT_FALSE(result.has_value());
  ASSERT_TRUE(net.run_until([&] { return result.has_value(); }));
  EXPECT_THAT(*result, FailsWith(Errc::kIo, "refused"));
}

TEST(Dial, NoAnswerTimesOut) {
  Net net;
  net.socket.connect_timeout = milliseconds(50);
  // A listener that accepts nothing, with a full queue: the kernel drops further attempts to connect.
  const auto any = SocketAddress::numeric({"127.0.0.1", 0});
  ASSERT_TRUE(any.has_value());
  SocketAddress address = *any;
  const auto deaf = open_socket(address, Op::kListen);
  ASSERT_TRUE(deaf.has_value());
  ASSERT_EQ(::bind(deaf->get(), address.get(), address.size), 0);
  ASSERT_EQ(::listen(deaf->get(), 0), 0);
  ASSERT_EQ(::getsockname(deaf->get(), address.get(), &address.size), 0);
  const auto filler = open_socket(address, Op::kConnect);
  ASSERT_TRUE(filler.has_value());
  ::connect(filler->get(), address.get(), address.size);

  Dialed result;
  Dial dial(net.context(), address.endpoint(), store_in(result));
  ASSERT_TRUE(net.run_until([&] { return result.has_value(); }));
  EXPECT_THAT(*result, FailsWith(Errc::kTimedOut));
}

/// A name server on loopback that answers as the test wants, or not at all.
class StubNameServer {
 public:
  explicit StubNameServer(Net& net) {
    const auto any = SocketAddress::numeric({"127.0.0.1", 0});
    fd_.reset(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    EXPECT_EQ(::bind(fd_.get(), any->get(), any->size), 0);
    SocketAddress taken;
    taken.size = sizeof taken.storage;
    EXPECT_EQ(::getsockname(fd_.get(), taken.get(), &taken.size), 0);
    net.socket.name_servers = {taken.endpoint()};
  }

  /// Answers the queries that wait: with 127.0.0.1 for IPv4 addresses, with nothing for other kinds, or that there is
  /// no such name. Returns how many there were.
  int answer(bool known) {
    int queries = 0;
    std::array<unsigned char, 512> packet{};
    SocketAddress from;
    for (;; ++queries) {
      from.size = sizeof from.storage;
      const ssize_t got = ::recvfrom(fd_.get(), packet.data(), packet.size(), 0, from.get(), &from.size);
      if (got < 16) return queries;
      std::size_t end = 12;  // RFC 1035: the header; then the question, a name of labels, a type and a class
      while (packet[end] != 0) end += 1u + packet[end];
      const bool ipv4 = packet[end + 2] == 1;
      end += 5;
      std::string reply(reinterpret_cast<const char*>(packet.data()), end);
      reply[2] = '\x81';
      reply[3] = known ? '\x80' : '\x83';
      reply[7] = known && ipv4 ? 1 : 0;
      reply[9] = reply[11] = 0;
      if (known && ipv4) reply += std::string("\xc0\x0c\0\1\0\1\0\0\0\1\0\4\x7f\0\0\1", 16);
      ::sendto(fd_.get(), reply.data(), reply.size(), 0, from.get(), from.size);
    }
  }

 private:
  UniqueFd fd_;
};

TEST(Dial, ANameServerIsAsked) {
  Net net;
  StubNameServer server(net);
  const Acceptor acceptor(net);
  Dialed result;
  Dial dial(net.context(), {"trainer.example.org", acceptor.listener->endpoint().port}, store_in(result));
  ASSERT_TRUE(net.run_until([&] {
    server.answer(true);
    net.run_for(milliseconds(1));
    return result.has_value() && !acceptor.ends.empty();
  }));
  EXPECT_TRUE(result->has_value());
}

TEST(Dial, ANameThatIsNoneIsAnErrorThatSaysSo) {
  Net net;
  StubNameServer server(net);
  Dialed result;
  Dial dial(net.context(), {"nowhere.example.org", 7400}, store_in(result));
  ASSERT_TRUE(net.run_until([&] {
    server.answer(false);
    net.run_for(milliseconds(1));
    return result.has_value();
  }));
  EXPECT_THAT(*result, FailsWith(Errc::kIo, "nowhere.example.org:7400"));
}

// Names that do not resolve took the four pool threads, which hash and rename, for half a minute.
TEST(Dial, ASilentNameServerHoldsUpNobodyElse) {
  Net net;
  net.socket.connect_timeout = std::chrono::minutes(10);
  StubNameServer server(net);
  const Acceptor acceptor(net);
  std::array<Dialed, 12> unresolved;
  std::vector<std::unique_ptr<Dial>> dials;
  for (std::size_t i = 0; i < unresolved.size(); ++i) {
    dials.push_back(std::make_unique<Dial>(net.context(), Endpoint{"w" + std::to_string(i) + ".example.org", 7400},
                                           store_in(unresolved[i])));
  }
  net.run_for(milliseconds(20));
  bool worked = false;
  net.loop.offload([] {}, [&] { worked = true; });
  bool connected = false;
  Dial dial(net.context(), acceptor.listener->endpoint(), [&](const auto& made) { connected = made.has_value(); });
  ASSERT_TRUE(net.run_until([&] { return worked && connected; }));
  EXPECT_TRUE(std::ranges::none_of(unresolved, [](const Dialed& d) { return d.has_value(); })) << "they wait";
}

TEST(Dial, ASilentNameServerIsATimeOut) {
  Net net;
  net.socket.connect_timeout = milliseconds(50);
  StubNameServer server(net);
  Dialed result;
  Dial dial(net.context(), {"w.example.org", 7400}, store_in(result));
  ASSERT_TRUE(net.run_until([&] { return result.has_value(); }));
  EXPECT_THAT(*result, FailsWith(Errc::kTimedOut));
}

TEST(Dial, ALookupEndsWithTheDialThatWantsIt) {
  Net net;
  StubNameServer server(net);
  Dialed result;
  {
    Dial dial(net.context(), {"trainer.example.org", 7400}, store_in(result));
    net.run_for(milliseconds(5));
  }
  EXPECT_GT(server.answer(true), 0) << "it was asked";
  net.run_for(milliseconds(20));
  EXPECT_FALSE(result.has_value());
}

TEST(Dial, NamesAreResolved) {
  Net net;
  const Acceptor acceptor(net, "localhost");
  Dialed result;
  Dial dial(net.context(), {"localhost", acceptor.listener->endpoint().port}, store_in(result));
  ASSERT_TRUE(net.run_until([&] { return result.has_value() && !acceptor.ends.empty(); }));
  EXPECT_TRUE(result->has_value());
}

TEST(Dial, DroppingItCancels) {
  Net net;
  const Acceptor acceptor(net);
  for (const char* host : {"127.0.0.1", "localhost"}) {
    Dialed result;
    { Dial dial(net.context(), {host, acceptor.listener->endpoint().port}, store_in(result)); }
    net.run_for(milliseconds(20));
    EXPECT_FALSE(result.has_value());
  }
}

TEST(Dial, MayBeDroppedByItsOwnCallback) {
  Net net;
  const Acceptor acceptor(net);
  std::unique_ptr<Dial> dial;
  bool done = false;
  dial = std::make_unique<Dial>(net.context(), acceptor.listener->endpoint(), [&](const auto&) {
    dial.reset();
    done = true;
  });
  EXPECT_TRUE(net.run_until([&] { return done; }));
}

}  // namespace
}  // namespace weightcast
