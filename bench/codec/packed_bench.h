#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"

namespace weightcast::bench {

struct PackedBenchOptions {
  /// Of each content.
  std::uint64_t size_bytes = std::uint64_t{1} << 30;
  unsigned repetitions = 3;
  /// For making contents. What is measured has one.
  unsigned threads = 1;
  /// Names to measure; empty means all.
  std::vector<std::string> contents;
  std::vector<std::string> packers;
};

/// One packer on one content, on one thread. Speeds are of unpacked bytes per second of processor time, user and
/// system: the best of the repetitions. Zipnn's come from a process of its own.
struct PackedCase {
  std::string content;
  std::string packer;
  std::uint64_t bytes = 0;
  std::uint64_t packed_bytes = 0;
  double pack_bytes_per_cpu_s = 0;
  double unpack_bytes_per_cpu_s = 0;
  /// The floors. Of size: each byte plane of each segment at its order-0 entropy. Of time: memcpy of the content.
  double plane_entropy_bytes = 0;
  double memcpy_bytes_per_cpu_s = 0;
};

/// Names of all packers, zipnn's last.
[[nodiscard]] std::vector<std::string> packer_names();

/// Measures every chosen packer on every chosen content, one content in memory at a time: three times its size.
/// `on_case` is called as soon as each is known. `on_skipped` is told of zipnn where it cannot be had.
/// Errors: kInvalidArgument for a name that there is none of, or nothing to do; kCorrupt, naming both, when a packer
/// does not give the content back.
[[nodiscard]] Result<std::vector<PackedCase>> run_packed_bench(
    const PackedBenchOptions& options, const std::function<void(const PackedCase&)>& on_case = {},
    const std::function<void(const Error&)>& on_skipped = {});

/// {"cases": [...]} with the members of PackedCase.
[[nodiscard]] nlohmann::json to_json(std::span<const PackedCase> cases);

/// The table's heading and one line of it, without a newline.
[[nodiscard]] std::string packed_table_heading();
[[nodiscard]] std::string packed_table_line(const PackedCase& packed_case);

}  // namespace weightcast::bench
