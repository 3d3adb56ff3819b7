#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/digest/checksum.h"

namespace weightcast {

/// Bytes of one chunk, aligned to a page. The alignment is for speed: on some processors the kernel copies at a fifth
/// of the speed if the target lies a few bytes further into its page than the source.
class Buffer {
 public:
  static constexpr std::size_t kAlignment = 4096;

  explicit Buffer(std::size_t capacity);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t capacity() const { return capacity_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  void set_size(std::size_t size) { size_ = size; }
  [[nodiscard]] Bytes bytes() const { return {data_, size_}; }

 private:
  std::byte* data_;
  std::size_t capacity_;
  std::size_t size_ = 0;
};

/// A chunk's buffer, shared while it is hashed, stored and forwarded. Nobody writes to a shared buffer.
using BufferRef = std::shared_ptr<Buffer>;

/// Hands buffers out and takes them back, so that the steady state allocates nothing. Any thread may take and release
/// them. Keeps at most `kept_bytes_max` of free buffers.
class BufferPool {
 public:
  explicit BufferPool(std::size_t kept_bytes_max);
  [[nodiscard]] BufferRef take(std::size_t capacity);

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace weightcast
