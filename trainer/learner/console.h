#pragma once

#include <mutex>
#include <string>
#include <string_view>

#include "trainer/learner/metrics.h"

namespace weightcast {

/// Shows a run to a person, on stderr: warnings as lines; on a terminal one line that lives, below them, and elsewhere
/// a line per step. Any thread.
class Console {
 public:
  Console();
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// A line that stays.
  void print(std::string_view line);
  /// Replaces the live line. A line that stays if stderr is no terminal: a log shows how far the run is.
  void show(std::string_view line);

 private:
  const bool is_terminal_;
  std::mutex mutex_;  // so that lines do not run into each other
  bool has_live_line_ = false;
};

/// "step 12/100  reward 0.431 (0.397)  entropy 0.52  lag 1  T 0.41 s": of a training step.
[[nodiscard]] std::string live_line(const Metrics& metrics, std::uint64_t steps_total);

}  // namespace weightcast
