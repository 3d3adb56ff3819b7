#include "transport/io/store/files/chunk_cache.h"

namespace weightcast {

void ChunkCache::put(const ChunkKey& key, BufferRef bytes) {
  if (bytes_max_ == 0) return;
  erase(key);
  bytes_ += bytes->capacity();
  chunks_.emplace(key, std::move(bytes));
  oldest_first_.push_back(key);
  while ((bytes_ > bytes_max_ && chunks_.size() > kChunksMin) || !chunks_.contains(oldest_first_.front())) {
    erase(oldest_first_.front());
    oldest_first_.pop_front();
  }
}

BufferRef ChunkCache::find(const ChunkKey& key) const {
  const auto found = chunks_.find(key);
  return found == chunks_.end() ? nullptr : found->second;
}

void ChunkCache::erase(const ChunkKey& key) {
  const auto found = chunks_.find(key);
  if (found == chunks_.end()) return;
  bytes_ -= found->second->capacity();
  chunks_.erase(found);
}

}  // namespace weightcast
