#pragma once

#include <span>

#include "patch/codec/codec.h"

namespace weightcast {

/// Makes one patch v -> v + n of the patches v -> v + 1 -> ... -> v + n, later value winning per cell. Each segment's
/// cells are taken through all patches and encoded against the base once, so that only one segment's cells are held per
/// thread, not a snapshot: as much work as applying all patches, which reads the base once, and as few bytes as if the
/// two snapshots had been compared, which is what a holder of both does instead, by encode_patch(). A union of the
/// patches' changed cells without the base would send every cell that changed and changed back, and has no exponents to
/// code by. The patches lie in memory whole, in order. Errors: those of PatchReader and of decode_segment();
/// kInvalidArgument where they do not follow one another, or there are none; kUnsupported where one has other segments
/// than the first (the layout changed between: make the last snapshot and use encode_patch()).
Result<PatchSummary> fold_patches(std::span<const Bytes> patches, const ByteSource& base, const EncodeOptions& options,
                                  const PatchSink& sink);

}  // namespace weightcast
