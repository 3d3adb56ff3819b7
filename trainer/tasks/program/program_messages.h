#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trainer/tasks/registry.h"
#include "trainer/tasks/task.h"

namespace weightcast {

/// The protocol between the engine and a task that is a program; docs/TASKS.md describes it. The engine writes a JSON
/// object on a line, and the program answers with one, which has the same id. Here are the words of both; pure.
inline constexpr std::uint64_t kTaskProtocolVersion = 1;
/// Of an answer.
inline constexpr std::size_t kTaskLineBytesMax = std::size_t{1} << 20;

/// What a program says of itself.
struct ProgramHello {
  std::string name;           ///< 1 to 64 letters, digits and _ . -
  std::string version;        ///< the same; of rules and data, so that learner and workers can tell that theirs agree
  bool has_episodes = false;  ///< an environment with steps; otherwise prompts and scores of answers
  std::optional<std::uint64_t> prompt_count;  ///< absent: without end
  std::vector<std::string> metadata;          ///< what each prompt's metadata have, ascending: the schema of its data

  bool operator==(const ProgramHello&) const = default;
};

/// "program:NAME@VERSION": what trajectories of the task name, and what a learner tells its workers.
[[nodiscard]] std::string program_task_name(const ProgramHello& hello);
/// Whether `task` is such a name.
[[nodiscard]] bool is_program_task(std::string_view task);

/// The lines that the engine writes, each with its line feed. `closed` are episodes that nobody plays on.
[[nodiscard]] std::string write_hello_call(std::uint64_t id, const TaskOptions& options);
[[nodiscard]] std::string write_prompt_call(std::uint64_t id, std::uint64_t index);
[[nodiscard]] std::string write_score_call(std::uint64_t id, const Metadata& metadata, std::string_view response);
[[nodiscard]] std::string write_reset_call(std::uint64_t id, std::uint64_t episode, std::uint64_t seed,
                                           std::span<const std::uint64_t> closed);
[[nodiscard]] std::string write_step_call(std::uint64_t id, std::uint64_t episode, std::string_view action);

/// What the program answers to call `id`. Errors: kCorrupt, which shows what was received, for an answer that is no
/// JSON, to another call, or without a member that it needs; kInvalidArgument, with the program's words, if it answers
/// that it cannot; kUnsupported for a hello of another protocol version, which names both.
[[nodiscard]] Result<ProgramHello> read_hello(std::string_view line, std::uint64_t id);
/// To prompt and reset. `index` makes the tag where the program gives none.
[[nodiscard]] Result<Prompt> read_prompt(std::string_view line, std::uint64_t id, const ProgramHello& hello,
                                         std::uint64_t index);
[[nodiscard]] Result<Score> read_score(std::string_view line, std::uint64_t id);
[[nodiscard]] Result<StepResult> read_step(std::string_view line, std::uint64_t id);

}  // namespace weightcast
