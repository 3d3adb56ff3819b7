#include "base/settings/log_line.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/settings/log_writer.h"
#include "base/text.h"

namespace weightcast {
namespace {

// A message may quote what a peer sent; a line of a log is for reading.
constexpr std::size_t kMessageBytesMax = 4096;
// Hours of a quiet daemon's log, and minutes of a fleet's that publishes.
constexpr std::size_t kUnreadBytesMax = 1 << 20;

/// Never destroyed: threads may log while the process ends.
LogWriter& errors() {
  static auto* const kept = new LogWriter(STDERR_FILENO, kUnreadBytesMax);
  return *kept;
}
LogWriter& output() {
  static auto* const kept = new LogWriter(STDOUT_FILENO, kUnreadBytesMax);
  return *kept;
}

}  // namespace

std::string iso_time(WallTime time) {
  const auto since_epoch = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
  const auto whole = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const std::time_t seconds = whole.count();
  std::tm local{};
  ::localtime_r(&seconds, &local);
  const long offset_min = local.tm_gmtoff / 60;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}{}{:02}:{:02}", local.tm_year + 1900, local.tm_mon + 1,
                     local.tm_mday, local.tm_hour, local.tm_min, local.tm_sec, (since_epoch - whole).count(),
                     offset_min < 0 ? '-' : '+', std::labs(offset_min) / 60, std::labs(offset_min) % 60);
}

std::string log_line_of(const LogStyle& style, WallTime time, std::string_view level, std::string_view message) {
  const std::string text = printable(cut_text(message, kMessageBytesMax));
  if (style.format == LogFormat::kText) return fmt::format("{} {} {}", iso_time(time), level, text);
  nlohmann::ordered_json line;
  line["time"] = iso_time(time);
  line["level"] = level;
  line["component"] = style.component;
  line["message"] = text;
  return line.dump();
}

void write_log_line(const LogStyle& style, std::string_view level, std::string_view message) {
  errors().write(log_line_of(style, std::chrono::system_clock::now(), level, message) + '\n', &style);
}

void write_log_text(std::string text) { errors().write(std::move(text)); }
void write_output(std::string text) { output().write(std::move(text)); }

bool flush_log(std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  const bool told = errors().flush(patience);
  const auto left = until - std::chrono::steady_clock::now();
  const auto left_ms = std::chrono::duration_cast<std::chrono::milliseconds>(left);
  return output().flush(std::max(std::chrono::milliseconds(0), left_ms)) && told;
}

std::uint64_t log_lines_dropped() { return errors().dropped() + output().dropped(); }

}  // namespace weightcast
