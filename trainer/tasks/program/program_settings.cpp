#include "trainer/tasks/program/program_settings.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>

#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::array kInherited{"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR"};

}  // namespace

void add_task_program_fields(std::vector<SettingField>& fields, TaskProgramSettings& settings) {
  const SettingField own[] = {
      {"task_program.command", &settings.command, "of task program: what is started, found on the PATH"},
      {"task_program.arguments", &settings.arguments, "its arguments"},
      {"task_program.environment", &settings.environment,
       "each NAME=VALUE, beside PATH, HOME, LANG, LC_ALL, TZ and TMPDIR, which it has anyway"},
      {"task_program.processes", &settings.processes, "of the program, side by side", 1, 256},
      {"task_program.start_time_max", &settings.start_time_max, "seconds until it has answered the first call", 0.01,
       1e5},
      {"task_program.call_time_max", &settings.call_time_max,
       "seconds of a prompt, a score or a step, and of the wait for a process that is free", 0.01, 1e5},
      {"task_program.restarts_max", &settings.restarts_max, "within an hour, of all its processes together", 0, 1e6},
      {"task_program.sandbox", &settings.sandbox.kind,
       "none; bwrap: reads files, but writes none outside /tmp, and has no network; auto: bwrap where it works"},
      {"task_program.hidden", &settings.sandbox.hidden,
       "files and directories that bwrap hides, beside keys, sockets and state directories"},
  };
  fields.insert(fields.end(), std::begin(own), std::end(own));
}

Result<std::vector<std::string>> program_words(const TaskProgramSettings& settings) {
  if (settings.command.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "the task is a program, and task_program.command is empty; name the program on this host");
  }
  std::vector<std::string> words{settings.command};
  words.insert(words.end(), settings.arguments.begin(), settings.arguments.end());
  return words;
}

Result<std::vector<std::string>> program_environment(const TaskProgramSettings& settings) {
  std::vector<std::string> variables;
  for (const char* const name : kInherited) {
    if (const char* const value = std::getenv(name)) variables.push_back(fmt::format("{}={}", name, value));
  }
  for (const std::string& variable : settings.environment) {
    const std::size_t equals = variable.find('=');
    if (equals == 0 || equals == std::string::npos) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("task_program.environment: '{}' is no NAME=VALUE", printable(cut_text(variable, 40))));
    }
    const std::string_view name = std::string_view(variable).substr(0, equals + 1);
    std::erase_if(variables, [&](const std::string& other) { return other.starts_with(name); });
    variables.push_back(variable);
  }
  return variables;
}

}  // namespace weightcast
