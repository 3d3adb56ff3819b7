#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tasks/program/program_pool.h"
#include "tasks/task.h"

namespace weightcast {

/// A task that is a program. Its prompts and scores, or its environment's steps, are calls of that, from any thread;
/// each takes at most twice task_program.call_time_max: the wait for a process, and the call. A process that is started
/// for it takes task_program.start_time_max more.
class ProgramTask final : public Task {
 public:
  /// Errors: as ProgramPool::start().
  [[nodiscard]] static Result<std::unique_ptr<Task>> start(const TaskProgramSettings& settings,
                                                           const TaskOptions& options, ProgramPool::Say say);

  std::string_view name() const override { return name_; }
  std::optional<std::uint64_t> prompt_count() const override { return pool_->hello().prompt_count; }
  Result<Prompt> prompt(std::uint64_t index) const override;
  /// Errors: those of ProgramPool; kUnsupported if the program offers episodes, whose rewards are those of steps.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override;
  /// What the program says of a prompt under the name "solution", if its metadata have that.
  std::optional<std::string> solution(const Metadata& metadata) const override;
  std::unique_ptr<Environment> make_environment() const override;

 private:
  explicit ProgramTask(std::unique_ptr<ProgramPool> pool)
      : pool_(std::move(pool)), name_(program_task_name(pool_->hello())) {}

  const std::unique_ptr<ProgramPool> pool_;
  const std::string name_;
};

}  // namespace weightcast
