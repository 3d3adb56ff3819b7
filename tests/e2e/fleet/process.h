#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace weightcast {

/// A program that this test started. Ended (SIGKILL) and reaped at the latest with this object, and ended with the
/// thread that started it if that dies first; no other process is ever signalled.
class Process {
 public:
  /// `out_file`, `err_file`: where its stdout and stderr go, appended to.
  Process(const std::vector<std::string>& arguments, const std::string& out_file, const std::string& err_file);
  ~Process();
  Process(Process&& other) noexcept : pid_(other.pid_), status_(other.status_) { other.pid_ = -1; }
  Process& operator=(Process&& other) noexcept;

  /// Does nothing once it has ended.
  void signal(int number);
  /// Its exit status, 128 + n if signal n ended it; absent if it is still running after `limit`.
  [[nodiscard]] std::optional<int> wait(std::chrono::milliseconds limit);
  [[nodiscard]] bool running() { return !wait(std::chrono::milliseconds(0)); }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  std::optional<int> status_;
};

/// What a command line printed, and how it ended (-1: not within `limit`, and killed).
struct Ran {
  int status = -1;
  std::string out, err;
};

[[nodiscard]] std::string read_file(const std::string& path);
[[nodiscard]] Ran run_program(const std::vector<std::string>& arguments, const std::string& scratch_dir,
                              std::chrono::milliseconds limit = std::chrono::minutes(4));

}  // namespace weightcast
