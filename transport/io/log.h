#pragma once

#include <fmt/core.h>

#include <string_view>

#include "base/settings/log_line.h"

namespace weightcast {

/// From the least on.
enum class LogLevel { kInfo, kWarning, kError };

/// Sets the log up: lines of at least `level` ("info", "warning", "error"; "off": none) go to stderr, because
/// scripts read stdout. To be called once, before there are threads; without it the log is text, from "info" on.
void set_up_log(std::string_view level, LogStyle style);

/// What a line of that text takes, as it is written: JSON is longer than text.
[[nodiscard]] std::size_t log_line_bytes(LogLevel level, std::string_view text);

/// Writes one line (base/settings/log_line.h), unless its level is off. Any thread.
void log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments);

template <typename... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kInfo, format, fmt::make_format_args(args...));
}

template <typename... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kWarning, format, fmt::make_format_args(args...));
}

template <typename... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_line(LogLevel::kError, format, fmt::make_format_args(args...));
}

}  // namespace weightcast
