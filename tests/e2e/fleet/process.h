#pragma once

#include <gmock/gmock.h>
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

/// A Ran that ended with this status.
MATCHER_P(Exits, status, "ends with status " + testing::PrintToString(status)) {
  *result_listener << "which ended with " << arg.status << ": " << arg.err;
  return arg.status == status;
}

/// And whose stderr has these words.
MATCHER_P2(Exits, status, words, "ends with status " + testing::PrintToString(status) + " and says that") {
  return testing::ExplainMatchResult(Exits(status), arg, result_listener) &&
         testing::ExplainMatchResult(testing::HasSubstr(words), arg.err, result_listener);
}

/// And others.
MATCHER_P3(Exits, status, words, others, "ends with status " + testing::PrintToString(status) + " and says both") {
  return testing::ExplainMatchResult(Exits(status, words), arg, result_listener) &&
         testing::ExplainMatchResult(testing::HasSubstr(others), arg.err, result_listener);
}

/// One that succeeded and whose stdout is that: a text, or what a matcher takes.
MATCHER_P(Prints, text, "ends with status 0 and prints that") {
  return testing::ExplainMatchResult(Exits(0), arg, result_listener) &&
         testing::ExplainMatchResult(text, arg.out, result_listener);
}

[[nodiscard]] std::string read_file(const std::string& path);
[[nodiscard]] Ran run_program(const std::vector<std::string>& arguments, const std::string& scratch_dir,
                              std::chrono::milliseconds limit = std::chrono::minutes(4));

}  // namespace weightcast
