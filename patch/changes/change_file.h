#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/files/file_system.h"
#include "patch/changes/change_names.h"
#include "patch/codec/cell_changes.h"
#include "patch/snapshot/tensor.h"

namespace weightcast {

/// Reads a file of changes (change_names.h) piece by piece. Several threads may read. The file's owner may write to it
/// meanwhile: what read() returns was checked after it was copied.
class ChangeFile {
 public:
  /// One dimension of a piece, in elements. Neighbouring dimensions that a piece has in full are one.
  struct PieceSide {
    std::uint64_t start = 0;   // of the piece, in its tensor
    std::uint64_t length = 0;  // of the piece
    std::uint64_t whole = 0;   // of the tensor
  };

  /// `tensors` is the snapshot that is changed, in the order of its bytes; it outlives this object. The changes are the
  /// first `size_bytes` of `file`, which errors call `name`. Errors: kInvalidArgument (a tensor that is not in the
  /// snapshot, or has another dtype there; lists without their indices or values, or with unequal numbers of them; more
  /// changes than elements; a box that is not within the tensor; elements that are not whole bytes), kCorrupt,
  /// kTooLarge (the header; a file that is shorter), and those of `file`.
  [[nodiscard]] static Result<ChangeFile> open(FileRef file, std::uint64_t size_bytes, std::string name,
                                               std::span<const TensorInfo> tensors);

  /// How many elements are changed, by the header.
  [[nodiscard]] std::uint64_t count() const { return count_; }
  /// ... and how many bytes that are.
  [[nodiscard]] std::uint64_t value_bytes() const { return value_bytes_; }

  /// The changes of bytes [offset, offset + size) of the snapshot stream, as cells of `cell_bytes`, counted from
  /// `offset`. Cells begin at `offset`, and at the beginning of each tensor in the range that has changes; a wider
  /// element is several of them. `size` is at most kSegmentBytesMax. Ranges that cover the stream see each change.
  /// The pieces of a tensor are merged. Errors: kInvalidArgument (an index is out of bounds, or does not follow the one
  /// before it; two pieces change one element; with `finite_only`, a value that is NaN or infinite); those of the file.
  [[nodiscard]] Status read(std::uint64_t offset, std::uint32_t size, unsigned cell_bytes, bool finite_only,
                            CellChanges& out) const;

 private:
  /// The lists of one piece.
  struct Changed {
    const TensorInfo* tensor = nullptr;
    std::vector<PieceSide> sides;  // of the piece, outermost first
    std::uint64_t elements = 0;    // of the piece
    std::uint64_t element_bytes = 0;
    std::uint64_t count = 0;
    std::uint64_t index_bytes = 0;  // 4 or 8
    std::uint64_t indices_at = 0;   // in the file
    std::uint64_t values_at = 0;
  };

  ChangeFile(FileRef file, std::uint64_t size_bytes, std::string name)
      : file_(std::move(file)), size_bytes_(size_bytes), name_(std::move(name)) {}
  [[nodiscard]] Status pair(const TensorInfo& indices, const TensorInfo& values, const TensorInfo& tensor,
                            const Box& box);
  [[nodiscard]] Status check_counts() const;
  [[nodiscard]] Status read_piece(const Changed& changed, std::uint64_t offset, std::uint32_t size, unsigned cell_bytes,
                                  bool finite_only, CellChanges& out) const;
  /// How many of the indices come before `element` of the piece, if they ascend.
  [[nodiscard]] Result<std::uint64_t> count_before(const Changed& changed, std::uint64_t element) const;
  [[nodiscard]] Status read_bytes(std::uint64_t offset, MutableBytes into) const;
  [[nodiscard]] Error refuse(const TensorInfo& tensor, std::string_view why) const;
  [[nodiscard]] Error refuse(std::string_view tensor, std::string_view why) const;

  FileRef file_;
  std::uint64_t size_bytes_;
  std::string name_;
  std::vector<Changed> changed_;  // in the order of the tensors' bytes, then of the pieces' first elements
  std::uint64_t count_ = 0;
  std::uint64_t value_bytes_ = 0;
};

}  // namespace weightcast
