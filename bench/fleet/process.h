#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/time.h"

namespace weightcast::bench {

/// The resources that a process has used so far.
struct ProcessUsage {
  double cpu_s = 0;                  ///< user and system, all threads
  std::uint64_t rss_anon_bytes = 0;  ///< anonymous memory now
  std::uint64_t written_bytes = 0;   ///< that the kernel has to write to disks for it, whether or not it has yet
};

/// Processor time since boot that this machine wanted and its host gave to others ("steal"). 0 if there is no host, or
/// if it does not report it.
[[nodiscard]] double stolen_s();

struct ProcessSpec {
  std::vector<std::string> argv;  ///< argv[0] is looked up in PATH if it has no slash
  int network_fd = -1;            ///< a network namespace to run in; -1: ours
  std::string log_path;           ///< takes stdout and stderr; "" for /dev/null
};

/// A child process. It ends with this object, and at the latest with the thread that started it, so no process outlives
/// a bench, even if the bench is killed. One thread owns it.
class Process {
 public:
  /// Errors: kIo. If the program cannot be run, the process exits early.
  [[nodiscard]] static Result<Process> start(const ProcessSpec& spec);
  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Sends `signal_number`. Harmless if the process has ended.
  void signal(int signal_number);
  /// Whether the process runs. Reaps it if it has ended.
  [[nodiscard]] bool running();
  /// Sends SIGCONT and SIGTERM, then, after `patience`, SIGKILL. Returns when the process has ended.
  void end(Duration patience = std::chrono::milliseconds(2500));
  /// Absent once it has ended.
  [[nodiscard]] std::optional<ProcessUsage> usage() const;

 private:
  explicit Process(pid_t pid) : pid_(pid) {}
  pid_t pid_;  // -1 once reaped
};

/// Runs a program of the system to its end with `input` on stdin. Errors: kIo, with its output on stderr.
[[nodiscard]] Status run_tool(const std::vector<std::string>& argv, const std::string& input, int network_fd);

/// The path of `path` in the directory of this program.
[[nodiscard]] std::string beside_this_program(const std::string& name);

}  // namespace weightcast::bench
