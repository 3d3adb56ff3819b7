#include "trainer/tasks/registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/settings/nearest_name.h"
#include "base/text.h"
#include "trainer/tasks/arithmetic.h"
#include "trainer/tasks/knights_and_knaves.h"
#include "trainer/tasks/math/math_task.h"
#include "trainer/tasks/poker/poker_task.h"
#include "trainer/tasks/sokoban_task.h"

namespace weightcast {
namespace {

using namespace std::string_view_literals;

constexpr std::array kTaskNames{"arithmetic"sv, "gsm8k"sv, "knights_and_knaves"sv, "math"sv, "poker"sv, "sokoban"sv};

Error refuse_option(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

/// Takes options by name. Invariant: every name that take() is called with is in `known`.
class OptionReader {
 public:
  OptionReader(std::string_view task, const TaskOptions& options) : task_(task), options_(options) {}

  [[nodiscard]] Status check(std::span<const std::string_view> known) const {
    for (const auto& [name, value] : options_) {
      if (std::find(known.begin(), known.end(), name) == known.end()) {
        return refuse_option(unknown_name(fmt::format("option of task {}", task_), name, known));
      }
    }
    return {};
  }

  template <typename Int>
  Status take(const std::string& name, Int& out) const {
    const auto found = options_.find(name);
    if (found == options_.end()) return {};
    const auto number = parse_number<Int>(found->second);
    if (!number) {
      return refuse_option(fmt::format("task {}: {} = '{}' is no number that it can be", task_, name,
                                       printable(cut_text(found->second, 40))));
    }
    out = *number;
    return {};
  }

  void take(const std::string& name, std::string& out) const {
    if (const auto found = options_.find(name); found != options_.end()) out = found->second;
  }

  /// One of the enum's words.
  template <typename Enum>
  Status take_word(const std::string& name, Enum& out) const {
    const auto found = options_.find(name);
    if (found == options_.end()) return {};
    const Result<Enum> word = parse_word<Enum>(name, found->second);
    if (!word.has_value()) return refuse_option(fmt::format("task {}: {}", task_, word.error().detail));
    out = *word;
    return {};
  }

 private:
  std::string_view task_;
  const TaskOptions& options_;
};

Result<std::unique_ptr<Task>> make_arithmetic(const OptionReader& reader) {
  WC_TRY(reader.check(std::array{"digits_max"sv, "operators"sv}));
  ArithmeticOptions options;
  WC_TRY(reader.take("digits_max", options.digits_max));
  reader.take("operators", options.operators);
  return make_arithmetic_task(options);
}

Result<std::unique_ptr<Task>> make_math(const OptionReader& reader, std::string_view name, const MathColumns& columns,
                                        std::string_view data) {
  AnswerMethod method = AnswerMethod::kAuto;
  WC_TRY(reader.take_word("answer_method", method));
  std::vector<MathProblem> problems;
  if (!data.empty()) {
    WC_ASSIGN(problems, MathTask::read_problems(data, columns, name));
  }
  return std::unique_ptr<Task>(std::make_unique<MathTask>(std::move(problems), method, name));
}

Result<std::unique_ptr<Task>> make_gsm8k(const OptionReader& reader, std::string_view data) {
  WC_TRY(reader.check(std::array{"answer_method"sv}));
  return make_math(reader, "gsm8k", {}, data);
}

Result<std::unique_ptr<Task>> make_math_of_columns(const OptionReader& reader, std::string_view data) {
  WC_TRY(
      reader.check(std::array{"answer_method"sv, "question_column"sv, "answer_column"sv, "answer_form"sv, "rows"sv}));
  MathColumns columns;
  reader.take("question_column", columns.question);
  reader.take("answer_column", columns.answer);
  reader.take("rows", columns.rows);
  WC_TRY(reader.take_word("answer_form", columns.answer_form));
  return make_math(reader, "math", columns, data);
}

Result<std::unique_ptr<Task>> make_knights(const OptionReader& reader) {
  WC_TRY(reader.check(std::array{"people_min"sv, "people_max"sv, "reward"sv}));
  unsigned people_min = kKnightsPeopleMin, people_max = kKnightsPeopleMax;
  WC_TRY(reader.take("people_min", people_min));
  WC_TRY(reader.take("people_max", people_max));
  KnightsReward reward = KnightsReward::kExact;
  WC_TRY(reader.take_word("reward", reward));
  return make_knights_task(people_min, people_max, reward);
}

Result<std::unique_ptr<Task>> make_poker(const OptionReader& reader) {
  WC_TRY(reader.check(std::array{"opponent"sv, "hands"sv, "position"sv, "prompt"sv}));
  PokerOptions options;
  PokerRule opponent = PokerRule::kPotOdds;
  WC_TRY(reader.take_word("opponent", opponent));
  WC_TRY(reader.take_word("position", options.position));
  WC_TRY(reader.take_word("prompt", options.prompt));
  WC_TRY(reader.take("hands", options.hands));
  options.opponent = std::make_shared<RulePlayer>(opponent);
  return make_poker_task(std::move(options));
}

Result<std::unique_ptr<Task>> make_sokoban(const OptionReader& reader) {
  WC_TRY(
      reader.check(std::array{"rows"sv, "columns"sv, "boxes"sv, "steps_min"sv, "actions_per_turn"sv, "steps_max"sv}));
  SokobanOptions options;
  WC_TRY(reader.take("rows", options.level.rows));
  WC_TRY(reader.take("columns", options.level.columns));
  WC_TRY(reader.take("boxes", options.level.boxes));
  WC_TRY(reader.take("steps_min", options.level.steps_min));
  WC_TRY(reader.take("actions_per_turn", options.actions_per_turn_max));
  WC_TRY(reader.take("steps_max", options.steps_max));
  return make_sokoban_task(options);
}

}  // namespace

std::span<const std::string_view> task_names() { return kTaskNames; }

Result<std::unique_ptr<Task>> make_task(std::string_view name, const TaskOptions& options, std::string_view data) {
  const OptionReader reader(name, options);
  if (name == "arithmetic") return make_arithmetic(reader);
  if (name == "gsm8k") return make_gsm8k(reader, data);
  if (name == "knights_and_knaves") return make_knights(reader);
  if (name == "math") return make_math_of_columns(reader, data);
  if (name == "poker") return make_poker(reader);
  if (name == "sokoban") return make_sokoban(reader);
  return refuse_option(unknown_name("task", name, kTaskNames));
}

}  // namespace weightcast
