#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "trainer/tasks/program/program_pool.h"
#include "trainer/tasks/program/program_settings.h"
#include "trainer/tasks/registry.h"

namespace weightcast {

/// The name in configurations of a task that is a program. A run names it as program_task_name() does.
inline constexpr std::string_view kProgramTask = "program";

/// What a configuration may name: task_names() and kProgramTask, in order.
[[nodiscard]] std::span<const std::string_view> configured_task_names();

/// The task `name`: one of make_task()'s, or a program's. A learner opens "program"; its workers open the name that the
/// learner's has, "program:NAME@VERSION", and theirs must have the same. A program's prompts and scores, or its
/// environment's steps, are calls of it, from any thread; each takes at most twice task_program.call_time_max: the wait
/// for a process, and the call. A process that is started for it takes task_program.start_time_max more.
/// Errors: those of make_task() and ProgramPool::start(); kInvalidArgument if the program is another one, or `data` is
/// given, which programs read for themselves.
[[nodiscard]] Result<std::unique_ptr<Task>> open_task(std::string_view name, const TaskOptions& options,
                                                      std::string_view data, const TaskProgramSettings& settings,
                                                      const ProgramPool::Say& say);

}  // namespace weightcast
