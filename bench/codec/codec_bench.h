#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "bench/codec/codec.h"

namespace weightcast::bench {

/// Every codec that the bench measures: ours, then the rivals.
[[nodiscard]] std::span<const Codec> bench_codecs();

struct CodecBenchOptions {
  /// Cells of each trace, at least.
  std::uint64_t cells_min = std::uint64_t{1} << 26;
  /// For making traces, and for the codecs that use several; such a codec is also measured on one.
  unsigned threads = 1;
  unsigned repetitions = 5;
  /// Names to measure; empty means all.
  std::vector<std::string> traces;
  std::vector<std::string> codecs;
};

/// One codec on one trace. Speeds are the best of the repetitions, which go round all codecs in turn: the others tell
/// what else the machine did. Per second of wall time, and per second of processor time of all threads together, which
/// other work on the machine disturbs less.
struct CodecCase {
  std::string trace;
  std::string codec;
  unsigned threads = 1;
  std::uint64_t cells = 0;
  std::uint64_t changed = 0;
  std::uint64_t snapshot_bytes = 0;
  std::uint64_t bytes = 0;
  double entropy_bits_per_changed = 0;
  /// The entropy with a model for each tensor.
  double tensor_entropy_bits_per_changed = 0;
  double encode_cells_per_s = 0;
  double apply_cells_per_s = 0;
  double encode_cells_per_cpu_s = 0;
  double apply_cells_per_cpu_s = 0;
  /// The floors, one thread, in the same rounds: memcmp over two equal snapshots of this size; a copy of the base, and
  /// the digest of it.
  double memcmp_cells_per_cpu_s = 0;
  double copy_digest_cells_per_cpu_s = 0;
  /// How far the process's resident memory rose above what it was at the call: the patch is part of it, the snapshots
  /// are not. Accurate to about a megabyte; zero where the kernel does not let a process reset its own peak.
  std::uint64_t encode_peak_bytes = 0;
  std::uint64_t apply_peak_bytes = 0;

  [[nodiscard]] double bits_per_changed() const;
};

/// Measures every chosen codec on every chosen trace, one trace in memory at a time. A codec that does not know the
/// trace's dtype has no case there. `on_case` is called as soon as each is known, trace by trace.
/// Errors: kInvalidArgument for a name that there is none of, or nothing to do; kCorrupt, naming both, when a codec
/// does not reproduce the result.
[[nodiscard]] Result<std::vector<CodecCase>> run_codec_bench(const CodecBenchOptions& options,
                                                             const std::function<void(const CodecCase&)>& on_case = {});

/// {"cases": [...]} with the members of CodecCase.
[[nodiscard]] nlohmann::json to_json(std::span<const CodecCase> cases);

/// The table's heading and one line of it, without a newline.
[[nodiscard]] std::string table_heading();
[[nodiscard]] std::string table_line(const CodecCase& codec_case);

/// The patch sizes of all codecs on all traces at a fixed size, as the text of sizes.csv. The file is committed: a
/// change of a format shows in it, byte for byte, and is approved by committing the new one. Errors: as above.
[[nodiscard]] Result<std::string> size_table(unsigned threads);

/// The first lines of the table say which libzstd it was made with; under another, the sizes of the codecs that use it
/// cannot be compared.
[[nodiscard]] std::string size_table_zstd_version(std::string_view table);
[[nodiscard]] std::string linked_zstd_version();

}  // namespace weightcast::bench
