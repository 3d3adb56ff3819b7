#pragma once

#include <filesystem>
#include <functional>

#include "base/result.h"
#include "bench/paper/poker/poker_suite.h"

namespace weightcast::bench {

/// Makes the suite's runs and matches one after the other. All lies in DIRECTORY, and what lies there from the same
/// configuration is not done again: a run that was interrupted goes on from its last checkpoint. `told` gets each cell.
/// Errors: those of the configuration, of the learner and of the disk.
[[nodiscard]] Result<PokerOutcome> run_poker_suite(const PokerSuite& suite, const std::filesystem::path& directory,
                                                   const std::function<void(const PokerCell&)>& told);

}  // namespace weightcast::bench
