#pragma once

#include "patch/codec/head.h"
#include "patch/codec/stream.h"
#include "patch/snapshot/snapshot.h"

namespace weightcast {

/// A snapshot on disk for the codec. A range in one file is mapped; a range over several is copied. The source outlives
/// this object, and nobody truncates its files meanwhile (see Mapping).
class SnapshotStream final : public ByteSource {
 public:
  explicit SnapshotStream(const SnapshotSource& source) : source_(source) {}
  std::uint64_t size_bytes() const override { return source_.size_bytes(); }
  /// Errors: those of SnapshotSource::read_at() and mapping().
  Result<Bytes> view(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch) const override;

 private:
  const SnapshotSource& source_;
};

[[nodiscard]] inline SnapshotLayout layout_of(const SnapshotSource& source) {
  return {source.size_bytes(), source.tensors()};
}

}  // namespace weightcast
