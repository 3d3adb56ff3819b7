#pragma once

#include <fmt/core.h>

#include <string>

namespace weightcast {

enum class LogLevel { kInfo, kWarning, kError };

/// Sends what is logged to stderr (stdout is for what scripts read), one line each with time and level, from `level`
/// on: a name that spdlog knows, such as "info" or "off". Once, before threads are started.
void set_up_log(const std::string& level);

/// Writes one line, unless the level is off, of 4 KiB at most before it is made printable() (base/text.h): what peers
/// send can neither forge a line nor drive a terminal. From any thread. Not a template, so that a file that logs need
/// not compile spdlog, which takes seconds of each.
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
