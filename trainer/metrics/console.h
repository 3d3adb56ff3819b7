#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "base/settings/log_line.h"
#include "trainer/metrics/metrics.h"

namespace weightcast {

/// Shows a run to a person, on stderr: what happens as lines; on a terminal one line that lives, below them, and
/// elsewhere a line per step. Lines are those of a log (base/settings/log_line.h), but plain on a terminal. Any thread.
class Console {
 public:
  explicit Console(LogStyle style = {LogFormat::kText, "learner"});
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// A line that stays: of what happens, or of what may need somebody.
  void print(std::string_view line) { write("info", line); }
  void warn(std::string_view line) { write("warning", line); }
  /// Replaces the live line. A line that stays if stderr is no terminal: a log shows how far the run is.
  void show(std::string_view line);

 private:
  void write(std::string_view level, std::string_view line);

  const LogStyle style_;
  const bool is_plain_;  // text, for whoever looks on
  std::mutex mutex_;     // so that lines do not run into each other
  bool has_live_line_ = false;
};

/// "step 12/100  reward 0.431 (0.397)  entropy 0.52  lag 1  T 0.41 s": of a training step.
[[nodiscard]] std::string live_line(const Metrics& metrics, std::uint64_t steps_total);

}  // namespace weightcast
