#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings/settings.h"
#include "trainer/tasks/program/sandbox.h"

namespace weightcast {

/// How a learner or a worker starts the program that is its task: the keys task_program.NAME of its configuration. Each
/// host names its own, so that nobody else says what runs there.
struct TaskProgramSettings {
  std::string command;
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  ///< each NAME=VALUE
  std::uint64_t processes = 1;
  double start_time_max = 60;
  double call_time_max = 5;
  std::uint64_t restarts_max = 10;
  SandboxWanted sandbox = {};  ///< whoever starts the program adds its own keys and state to what is hidden
};

/// Adds their descriptions to `fields`.
void add_task_program_fields(std::vector<SettingField>& fields, TaskProgramSettings& settings);

/// What is executed: the command, and its arguments. Errors: kInvalidArgument if no command is set.
[[nodiscard]] Result<std::vector<std::string>> program_words(const TaskProgramSettings& settings);

/// What the program finds in its environment: PATH, HOME, LANG, LC_ALL, TZ and TMPDIR of this process, and what the
/// settings name. Nothing else, as an environment may hold keys. Errors: kInvalidArgument for what is no NAME=VALUE.
[[nodiscard]] Result<std::vector<std::string>> program_environment(const TaskProgramSettings& settings);

}  // namespace weightcast
