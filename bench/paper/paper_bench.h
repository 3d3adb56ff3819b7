#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bench/paper/paper_item.h"

namespace weightcast::bench {

/// All, and those that simulate: they take minutes together.
[[nodiscard]] std::vector<std::string_view> paper_item_names();
[[nodiscard]] std::vector<std::string_view> simulated_item_names();
/// Errors: kInvalidArgument, with the nearest name.
[[nodiscard]] Result<PaperItem> paper_item(std::string_view name);

/// A sixteenth of the work and one step, one seed: enough to see that everything runs, and for no claim. What trains
/// makes three steps with a model of 5,000 parameters.
void make_quick(PaperItem& item);

/// All that the item's figures follow from: formulas' inputs, cases, seeds.
[[nodiscard]] nlohmann::json config_of(const PaperItem& item);
/// SHA-256 of config_of(), in hexadecimal digits.
[[nodiscard]] std::string config_digest(const PaperItem& item);

/// Where what trains keeps its runs (DIRECTORY/NAME), and finds the programs that it starts. Other items use neither.
struct PaperPlaces {
  std::filesystem::path directory;
  std::filesystem::path programs;
};

/// Simulates the item's cases under each seed, or trains, and evaluates them. Errors: those of run_rollout_suite(), of
/// the item's formulas, of run_training_suite() and of run_poker_suite().
[[nodiscard]] Result<PaperResult> run_paper_item(const PaperItem& item, const PaperPlaces& places);

/// {name, of, fitted, config_digest, config, rows: [{what, paper, source, ours, half_width}], claims: [{what, holds}],
/// x, y, series: [{panel, name, points: [[x, y]]}], runs}, x, y and series as drawn, runs as in PaperResult.
[[nodiscard]] nlohmann::json to_json(const PaperItem& item, const PaperResult& result);
/// The same for people, a line each.
[[nodiscard]] std::string paper_text(const PaperItem& item, const PaperResult& result);

/// Runs the items one after the other and writes NAME.json and NAME.svg of each to the directory. Keeps results there
/// with the same digest: a run that was interrupted goes on where it was. Prints what it does.
/// Errors: those of run_paper_item(), and of writing there.
[[nodiscard]] Status write_paper_items(const std::vector<PaperItem>& items, const PaperPlaces& places);

}  // namespace weightcast::bench
