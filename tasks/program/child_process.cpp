#include "tasks/program/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/steady_clock.h"
#include "base/text.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr Duration kEndTime = 500ms;  // of a program whose stdin is closed
constexpr Duration kKillTime = 2s;    // a process that no signal ends hangs in the kernel: it stays behind
constexpr Duration kReapPause = 2ms;
constexpr std::size_t kReadBytes = 65536;

std::vector<char*> pointers_of(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// Owns what posix_spawn() takes.
struct SpawnArguments {
  SpawnArguments() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnArguments() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
  SpawnArguments(const SpawnArguments&) = delete;
  SpawnArguments& operator=(const SpawnArguments&) = delete;

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
};

int milliseconds_until(Instant deadline) {
  const Duration left = deadline - steady_now();
  if (left <= Duration::zero()) return 0;
  return static_cast<int>(std::min<std::int64_t>(left / 1ms + 1, 1'000'000));
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(std::span<const std::string> words,
                                                          std::span<const std::string> environment,
                                                          std::size_t line_bytes_max) {
  std::array<int, 2> in{}, out{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) != 0) {
    return fail_errno(errno, Op::kOpen, "a socket for a task's program");
  }
  UniqueFd ours_in(in[0]), its_in(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return fail_errno(errno, Op::kOpen, "a pipe for a task's program");
  UniqueFd ours_out(out[0]), its_out(out[1]);
  for (const int fd : {ours_in.get(), ours_out.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);

  SpawnArguments spawn;
  ::posix_spawn_file_actions_adddup2(&spawn.actions, its_in.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&spawn.actions, its_out.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&spawn.actions, STDERR_FILENO + 1);
  // Signals as a shell would leave them; and a session of its own, which has no terminal and ends as a whole.
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&spawn.attributes, &none);
  ::posix_spawnattr_setsigdefault(&spawn.attributes, &all);
  ::posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::vector<std::string> argument_texts(words.begin(), words.end());
  std::vector<std::string> variable_texts(environment.begin(), environment.end());
  const std::vector<char*> arguments = pointers_of(argument_texts), variables = pointers_of(variable_texts);
  pid_t pid = 0;
  const int failed =
      ::posix_spawnp(&pid, arguments.front(), &spawn.actions, &spawn.attributes, arguments.data(), variables.data());
  if (failed != 0) return fail_errno(failed, Op::kOpen, fmt::format("the task's program {}", printable(words.front())));
  return std::unique_ptr<ChildProcess>(new ChildProcess(pid, std::move(ours_in), std::move(ours_out), line_bytes_max));
}

ChildProcess::~ChildProcess() {
  in_.reset();
  if (has_time_to_end_) reap(steady_now() + kEndTime);
  ::kill(-pid_, SIGKILL);  // what it has started, too
  reap(steady_now() + kKillTime);
}

bool ChildProcess::reap(Instant until) {
  while (!is_reaped_) {
    const pid_t ended = ::waitpid(pid_, &status_, WNOHANG);
    is_reaped_ = ended == pid_ || (ended < 0 && errno != EINTR);
    if (is_reaped_ || steady_now() >= until) break;
    std::this_thread::sleep_for(kReapPause);
  }
  return is_reaped_;
}

Error ChildProcess::ended() {
  if (!reap(steady_now() + kEndTime)) return fail(Errc::kClosed, Op::kReceive, "it closed its stdout");
  const std::string how = WIFSIGNALED(status_) ? fmt::format("signal {}", WTERMSIG(status_))
                                               : fmt::format("exit status {}", WEXITSTATUS(status_));
  return fail(Errc::kClosed, Op::kReceive, fmt::format("it ended ({})", how));
}

Status ChildProcess::wait(Instant deadline) {
  if (!reap(deadline)) return fail(Errc::kTimedOut, Op::kReceive, "it has not ended");
  return WIFEXITED(status_) && WEXITSTATUS(status_) == 0 ? Status() : Status(ended());
}

Result<std::string> ChildProcess::exchange(std::string_view line, Instant deadline) {
  if (!reader_.rest().empty()) {
    return fail(Errc::kCorrupt, Op::kReceive,
                fmt::format("it said more than was asked: {}", beginning_of(reader_.rest())));
  }
  std::array<char, kReadBytes> buffer{};
  for (;;) {
    std::array<pollfd, 2> watched{pollfd{out_.get(), POLLIN, 0}, pollfd{line.empty() ? -1 : in_.get(), POLLOUT, 0}};
    const int ready = ::poll(watched.data(), watched.size(), milliseconds_until(deadline));
    if (ready < 0 && errno != EINTR) return fail_errno(errno, Op::kReceive, "a task's program");
    if (watched[1].revents != 0) {
      const ssize_t sent = ::send(in_.get(), line.data(), line.size(), MSG_NOSIGNAL);
      if (sent > 0) line.remove_prefix(static_cast<std::size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EINTR) return ended();
    }
    if (watched[0].revents != 0) {
      const ssize_t read = ::read(out_.get(), buffer.data(), buffer.size());
      if (read == 0 || (read < 0 && errno != EAGAIN && errno != EINTR)) return ended();
      if (read > 0) reader_.add({buffer.data(), static_cast<std::size_t>(read)});
      WC_ASSIGN(std::optional<std::string> answer, reader_.next());
      if (answer) return *std::move(answer);
    }
    if (steady_now() >= deadline) return fail(Errc::kTimedOut, Op::kReceive, "it did not answer in time");
  }
}

}  // namespace weightcast
