#include "trainer/tasks/knights_and_knaves.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "base/random.h"
#include "trainer/tasks/answer_text.h"

namespace weightcast {
namespace {

using Kind = Statement::Kind;

constexpr std::array kNames{"Zoey",  "Oliver", "Ella",  "Jacob", "Emily", "Noah",   "Ava",    "Liam",
                            "Grace", "Henry",  "Chloe", "Lucas", "Mia",   "Samuel", "Sophia", "William"};

// Compound sentences have two parts, and those no compound ones: two levels, as in the published data set.
constexpr unsigned kDepthMax = 2;
// A random puzzle has one solution in about every third try.
constexpr unsigned kTriesMax = 1000;

Statement random_statement(Random& random, unsigned people, unsigned depth) {
  if (depth == 0 || random.below(3) == 0) {
    return {random.below(2) == 0 ? Kind::kKnight : Kind::kKnave, static_cast<unsigned>(random.below(people)), {}};
  }
  constexpr std::array kCompound{Kind::kAnd, Kind::kOr, Kind::kImplies, Kind::kIff};
  const Kind kind = kCompound[random.below(kCompound.size())];
  Statement left = random_statement(random, people, depth - 1), right = random_statement(random, people, depth - 1);
  return {kind, 0, {std::move(left), std::move(right)}};
}

bool is_knight(unsigned knights, unsigned person) { return (knights >> person & 1u) != 0; }

/// Draws a sentence that `person` can say if `knights` are the knights.
Statement consistent_statement(Random& random, unsigned people, unsigned person, unsigned knights) {
  for (;;) {
    Statement statement = random_statement(random, people, kDepthMax);
    // Nobody's plain "I am a knight" says anything, and a plain "I am a knave" cannot be said.
    if (statement.parts.empty() && statement.person == person) continue;
    if (statement.holds(knights) == is_knight(knights, person)) return statement;
  }
}

/// A sentence by which `person` shows what they and the next one are, whatever the others say. A knight says "I am a
/// knave or P", which no knave can; a knave says "I am a knave and not P", which no knight can. P is true.
Statement revealing_statement(unsigned people, unsigned person, unsigned knights) {
  const unsigned next = (person + 1) % people;
  const bool knight = is_knight(knights, person);
  const Kind said_of_next = is_knight(knights, next) == knight ? Kind::kKnight : Kind::kKnave;
  return {knight ? Kind::kOr : Kind::kAnd, 0, {{Kind::kKnave, person, {}}, {said_of_next, next, {}}}};
}

std::string sentence(const Statement& statement, const std::vector<std::string>& names) {
  const auto part = [&](std::size_t i) { return sentence(statement.parts[i], names); };
  switch (statement.kind) {
    case Kind::kKnight: return names[statement.person] + " is a knight";
    case Kind::kKnave: return names[statement.person] + " is a knave";
    case Kind::kAnd: return fmt::format("({}) and ({})", part(0), part(1));
    case Kind::kOr: return fmt::format("({}) or ({})", part(0), part(1));
    case Kind::kImplies: return fmt::format("if ({}) then ({})", part(0), part(1));
    case Kind::kIff: return fmt::format("({}) if and only if ({})", part(0), part(1));
  }
  return {};
}

/// What takes a word back that stands in front.
constexpr std::string_view kGoingOn[] = {"or ", "/", "and a kn", "and kn", "and also", "or\n"};

/// What is said last of `name`: "knight" or "knave"; "" if nothing.
std::string_view said_of(std::string_view text, std::string_view name) {
  std::string_view said;
  for (std::size_t found = text.find(name); found != std::string_view::npos; found = text.find(name, found + 1)) {
    std::string_view rest = text.substr(found + name.size());
    // Liam is not in William.
    if ((found > 0 && is_ascii_letter(text[found - 1])) || (!rest.empty() && is_ascii_letter(rest[0]))) continue;
    // Models set names in bold, and answer in tables and lists.
    const auto skip = [&rest] { rest.remove_prefix(std::min(rest.find_first_not_of(" *:_|=-`"), rest.size())); };
    skip();
    for (const std::string_view word : {"is", "a", "the"}) {
      if (rest.starts_with(word) && rest.size() > word.size() && rest[word.size()] == ' ') {
        rest.remove_prefix(word.size());
        skip();
      }
    }
    for (const std::string_view type : {"knight", "knave"}) {
      if (!rest.starts_with(type)) continue;
      // Both, or either of them, says nothing.
      rest.remove_prefix(type.size());
      skip();
      const bool is_open = std::ranges::any_of(kGoingOn, [&](std::string_view word) { return rest.starts_with(word); });
      said = is_open ? std::string_view() : type;
      break;
    }
  }
  return said;
}

struct Inhabitants {
  std::vector<std::string> names;
  std::vector<std::string> solution;  // knight or knave, of each
};

Result<Inhabitants> inhabitants_of(const Metadata& metadata) {
  WC_ASSIGN(const std::string names, metadata_value(metadata, "names"));
  WC_ASSIGN(const std::string solution, metadata_value(metadata, "solution"));
  const auto list_of = [](std::string_view text) {
    const auto parts = split(text, ",");
    return std::vector<std::string>(parts.begin(), parts.end());
  };
  Inhabitants inhabitants{list_of(names), list_of(solution)};
  if (inhabitants.names.size() == inhabitants.solution.size()) return inhabitants;
  return fail(Errc::kInvalidArgument, Op::kVerify,
              fmt::format("knights_and_knaves: {} names and {} solutions", inhabitants.names.size(),
                          inhabitants.solution.size()));
}

class KnightsTask final : public Task {
 public:
  KnightsTask(unsigned people_min, unsigned people_max, KnightsReward reward)
      : people_min_(people_min), people_max_(people_max), reward_(reward) {}

  std::string_view name() const override { return "knights_and_knaves"; }
  Result<Prompt> prompt(std::uint64_t index) const override {
    const auto people = static_cast<unsigned>(people_min_ + index % (people_max_ - people_min_ + 1));
    const KnightsPuzzle puzzle = make_knights_puzzle(index, people);
    const unsigned knights = solve(puzzle).front();
    std::vector<std::string_view> solution;
    for (unsigned i = 0; i < people; ++i) solution.push_back(is_knight(knights, i) ? "knight" : "knave");
    return Prompt{
        {{"user", puzzle.text() +
                      " Think step by step. Then answer between <answer> and </answer>, with one line for each "
                      "inhabitant, such as: (1) " +
                      puzzle.names[0] + " is a knight"}},
        fmt::format("knights_and_knaves/{}", index),
        {{"names", fmt::format("{}", fmt::join(puzzle.names, ","))},
         {"solution", fmt::format("{}", fmt::join(solution, ","))}}};
  }
  /// Metadata: names and solution, separated by commas.
  Result<Score> score(const Metadata& metadata, std::string_view response) const override {
    WC_ASSIGN(const Inhabitants inhabitants, inhabitants_of(metadata));
    const auto& [names, solution] = inhabitants;
    const std::string text = ascii_lower(last_answer(response));
    std::size_t right = 0;
    for (std::size_t i = 0; i < names.size(); ++i) right += said_of(text, ascii_lower(names[i])) == solution[i] ? 1 : 0;
    if (right == names.size()) return right_or_wrong(true);
    if (reward_ == KnightsReward::kExact) return right_or_wrong(false);
    return Score{static_cast<double>(right) / static_cast<double>(names.size()), false};
  }
  /// As the prompt asks for it, without the thoughts before. Absent for metadata that score() refuses.
  std::optional<std::string> solution(const Metadata& metadata) const override {
    const Result<Inhabitants> inhabitants = inhabitants_of(metadata);
    if (!inhabitants.has_value()) return std::nullopt;
    const auto& [names, solution] = *inhabitants;
    std::vector<std::string> lines;
    for (std::size_t i = 0; i < names.size(); ++i) {
      lines.push_back(fmt::format("({}) {} is a {}", i + 1, names[i], solution[i]));
    }
    return fmt::format("<answer>{}</answer>", fmt::join(lines, "\n"));
  }

 private:
  unsigned people_min_;
  unsigned people_max_;
  KnightsReward reward_;
};

}  // namespace

bool Statement::holds(unsigned knights) const {
  switch (kind) {
    case Kind::kKnight: return is_knight(knights, person);
    case Kind::kKnave: return !is_knight(knights, person);
    case Kind::kAnd: return parts[0].holds(knights) && parts[1].holds(knights);
    case Kind::kOr: return parts[0].holds(knights) || parts[1].holds(knights);
    case Kind::kImplies: return !parts[0].holds(knights) || parts[1].holds(knights);
    case Kind::kIff: return parts[0].holds(knights) == parts[1].holds(knights);
  }
  return false;
}

std::string KnightsPuzzle::text() const {
  std::string text = fmt::format(
      "A very special island is inhabited only by knights and knaves. Knights always tell the truth, and knaves always "
      "lie. You meet {} inhabitants: {}.",
      names.size(), fmt::join(names, ", "));
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += fmt::format(" {} says: \"{}.\"", names[i], sentence(statements[i], names));
  }
  return text + " So who is a knight and who is a knave?";
}

std::vector<unsigned> solve(const KnightsPuzzle& puzzle) {
  const auto people = static_cast<unsigned>(puzzle.statements.size());
  std::vector<unsigned> solutions;
  for (unsigned knights = 0; knights < 1u << people; ++knights) {
    bool fits = true;
    for (unsigned i = 0; i < people && fits; ++i) fits = puzzle.statements[i].holds(knights) == is_knight(knights, i);
    if (fits) solutions.push_back(knights);
  }
  return solutions;
}

KnightsPuzzle make_knights_puzzle(std::uint64_t seed, unsigned people) {
  WC_CHECK(people >= kKnightsPeopleMin && people <= kKnightsPeopleMax);
  Random random(seed);
  KnightsPuzzle puzzle;
  std::vector<std::string> names(kNames.begin(), kNames.end());
  for (unsigned i = 0; i < people; ++i) {
    std::swap(names[i], names[i + random.below(names.size() - i)]);
    puzzle.names.push_back(names[i]);
  }
  const auto knights = static_cast<unsigned>(random.below(std::uint64_t{1} << people));
  for (unsigned tries = 0; tries < kTriesMax; ++tries) {
    puzzle.statements.clear();
    for (unsigned i = 0; i < people; ++i) {
      puzzle.statements.push_back(consistent_statement(random, people, i, knights));
    }
    if (solve(puzzle).size() == 1) return puzzle;
  }
  puzzle.statements.clear();
  for (unsigned i = 0; i < people; ++i) puzzle.statements.push_back(revealing_statement(people, i, knights));
  return puzzle;
}

Result<std::unique_ptr<Task>> make_knights_task(unsigned people_min, unsigned people_max, KnightsReward reward) {
  if (people_min < kKnightsPeopleMin || people_min > people_max || people_max > kKnightsPeopleMax) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("knights_and_knaves: people are {} to {}; between {} and {} are possible", people_min,
                            people_max, kKnightsPeopleMin, kKnightsPeopleMax));
  }
  return std::unique_ptr<Task>(new KnightsTask(people_min, people_max, reward));
}

}  // namespace weightcast
