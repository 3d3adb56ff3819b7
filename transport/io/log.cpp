#include "transport/io/log.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

namespace weightcast {
namespace {

// One log a process, as it has one stderr: set before there are threads, and only read after that.
std::optional<LogLevel> least = LogLevel::kInfo;  // none: the log is off
/// Never destroyed: threads may log while the process ends.
LogStyle& style() {
  static auto* const kept = new LogStyle{LogFormat::kText, "weightcast"};
  return *kept;
}

std::string_view name_of(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: break;
  }
  return "error";
}

}  // namespace

void set_up_log(std::string_view level, LogStyle chosen) {
  least = LogLevel::kInfo;
  if (level == "warning") least = LogLevel::kWarning;
  if (level == "error") least = LogLevel::kError;
  if (level == "off") least.reset();
  style() = std::move(chosen);
}

std::size_t log_line_bytes(LogLevel level, std::string_view text) {
  return log_line_of(style(), WallTime(), name_of(level), text).size() + 1;
}

void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  if (least && level >= *least) write_log_line(style(), name_of(level), fmt::vformat(format, arguments));
}

}  // namespace weightcast
