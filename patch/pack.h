#pragma once

#include <optional>
#include <vector>

#include "patch/codec.h"

namespace weightcast {

/// What one packed block holds at most, before packing.
inline constexpr std::uint32_t kPackBlockBytes = 1u << 20;
inline constexpr std::size_t kPackHeadBytes = 16;
inline constexpr std::size_t kPackBlockHeaderBytes = 28;

/// Packs a whole snapshot without loss, for payloads without a base: cells as byte planes, each entropy-coded, which
/// takes BF16 weights to about two thirds (their exponents are predictable, the rest is not). `sink` gets a head, then
/// blocks of at most kPackBlockBytes that unpack alone, in order. The bytes do not depend on the number of threads.
/// Returns the packed size. Errors: kInvalidArgument where the layout does not fit the stream; those of source and
/// sink.
Result<std::uint64_t> pack_snapshot(const SnapshotLayout& layout, const ByteSource& stream, unsigned threads,
                                    const PatchSink& sink);

/// Unpacks as bytes arrive. Pure: no I/O, no clock. Holds one block, packed and unpacked.
class Unpacker {
 public:
  /// Takes bytes until a block is complete, and returns how many. Errors: kCorrupt, kTooLarge; for good.
  Result<std::size_t> handle_bytes(Bytes bytes);
  /// The bytes of the block that became complete, once; they follow those of the one before.
  [[nodiscard]] std::optional<std::vector<std::byte>> poll_block();
  /// Set once the head is complete.
  [[nodiscard]] std::optional<std::uint64_t> size_bytes() const { return size_bytes_; }
  /// Whether everything has been given out.
  [[nodiscard]] bool complete() const { return size_bytes_ && done_bytes_ == *size_bytes_ && !block_; }

 private:
  Status handle_frame();

  std::vector<std::byte> buffer_;
  std::optional<Error> failed_;
  std::optional<std::uint64_t> size_bytes_;
  std::uint64_t done_bytes_ = 0;
  std::size_t wanted_bytes_ = kPackHeadBytes;
  std::optional<std::vector<std::byte>> block_;
};

}  // namespace weightcast
