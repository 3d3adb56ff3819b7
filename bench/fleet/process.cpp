#include "bench/fleet/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "base/files/unique_fd.h"
#include "bench/proc_bytes.h"

namespace weightcast::bench {
namespace {

struct Stdio {
  int in = -1;
  int out = -1;
  int err = -1;
};

// Only what may be called between fork() and exec() in a process with threads.
[[noreturn]] void become(char* const* argv, const Stdio& stdio, int network_fd, pid_t parent) {
  ::setpgid(0, 0);  // a Ctrl-C is for us, who then end our children in order
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);
  if (network_fd >= 0 && ::setns(network_fd, CLONE_NEWNET) != 0) ::_exit(126);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::dup2(stdio.in, STDIN_FILENO);
  ::dup2(stdio.out, STDOUT_FILENO);
  ::dup2(stdio.err, STDERR_FILENO);
  ::execvp(argv[0], argv);
  ::_exit(127);
}

Result<pid_t> spawn(const std::vector<std::string>& argv, const Stdio& stdio, int network_fd) {
  std::vector<char*> arguments;
  for (const std::string& argument : argv) arguments.push_back(const_cast<char*>(argument.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno(errno, Op::kOpen, argv[0]);
  if (pid == 0) become(arguments.data(), stdio, network_fd, parent);
  return pid;
}

}  // namespace

double stolen_s() {
  std::ifstream stat("/proc/stat");
  std::string skipped;
  stat >> skipped;
  // user, nice, system, idle, iowait, irq and softirq come before it.
  for (int field = 0; field < 7; ++field) stat >> skipped;
  double stolen_ticks = 0;
  stat >> stolen_ticks;
  return stolen_ticks / double(::sysconf(_SC_CLK_TCK));
}

Result<Process> Process::start(const ProcessSpec& spec) {
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  UniqueFd log;
  if (!spec.log_path.empty()) {
    log = UniqueFd(::open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    if (log.get() < 0) return fail_errno(errno, Op::kOpen, spec.log_path);
  }
  const int out = spec.log_path.empty() ? null.get() : log.get();
  WC_ASSIGN(const pid_t pid, spawn(spec.argv, {null.get(), out, out}, spec.network_fd));
  return Process(pid);
}

Process::Process(Process&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

Process& Process::operator=(Process&& other) noexcept {
  if (this != &other) {
    end();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

Process::~Process() { end(); }

void Process::signal(int signal_number) {
  if (running()) ::kill(pid_, signal_number);
}

bool Process::running() {
  if (pid_ < 0) return false;
  if (::waitpid(pid_, nullptr, WNOHANG) == 0) return true;
  pid_ = -1;
  return false;
}

void Process::end(Duration patience) {
  signal(SIGCONT);
  signal(SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (running() && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (!running()) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

std::optional<ProcessUsage> Process::usage() const {
  if (pid_ < 0) return std::nullopt;
  // To the nanosecond; /proc/PID/stat has hundredths of a second.
  clockid_t clock{};
  timespec used{};
  if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return std::nullopt;
  ProcessUsage usage;
  usage.cpu_s = double(used.tv_sec) + 1e-9 * double(used.tv_nsec);

  usage.rss_anon_bytes = proc_bytes(fmt::format("/proc/{}/status", pid_), "RssAnon:");
  std::ifstream io(fmt::format("/proc/{}/io", pid_));
  for (std::string line; std::getline(io, line);) {
    if (line.starts_with("write_bytes:")) usage.written_bytes = std::stoull(line.substr(12));
  }
  return usage;
}

Status run_tool(const std::vector<std::string>& argv, const std::string& input, int network_fd) {
  std::array<int, 2> in{};
  std::array<int, 2> err{};
  if (::pipe2(in.data(), O_CLOEXEC) != 0) return fail_errno(errno, Op::kOpen, "a pipe");
  UniqueFd read_in(in[0]);
  UniqueFd write_in(in[1]);
  if (::pipe2(err.data(), O_CLOEXEC) != 0) return fail_errno(errno, Op::kOpen, "a pipe");
  UniqueFd read_err(err[0]);
  UniqueFd write_err(err[1]);
  const UniqueFd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  WC_ASSIGN(const pid_t pid, spawn(argv, {read_in.get(), null.get(), write_err.get()}, network_fd));
  read_in = UniqueFd();
  write_err = UniqueFd();
  // Our batches fit into a pipe (64 KiB) many times over, or the tool reads them as it goes.
  for (std::size_t sent = 0; sent < input.size();) {
    const ssize_t n = ::write(write_in.get(), input.data() + sent, input.size() - sent);
    if (n <= 0) break;  // it ended early: its exit status tells
    sent += static_cast<std::size_t>(n);
  }
  write_in = UniqueFd();
  std::string said;
  std::array<char, 4096> piece{};
  for (ssize_t n = 0; (n = ::read(read_err.get(), piece.data(), piece.size())) > 0;) {
    said.append(piece.data(), static_cast<std::size_t>(n));
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  for (char& c : said) c = c == '\n' ? ' ' : c;
  return fail(Errc::kIo, Op::kConfigure,
              fmt::format("{}: {}", fmt::join(argv, " "),
                          !said.empty()                                     ? said
                          : WIFEXITED(status) && WEXITSTATUS(status) == 127 ? "not found; is it installed?"
                                                                            : "it failed and said nothing"));
}

std::string beside_this_program(const std::string& name) {
  std::error_code ignored;
  return (std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / name).string();
}

}  // namespace weightcast::bench
