#include "transport/io/buffer.h"

#include <cstdlib>
#include <mutex>
#include <utility>

#include "base/result.h"

namespace weightcast {

Buffer::Buffer(std::size_t capacity) : capacity_((capacity + kAlignment - 1) / kAlignment * kAlignment) {
  data_ = static_cast<std::byte*>(std::aligned_alloc(kAlignment, capacity_));
  WC_CHECK(data_ != nullptr);
}

Buffer::~Buffer() { std::free(data_); }

struct BufferPool::Shelf {
  explicit Shelf(std::size_t bytes_max) : kept_bytes_max(bytes_max) {}

  std::mutex mutex;
  const std::size_t kept_bytes_max;
  std::size_t kept_bytes = 0;
  std::vector<std::unique_ptr<Buffer>> free;
};

BufferPool::BufferPool(std::size_t kept_bytes_max) : shelf_(std::make_shared<Shelf>(kept_bytes_max)) {}

BufferRef BufferPool::take(std::size_t capacity) {
  std::unique_ptr<Buffer> buffer;
  {
    const std::lock_guard lock(shelf_->mutex);
    // Chunks of one publication share a size, so the last one back nearly always fits.
    if (!shelf_->free.empty() && shelf_->free.back()->capacity() >= capacity) {
      buffer = std::move(shelf_->free.back());
      shelf_->free.pop_back();
      shelf_->kept_bytes -= buffer->capacity();
    }
  }
  if (!buffer) buffer = std::make_unique<Buffer>(capacity);
  buffer->set_size(0);
  return BufferRef(buffer.release(), [shelf = shelf_](Buffer* raw) {
    std::unique_ptr<Buffer> back(raw);
    const std::lock_guard lock(shelf->mutex);
    while (!shelf->free.empty() && shelf->free.front()->capacity() != back->capacity()) {
      shelf->kept_bytes -= shelf->free.front()->capacity();
      shelf->free.erase(shelf->free.begin());
    }
    if (shelf->kept_bytes + back->capacity() > shelf->kept_bytes_max) return;
    shelf->kept_bytes += back->capacity();
    shelf->free.push_back(std::move(back));
  });
}

}  // namespace weightcast
