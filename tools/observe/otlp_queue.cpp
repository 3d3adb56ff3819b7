#include "tools/observe/otlp_queue.h"

#include <algorithm>

namespace weightcast {

void OtlpQueue::handle_history(Instant now, std::span<const local::PublicationEntry> publications) {
  std::set<Publication> ended;
  for (const local::PublicationEntry& entry : publications) {
    if (entry.state == "under way") continue;
    const Publication publication(entry.version, entry.published_unix_ms);
    ended.insert(publication);
    const bool is_new = ended_ ? !ended_->contains(publication) : entry.published_unix_ms >= begun_unix_ms_;
    if (is_new) waiting_.push_back({entry.version, now + kSettle});
  }
  ended_ = std::move(ended);
  while (waiting_.size() > kWaitingMax) {
    waiting_.pop_front();
    ++dropped_;
  }
}

void OtlpQueue::handle_outcome(Instant now, Outcome outcome) {
  if (outcome == Outcome::kRetry) {
    retry_at_ = now + backoff_;
    backoff_ = std::min(2 * backoff_, kRetryMax);
    return;
  }
  waiting_.pop_front();
  ++(outcome == Outcome::kSent ? sent_ : dropped_);
  backoff_ = kRetryMin;
}

std::optional<std::uint64_t> OtlpQueue::poll_version(Instant now) const {
  if (waiting_.empty() || now < waiting_.front().due || now < retry_at_) return std::nullopt;
  return waiting_.front().version;
}

}  // namespace weightcast
