#include "trainer/tasks/math/math_task.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kMark = "#### ";

/// Where the response is to say its answer: where `method` looks for it. The words are those that verl asks with, of
/// its GSM8K data and of its MATH data, so that results can be compared.
std::string_view instruction(AnswerMethod method) {
  return method == AnswerMethod::kBoxed ? " Let's think step by step and output the final answer within \\boxed{}."
                                        : " Let's think step by step and output the final answer after \"####\".";
}

/// The value of a column: of that name, or along its parts between dots. Null if there is none.
const Json* column_of(const Json& row, std::string_view name) {
  const Json* value = &row;
  for (;;) {
    if (!value->is_object()) return nullptr;
    if (const auto whole = value->find(name); whole != value->end()) return &*whole;
    const std::size_t dot = name.find('.');
    if (dot == std::string_view::npos) return nullptr;
    const auto part = value->find(name.substr(0, dot));
    if (part == value->end()) return nullptr;
    value = &*part;
    name.remove_prefix(dot + 1);
  }
}

/// A column of messages as such; absent if it is none.
std::optional<std::vector<ChatMessage>> messages_of(const Json& column) {
  if (!column.is_array() || column.empty()) return std::nullopt;
  std::vector<ChatMessage> messages;
  for (const Json& item : column) {
    const Json* const role = column_of(item, "role");
    const Json* const content = column_of(item, "content");
    if (role == nullptr || content == nullptr || !role->is_string() || !content->is_string()) return std::nullopt;
    messages.push_back({role->get<std::string>(), content->get<std::string>()});
  }
  return messages;
}

/// `rows`: NAME=VALUE, or "" for all.
bool is_wanted(const Json& row, std::string_view rows) {
  if (rows.empty()) return true;
  const std::size_t equals = rows.find('=');
  const Json* const value = column_of(row, rows.substr(0, equals));
  return value != nullptr && value->is_string() && value->get_ref<const std::string&>() == rows.substr(equals + 1);
}

/// Absent for a row that is left out.
Result<std::optional<MathProblem>> read_row(const MathColumns& columns, std::string_view task, std::string_view line,
                                            std::size_t number) {
  const auto refuse = [&](std::string_view why) {
    return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("{}, line {}: {}", task, number, why));
  };
  const Json row = parse_json(line);
  if (!row.is_object()) return refuse("no JSON object");
  if (!is_wanted(row, columns.rows)) return std::optional<MathProblem>();
  MathProblem problem;
  const Json* const question = column_of(row, columns.question);
  if (question == nullptr) return refuse(fmt::format("no text '{}'", printable(columns.question)));
  if (question->is_string()) {
    problem.messages = {{"user", question->get<std::string>()}};
  } else {
    auto messages = messages_of(*question);
    if (!messages) return refuse(fmt::format("no text '{}'", printable(columns.question)));
    problem.messages = *std::move(messages);
    problem.has_instruction = true;
  }
  const Json* const answer = column_of(row, columns.answer);
  if (answer == nullptr || (!answer->is_string() && !answer->is_number_integer())) {
    return refuse(fmt::format("no text '{}'", printable(columns.answer)));
  }
  const std::string worked = answer->is_string() ? answer->get<std::string>() : answer->dump();
  switch (columns.answer_form) {
    case AnswerForm::kMarked: {
      const std::size_t mark = worked.rfind(kMark);
      if (mark == std::string::npos) return refuse("the answer has no \"#### \" before the result");
      problem.answer = worked.substr(mark + kMark.size());
      std::erase(problem.answer, ',');
      break;
    }
    case AnswerForm::kBoxed: {
      auto boxed = extract_answer(worked, AnswerMethod::kBoxed);
      if (!boxed) return refuse("the answer has no \\boxed{}");
      problem.answer = *std::move(boxed);
      break;
    }
    case AnswerForm::kWhole: problem.answer = worked; break;
  }
  if (problem.answer.empty()) return refuse("the answer is empty");
  return std::optional(std::move(problem));
}

}  // namespace

Result<std::vector<MathProblem>> MathTask::read_problems(std::string_view jsonl, const MathColumns& columns,
                                                         std::string_view name) {
  if (!columns.rows.empty() && columns.rows.find('=') == std::string::npos) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{}: rows is '{}'; it is NAME=VALUE", name, printable(cut_text(columns.rows, 40))));
  }
  std::vector<MathProblem> problems;
  bool has_rows = false;
  for (std::size_t begin = 0, number = 1; begin < jsonl.size(); ++number) {
    const std::size_t end = std::min(jsonl.find('\n', begin), jsonl.size());
    const std::string_view line = jsonl.substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    has_rows = true;
    WC_ASSIGN(std::optional<MathProblem> problem, read_row(columns, name, line, number));
    if (problem) problems.push_back(*std::move(problem));
  }
  if (!problems.empty()) return problems;
  return fail(Errc::kInvalidArgument, Op::kParse,
              has_rows ? fmt::format("{}: the data have no row with {}", name, printable(cut_text(columns.rows, 40)))
                       : fmt::format("{}: the data have no problem", name));
}

Result<Prompt> MathTask::prompt(std::uint64_t index) const {
  if (problems_.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{}: no problems; set task_data to a JSONL file", name_));
  }
  const std::uint64_t chosen = index % problems_.size();
  const MathProblem& problem = problems_[chosen];
  Prompt prompt{problem.messages, fmt::format("{}/{}", name_, chosen), {{"answer", problem.answer}}};
  if (!problem.has_instruction) prompt.messages.back().content += instruction(method_);
  return prompt;
}

Result<Score> MathTask::score(const Metadata& metadata, std::string_view response) const {
  WC_ASSIGN(const std::string answer, metadata_value(metadata, "answer"));
  return right_or_wrong(is_correct_answer(response, answer, method_));
}

}  // namespace weightcast
