#include "transport/io/net/arrived_frames.h"

#include <utility>

namespace weightcast {

void ArrivedFrames::add(std::string control) {
  const std::size_t bytes = control.size();
  add(std::move(control), nullptr, bytes);
}

void ArrivedFrames::add_hashed(ReceivedChunk chunk) {
  const std::size_t bytes = chunk.bytes->size();
  add(std::move(chunk), nullptr, bytes);
}

void ArrivedFrames::add_unhashed(ReceivedChunk chunk) {
  const std::size_t bytes = chunk.bytes->size();
  const auto hash = std::make_shared<Hash>(chunk.bytes);
  // A frame that is dropped takes its hash with it: then there is nothing to do, and nobody to tell.
  hashing_->run(
      [kept = std::weak_ptr(hash)] {
        const auto wanted = kept.lock();
        if (!wanted) return;
        wanted->digest = content_digest_of(wanted->bytes->bytes());
        wanted->done.store(true, std::memory_order_release);
      },
      [this, kept = std::weak_ptr(hash)] {
        if (kept.expired()) return;  // dropped, or taken already
        // It may destroy this object.
        const std::function<void()> tell = on_hashed_;
        tell();
      });
  add(std::move(chunk), hash, bytes);
}

std::optional<ArrivedFrames::Frame> ArrivedFrames::take(Missing missing) {
  if (frames_.empty()) return std::nullopt;
  Arrived& first = frames_.front();
  if (first.hash) {
    ReceivedChunk& chunk = std::get<ReceivedChunk>(first.frame);
    const bool done = first.hash->done.load(std::memory_order_acquire);
    if (!done && missing == Missing::kWait) return std::nullopt;
    chunk.digest = done ? first.hash->digest : content_digest_of(chunk.bytes->bytes());
  }
  std::optional<Frame> frame = std::move(first.frame);
  bytes_ -= first.bytes;
  frames_.pop_front();
  return frame;
}

void ArrivedFrames::clear() {
  frames_.clear();
  bytes_ = 0;
}

void ArrivedFrames::add(Frame frame, std::shared_ptr<Hash> hash, std::size_t bytes) {
  // A short frame takes several times its bytes.
  frames_.push_back({std::move(frame), std::move(hash), sizeof(Arrived) + bytes});
  bytes_ += frames_.back().bytes;
}

}  // namespace weightcast
