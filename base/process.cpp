#include "base/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <system_error>
#include <thread>
#include <utility>

namespace weightcast {
namespace {

constexpr std::array kToldAndIgnored = {SIGUSR1, SIGUSR2, SIGVTALRM, SIGPROF, SIGIO, SIGPWR, SIGSTKFLT};

bool has_default(int number) {
  struct sigaction action = {};
  return ::sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_DFL;
}

/// Adds `number` to `watched`, unless somebody has other plans for it, such as a profiler or nohup.
void watch(int number, sigset_t& watched) {
  if (!has_default(number)) return;
  // For threads that were there before, and do not block it.
  std::signal(number, [](int) {});
  ::sigaddset(&watched, number);
}

void ignore(int number) {
  if (has_default(number)) std::signal(number, SIG_IGN);
}

[[noreturn]] void tell_signals(sigset_t watched, const std::function<void(const std::string&)>& tell) {
  bool is_stopping = false;
  for (;;) {
    int number = 0;
    if (::sigwait(&watched, &number) != 0) continue;
    const char* const name = ::strsignal(number);
    if (number != SIGXCPU && number != SIGHUP) {
      tell(fmt::format("signal {} ({}) means nothing to this program, which goes on", number, name));
    } else if (!std::exchange(is_stopping, true)) {
      const bool is_limit = number == SIGXCPU;
      tell(is_limit ? std::string("the limit of processor time (ulimit -t, LimitCPU) is reached: stopping")
                    : fmt::format("signal {} ({}): stopping", number, name));
      ::kill(::getpid(), SIGTERM);
    }
  }
}

}  // namespace

void set_up_process() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The lowest free number, which is this one. Where there is no /dev any descriptor keeps others from it.
    if (::open("/dev/null", O_RDWR) < 0) static_cast<void>(::open("/", O_PATH));
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

void restore_signals() { std::signal(SIGXFSZ, SIG_DFL); }

void watch_signals(AtHangup at_hangup, std::function<void(const std::string&)> tell) {
  std::signal(SIGPIPE, SIG_IGN);
  ignore(SIGALRM);
  sigset_t watched;
  ::sigemptyset(&watched);
  if (at_hangup == AtHangup::kStops) watch(SIGHUP, watched);
  watch(SIGXCPU, watched);
  for (const int number : kToldAndIgnored) watch(number, watched);
  for (int number = SIGRTMIN; number <= SIGRTMAX; ++number) watch(number, watched);
  ::pthread_sigmask(SIG_BLOCK, &watched, nullptr);
  try {
    std::thread([watched, tell = std::move(tell)] { tell_signals(watched, tell); }).detach();
  } catch (const std::system_error&) {  // the host has no thread left: they stay blocked, which ends nothing
  }
}

void write_at_once(int fd, std::string_view text) {
  pollfd writable{fd, POLLOUT, 0};
  if (::poll(&writable, 1, 0) == 1 && (writable.revents & POLLOUT) != 0) {
    static_cast<void>(!::write(fd, text.data(), text.size()));
  }
}

}  // namespace weightcast
