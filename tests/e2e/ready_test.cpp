// How programs and service managers learn that a daemon does what it is there for.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/units.h"
#include "tests/e2e/fleet/cluster.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

std::string why_not_ready(const std::string& state, std::chrono::milliseconds timeout, bool has_version = false) {
  try {
    wc::wait_until_ready(state, timeout, has_version);
    return "";
  } catch (const wc::Error& error) {
    EXPECT_EQ(error.code(), WC_TIMED_OUT);
    return error.what();
  }
}

TEST(Ready, AWorkerIsOnceItHasJoinedAndHasAVersionOnceOneIsInstalled) {
  Cluster cluster;
  EXPECT_THAT(why_not_ready(cluster.state("a"), 100ms), HasSubstr("no daemon runs there"));
  cluster.start_origin();
  EXPECT_EQ(why_not_ready(cluster.state("origin"), 30s), "");
  EXPECT_THAT(why_not_ready(cluster.state("origin"), 2s, true), HasSubstr("no version is in use yet"));
  const std::string origin = cluster.address("origin");
  ASSERT_TRUE(cluster.end("origin", SIGKILL));
  cluster.launch("a", {"--role", "worker", "--origin", origin});
  ASSERT_TRUE(Cluster::eventually([&] { return !cluster.status("a").is_null(); }));
  EXPECT_THAT(why_not_ready(cluster.state("a"), 2s), HasSubstr("has not joined its origin " + origin));
  EXPECT_THAT(cluster.run({"ready", "--state", cluster.state("a"), "--timeout", "1"}), Exits(1, "has not joined"));
  std::thread later([&] {
    EXPECT_EQ(why_not_ready(cluster.state("a"), 60s), "");
    EXPECT_EQ(why_not_ready(cluster.state("a"), 60s, true), "");
  });
  cluster.restart("origin");
  ASSERT_EQ(cluster.publish(write_snapshot(cluster.temp().file("model.safetensors"), kMiB, 1), 1, {}).status, 0);
  later.join();
  EXPECT_EQ(cluster.run({"ready", "--state", cluster.state("a"), "--with-version"}).status, 0);
}

// systemd's Type=notify.
TEST(Ready, TellsTheServiceManager) {
  Cluster cluster;
  const std::string path = cluster.temp().file("notify");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  ASSERT_LT(path.size(), sizeof address.sun_path);
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int manager = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(manager, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const timeval limit{60, 0};
  ::setsockopt(manager, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  const auto heard = [&] {
    char text[256];
    const ssize_t size = ::recv(manager, text, sizeof text, 0);
    return std::string(text, static_cast<std::size_t>(std::max<ssize_t>(size, 0)));
  };
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  cluster.launch("origin", {"--role", "origin"});
  EXPECT_EQ(heard(), "READY=1");
  ::unsetenv("NOTIFY_SOCKET");
  EXPECT_FALSE(cluster.status("origin").is_null()) << "it answers";
  cluster.process("origin").signal(SIGTERM);
  EXPECT_EQ(heard(), "STOPPING=1");
  EXPECT_EQ(cluster.process("origin").wait(30s), 0);
  ::close(manager);
}

}  // namespace
}  // namespace weightcast
