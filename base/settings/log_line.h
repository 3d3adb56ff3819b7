#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "base/settings/words.h"

namespace weightcast {

/// How a program writes its log, on stderr.
enum class LogFormat {
  kText,  ///< 2026-11-24T01:02:03.456+01:00 warning lost worker gpu-4: it left
  kJson,  ///< {"time":"2026-11-24T01:02:03.456+01:00","level":"warning","component":"origin","message":"lost worker
          ///< ..."}
};
constexpr Words<2> words_of(LogFormat) { return {"text", "json"}; }

/// A program's log: how it is written, and which part of the system says so in JSON ("origin", "worker", "learner",
/// "engine", "serve", or the program's name).
struct LogStyle {
  LogFormat format = LogFormat::kText;
  std::string component;
};

using WallTime = std::chrono::system_clock::time_point;

/// ISO 8601 in local time, to the millisecond, with the offset of its zone.
[[nodiscard]] std::string iso_time(WallTime time);

/// One line, without its end. `level` is "info", "warning" or "error". The message is cut and made
/// printable(): text from elsewhere can neither forge a line nor control a terminal.
[[nodiscard]] std::string log_line_of(const LogStyle& style, WallTime time, std::string_view level,
                                      std::string_view message);

/// Gives one to the thread that writes to stderr (log_writer.h), and never waits. Any thread.
void write_log_line(const LogStyle& style, std::string_view level, std::string_view message);

}  // namespace weightcast
