#include "trainer/tasks/sokoban.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <deque>
#include <unordered_set>
#include <utility>

#include "base/random.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::array kMoves{SokobanAction::kUp, SokobanAction::kDown, SokobanAction::kLeft, SokobanAction::kRight};

// A solver's search through a level of these sizes takes milliseconds.
constexpr std::size_t kSideMin = 5, kGeneratedSideMax = 8, kGeneratedBoxesMax = 3;
// Half of the random 6x6 levels with two boxes can be solved.
constexpr int kTriesMax = 1000;
constexpr double kWallShare = 0.15;

Error refuse_level(std::string why) { return fail(Errc::kInvalidArgument, Op::kParse, "sokoban: " + std::move(why)); }

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    lines.push_back(line);
    begin = end + 1;
  }
  return lines;
}

}  // namespace

Result<Sokoban> Sokoban::parse(std::string_view level) {
  const auto lines = lines_of(level);
  std::size_t columns = 0;
  for (const auto line : lines) columns = std::max(columns, line.size());
  if (lines.size() > kSideMax || columns > kSideMax) {
    return fail(
        Errc::kTooLarge, Op::kParse,
        fmt::format("sokoban: a level of {} rows and {} columns; at most {} of each", lines.size(), columns, kSideMax));
  }
  Sokoban game;
  game.columns_ = columns + 2;
  game.cells_.assign(game.columns_ * (lines.size() + 2), kWall);
  std::size_t targets = 0, players = 0;
  for (std::size_t row = 0; row < lines.size(); ++row) {
    for (std::size_t column = 0; column < columns; ++column) {
      const char c = column < lines[row].size() ? lines[row][column] : ' ';
      std::uint8_t cell = 0;
      switch (c) {
        case '#': cell = kWall; break;
        case ' ':
        case '-':
        case '_':
        case '@': break;
        case '.':
        case '+': cell = kTarget; break;
        case '$': cell = kBox; break;
        case '*': cell = kTarget | kBox; break;
        default:
          return refuse_level(fmt::format("row {}, column {}: '{}' is none of # _ . $ * @ +", row + 1, column + 1,
                                          printable(std::string_view(&c, 1))));
      }
      const std::size_t at = (row + 1) * game.columns_ + column + 1;
      game.cells_[at] = cell;
      if (c == '@' || c == '+') {
        ++players;
        game.player_ = at;
      }
      if ((cell & kBox) != 0) ++game.boxes_;
      if ((cell & kTarget) != 0) ++targets;
      if (c == '*') ++game.boxes_on_targets_;
    }
  }
  if (players != 1) return refuse_level(fmt::format("{} players; a level has one", players));
  if (game.boxes_ != targets || targets == 0) {
    return refuse_level(fmt::format("{} boxes and {} targets; a level has as many of both", game.boxes_, targets));
  }
  return game;
}

std::string Sokoban::text() const {
  std::string text;
  for (std::size_t row = 1; row + 1 < cells_.size() / columns_; ++row) {
    for (std::size_t at = row * columns_ + 1; at < (row + 1) * columns_ - 1; ++at) {
      const bool on_target = (cells_[at] & kTarget) != 0;
      if (at == player_) {
        text += on_target ? '+' : '@';
      } else if ((cells_[at] & kBox) != 0) {
        text += on_target ? '*' : '$';
      } else {
        text += (cells_[at] & kWall) != 0 ? '#' : on_target ? '.' : '_';
      }
    }
    text += '\n';
  }
  return text;
}

std::size_t Sokoban::neighbour(std::size_t cell, SokobanAction action) const {
  switch (action) {
    case SokobanAction::kUp: return cell - columns_;
    case SokobanAction::kDown: return cell + columns_;
    case SokobanAction::kLeft: return cell - 1;
    case SokobanAction::kRight: return cell + 1;
    case SokobanAction::kNone: break;
  }
  return cell;
}

double Sokoban::step(SokobanAction action, const SokobanRewards& rewards) {
  const std::size_t before = boxes_on_targets_;
  if (const std::size_t ahead = neighbour(player_, action); action != SokobanAction::kNone) {
    const std::size_t beyond = neighbour(ahead, action);
    if ((cells_[ahead] & kBox) != 0 && is_free(beyond)) {
      cells_[ahead] &= static_cast<std::uint8_t>(~kBox);
      cells_[beyond] |= kBox;
      if ((cells_[ahead] & kTarget) != 0) --boxes_on_targets_;
      if ((cells_[beyond] & kTarget) != 0) ++boxes_on_targets_;
    }
    if (is_free(ahead)) player_ = ahead;
  }
  double reward = rewards.step;
  if (boxes_on_targets_ > before) reward += rewards.box_on_target;
  if (boxes_on_targets_ < before) reward += rewards.box_off_target;
  if (solved()) reward += rewards.solved;
  return reward;
}

std::optional<std::vector<SokobanAction>> Sokoban::solve(std::size_t states_max) const {
  if (solved()) return std::vector<SokobanAction>();
  // A state is the player's place and the set of boxes: walls and targets do not move.
  const auto key_of = [](const Sokoban& game) {
    std::u16string key(1, static_cast<char16_t>(game.player_));
    for (std::size_t at = 0; at < game.cells_.size(); ++at) {
      if ((game.cells_[at] & kBox) != 0) key += static_cast<char16_t>(at);
    }
    return key;
  };
  // How each state was reached: by which move, and from which one. The first one was not.
  std::vector<std::pair<std::size_t, SokobanAction>> reached{{0, SokobanAction::kNone}};
  std::unordered_set<std::u16string> seen{key_of(*this)};
  std::deque<std::pair<Sokoban, std::size_t>> next{{*this, 0}};
  while (!next.empty()) {
    const auto [game, from] = std::move(next.front());
    next.pop_front();
    for (const SokobanAction move : kMoves) {
      Sokoban moved = game;
      moved.step(move);
      if (moved.solved()) {
        std::vector<SokobanAction> way{move};
        for (std::size_t at = from; at != 0; at = reached[at].first) way.push_back(reached[at].second);
        std::ranges::reverse(way);
        return way;
      }
      if (!seen.insert(key_of(moved)).second) continue;
      if (seen.size() > states_max) return std::nullopt;
      reached.emplace_back(from, move);
      next.emplace_back(std::move(moved), reached.size() - 1);
    }
  }
  return std::nullopt;
}

Result<Sokoban> make_sokoban_level(std::uint64_t seed, const SokobanLevelOptions& options) {
  const auto [rows, columns, boxes, steps_min] = options;
  if (std::min(rows, columns) < kSideMin || std::max(rows, columns) > kGeneratedSideMax || boxes < 1 ||
      boxes > kGeneratedBoxesMax) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("sokoban: {} rows, {} columns, {} boxes; sides are {} to {}, boxes 1 to {}", rows, columns,
                            boxes, kSideMin, kGeneratedSideMax, kGeneratedBoxesMax));
  }
  Random random(seed);
  for (int tries = 0; tries < kTriesMax; ++tries) {
    std::vector<std::string> level(rows, std::string(columns, '#'));
    std::vector<char*> floor;
    for (std::size_t row = 1; row + 1 < rows; ++row) {
      for (std::size_t column = 1; column + 1 < columns; ++column) {
        if (random.chance(kWallShare)) continue;
        level[row][column] = '_';
        floor.push_back(&level[row][column]);
      }
    }
    const std::string pieces = std::string(boxes, '.') + std::string(boxes, '$') + '@';
    if (floor.size() < pieces.size()) continue;
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::swap(floor[i], floor[i + random.below(floor.size() - i)]);
      *floor[i] = pieces[i];
    }
    std::string text;
    for (const std::string& row : level) text += row + '\n';
    WC_ASSIGN(Sokoban game, Sokoban::parse(text));
    if (const auto way = game.solve(kSokobanStatesMax); way && way->size() >= steps_min) return game;
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("sokoban: no level of {}x{} with {} boxes and at least {} steps in {} tries; ask for fewer "
                          "steps",
                          rows, columns, boxes, steps_min, kTriesMax));
}

}  // namespace weightcast
