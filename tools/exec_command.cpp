#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/process.h"
#include "base/settings/log_writer.h"
#include "base/text.h"
#include "client/attempt.h"
#include "tools/command.h"

namespace weightcast {
namespace {

constexpr const char* kDirectoryVariable = "WEIGHTCAST_DIRECTORY";
constexpr int kNotStarted = 127;  // as shells and env say it
constexpr std::array kForwarded = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

struct ExecFlags {
  std::string state;
  std::uint64_t version = 0;
  bool pin = false;
  std::vector<std::string> command;
};

/// Takes the place of this process. Returns only if that fails.
Error start(std::vector<std::string> command, const std::string& directory) {
  restore_signals();
  ::setenv(kDirectoryVariable, directory.c_str(), 1);
  std::vector<char*> words;
  words.reserve(command.size() + 1);
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  ::execvp(words.front(), words.data());
  return fail_errno(errno, Op::kOpen, printable(command.front()));
}

/// A pin that outlives its daemon's restart: the connection takes it away, and the next one gives it back.
class KeptPin {
 public:
  explicit KeptPin(const std::string& state) : subscription_(state) {}

  wc::Event acquire(std::uint64_t version) { return pinned_ = subscription_.acquire(version); }
  /// -1 where nothing more can be kept.
  [[nodiscard]] int fd() const { return given_up_ ? -1 : subscription_.fd(); }

  /// Takes what the daemon says. The command goes on whatever that is.
  void handle_readable() {
    const auto taken = attempt([&] {
      while (const auto event = subscription_.next(wc::Milliseconds(0))) {
        if (event->kind == WC_EVENT_DISCONNECTED) lost_ = true;
        if (event->kind == WC_EVENT_INSTALLED && std::exchange(lost_, false)) acquire(pinned_.version);
      }
    });
    if (taken.has_value()) return;
    const Errc code = taken.error().code;
    if (code == Errc::kClosed || code == Errc::kTimedOut || code == Errc::kBusy) {
      lost_ = true;  // the daemon is away again; its next version brings the pin back
      return;
    }
    given_up_ = true;
    write_log_text(fmt::format("weightcast: version {} is pinned no more: {}\n", pinned_.version,
                               printable(taken.error().detail)));
  }

 private:
  wc::Subscription subscription_;
  wc::Event pinned_;
  bool lost_ = false;
  bool given_up_ = false;
};

/// Forwards what comes to `child`. What a terminal's key sent, the child got itself.
void forward(const signalfd_siginfo& signal, pid_t child) {
  if (signal.ssi_code != SI_KERNEL) ::kill(child, static_cast<int>(signal.ssi_signo));
}

/// Its exit status, once it has ended: 128 + n if signal n ended it.
Result<int> wait_for(pid_t child, int signals, KeptPin& pin) {
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    if (ended < 0) return fail_errno(errno, Op::kRead, "the command's end");
    std::array<pollfd, 2> watched = {pollfd{signals, POLLIN, 0}, pollfd{pin.fd(), POLLIN, 0}};
    if (::poll(watched.data(), watched.size(), -1) < 0 && errno != EINTR) {
      return fail_errno(errno, Op::kRead, "the command's end");
    }
    if (watched[1].revents != 0) pin.handle_readable();
    signalfd_siginfo signal{};
    while (::read(signals, &signal, sizeof signal) == ssize_t(sizeof signal)) forward(signal, child);
  }
}

Result<int> run_pinned(const ExecFlags& flags) {
  KeptPin pin(flags.state);
  const wc::Event version = pin.acquire(flags.version);
  sigset_t watched, before;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  for (const int number : kForwarded) sigaddset(&watched, number);
  // A parent may have had it ignored, which is inherited: then no end of a child would ever be told.
  ::signal(SIGCHLD, SIG_DFL);
  ::sigprocmask(SIG_BLOCK, &watched, &before);
  const UniqueFd signals(::signalfd(-1, &watched, SFD_NONBLOCK | SFD_CLOEXEC));
  if (!signals.valid()) return fail_errno(errno, Op::kOpen, "signalfd");
  const pid_t child = ::fork();
  if (child < 0) return fail_errno(errno, Op::kOpen, printable(flags.command.front()));
  if (child == 0) {
    ::sigprocmask(SIG_SETMASK, &before, nullptr);
    fmt::print(stderr, "weightcast: {}\n", start(flags.command, version.directory).message());
    std::_Exit(kNotStarted);
  }
  return wait_for(child, signals.get(), pin);
}

Status run(const ExecFlags& flags) {
  if (!flags.pin) {
    WC_ASSIGN(const wc::Event version, attempt([&] { return wc::Subscription(flags.state).acquire(flags.version); }));
    return start(flags.command, version.directory);
  }
  const auto ended = attempt([&] { return run_pinned(flags); });
  WC_ASSIGN(const Result<int> status, ended);
  if (!status.has_value()) return status.error();
  // The command's own, whatever it is.
  std::fflush(nullptr);
  std::_Exit(*status);
}

}  // namespace

void add_exec_command(const Commands& commands) {
  const auto [app, flags] = add_command<ExecFlags>(
      commands, "exec",
      fmt::format("Run a command that finds the directory of the version in use in {}", kDirectoryVariable), run);
  add_state_option(*app, flags->state, "The daemon's state directory");
  app->add_option("--version", flags->version, "This version, which need not be in use");
  app->add_flag("--pin", flags->pin, "The version stays on the disk until the command has ended");
  app->add_option("COMMAND", flags->command, "The command and its arguments, after --")->required();
  app->positionals_at_end();
}

}  // namespace weightcast
