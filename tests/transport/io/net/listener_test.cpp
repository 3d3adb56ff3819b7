#include "transport/io/net/listener.h"

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstring>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "tests/base/descriptor_limit.h"
#include "tests/patch/temp_dir.h"
#include "tests/result_matchers.h"
#include "tests/transport/io/io_fixture.h"
#include "tests/transport/io/net/dial_fixture.h"
#include "transport/io/net/dial.h"
#include "transport/io/net/socket.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;

class LocalSocket : public testing::Test {
 protected:
  /// Whether the socket ends the connection of a program of that user and those groups without a word: it was turned
  /// away, or the test has dropped it.
  bool ended_when_read_as(uid_t user, gid_t group, const std::vector<gid_t>& groups) {
    const std::filesystem::path directory = std::filesystem::path(path_).parent_path();
    const std::string name = std::filesystem::path(path_).filename();
    EXPECT_EQ(::chmod(directory.c_str(), 0777), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      // System calls only. It ends with what the read gives: an end at once, or nothing yet.
      sockaddr_un to{};
      to.sun_family = AF_UNIX;
      std::strncpy(to.sun_path, name.c_str(), sizeof to.sun_path - 1);
      const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
      // From within: the directories above may be closed to others.
      if (::chdir(directory.c_str()) != 0) ::_exit(8);
      if (::setgroups(groups.size(), groups.data()) != 0 || ::setgid(group) != 0 || ::setuid(user) != 0) ::_exit(9);
      if (::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) ::_exit(10);
      pollfd ends{.fd = fd, .events = POLLIN, .revents = 0};
      char byte = 0;
      ::_exit(::poll(&ends, 1, 20'000) == 1 && ::read(fd, &byte, 1) == 0 ? 1 : 2);
    }
    int status = -1;
    for (int turn = 0; turn < 3000 && ::waitpid(child, &status, WNOHANG) == 0; ++turn) net_.run_for(milliseconds(10));
    EXPECT_TRUE(WIFEXITED(status));
    return WEXITSTATUS(status) == 1;
  }

  const TempDir directory_;
  const std::string path_ = directory_.file("api.sock");
  Net net_;
};

TEST(Listener, APortThatIsTakenIsBusy) {
  Net net;
  auto first = Listener::tcp(net.context(), {"127.0.0.1", 0}, ignore());
  ASSERT_TRUE(first.has_value());
  const auto second = Listener::tcp(net.context(), (*first)->endpoint(), ignore());
  ASSERT_THAT(second, FailsWith(Errc::kBusy));
  EXPECT_EQ(second.error().op, Op::kListen);
  EXPECT_NE(second.error().detail.find((*first)->endpoint().to_string()), std::string::npos);
}

TEST(Listener, AnAddressOfAnotherHostIsRefused) {
  Net net;
  EXPECT_THAT(Listener::tcp(net.context(), {"192.0.2.1", 0}, ignore()), FailsWith(Errc::kIo));
}

TEST(Listener, WithoutDescriptorsItTellsTheFirstWaitsAndGoesOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "UndefinedBehaviorSanitizer looks at objects through a pipe, which takes descriptors itself";
#endif
  Net net;
  std::vector<std::unique_ptr<FrameConnection>> accepted;
  auto listener = Listener::tcp(net.context(), {"127.0.0.1", 0}, [&](std::unique_ptr<FrameConnection> c) {
    c->set_handlers({.on_control = [](const std::string&) { return Status{}; },
                     .on_chunk = [](const ReceivedChunk&) {},
                     .on_closed = [](const Error&) {}});
    accepted.push_back(std::move(c));
  });
  ASSERT_TRUE(listener.has_value());
  const auto to = SocketAddress::numeric((*listener)->endpoint());
  std::vector<UniqueFd> peers;
  for (int i = 0; i < 20; ++i) {
    auto peer = open_socket(*to, Op::kConnect);
    ASSERT_TRUE(peer.has_value());
    ::connect(peer->get(), to->get(), to->size);
    peers.push_back(std::move(*peer));
  }
  const auto closed = [&] {
    return std::ranges::count_if(peers, [](const UniqueFd& peer) {
      char byte = 0;
      return ::recv(peer.get(), &byte, 1, MSG_DONTWAIT) == 0;
    });
  };
  {
    const int lowest_free = UniqueFd(::open("/dev/null", O_RDONLY)).get();
    const DescriptorLimit none(static_cast<rlim_t>(lowest_free));
    const std::clock_t before = std::clock();
    net.run_for(milliseconds(350));
    EXPECT_LT(double(std::clock() - before) / CLOCKS_PER_SEC, 0.1) << "it does not spin";
    EXPECT_TRUE(accepted.empty());
    EXPECT_GE(closed(), 1);
    EXPECT_LE(closed(), 5) << "one each time that it looks";
  }
  ASSERT_TRUE(net.run_until([&] { return accepted.size() + std::size_t(closed()) == peers.size(); }));
  EXPECT_GE(accepted.size(), 15u);
}

TEST(Listener, MayBeDestroyedByItsCallback) {
  Net net;
  Result<std::unique_ptr<Listener>> listener =
      Listener::tcp(net.context(), {"127.0.0.1", 0}, [&](std::unique_ptr<FrameConnection>) { (*listener).reset(); });
  ASSERT_TRUE(listener.has_value());
  Dialed one, two;
  Dial first(net.context(), (*listener)->endpoint(), store_in(one));
  Dial second(net.context(), (*listener)->endpoint(), store_in(two));
  EXPECT_TRUE(net.run_until([&] { return *listener == nullptr; }));
}

TEST_F(LocalSocket, AProgramOfAnotherUserIsNotServedWhateverTheSocketsMode) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  int served = 0;
  const auto listener = Listener::local(net_.context(), path_, [&](std::unique_ptr<FrameConnection>) { ++served; });
  ASSERT_TRUE(listener.has_value());
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  for (const uid_t user : {uid_t{65534}, uid_t{0}}) {
    EXPECT_TRUE(ended_when_read_as(user, 0, {}));
    EXPECT_EQ(served, user == 0 ? 1 : 0);
    EXPECT_EQ((*listener)->refused_count(), 1u) << "the first of the two";
  }
}

TEST_F(LocalSocket, ServesTheMembersOfItsGroup) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr gid_t kGroup = 54'321;
  int served = 0;
  ConnectionContext context = net_.context();
  context.socket.local_group = kGroup;
  const auto listener = Listener::local(context, path_, [&](std::unique_ptr<FrameConnection>) { ++served; });
  ASSERT_TRUE(listener.has_value()) << listener.error().message();
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_EQ(info.st_gid, kGroup);
  ASSERT_EQ(::chmod(path_.c_str(), 0777), 0);
  const std::vector<gid_t> member{1, kGroup}, stranger{1, 2};
  EXPECT_TRUE(ended_when_read_as(65534, 65534, stranger));
  EXPECT_EQ(served, 0);
  EXPECT_TRUE(ended_when_read_as(65534, 65534, member)) << "a supplementary group";
  EXPECT_EQ(served, 1);
  EXPECT_TRUE(ended_when_read_as(65534, kGroup, stranger)) << "the group it runs as";
  EXPECT_EQ(served, 2);
  EXPECT_EQ((*listener)->refused_count(), 1u);
}

TEST_F(LocalSocket, CarriesFramesAndBelongsToItsOwner) {
  End accepted, dialed;
  auto listener = Listener::local(net_.context(), path_, [&](std::unique_ptr<FrameConnection> c) {
    accepted.adopt(std::move(c));
    accepted.connection->send_control("hello");
  });
  ASSERT_TRUE(listener.has_value());
  struct stat info {};
  ASSERT_EQ(::stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  DialLocal dial(net_.context(), path_, [&](Result<std::unique_ptr<FrameConnection>> c) {
    ASSERT_TRUE(c.has_value());
    dialed.adopt(std::move(*c));
  });
  ASSERT_TRUE(net_.run_until([&] { return dialed.controls.size() == 1; }));
  EXPECT_EQ(dialed.connection->peer_host(), "local");
  listener->reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(LocalSocket, IsReplacedOnlyIfNobodyAnswers) {
  auto first = Listener::local(net_.context(), path_, ignore());
  ASSERT_TRUE(first.has_value());
  EXPECT_THAT(Listener::local(net_.context(), path_, ignore()), FailsWith(Errc::kBusy));
  first->reset();

  // What a killed process leaves behind.
  const auto address = SocketAddress::local(path_);
  {
    const auto dead = open_socket(*address, Op::kListen);
    ASSERT_EQ(::bind(dead->get(), address->get(), address->size), 0);
  }
  EXPECT_TRUE(Listener::local(net_.context(), path_, ignore()).has_value());
}

TEST_F(LocalSocket, AFileThatIsNoSocketIsLeftAlone) {
  std::ofstream(path_) << "precious";
  EXPECT_THAT(Listener::local(net_.context(), path_, ignore()), FailsWith(Errc::kAlreadyExists));
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(LocalSocket, APathTooLongIsRefused) {
  EXPECT_THAT(Listener::local(net_.context(), path_ + std::string(200, 'x'), ignore()),
              FailsWith(Errc::kInvalidArgument));
}

TEST_F(LocalSocket, DialToNobodyFails) {
  Dialed result;
  DialLocal dial(net_.context(), path_, store_in(result));
  ASSERT_TRUE(net_.run_until([&] { return result.has_value(); }));
  EXPECT_THAT(*result, FailsWith(Errc::kNotFound));
}

}  // namespace
}  // namespace weightcast
