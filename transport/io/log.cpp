#include "transport/io/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include "base/text.h"

namespace weightcast {
namespace {

// A message may quote what a peer sent; a line of a log is for reading.
constexpr std::size_t kLineBytesMax = 4096;

spdlog::level::level_enum to_spdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::err;
}

}  // namespace

void set_up_log(const std::string& level) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("weightcast"));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%l%$ %v");
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::flush_on(spdlog::level::info);
}

void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  spdlog::logger& logger = *spdlog::default_logger_raw();
  if (!logger.should_log(to_spdlog(level))) return;
  const std::string text = printable(cut_text(fmt::vformat(format, arguments), kLineBytesMax));
  logger.log(to_spdlog(level), spdlog::string_view_t(text));
}

}  // namespace weightcast
