#pragma once

#include <fmt/core.h>

#include <string>

namespace weightcast {

enum class LogLevel { kInfo, kWarning, kError };

/// Sets the log up: lines of at least `level`, with time and level, go to stderr, because scripts read stdout. `level`
/// is a name of spdlog's, such as "info" or "off". To be called once, before there are threads.
void set_up_log(const std::string& level);

/// Writes one line, unless the level is off. Cuts the text at 4 KiB, then makes it printable() (base/text.h), so that
/// text from peers can neither forge a line nor control a terminal. Any thread. Not a template, so that only log.cpp
/// compiles spdlog, which takes seconds.
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
