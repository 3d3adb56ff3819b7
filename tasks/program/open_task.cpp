#include "tasks/program/open_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "tasks/program/program_task.h"

namespace weightcast {

std::span<const std::string_view> configured_task_names() {
  static const std::vector<std::string_view> kNames = [] {
    std::vector<std::string_view> names(task_names().begin(), task_names().end());
    names.push_back(kProgramTask);
    std::ranges::sort(names);
    return names;
  }();
  return kNames;
}

Result<std::unique_ptr<Task>> open_task(std::string_view name, const TaskOptions& options, std::string_view data,
                                        const TaskProgramSettings& settings, const ProgramPool::Say& say) {
  if (name != kProgramTask && !is_program_task(name)) return make_task(name, options, data);
  if (!data.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "task_data is set, and the task is a program, which reads its data itself; name the file in "
                "task_program.arguments");
  }
  WC_ASSIGN(std::unique_ptr<Task> task, ProgramTask::start(settings, options, say));
  if (name == kProgramTask || name == task->name()) return task;
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("the run's task is {}, and the program of this host {}; install the same one, of the same "
                          "version",
                          printable(cut_text(name, 160)), task->name()));
}

}  // namespace weightcast
