#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/files/file_system.h"
#include "patch/codec/cell_changes.h"
#include "patch/codec/segment.h"
#include "patch/snapshot/tensor.h"

namespace weightcast {

/// The changes of several steps in a segment, oldest first: each cell once, with the value of the last step that names
/// it. If only one step has changes, the result is that step's own list. Otherwise it is `folded`, which is written.
[[nodiscard]] const CellChanges& fold_changes(std::span<const CellChanges* const> steps, std::size_t cell_bytes,
                                              CellChanges& folded);

struct ListedChanges {
  std::uint64_t elements = 0;
  std::uint64_t bytes = 0;  ///< of the file
};

/// Gives bytes of a snapshot at an offset of its stream. Errors: those of the medium.
using ReadStream = std::function<Status(std::uint64_t offset_bytes, MutableBytes out)>;

/// A snapshot that changes lead from: `tensors` in the order of its bytes.
struct ChangesBase {
  std::span<const TensorInfo> tensors;
  ReadStream read;
};

/// Writes a file of changes (change_names.h). `segments` are the changes of `plan`'s segments, one list for each.
/// `tensors` is the snapshot that they lead to, in the order of its bytes; cells outside all tensors are left out.
/// `read` gives its bytes, for elements that are wider than the plan's cells. With `base` the file has the old values,
/// too. Each array of the file begins at a multiple of its elements' width. Memory: as much as the file takes.
/// Errors: kTooFar (a tensor whose elements are not whole bytes has changed; the base has not the tensors); those of
/// `read`, lay_out_safetensors() and `out`.
[[nodiscard]] Result<ListedChanges> list_changes(std::span<const SegmentRange> plan,
                                                 std::span<const CellChanges* const> segments,
                                                 std::span<const TensorInfo> tensors, const ReadStream& read,
                                                 const ChangesBase* base, File& out);

struct CompareOptions {
  bool old_values = false;
  std::uint64_t bytes_max = 0;      ///< of the lists: more are kTooFar
  std::function<Status()> go_on{};  ///< called now and then; an error ends it
};

/// Writes the same file from both snapshots' bytes, where nobody knows the changes. Only elements that differ are
/// listed. Reads each snapshot once. Errors: kTooFar (also: more than `bytes_max`); those of `go_on` and both reads.
[[nodiscard]] Result<ListedChanges> compare_changes(std::span<const TensorInfo> tensors, const ReadStream& read,
                                                    const ChangesBase& base, const CompareOptions& options, File& out);

}  // namespace weightcast
