#pragma once

#include <string>
#include <vector>

#include "tasks/math_answer.h"
#include "tasks/task.h"

namespace weightcast {

struct MathProblem {
  std::string question;
  std::string answer;  ///< what stands after "#### " in the data, without thousands separators
};

/// Grade-school mathematics (openai/grade-school-math): one question, one number. Reward: 1 if the response's answer is
/// right by `method`, else 0.
class MathTask final : public Task {
 public:
  /// Reads JSON lines with the members question and answer. Errors: kInvalidArgument, which names the line, and if
  /// there is none.
  [[nodiscard]] static Result<std::vector<MathProblem>> read_problems(std::string_view jsonl);

  /// Without problems the task scores, but prompts nothing.
  MathTask(std::vector<MathProblem> problems, AnswerMethod method)
      : problems_(std::move(problems)), method_(method) {}

  std::string_view name() const override { return "gsm8k"; }
  std::optional<std::uint64_t> prompt_count() const override { return problems_.size(); }
  Result<Prompt> prompt(std::uint64_t index) const override;
  /// Metadata: answer.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override;

 private:
  std::vector<MathProblem> problems_;
  AnswerMethod method_;
};

}  // namespace weightcast
