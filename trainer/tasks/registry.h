#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "trainer/tasks/task.h"

namespace weightcast {

/// Names of options and their values, as configuration has them.
using TaskOptions = std::map<std::string, std::string>;

/// All names of tasks.
[[nodiscard]] std::span<const std::string_view> task_names();

/// The task of that name. `data` is the content of its file of problems, JSON lines; "" without one.
/// Errors: kInvalidArgument, which names the task, option or value that is not known or out of range, and the nearest.
///   arithmetic          digits_max (2), operators (+-)
///   gsm8k               answer_method (auto | strict | flexible | boxed)
///   knights_and_knaves  people_min (2), people_max (8), reward (exact | graded)
///   math                answer_method, question_column (question), answer_column (answer),
///                       answer_form (marked | boxed | whole), rows
///   poker               opponent (pot_odds | loose_aggressive | tight_passive), hands (4),
///                       position (button | drawn), prompt (rules | state)
///   sokoban             rows (6), columns (6), boxes (2), steps_min (4), actions_per_turn (5), steps_max (120)
[[nodiscard]] Result<std::unique_ptr<Task>> make_task(std::string_view name, const TaskOptions& options,
                                                      std::string_view data = {});

}  // namespace weightcast
