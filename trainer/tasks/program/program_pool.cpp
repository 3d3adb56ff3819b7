#include "trainer/tasks/program/program_pool.h"

#include <fmt/format.h>

#include <chrono>

#include "base/steady_clock.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr Duration kRestartWindow = std::chrono::hours(1);

}  // namespace

ProgramPool::ProgramPool(const TaskProgramSettings& settings, const TaskOptions& options, Sandbox sandbox,
                         std::vector<std::string> environment, Say say)
    : settings_(settings),
      options_(options),
      sandbox_(std::move(sandbox)),
      environment_(std::move(environment)),
      say_(std::move(say)),
      call_time_max_(from_seconds(settings.call_time_max)),
      restarts_(settings.restarts_max, kRestartWindow),
      slots_(settings.processes) {}

Result<std::unique_ptr<ProgramPool>> ProgramPool::start(const TaskProgramSettings& settings, const TaskOptions& options,
                                                        Say say) {
  WC_ASSIGN(const std::vector<std::string> words, program_words(settings));
  WC_ASSIGN(std::vector<std::string> environment, program_environment(settings));
  WC_ASSIGN(Sandbox sandbox, find_sandbox(settings.sandbox, words, environment));
  sandbox.words.insert(sandbox.words.end(), words.begin(), words.end());
  std::unique_ptr<ProgramPool> pool(
      new ProgramPool(settings, options, std::move(sandbox), std::move(environment), std::move(say)));
  Result<ProgramHello> hello = pool->begin(pool->slots_.front());
  if (!hello.has_value()) {
    return about(fmt::format("the task's program {}", printable(settings.command)), std::move(hello).error());
  }
  pool->hello_ = *std::move(hello);
  pool->say_(fmt::format("{} has started, in {}", pool->name(), pool->sandbox_.description));
  return pool;
}

std::string ProgramPool::name() const { return fmt::format("the task's program {}@{}", hello_.name, hello_.version); }

template <typename T>
Result<T> ProgramPool::ask(Slot& slot, std::string_view call, const std::function<std::string(std::uint64_t)>& write,
                           const std::function<Result<T>(std::string_view, std::uint64_t)>& read) {
  const std::uint64_t id = ++slot.calls;
  const double seconds = call == "hello" ? settings_.start_time_max : settings_.call_time_max;
  Result<std::string> line = slot.process->exchange(write(id), steady_now() + from_seconds(seconds));
  if (line.has_value()) return read(*line, id);
  Error error = std::move(line).error();
  if (error.code == Errc::kTimedOut) error.detail = fmt::format("it did not answer {} within {} s", call, seconds);
  return error;
}

Result<ProgramHello> ProgramPool::begin(Slot& slot) {
  {
    const std::lock_guard lock(mutex_);
    ++slot.start;
  }
  slot.calls = 0;
  WC_ASSIGN(slot.process,
            ChildProcess::start(sandbox_.words, environment_, kTaskLineBytesMax, sandbox_.system_call_filter));
  return ask<ProgramHello>(
      slot, "hello", [this](std::uint64_t id) { return write_hello_call(id, options_); }, read_hello);
}

Status ProgramPool::begin_again(Slot& slot) {
  {
    const std::lock_guard lock(mutex_);
    // The first process of a slot is no restart.
    if (slot.start > 0 && !restarts_.take(steady_now())) {
      return fail(
          Errc::kBusy, Op::kOpen,
          fmt::format("it has begun again {} times within an hour, and does no more: {}; find out why, or raise "
                      "task_program.restarts_max",
                      restarts_.taken(), last_failure_));
    }
  }
  WC_ASSIGN(const ProgramHello hello, begin(slot));
  if (hello == hello_) return {};
  return fail(Errc::kUnsupported, Op::kReceive,
              fmt::format("it says now that it is {}, or offers something else; begin again to use that",
                          program_task_name(hello)));
}

Result<ProgramPool::Slot*> ProgramPool::acquire(const std::optional<Seat>& seat) {
  const auto wanted = [&]() -> Slot* {
    if (seat) return slots_[seat->slot].is_busy ? nullptr : &slots_[seat->slot];
    Slot* best = nullptr;
    for (Slot& slot : slots_) {
      if (!slot.is_busy && (best == nullptr || slot.episodes < best->episodes)) best = &slot;
    }
    return best;
  };
  Slot* slot = nullptr;
  {
    std::unique_lock lock(mutex_);
    if (!free_.wait_for(lock, call_time_max_, [&] { return (slot = wanted()) != nullptr; })) {
      return about(name(), fail(Errc::kBusy, Op::kSend,
                                fmt::format("no process was free within {} s; raise task_program.processes",
                                            settings_.call_time_max)));
    }
    if (seat && slot->start != seat->start) {
      return about(name(), fail(Errc::kClosed, Op::kSend, "the process that played this episode has ended"));
    }
    slot->is_busy = true;
  }
  if (slot->process) return slot;
  const Status begun = begin_again(*slot);
  if (begun.has_value()) return slot;
  const Error error = about(name(), begun.error());
  release(*slot, true, error);
  return error;
}

void ProgramPool::release(Slot& slot, bool ends, const Error& error) {
  if (ends && slot.process) {
    slot.process->give_up();
    slot.process.reset();
  }
  std::uint64_t lost = 0;
  {
    const std::lock_guard lock(mutex_);
    if (ends) {
      ++slot.start;
      lost = std::exchange(slot.episodes, 0);
      slot.closed.clear();
      if (error.code != Errc::kBusy) last_failure_ = error.detail;
    }
    slot.is_busy = false;
  }
  free_.notify_all();
  if (ends) say_(fmt::format("{}; episodes that end with its process: {}", error.detail, lost));
}

template <typename T>
Result<T> ProgramPool::release_after(Slot& slot, Result<T> outcome) {
  if (outcome.has_value()) {
    release(slot);
    return outcome;
  }
  // What a program answers for itself leaves it in use.
  const bool ends = outcome.error().code != Errc::kInvalidArgument;
  Error error = about(name(), std::move(outcome).error());
  release(slot, ends, error);
  return error;
}

Result<Prompt> ProgramPool::prompt(std::uint64_t index) {
  WC_ASSIGN(Slot* const slot, acquire(std::nullopt));
  return release_after(
      *slot, ask<Prompt>(
                 *slot, "prompt", [&](std::uint64_t id) { return write_prompt_call(id, index); },
                 [&](std::string_view line, std::uint64_t id) { return read_prompt(line, id, hello_, index); }));
}

Result<Score> ProgramPool::score(const Metadata& metadata, std::string_view response) {
  WC_ASSIGN(Slot* const slot, acquire(std::nullopt));
  return release_after(
      *slot,
      ask<Score>(
          *slot, "score", [&](std::uint64_t id) { return write_score_call(id, metadata, response); }, read_score));
}

Result<std::pair<ProgramPool::Seat, Prompt>> ProgramPool::reset(std::uint64_t seed) {
  WC_ASSIGN(Slot* const slot, acquire(std::nullopt));
  Seat seat{static_cast<std::size_t>(slot - slots_.data()), 0, slot->calls + 1};
  std::vector<std::uint64_t> closed;
  {
    const std::lock_guard lock(mutex_);
    seat.start = slot->start;
    closed = std::exchange(slot->closed, {});
    ++slot->episodes;
  }
  Result<Prompt> begun = release_after(
      *slot, ask<Prompt>(
                 *slot, "reset", [&](std::uint64_t id) { return write_reset_call(id, seat.episode, seed, closed); },
                 [&](std::string_view line, std::uint64_t id) { return read_prompt(line, id, hello_, seed); }));
  if (begun.has_value()) return std::pair(seat, *std::move(begun));
  close(seat);
  return std::move(begun).error();
}

Result<StepResult> ProgramPool::step(const Seat& seat, std::string_view action) {
  WC_ASSIGN(Slot* const slot, acquire(seat));
  return release_after(
      *slot,
      ask<StepResult>(
          *slot, "step", [&](std::uint64_t id) { return write_step_call(id, seat.episode, action); }, read_step));
}

void ProgramPool::close(const Seat& seat) {
  const std::lock_guard lock(mutex_);
  Slot& slot = slots_[seat.slot];
  if (slot.start != seat.start) return;
  slot.closed.push_back(seat.episode);
  --slot.episodes;
}

}  // namespace weightcast
