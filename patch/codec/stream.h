#pragma once

#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"

namespace weightcast {

/// A snapshot's stream for reading: one mapping, several, or a file. Several threads may read at once.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  [[nodiscard]] virtual std::uint64_t size_bytes() const = 0;
  /// `size` bytes at `offset`, inside the stream. Returns a view of the medium, or reads into `scratch` and returns a
  /// view of that. Errors: those of the medium.
  [[nodiscard]] virtual Result<Bytes> view(std::uint64_t offset, std::size_t size,
                                           std::vector<std::byte>& scratch) const = 0;
};

/// A snapshot's stream for writing. Several threads may write ranges that do not overlap.
class ByteTarget {
 public:
  virtual ~ByteTarget() = default;
  [[nodiscard]] virtual std::uint64_t size_bytes() const = 0;
  /// Errors: those of the medium.
  virtual Status write(std::uint64_t offset, Bytes bytes) = 0;
};

/// Bytes in memory that someone else owns.
class MemorySource final : public ByteSource {
 public:
  explicit MemorySource(Bytes bytes) : bytes_(bytes) {}
  std::uint64_t size_bytes() const override { return bytes_.size(); }
  Result<Bytes> view(std::uint64_t offset, std::size_t size, std::vector<std::byte>&) const override {
    return bytes_.subspan(std::size_t(offset), size);
  }

 private:
  Bytes bytes_;
};

}  // namespace weightcast
