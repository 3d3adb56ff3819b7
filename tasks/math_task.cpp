#include "tasks/math_task.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace weightcast {
namespace {

constexpr std::string_view kMark = "#### ";

/// Where the response is to say its answer: where `method` looks for it. The words are those that verl asks with, of
/// its GSM8K data and of its MATH data, so that results can be compared.
std::string_view instruction(AnswerMethod method) {
  return method == AnswerMethod::kBoxed ? " Let's think step by step and output the final answer within \\boxed{}."
                                        : " Let's think step by step and output the final answer after \"####\".";
}

Result<MathProblem> read_problem(std::string_view line, std::size_t number) {
  const auto refuse = [number](std::string_view why) {
    return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("gsm8k, line {}: {}", number, why));
  };
  const auto json = parse_json(line);
  if (!json.is_object()) return refuse("no JSON object");
  for (const char* member : {"question", "answer"}) {
    if (!json.contains(member) || !json[member].is_string()) return refuse(fmt::format("no text '{}'", member));
  }
  const std::string worked = json["answer"].get<std::string>();
  const std::size_t mark = worked.rfind(kMark);
  if (mark == std::string::npos) return refuse("the answer has no \"#### \" before the result");
  MathProblem problem{json["question"].get<std::string>(), worked.substr(mark + kMark.size())};
  std::erase(problem.answer, ',');
  return problem;
}

}  // namespace

Result<std::vector<MathProblem>> MathTask::read_problems(std::string_view jsonl) {
  std::vector<MathProblem> problems;
  for (std::size_t begin = 0, number = 1; begin < jsonl.size(); ++number) {
    const std::size_t end = std::min(jsonl.find('\n', begin), jsonl.size());
    const std::string_view line = jsonl.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    WC_ASSIGN(MathProblem problem, read_problem(line, number));
    problems.push_back(std::move(problem));
  }
  if (problems.empty()) return fail(Errc::kInvalidArgument, Op::kParse, "gsm8k: the data have no problem");
  return problems;
}

Result<Prompt> MathTask::prompt(std::uint64_t index) const {
  if (problems_.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "gsm8k: no problems; set its option 'data' to a JSONL file");
  }
  const std::uint64_t chosen = index % problems_.size();
  const MathProblem& problem = problems_[chosen];
  return Prompt{{{"user", problem.question + std::string(instruction(method_))}},
                fmt::format("gsm8k/{}", chosen),
                {{"answer", problem.answer}}};
}

Result<Score> MathTask::score(const Metadata& metadata, std::string_view response) const {
  WC_ASSIGN(const std::string answer, metadata_value(metadata, "answer"));
  return right_or_wrong(is_correct_answer(response, answer, method_));
}

}  // namespace weightcast
