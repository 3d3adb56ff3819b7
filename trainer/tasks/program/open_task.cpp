#include "trainer/tasks/program/open_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"

namespace weightcast {
namespace {

/// One episode of the program's. Invariant: seat_ is that of the episode that goes on, and absent before the first.
class ProgramEnvironment final : public Environment {
 public:
  explicit ProgramEnvironment(ProgramPool& pool) : pool_(pool) {}
  ~ProgramEnvironment() override { close(); }

  Result<Prompt> reset(std::uint64_t seed) override {
    close();
    WC_ASSIGN(auto begun, pool_.reset(seed));
    seat_ = begun.first;
    return std::move(begun.second);
  }

  Result<StepResult> step(std::string_view action) override {
    if (!seat_) return fail(Errc::kClosed, Op::kSend, "no episode goes on");
    Result<StepResult> result = pool_.step(*seat_, action);
    if (!result.has_value() || result->done) close();
    return result;
  }

 private:
  void close() {
    if (seat_) pool_.close(*seat_);
    seat_.reset();
  }

  ProgramPool& pool_;
  std::optional<ProgramPool::Seat> seat_;
};

class ProgramTask final : public Task {
 public:
  explicit ProgramTask(std::unique_ptr<ProgramPool> pool)
      : pool_(std::move(pool)), name_(program_task_name(pool_->hello())) {}

  std::string_view name() const override { return name_; }
  std::optional<std::uint64_t> prompt_count() const override { return pool_->hello().prompt_count; }
  Result<Prompt> prompt(std::uint64_t index) const override {
    return pool_->hello().has_episodes ? ProgramEnvironment(*pool_).reset(index) : pool_->prompt(index);
  }
  /// Errors: those of ProgramPool; kUnsupported if the program offers episodes, whose rewards are those of steps.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override {
    if (!pool_->hello().has_episodes) return pool_->score(metadata, response);
    return fail(
        Errc::kUnsupported, Op::kVerify,
        fmt::format("task {} offers episodes, whose rewards are those of steps, and no score of an answer", name_));
  }
  /// What the program says of a prompt under the name "solution", if its metadata have that.
  std::optional<std::string> solution(const Metadata& metadata) const override {
    const auto found = metadata.find("solution");
    return found == metadata.end() ? std::nullopt : std::optional(found->second);
  }
  std::unique_ptr<Environment> make_environment() const override {
    if (!pool_->hello().has_episodes) return Task::make_environment();
    return std::make_unique<ProgramEnvironment>(*pool_);
  }

 private:
  const std::unique_ptr<ProgramPool> pool_;
  const std::string name_;
};

}  // namespace

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
  WC_ASSIGN(std::unique_ptr<ProgramPool> pool, ProgramPool::start(settings, options, say));
  auto task = std::make_unique<ProgramTask>(std::move(pool));
  if (name == kProgramTask || name == task->name()) return std::unique_ptr<Task>(std::move(task));
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("the run's task is {}, and the program of this host {}; install the same one, of the same "
                          "version",
                          printable(cut_text(name, 160)), task->name()));
}

}  // namespace weightcast
