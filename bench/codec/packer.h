#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/codec/cell.h"

namespace weightcast::bench {

/// One way to make a full snapshot smaller, on one thread, as the bench sees it.
struct Packer {
  std::string name;
  /// Packs `cells` into `room`, whose first bytes it takes, and returns how many. `room` keeps its memory from call to
  /// call, so that later calls do not pay for the first touch of a page.
  std::function<Result<std::size_t>(CellKind kind, Bytes cells, std::vector<std::byte>& room)> pack;
  /// Fills `cells`, which are as long as those that were packed. Errors: kCorrupt.
  std::function<Status(CellKind kind, Bytes packed, MutableBytes cells)> unpack;
};

/// Ours with each set of kernels that this processor runs (weightcast-scalar, ...), in segments as an origin makes them
/// and with the digests that a worker checks; then zstd-1, zstd-3 and lz4 in their libraries.
[[nodiscard]] std::vector<Packer> packers();

}  // namespace weightcast::bench
