#include "trainer/metrics/console.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "base/settings/log_writer.h"
#include "base/text.h"

namespace weightcast {

Console::Console(LogStyle style)
    : style_(std::move(style)), is_plain_(style_.format == LogFormat::kText && ::isatty(STDERR_FILENO) == 1) {}

Console::~Console() {
  if (has_live_line_) write_log_text("\n");
}

void Console::write(std::string_view level, std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!is_plain_) return write_log_line(style_, level, line);
  write_log_text(fmt::format("{}{}\n", has_live_line_ ? "\r\033[K" : "", printable(line)));
  has_live_line_ = false;
}

void Console::show(std::string_view line) {
  if (!is_plain_) return print(line);
  const std::lock_guard lock(mutex_);
  write_log_text(fmt::format("\r\033[K{}", printable(line)));
  has_live_line_ = true;
}

std::string live_line(const Metrics& metrics, std::uint64_t steps_total) {
  const auto value = [&](std::string_view name) {
    const auto found = metrics.find(name);
    return found == metrics.end() ? 0.0 : found->second;
  };
  std::string line = fmt::format("step {:.0f}/{}  reward {:.3f}  entropy {:.3f}  lag {:.1f}  {:.2f} s",
                                 value("training/global_step"), steps_total, value("critic/score/mean"),
                                 value("actor/entropy"), value("off_policy/mean"), value("timing_s/step"));
  if (metrics.count("publish/bytes") != 0) line += fmt::format("  published {:.0f} KiB", value("publish/bytes") / 1024);
  if (metrics.count("t_bcast") != 0) line += fmt::format("  T_bcast {:.2f} s", value("t_bcast"));
  return line;
}

}  // namespace weightcast
