#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// What the player tries. Each direction pushes a box if one is in the way and can move.
enum class SokobanAction : std::uint8_t { kNone, kUp, kDown, kLeft, kRight };

struct SokobanRewards {
  double step = -0.1;
  double box_on_target = 1;    ///< when more boxes are on targets than before
  double box_off_target = -1;  ///< when fewer are
  double solved = 10;
};

/// A level in play. The rules and rewards are those of gym-sokoban, which tests/oracles/gym_sokoban_steps.py compares.
/// Invariant: the player and every box stand on floor or a target, and there are as many boxes as targets.
class Sokoban {
 public:
  /// Reads rows of # wall, space, - or _ floor, . target, $ box, * box on target, @ player, + player on target. Shorter
  /// rows end in floor. Errors: kInvalidArgument, which names the character, or says what there is too much or too
  /// little of; kTooLarge beyond kSideMax rows or columns.
  [[nodiscard]] static Result<Sokoban> parse(std::string_view level);

  static constexpr std::size_t kSideMax = 64;

  /// The same characters, with _ for floor; rows end with a line feed.
  [[nodiscard]] std::string text() const;
  /// Returns the reward. Moves nothing if a wall, or a box that cannot move, is in the way.
  double step(SokobanAction action, const SokobanRewards& rewards = {});
  [[nodiscard]] bool solved() const { return boxes_on_targets_ == boxes_; }
  [[nodiscard]] std::size_t boxes() const { return boxes_; }
  [[nodiscard]] std::size_t boxes_on_targets() const { return boxes_on_targets_; }
  /// A shortest way to solve it from here; absent if there is no way, or none within `states_max` states.
  [[nodiscard]] std::optional<std::vector<SokobanAction>> solve(std::size_t states_max) const;

 private:
  enum Cell : std::uint8_t { kWall = 1, kTarget = 2, kBox = 4 };

  [[nodiscard]] std::size_t neighbour(std::size_t cell, SokobanAction action) const;
  [[nodiscard]] bool is_free(std::size_t cell) const { return (cells_[cell] & (kWall | kBox)) == 0; }

  // With a border of walls around it, so that every cell of the level has four neighbours.
  std::size_t columns_ = 0;
  std::vector<std::uint8_t> cells_;
  std::size_t player_ = 0;
  std::size_t boxes_ = 0;
  std::size_t boxes_on_targets_ = 0;
};

/// More states than a search has through a level that make_sokoban_level() may have made.
inline constexpr std::size_t kSokobanStatesMax = 200'000;

struct SokobanLevelOptions {
  std::size_t rows = 6;
  std::size_t columns = 6;
  std::size_t boxes = 2;
  std::uint32_t steps_min = 4;  ///< that its shortest solution has
};

/// A random level, its border walls included, that can be solved. The same seed gives the same level.
/// Errors: kInvalidArgument for options out of range, or if no level of that kind was found.
[[nodiscard]] Result<Sokoban> make_sokoban_level(std::uint64_t seed, const SokobanLevelOptions& options);

}  // namespace weightcast
