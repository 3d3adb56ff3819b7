#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/digest.h"

namespace weightcast {

/// Bytes of one chunk, aligned to a page. Alignment is a matter of speed: the kernel's copies to a buffer that lies a
/// few bytes past the source's place in its page run at a fifth of the speed on some processors.
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

/// Shared while a chunk is being hashed, stored and forwarded at once; nobody writes to it after it is shared.
using BufferRef = std::shared_ptr<Buffer>;

/// Hands out buffers and takes them back, so that steady state allocates nothing. Loop thread only; buffers may be
/// released on any thread. Keeps at most `kept_bytes_max` of free buffers.
class BufferPool {
 public:
  explicit BufferPool(std::size_t kept_bytes_max);
  [[nodiscard]] BufferRef take(std::size_t capacity);

 private:
  struct Shelf;
  std::shared_ptr<Shelf> shelf_;
};

}  // namespace weightcast
