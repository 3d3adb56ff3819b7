#include "transport/io/net/dial.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include "tests/transport/io/io_fixture.h"
#include "transport/io/net/listener.h"
#include "transport/io/net/socket.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

using Dialed = std::optional<Result<std::unique_ptr<FrameConnection>>>;

Dial::Done store_in(Dialed& result) {
  return [&result](Result<std::unique_ptr<FrameConnection>> c) { result.emplace(std::move(c)); };
}

Listener::OnConnection ignore() {
  return [](std::unique_ptr<FrameConnection>) {};
}

TEST(Dial, RefusedSaysSo) {
  Net net;
  Endpoint endpoint;
  {
    auto listener = Listener::tcp(net.context(), {"127.0.0.1", 0}, ignore());
    ASSERT_TRUE(listener.has_value());
    endpoint = (*listener)->endpoint();
  }
  Dialed result;
  Dial dial(net.context(), endpoint, store_in(result));
  EXPECT_FALSE(result.has_value());
  ASSERT_TRUE(net.run_until([&] { return result.has_value(); }));
  ASSERT_FALSE(result->has_value());
  EXPECT_EQ(result->error().code, Errc::kIo);
  EXPECT_NE(result->error().detail.find("refused"), std::string::npos);
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
  ASSERT_FALSE(result->has_value());
  EXPECT_EQ(result->error().code, Errc::kTimedOut);
}

TEST(Dial, NamesAreResolved) {
  Net net;
  End accepted;
  auto listener = Listener::tcp(net.context(), {"localhost", 0},
                                [&](std::unique_ptr<FrameConnection> c) { accepted.adopt(std::move(c)); });
  ASSERT_TRUE(listener.has_value()) << listener.error().message();
  Dialed result;
  Dial dial(net.context(), {"localhost", (*listener)->endpoint().port}, store_in(result));
  ASSERT_TRUE(net.run_until([&] { return result.has_value() && accepted.connection; }));
  EXPECT_TRUE(result->has_value());
}

TEST(Dial, DroppingItCancels) {
  Net net;
  auto listener = Listener::tcp(net.context(), {"127.0.0.1", 0}, ignore());
  ASSERT_TRUE(listener.has_value());
  for (const char* host : {"127.0.0.1", "localhost"}) {
    Dialed result;
    { Dial dial(net.context(), {host, (*listener)->endpoint().port}, store_in(result)); }
    net.run_for(milliseconds(20));
    EXPECT_FALSE(result.has_value());
  }
}

TEST(Dial, MayBeDroppedByItsOwnCallback) {
  Net net;
  auto listener = Listener::tcp(net.context(), {"127.0.0.1", 0}, ignore());
  ASSERT_TRUE(listener.has_value());
  std::unique_ptr<Dial> dial;
  bool done = false;
  dial = std::make_unique<Dial>(net.context(), (*listener)->endpoint(), [&](const auto&) {
    dial.reset();
    done = true;
  });
  EXPECT_TRUE(net.run_until([&] { return done; }));
}

}  // namespace
}  // namespace weightcast
