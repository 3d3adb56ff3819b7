#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"

namespace weightcast::bench {

struct ListedBenchOptions {
  /// Of the snapshot, in whole segments of kSegmentBytesDefault; twice as much is in memory.
  std::uint64_t size_bytes = std::uint64_t{1} << 30;
  /// Shares of the cells that change, each in (0, 0.5].
  std::vector<double> shares = {0.001, 0.01, 0.05};
  unsigned repetitions = 3;
};

/// BF16 cells of which a share changes, each by itself with equal probability: 97 % by one step, the others by two to
/// five. On one thread. Times are processor seconds per GiB of cells, the best of the repetitions.
struct ListedCase {
  double share = 0;
  std::uint64_t changed = 0;
  /// Of the list of changes, and of the same in the modelled form. The entropy is that of independent places and steps.
  double bits_per_changed = 0;
  double modelled_bits_per_changed = 0;
  double entropy_bits_per_changed = 0;
  /// From the list with old and new values; from a comparison of all cells; the same in the modelled form.
  double encode_s_per_gib = 0;
  double compare_s_per_gib = 0;
  double modelled_encode_s_per_gib = 0;
  /// Each step of a receiver that has its cells in memory; and in the modelled form, all of them.
  double decode_s_per_gib = 0;
  double steps_s_per_gib = 0;
  double write_s_per_gib = 0;
  double modelled_apply_s_per_gib = 0;
};

/// Measures each share. `on_case` is called as soon as one is known. Errors: kInvalidArgument (a share out of range, no
/// whole segment); kCorrupt where a form does not give the new cells.
[[nodiscard]] Result<std::vector<ListedCase>> run_listed_bench(
    const ListedBenchOptions& options, const std::function<void(const ListedCase&)>& on_case = {});

/// The table's heading and one line of it, without a newline.
[[nodiscard]] std::string listed_table_heading();
[[nodiscard]] std::string listed_table_line(const ListedCase& listed_case);

}  // namespace weightcast::bench
