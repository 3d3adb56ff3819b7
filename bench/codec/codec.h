#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "patch/snapshot/tensor.h"

namespace weightcast::bench {

/// One way to make a patch of two snapshots, as the bench sees it.
struct Codec {
  using Encode = Result<std::vector<std::byte>> (*)(Bytes base, Bytes result, std::span<const TensorInfo> tensors,
                                                    unsigned threads);
  using Apply = Status (*)(Bytes patch, Bytes base, std::span<const TensorInfo> tensors, MutableBytes target,
                           unsigned threads);

  std::string_view name;
  /// `base` and `result` hold the same tensors. Errors: kUnsupported for a dtype that the codec does not know.
  Encode encode;
  /// `target` holds a copy of `base` on entry and the result on success; a codec may read the old cells from either.
  /// Errors: kCorrupt.
  Apply apply;
  /// Uses more than one thread when it is given more; otherwise `threads` is ignored.
  bool threaded = false;
  /// Its sizes depend on the version of libzstd.
  bool uses_zstd = true;
};

/// Ours.
extern const Codec kWeightcast;

}  // namespace weightcast::bench
