#include "tasks/program/program_task.h"

#include <fmt/format.h>

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

}  // namespace

Result<std::unique_ptr<Task>> ProgramTask::start(const TaskProgramSettings& settings, const TaskOptions& options,
                                                 ProgramPool::Say say) {
  WC_ASSIGN(std::unique_ptr<ProgramPool> pool, ProgramPool::start(settings, options, std::move(say)));
  return std::unique_ptr<Task>(new ProgramTask(std::move(pool)));
}

Result<Prompt> ProgramTask::prompt(std::uint64_t index) const {
  return pool_->hello().has_episodes ? ProgramEnvironment(*pool_).reset(index) : pool_->prompt(index);
}

Result<Score> ProgramTask::score(const Metadata& metadata, std::string_view response) const {
  if (!pool_->hello().has_episodes) return pool_->score(metadata, response);
  return fail(
      Errc::kUnsupported, Op::kVerify,
      fmt::format("task {} offers episodes, whose rewards are those of steps, and no score of an answer", name_));
}

std::optional<std::string> ProgramTask::solution(const Metadata& metadata) const {
  const auto found = metadata.find("solution");
  return found == metadata.end() ? std::nullopt : std::optional(found->second);
}

std::unique_ptr<Environment> ProgramTask::make_environment() const {
  if (!pool_->hello().has_episodes) return Task::make_environment();
  return std::make_unique<ProgramEnvironment>(*pool_);
}

}  // namespace weightcast
