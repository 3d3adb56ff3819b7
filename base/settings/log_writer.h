#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "base/settings/log_line.h"

namespace weightcast {

/// Writes lines to a descriptor, in order, on a thread of its own, so that nobody waits for whoever reads them: a full
/// pipe, a stopped terminal or a disk that hangs stops no program. What is not read waits, `bytes_max` of it at most.
/// Lines beyond that are dropped and counted, and a line in their place says how many. Any thread.
class LogWriter {
 public:
  /// `fd` stays open.
  LogWriter(int fd, std::size_t bytes_max);
  /// Gives up what is not written yet.
  ~LogWriter();
  LogWriter(const LogWriter&) = delete;
  LogWriter& operator=(const LogWriter&) = delete;

  /// `line` with its end. `style`: of the line that tells of dropped ones; null: plain.
  void write(std::string line, const LogStyle* style = nullptr);
  /// Whether all is written, `patience` from now at the latest.
  bool flush(std::chrono::milliseconds patience);
  [[nodiscard]] std::uint64_t dropped() const;

 private:
  struct Shared;
  const std::shared_ptr<Shared> shared_;  // with the thread, which may hang in a write for longer than this lives
};

// Lines of a log go to stderr by one of these (write_log_line()). So do these texts as they are, to stderr and stdout.
void write_log_text(std::string text);
void write_output(std::string text);

/// Whether all that was written has reached its readers, `patience` from now at the latest. Before a program ends.
bool flush_log(std::chrono::milliseconds patience = std::chrono::milliseconds(500));
/// Lines that nobody read in time, which are lost.
[[nodiscard]] std::uint64_t log_lines_dropped();

}  // namespace weightcast
