// A node with few descriptors, in a process of its own, and a host that takes all that it can get.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"
#include "proto/frame.h"
#include "proto/limits.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/transport/core/worker_fixture.h"
#include "transport/io/net/socket_network.h"
#include "transport/node/node.h"

namespace weightcast {
namespace {

constexpr rlim_t kDescriptors = 128;
// What the node's process is told.
constexpr const char* kOutVariable = "WEIGHTCAST_TEST_PORT_TO";
constexpr const char* kStateVariable = "WEIGHTCAST_TEST_STATE";

// No test, but the process of the node in those below: it writes its port to a pipe, and ends when it is killed.
TEST(LimitedOriginProcess, DISABLED_Runs) {
  if (std::getenv(kOutVariable) == nullptr) GTEST_SKIP() << "another test starts it";
  const int out = std::atoi(std::getenv(kOutVariable));
  const rlimit limit{kDescriptors, kDescriptors};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
  DaemonConfig config;
  config.role = Role::kOrigin;
  config.name = "origin";
  config.state = std::getenv(kStateVariable);
  config.disk = DiskBackend::kThreadPool;
  config.admission = AdmissionLimits::of_this_process();
  UvLoop loop;
  SocketNetwork network(loop, Rate{}, Rate{}, SocketOptions{});
  const auto open_store = [&](StoreOptions options) { return Store::open(loop, real_files(), std::move(options)); };
  auto node = open_node(config, {loop, network, real_files(), open_store, [] { return std::uint64_t{1}; }});
  ASSERT_TRUE(node.has_value()) << node.error().message();
  const std::uint16_t port = (*node)->endpoint().port;
  ASSERT_EQ(::write(out, &port, sizeof port), ssize_t(sizeof port));
  loop.run();
}

class LimitedOrigin : public testing::Test {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "UndefinedBehaviorSanitizer looks at objects through a pipe, which takes descriptors itself";
#endif
    int ends[2];
    ASSERT_EQ(::pipe(ends), 0);
    const UniqueFd from(ends[0]);
    UniqueFd to(ends[1]);
    const std::string out = std::to_string(to.get()), state = directory_.file("origin");
    child_ = ::fork();
    if (child_ == 0) {
      // Anew, since the log of this program has a thread, which a copy of the process would lack.
      for (const char* name : {"WEIGHTCAST_TEST_RESULTS", "GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"}) ::unsetenv(name);
      ::setenv(kOutVariable, out.c_str(), 1);
      ::setenv(kStateVariable, state.c_str(), 1);
      ::execl("/proc/self/exe", "node_test", "--gtest_filter=LimitedOriginProcess.DISABLED_Runs",
              "--gtest_also_run_disabled_tests", nullptr);
      ::_exit(1);
    }
    to.reset();  // so that the end of the child is one of the pipe
    ASSERT_EQ(::read(from.get(), &port_, sizeof port_), ssize_t(sizeof port_));
  }
  void TearDown() override {
    if (child_ < 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
  }

  [[nodiscard]] bool alive() const { return ::waitpid(child_, nullptr, WNOHANG) == 0; }

  /// A connection from `host`, a loopback address, on which `message` was said.
  [[nodiscard]] UniqueFd say(const char* host, const wire::Message& message) const {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    ::inet_pton(AF_INET, host, &address.sin_addr);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    address.sin_port = htons(port_);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    const timeval patience{10, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    const std::string body = message.SerializeAsString();
    const auto header = encode_frame_header({.body_bytes = static_cast<std::uint32_t>(body.size())});
    const std::string frame = std::string(reinterpret_cast<const char*>(header.data()), header.size()) + body;
    ::send(fd.get(), frame.data(), frame.size(), MSG_NOSIGNAL);
    return fd;
  }
  /// Whether a first frame comes, and not the end.
  static bool answered(const UniqueFd& fd) {
    char header[FrameHeader::kBytes];
    return ::recv(fd.get(), header, sizeof header, MSG_WAITALL) == ssize_t(sizeof header);
  }
  /// Whether who joins is let in within some seconds, in which the origin gets on with the flood. Between its
  /// connection and its first frame it is as silent as the flood, and may be refused for it: it tries anew.
  [[nodiscard]] bool comes_in(const char* from, const std::string& name) const {
    for (int attempt = 0; attempt < 200; ++attempt) {
      if (answered(say(from, join_message(name, 1, true)))) return true;
      ::usleep(20'000);
    }
    return false;
  }
  static bool ended(const UniqueFd& fd) {
    char byte = 0;
    const ssize_t got = ::recv(fd.get(), &byte, 1, MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno == ECONNRESET);
  }

 private:
  const TempDir directory_;
  pid_t child_ = -1;
  std::uint16_t port_ = 0;
};

TEST_F(LimitedOrigin, SurvivesAHostThatSaysHelloForEverAndServesOthers) {
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 400; ++i) flood.push_back(say("127.0.0.1", hello_message("", 1)));
  EXPECT_TRUE(comes_in("127.0.0.2", "w"));
  EXPECT_TRUE(alive());
  const auto refused = std::ranges::count_if(flood, ended);
  EXPECT_GE(refused, 400 - int(kDescriptors) / 2) << "half of the descriptors are for connections";
  EXPECT_LT(refused, 400);
}

TEST_F(LimitedOrigin, SurvivesAHostThatSaysNothing) {
  std::vector<UniqueFd> flood;
  for (int i = 0; i < 400; ++i) {
    UniqueFd silent = say("127.0.0.1", wire::Message());
    flood.push_back(std::move(silent));
  }
  EXPECT_TRUE(comes_in("127.0.0.1", "a")) << "who says who he is comes in";
  EXPECT_TRUE(alive());
}

TEST_F(LimitedOrigin, RoomThatWasGivenBackIsUsedAgain) {
  for (int round = 0; round < 3; ++round) {
    std::vector<UniqueFd> flood;
    for (int i = 0; i < 200; ++i) flood.push_back(say("127.0.0.1", hello_message("", 1)));
    flood.clear();
    EXPECT_TRUE(comes_in("127.0.0.1", "w" + std::to_string(round))) << round;
  }
  EXPECT_TRUE(alive());
}

TEST(DescriptorLimit, TooFewForANodeAreRefusedBeforeItStarts) {
  DaemonConfig config;
  config.role = Role::kOrigin;
  config.name = "origin";
  config.state = "never-made";
  config.insecure = true;
  const auto run_with = [&](rlim_t descriptors) {
    const rlimit limit{descriptors, descriptors};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    const Status ran = run_daemon(config);
    std::fputs(ran.has_value() ? "it ran" : ran.error().message().c_str(), stderr);
    ::_exit(1);
  };
  // With a few less, libuv would end the process; these are enough for what a sanitizer opens.
  EXPECT_EXIT(run_with(48), testing::ExitedWithCode(1), "may open 48 files, and a node needs 64: raise the limit");
}

}  // namespace
}  // namespace weightcast
