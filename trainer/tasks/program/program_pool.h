#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/time.h"
#include "trainer/tasks/program/child_process.h"
#include "trainer/tasks/program/program_messages.h"
#include "trainer/tasks/program/program_settings.h"
#include "trainer/tasks/program/restart_limit.h"
#include "trainer/tasks/program/sandbox.h"

namespace weightcast {

/// The processes of one program. Each answers one call at a time. One that ends, does not answer in time, or says what
/// it must not is killed, with the episodes that it plays; the next call starts another, within a limit. Any thread.
class ProgramPool {
 public:
  /// Takes what a person may want to know, from any thread.
  using Say = std::function<void(const std::string&)>;
  /// Where an episode is played.
  struct Seat {
    std::size_t slot = 0;
    std::uint64_t start = 0;  ///< which of the slot's processes
    std::uint64_t episode = 0;
  };

  /// Starts the first process. `options` go to the program. Errors: those of program_words(), program_environment(),
  /// find_sandbox(), ChildProcess and read_hello().
  [[nodiscard]] static Result<std::unique_ptr<ProgramPool>> start(const TaskProgramSettings& settings,
                                                                  const TaskOptions& options, Say say);

  [[nodiscard]] const ProgramHello& hello() const { return hello_; }

  /// Calls of the program. Errors: kBusy if no process was free in time, or none may be started any more; kClosed
  /// where the process of an episode has ended; those of ChildProcess::exchange(), and of the answer's reader. All name
  /// the program.
  [[nodiscard]] Result<Prompt> prompt(std::uint64_t index);
  [[nodiscard]] Result<Score> score(const Metadata& metadata, std::string_view response);
  [[nodiscard]] Result<std::pair<Seat, Prompt>> reset(std::uint64_t seed);
  [[nodiscard]] Result<StepResult> step(const Seat& seat, std::string_view action);
  /// Nobody plays this episode on. The program hears of it with the next reset of that process.
  void close(const Seat& seat);

 private:
  struct Slot {
    std::unique_ptr<ChildProcess> process;
    std::uint64_t start = 0;  // counts processes that were started or have ended
    std::uint64_t calls = 0;
    std::uint64_t episodes = 0;         // that are open
    std::vector<std::uint64_t> closed;  // that the program has not heard of
    bool is_busy = false;               // one thread has it; then that alone touches process and calls
  };

  ProgramPool(const TaskProgramSettings& settings, const TaskOptions& options, Sandbox sandbox,
              std::vector<std::string> environment, Say say);

  /// A slot that is free, with a process: that of `seat`, or the one with the fewest episodes.
  [[nodiscard]] Result<Slot*> acquire(const std::optional<Seat>& seat);
  /// Starts the slot's process, and asks it for its hello.
  [[nodiscard]] Result<ProgramHello> begin(Slot& slot);
  [[nodiscard]] Status begin_again(Slot& slot);
  /// Gives the slot back. Without its process, if that `ends`, for what it has done: `error`.
  void release(Slot& slot, bool ends = false, const Error& error = {});
  /// The same, after a call: some errors leave the process in use.
  template <typename T>
  Result<T> release_after(Slot& slot, Result<T> outcome);
  [[nodiscard]] std::string name() const;

  template <typename T>
  Result<T> ask(Slot& slot, std::string_view call, const std::function<std::string(std::uint64_t id)>& write,
                const std::function<Result<T>(std::string_view line, std::uint64_t id)>& read);

  const TaskProgramSettings settings_;
  const TaskOptions options_;
  const Sandbox sandbox_;  // its words and then the program's
  const std::vector<std::string> environment_;
  const Say say_;
  const Duration call_time_max_;
  ProgramHello hello_;
  std::mutex mutex_;
  std::condition_variable free_;
  RestartLimit restarts_;
  std::string last_failure_;
  std::vector<Slot> slots_;
};

}  // namespace weightcast
