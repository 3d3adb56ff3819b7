#include "archive/parallel_digests.h"

#include <atomic>
#include <mutex>
#include <span>

#include "base/parallel.h"
#include "transport/core/manifest.h"

namespace weightcast {

ContentDigest root_over(const std::vector<ContentDigest>& chunks, std::uint32_t part_chunks) {
  const std::vector<ContentDigest> parts = part_digests_of(chunks, part_chunks);
  return content_digest_of(std::as_bytes(std::span(parts)));
}

Status for_each_until_error(std::size_t count, unsigned threads_max, const std::function<Status(std::size_t)>& body) {
  std::atomic<bool> failed = false;
  std::mutex mutex;  // guards `status`
  Status status;
  for_each_index(count, threads_max, [&](std::size_t index) {
    if (failed) return;
    Status done = body(index);
    if (done.has_value()) return;
    failed = true;
    const std::lock_guard lock(mutex);
    if (status.has_value()) status = std::move(done);
  });
  return status;
}

}  // namespace weightcast
