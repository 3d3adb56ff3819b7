#pragma once

#include <string>
#include <vector>

#include "base/settings/words.h"
#include "trainer/tasks/math/math_answer.h"
#include "trainer/tasks/task.h"

namespace weightcast {

struct MathProblem {
  std::vector<ChatMessage> messages;  ///< the question
  bool has_instruction = false;       ///< the data say themselves where the answer is to stand
  std::string answer;
};

/// Where a column of answers has the result.
enum class AnswerForm {
  kMarked,  ///< after the last "#### ", without thousands separators: GSM8K
  kBoxed,   ///< in the last \boxed: MATH
  kWhole,   ///< it is the result: DAPO-Math, Eurus
};
constexpr Words<3> words_of(AnswerForm) { return {"marked", "boxed", "whole"}; }

/// What of a row is what. A name may lead into objects: "reward_model.ground_truth".
struct MathColumns {
  std::string question = "question";  ///< a text, which is asked with an instruction; or messages, asked as they are
  std::string answer = "answer";      ///< a text, or a whole number
  AnswerForm answer_form = AnswerForm::kMarked;
  std::string rows;  ///< NAME=VALUE: rows whose text NAME is another are left out; "": none is
};

/// Problems of mathematics with one answer each, from a file. Reward: 1 if the response's answer is right by `method`,
/// else 0. Under the name gsm8k that is grade-school mathematics (openai/grade-school-math).
class MathTask final : public Task {
 public:
  /// Reads JSON lines. Errors: kInvalidArgument, which names the line; if there is no row, or none that `rows` takes;
  /// for `rows` without "=".
  [[nodiscard]] static Result<std::vector<MathProblem>> read_problems(std::string_view jsonl,
                                                                      const MathColumns& columns = {},
                                                                      std::string_view name = "gsm8k");

  /// Without problems the task scores, but prompts nothing.
  MathTask(std::vector<MathProblem> problems, AnswerMethod method, std::string_view name = "gsm8k")
      : problems_(std::move(problems)), method_(method), name_(name) {}

  std::string_view name() const override { return name_; }
  std::optional<std::uint64_t> prompt_count() const override { return problems_.size(); }
  Result<Prompt> prompt(std::uint64_t index) const override;
  /// Metadata: answer.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override;

 private:
  std::vector<MathProblem> problems_;
  AnswerMethod method_;
  std::string name_;
};

}  // namespace weightcast
