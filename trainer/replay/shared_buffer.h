#pragma once

#include <mutex>
#include <optional>
#include <utility>

#include "trainer/replay/replay_buffer.h"

namespace weightcast {

/// A replay buffer that the learner's thread and those of its HTTP port use: `buffer->call()` holds the lock for that
/// expression, lock() for as long as the caller keeps the access. Calls take microseconds, so that workers get their
/// answers also while the learner computes. References that a call returns are good under the lock alone.
class SharedReplayBuffer {
 public:
  class Access {
   public:
    [[nodiscard]] ReplayBuffer* operator->() const { return buffer_; }
    [[nodiscard]] ReplayBuffer& operator*() const { return *buffer_; }

   private:
    friend class SharedReplayBuffer;
    // One expression may hold several.
    Access(std::recursive_mutex& mutex, std::optional<ReplayBuffer>& buffer) : lock_(mutex) {
      WC_CHECK(buffer.has_value());
      buffer_ = &*buffer;
    }
    std::unique_lock<std::recursive_mutex> lock_;
    ReplayBuffer* buffer_;
  };

  SharedReplayBuffer() = default;
  explicit SharedReplayBuffer(ReplayBuffer buffer) : buffer_(std::move(buffer)) {}

  /// Before anything else uses it.
  void set(ReplayBuffer buffer) {
    const std::scoped_lock lock(mutex_);
    buffer_ = std::move(buffer);
  }
  [[nodiscard]] Access lock() const { return {mutex_, buffer_}; }
  [[nodiscard]] Access operator->() const { return lock(); }

 private:
  mutable std::recursive_mutex mutex_;
  mutable std::optional<ReplayBuffer> buffer_;
};

}  // namespace weightcast
