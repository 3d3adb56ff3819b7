#include "base/log_line.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace weightcast {
namespace {

// A message may quote what a peer sent; a line of a log is for reading.
constexpr std::size_t kMessageBytesMax = 4096;

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
  const std::string line = log_line_of(style, std::chrono::system_clock::now(), level, message) + '\n';
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace weightcast
