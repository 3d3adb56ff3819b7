#pragma once

#include <sys/types.h>

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "base/time.h"
#include "trainer/tasks/program/line_reader.h"

namespace weightcast {

/// What start() passes to a program besides its three streams.
inline constexpr int kPassedDescriptor = 3;

/// A process that answers lines with lines, and what it has started: a session of its own, and what has left that. What
/// it says on stderr appears on ours, within a bound. One thread at a time uses it.
class ChildProcess {
 public:
  /// `words` are the command, found on the PATH, and its arguments; `environment` has NAME=VALUE.
  /// `passed`, if not empty, is what it reads from kPassedDescriptor. Errors: kNotFound, kIo, which name the command.
  [[nodiscard]] static Result<std::unique_ptr<ChildProcess>> start(std::span<const std::string> words,
                                                                   std::span<const std::string> environment,
                                                                   std::size_t line_bytes_max,
                                                                   std::string_view passed = {});
  /// Closes its stdin, gives it half a second to end, and kills the session. What it has started elsewhere is killed
  /// soon after, and so it is if this process is killed.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  /// Writes `line` and returns the one that it answers. After an error it is of no more use.
  /// Errors: kTimedOut; kClosed, which says how it ended; kCorrupt if it says more than was asked; those of LineReader.
  [[nodiscard]] Result<std::string> exchange(std::string_view line, Instant deadline);
  /// Waits for its end. Errors: kTimedOut; kClosed, which says how, unless its status is 0.
  [[nodiscard]] Status wait(Instant deadline);
  /// So that the destructor gives it no time.
  void give_up() { has_time_to_end_ = false; }

 private:
  ChildProcess(pid_t pid, UniqueFd in, UniqueFd out, UniqueFd err, std::size_t line_bytes_max)
      : pid_(pid), in_(std::move(in)), out_(std::move(out)), err_(std::move(err)), reader_(line_bytes_max) {}

  /// Starts what kills those that bear `mark` in their environment, once this object or this process is gone.
  [[nodiscard]] Status watch(const std::string& mark);
  /// Shows what it has said on stderr.
  void show_stderr();

  /// Whether it has ended, by `until` at the latest.
  bool reap(Instant until);
  [[nodiscard]] Error ended();

  pid_t pid_;
  UniqueFd in_;  // a socket, as a write to a pipe that nobody reads is a signal
  UniqueFd out_, err_;
  UniqueFd watch_;  // of the watcher's stdin
  pid_t watcher_ = 0;
  std::size_t shown_bytes_ = 0;
  LineReader reader_;
  int status_ = 0;
  bool is_reaped_ = false;
  bool has_time_to_end_ = true;
};

}  // namespace weightcast
