#include "trainer/tasks/arithmetic.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/random.h"
#include "base/text.h"
#include "trainer/tasks/answer_text.h"

namespace weightcast {
namespace {

constexpr unsigned kDigitsMax = 9;  // so that products fit into 64 bits

std::int64_t operand(Random& random, unsigned digits_max) {
  // The number of digits first: otherwise nine of ten operands would have the most.
  const std::uint64_t digits = random.between(1, digits_max);
  std::uint64_t end = 1;
  for (std::uint64_t i = 0; i < digits; ++i) end *= 10;
  return static_cast<std::int64_t>(random.between(digits == 1 ? 0 : end / 10, end - 1));
}

class ArithmeticTask final : public Task {
 public:
  explicit ArithmeticTask(ArithmeticOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return "arithmetic"; }
  Result<Prompt> prompt(std::uint64_t index) const override {
    Random random(index);
    const std::int64_t a = operand(random, options_.digits_max);
    const std::int64_t b = operand(random, options_.digits_max);
    const char op = options_.operators[random.below(options_.operators.size())];
    const std::int64_t result = op == '+' ? a + b : op == '-' ? a - b : a * b;
    return Prompt{{{"user", fmt::format("{}{}{}=", a, op, b)}},
                  fmt::format("arithmetic/{}", index),
                  {{"answer", std::to_string(result)}}};
  }
  /// Metadata: answer.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override {
    WC_ASSIGN(const std::string answer, metadata_value(metadata, "answer"));
    return right_or_wrong(trim(response) == answer);
  }
  std::optional<std::string> solution(const Metadata& metadata) const override {
    const auto answer = metadata.find("answer");
    return answer == metadata.end() ? std::nullopt : std::optional(answer->second);
  }

 private:
  ArithmeticOptions options_;
};

}  // namespace

Result<std::unique_ptr<Task>> make_arithmetic_task(const ArithmeticOptions& options) {
  if (options.digits_max < 1 || options.digits_max > kDigitsMax) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("arithmetic: digits_max is {}; it is 1 to {}", options.digits_max, kDigitsMax));
  }
  const std::string& operators = options.operators;
  for (std::size_t i = 0; i < operators.size(); ++i) {
    if (operators.find_first_of("+-*", i) != i || operators.find(operators[i], i + 1) != std::string::npos) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("arithmetic: operators are '{}'; each is one of + - * and stands once",
                              printable(cut_text(operators, 20))));
    }
  }
  if (operators.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "arithmetic: operators are empty; give some of + - *");
  }
  return std::unique_ptr<Task>(new ArithmeticTask(options));
}

}  // namespace weightcast
