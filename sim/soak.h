#pragma once

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace weightcast::sim {

/// What one schedule came to.
struct SoakOutcome {
  static constexpr std::size_t kCountsMax = 14;

  /// What was violated, when, and what led there; its first line alone tells what and when.
  std::optional<std::string> violation;
  std::uint64_t hash = 0;                          ///< of all that happened
  std::array<std::uint64_t, kCountsMax> counts{};  ///< in the order of Soak::counts
  /// The slowest publication's T_bcast(1.0) over the least that its links allow and a second; 0 if none came to its end.
  double slowdown = 0;
};

/// A program that runs random schedules, one seed each, in several processes. It goes on after a schedule that violates
/// an invariant or ends its process, and lists those seeds at the end.
struct Soak {
  std::string about;                ///< one line, for --help
  std::string command;              ///< how people start it
  std::string schedules;            ///< what it calls its schedules
  std::string seeds_file;           ///< where seeds belong that found something
  std::vector<std::string> counts;  ///< names of what a schedule counts, at most SoakOutcome::kCountsMax
  /// Adds the program's own flags.
  std::function<void(CLI::App&)> add_flags = [](CLI::App&) {};
  /// Called once, before the first schedule.
  std::function<void(bool verbose)> begin = [](bool) {};
  std::function<SoakOutcome(std::uint64_t seed, bool verbose)> run;
};

/// Runs `soak` with a program's arguments.
///   --schedules 500             500 seeds that no soak has used before, by the time of day
///   --schedules 500 --seed 1    seeds 1 to 500
///   --seeds FILE                those that a file lists, one a line; `#` starts a comment
///   --jobs 1                    in one process
/// The exit status: 0 nothing was violated, 1 something was, 2 usage.
[[nodiscard]] int run_soak(const Soak& soak, int argc, char** argv);

}  // namespace weightcast::sim
