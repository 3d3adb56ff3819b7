#pragma once

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/codec/cell.h"

namespace weightcast::bench {

/// What zipnn took, in a process of its own: processor seconds of the best of some repetitions.
struct ZipnnCost {
  std::uint64_t packed_bytes = 0;
  double pack_cpu_s = 0;
  double unpack_cpu_s = 0;
};

/// Runs zipnn (Python registry) on `cells`, one thread, by way of a file under TMPDIR or /var/tmp. On first use it
/// makes a virtual environment in the user's cache directory. Errors: kNotFound where that cannot be made, as without
/// the registry; kUnsupported for a kind that it does not know; kCorrupt where cells do not come back; kIo.
[[nodiscard]] Result<ZipnnCost> run_zipnn(CellKind kind, Bytes cells, unsigned repetitions);

}  // namespace weightcast::bench
