#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "base/rate_limiter.h"
#include "transport/core/action.h"
#include "transport/io/event_loop.h"
#include "transport/io/work_thread.h"
#include "transport/node/payload/payload_archive.h"

namespace weightcast {

/// Reads an archive for a node's loop, on threads of its own: object storage may keep each of them for seconds. Hashes
/// chunks there. Loop thread only. The destructor stops the archive, and waits a second or two for calls under way.
class ArchiveReader {
 public:
  /// Answers come on the loop's thread, none after end() or the destructor.
  struct Handlers {
    std::function<void(PayloadId, std::uint32_t request, Result<std::vector<ContentDigest>>)> on_found;
    std::function<void(std::uint32_t request, ChunkArrival)> on_chunk;
    std::function<void(PayloadId, std::uint32_t request, const Status&)> on_ended;
  };

  /// `threads`: reads that go on at once.
  ArchiveReader(EventLoop& loop, std::unique_ptr<PayloadArchive> archive, unsigned threads, Handlers handlers);
  ~ArchiveReader();
  ArchiveReader(const ArchiveReader&) = delete;
  ArchiveReader& operator=(const ArchiveReader&) = delete;

  void find(const action::FindArchived& find);
  void read(const action::ReadArchived& read);
  void end(std::uint32_t request);

 private:
  /// What all reads together take: they wait for their turn.
  class Pace {
   public:
    void set(Rate rate);
    /// Waits until `bytes` may pass. Errors: kClosed, when `ended` or stopped.
    [[nodiscard]] Status pass(const EventLoop& loop, std::size_t bytes, const std::atomic<bool>& ended);
    void stop();

   private:
    std::mutex mutex_;
    std::condition_variable stopped_changed_;
    RateLimiter limiter_{Rate{}};
    bool stopped_ = false;
  };
  using Ended = std::shared_ptr<std::atomic<bool>>;

  [[nodiscard]] Ended begin(std::uint32_t request);
  /// On a thread of ours: reads the range, and posts its chunks.
  [[nodiscard]] Status read_chunks(const action::ReadArchived& read, const Ended& ended);
  /// Runs `answer` on the loop, unless the request has been ended. Any thread.
  void post(const Ended& ended, std::function<void()> answer);

  EventLoop& loop_;
  const std::unique_ptr<PayloadArchive> archive_;
  const Handlers handlers_;
  Pace pace_;
  std::map<std::uint32_t, Ended> requests_;
  OffloadThreads threads_;
};

}  // namespace weightcast
