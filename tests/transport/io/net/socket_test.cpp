#include "transport/io/net/socket.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

namespace weightcast {
namespace {

int option(const UniqueFd& fd, int level, int name) {
  int value = -1;
  socklen_t size = sizeof value;
  EXPECT_EQ(::getsockopt(fd.get(), level, name, &value, &size), 0);
  return value;
}

// The kernel would wait for two hours before it asks, and for a quarter of an hour for what nobody acknowledges.
TEST(ConfigureTcp, NoticesPeersThatWentWithoutAWordInAMinute) {
  const auto fd = open_socket(*SocketAddress::numeric({"127.0.0.1", 1}), Op::kConnect);
  ASSERT_TRUE(fd.has_value());
  configure_tcp(fd->get(), {}, Rate{});
  EXPECT_EQ(option(*fd, SOL_SOCKET, SO_KEEPALIVE), 1);
  EXPECT_LE(option(*fd, IPPROTO_TCP, TCP_KEEPIDLE) +
                option(*fd, IPPROTO_TCP, TCP_KEEPINTVL) * option(*fd, IPPROTO_TCP, TCP_KEEPCNT),
            60);
  EXPECT_EQ(option(*fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 60'000);
  EXPECT_EQ(option(*fd, IPPROTO_TCP, TCP_NODELAY), 1);
}

TEST(SocketAddress, TakesAPortOfEitherFamily) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    auto address = SocketAddress::numeric({host, 1});
    ASSERT_TRUE(address.has_value());
    address->set_port(7400);
    EXPECT_EQ(address->endpoint().host, host);
    EXPECT_EQ(address->endpoint().port, 7400);
  }
}

TEST(SocketAddress, RefusesNames) {
  for (const char* host : {"localhost", "", "127.0.0", "::1%", "1.2.3.4.5"})
    EXPECT_FALSE(SocketAddress::numeric({host, 1}).has_value()) << host;
}

}  // namespace
}  // namespace weightcast
