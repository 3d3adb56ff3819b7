#include "trainer/tasks/program/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "base/entropy.h"
#include "base/steady_clock.h"
#include "base/text.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

constexpr Duration kEndTime = 500ms;  // of a program whose stdin is closed
constexpr Duration kKillTime = 2s;    // a process that no signal ends hangs in the kernel: it stays behind
constexpr Duration kReapPause = 2ms;
constexpr std::size_t kReadBytes = 65536;
// Of stderr, of one process: a program that prints without end must not fill a disk.
constexpr std::size_t kStderrBytesMax = std::size_t{1} << 20;
constexpr std::string_view kNoMoreShown = "(the task's program says more on stderr, which is not shown)\n";
// Waits until its stdin ends, then kills those that have its first argument in their environment: a program may start
// others in sessions of their own, which are nobody's children any more. A few times, as they may go on starting some.
constexpr const char* kWatch = R"(read -r _
for round in 1 2 3 4 5; do
  found=$(grep -lszxF -- "$0" /proc/[0-9]*/environ)
  [ -n "$found" ] || exit 0
  for file in $found; do pid=${file#/proc/}; kill -9 "${pid%/environ}"; done 2>/dev/null
done)";

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

/// As a shell would leave them; and a session of its own, which has no terminal and ends as a whole.
void set_attributes(SpawnArguments& spawn) {
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&spawn.attributes, &none);
  ::posix_spawnattr_setsigdefault(&spawn.attributes, &all);
  ::posix_spawnattr_setflags(&spawn.attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

/// A file in memory that holds `bytes`, to be read.
Result<UniqueFd> held(std::string_view bytes) {
  UniqueFd file(::memfd_create("weightcast", MFD_CLOEXEC));
  if (file.get() < 0 || ::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()) ||
      ::lseek(file.get(), 0, SEEK_SET) != 0) {
    return fail_errno(errno, Op::kOpen, "memory for a task's program");
  }
  return file;
}

/// Never waits: what cannot be written now is lost.
void write_to_stderr(std::string_view text) {
  constexpr std::size_t kAtOnce = 4096;  // a pipe that is ready takes them
  while (!text.empty()) {
    pollfd ready{STDERR_FILENO, POLLOUT, 0};
    if (::poll(&ready, 1, 0) <= 0 || (ready.revents & POLLOUT) == 0) return;
    const ssize_t written = ::write(STDERR_FILENO, text.data(), std::min(text.size(), kAtOnce));
    if (written <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
}

int milliseconds_until(Instant deadline) {
  const Duration left = deadline - steady_now();
  if (left <= Duration::zero()) return 0;
  return static_cast<int>(std::min<std::int64_t>(left / 1ms + 1, 1'000'000));
}

}  // namespace

Result<std::unique_ptr<ChildProcess>> ChildProcess::start(std::span<const std::string> words,
                                                          std::span<const std::string> environment,
                                                          std::size_t line_bytes_max, std::string_view passed) {
  std::array<int, 2> in{}, out{}, err{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, in.data()) != 0) {
    return fail_errno(errno, Op::kOpen, "a socket for a task's program");
  }
  UniqueFd ours_in(in[0]), its_in(in[1]);
  if (::pipe2(out.data(), O_CLOEXEC) != 0) return fail_errno(errno, Op::kOpen, "a pipe for a task's program");
  UniqueFd ours_out(out[0]), its_out(out[1]);
  if (::pipe2(err.data(), O_CLOEXEC) != 0) return fail_errno(errno, Op::kOpen, "a pipe for a task's program");
  UniqueFd ours_err(err[0]), its_err(err[1]), its_passed;
  for (const int fd : {ours_in.get(), ours_out.get(), ours_err.get()}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  if (!passed.empty()) {
    WC_ASSIGN(its_passed, held(passed));
  }

  SpawnArguments spawn;
  set_attributes(spawn);
  ::posix_spawn_file_actions_adddup2(&spawn.actions, its_in.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&spawn.actions, its_out.get(), STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&spawn.actions, its_err.get(), STDERR_FILENO);
  if (!passed.empty()) ::posix_spawn_file_actions_adddup2(&spawn.actions, its_passed.get(), kPassedDescriptor);
  ::posix_spawn_file_actions_addclosefrom_np(&spawn.actions, kPassedDescriptor + (passed.empty() ? 0 : 1));
  const std::string mark = fmt::format("WEIGHTCAST_TASK={:016x}{:016x}", host_entropy(), host_entropy());
  std::vector<std::string> argument_texts(words.begin(), words.end());
  std::vector<std::string> variable_texts(environment.begin(), environment.end());
  variable_texts.push_back(mark);
  const std::vector<char*> arguments = pointers_of(argument_texts), variables = pointers_of(variable_texts);
  pid_t pid = 0;
  const int failed =
      ::posix_spawnp(&pid, arguments.front(), &spawn.actions, &spawn.attributes, arguments.data(), variables.data());
  if (failed != 0) return fail_errno(failed, Op::kOpen, fmt::format("the task's program {}", printable(words.front())));
  std::unique_ptr<ChildProcess> process(
      new ChildProcess(pid, std::move(ours_in), std::move(ours_out), std::move(ours_err), line_bytes_max));
  WC_TRY(process->watch(mark));
  return process;
}

Status ChildProcess::watch(const std::string& mark) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno(errno, Op::kOpen, "a pipe for a task's program");
  UniqueFd its(ends[0]);
  watch_ = UniqueFd(ends[1]);
  SpawnArguments spawn;
  set_attributes(spawn);
  ::posix_spawn_file_actions_adddup2(&spawn.actions, its.get(), STDIN_FILENO);
  ::posix_spawn_file_actions_addopen(&spawn.actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&spawn.actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addclosefrom_np(&spawn.actions, STDERR_FILENO + 1);
  std::vector<std::string> words{"sh", "-c", kWatch, mark}, variables{"PATH=/usr/bin:/bin"};
  const std::vector<char*> arguments = pointers_of(words), environment = pointers_of(variables);
  const int failed =
      ::posix_spawn(&watcher_, "/bin/sh", &spawn.actions, &spawn.attributes, arguments.data(), environment.data());
  return failed == 0 ? Status() : fail_errno(failed, Op::kOpen, "/bin/sh, which ends what a task's program leaves");
}

ChildProcess::~ChildProcess() {
  in_.reset();
  if (has_time_to_end_) reap(steady_now() + kEndTime);
  ::kill(-pid_, SIGKILL);  // what it has started, too
  reap(steady_now() + kKillTime);
  show_stderr();
  watch_.reset();
  const Instant until = steady_now() + kKillTime;
  while (watcher_ > 0 && ::waitpid(watcher_, nullptr, WNOHANG) == 0 && steady_now() < until) {
    std::this_thread::sleep_for(kReapPause);
  }
}

void ChildProcess::show_stderr() {
  std::array<char, kReadBytes> buffer{};
  // What a pipe holds, and not more: a program may write faster than this reads.
  for (int i = 0; i < 2; ++i) {
    const ssize_t read = ::read(err_.get(), buffer.data(), buffer.size());
    if (read == 0) err_.reset();
    if (read <= 0) return;
    if (shown_bytes_ >= kStderrBytesMax) continue;
    const std::size_t shown = std::min(static_cast<std::size_t>(read), kStderrBytesMax - shown_bytes_);
    write_to_stderr({buffer.data(), shown});
    shown_bytes_ += shown;
    if (shown_bytes_ >= kStderrBytesMax) write_to_stderr(kNoMoreShown);
  }
}

bool ChildProcess::reap(Instant until) {
  while (!is_reaped_) {
    const pid_t ended = ::waitpid(pid_, &status_, WNOHANG);
    is_reaped_ = ended == pid_ || (ended < 0 && errno != EINTR);
    show_stderr();
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
    std::array<pollfd, 3> watched{pollfd{out_.get(), POLLIN, 0}, pollfd{line.empty() ? -1 : in_.get(), POLLOUT, 0},
                                  pollfd{err_.get(), POLLIN, 0}};
    const int ready = ::poll(watched.data(), watched.size(), milliseconds_until(deadline));
    if (ready < 0 && errno != EINTR) return fail_errno(errno, Op::kReceive, "a task's program");
    if (watched[2].revents != 0) show_stderr();
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
