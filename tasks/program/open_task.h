#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "tasks/program/program_pool.h"
#include "tasks/program/program_settings.h"
#include "tasks/registry.h"

namespace weightcast {

/// The name in configurations of a task that is a program. A run names it as program_task_name() does.
inline constexpr std::string_view kProgramTask = "program";

/// What a configuration may name: task_names() and kProgramTask, in order.
[[nodiscard]] std::span<const std::string_view> configured_task_names();

/// The task `name`: one of make_task()'s, or a program's. A learner opens "program"; its workers open the name that the
/// learner's has, "program:NAME@VERSION", and theirs must have the same.
/// Errors: those of make_task() and ProgramTask::start(); kInvalidArgument if the program is another one, or `data` is
/// given, which programs read for themselves.
[[nodiscard]] Result<std::unique_ptr<Task>> open_task(std::string_view name, const TaskOptions& options,
                                                      std::string_view data, const TaskProgramSettings& settings,
                                                      const ProgramPool::Say& say);

}  // namespace weightcast
