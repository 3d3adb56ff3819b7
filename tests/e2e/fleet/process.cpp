#include "tests/e2e/fleet/process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/result.h"

namespace weightcast {
namespace {

constexpr int kCannotStart = 127;

// Between fork() and exec(), in a process that may have had other threads: system calls only.
[[noreturn]] void become(char** argv, const char* out_file, const char* err_file, pid_t parent) {
  constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int in = ::open("/dev/null", O_RDONLY), out = ::open(out_file, kAppend, 0600),
            err = ::open(err_file, kAppend, 0600);
  const bool ready = in >= 0 && out >= 0 && err >= 0 && ::dup2(in, 0) == 0 && ::dup2(out, 1) == 1 &&
                     ::dup2(err, 2) == 2 && ::getppid() == parent;
  if (ready) {
    for (const int fd : {in, out, err}) ::close(fd);
    ::execv(argv[0], argv);
  }
  ::_exit(kCannotStart);
}

}  // namespace

Process::Process(const std::vector<std::string>& arguments, const std::string& out_file, const std::string& err_file) {
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  const pid_t parent = ::getpid();
  pid_ = ::fork();
  WC_CHECK(pid_ >= 0);
  if (pid_ == 0) become(argv.data(), out_file.c_str(), err_file.c_str(), parent);
}

Process::~Process() {
  if (pid_ < 0) return;
  signal(SIGKILL);
  (void)wait(std::chrono::seconds(10));
}

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(status_, other.status_);
  return *this;
}

void Process::signal(int number) {
  if (!status_) ::kill(pid_, number);
}

std::optional<int> Process::wait(std::chrono::milliseconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (!status_) {
    int raw = 0;
    if (::waitpid(pid_, &raw, WNOHANG) == pid_) {
      status_ = WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      break;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }
  return status_;
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Ran run_program(const std::vector<std::string>& arguments, const std::string& scratch_dir,
                std::chrono::milliseconds limit) {
  static std::atomic<unsigned> count{0};
  const std::string base = scratch_dir + "/run-" + std::to_string(count++);
  Process process(arguments, base + ".out", base + ".err");
  Ran ran;
  ran.status = process.wait(limit).value_or(-1);
  ran.out = read_file(base + ".out");
  ran.err = read_file(base + ".err");
  return ran;
}

}  // namespace weightcast
