#include "worker/engine/thread_team.h"

#include "base/parallel.h"

namespace weightcast {

ThreadTeam::ThreadTeam(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) {
    if (!add_thread(others_, [this] { serve(); })) break;
  }
}

ThreadTeam::~ThreadTeam() {
  stopping_ = true;
  round_.fetch_add(1);
  round_.notify_all();
}

void ThreadTeam::run(std::size_t count, const std::function<void(std::size_t)>& body) {
  if (others_.empty() || count < 2) {
    for (std::size_t i = 0; i < count; ++i) body(i);
    return;
  }
  body_ = &body;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  busy_.store(static_cast<std::uint32_t>(others_.size()), std::memory_order_relaxed);
  round_.fetch_add(1);
  round_.notify_all();
  take_shares();
  for (std::uint32_t left = busy_.load(); left != 0; left = busy_.load()) busy_.wait(left);
}

void ThreadTeam::take_shares() {
  for (std::size_t i = next_.fetch_add(1); i < count_; i = next_.fetch_add(1)) (*body_)(i);
}

void ThreadTeam::serve() {
  for (std::uint32_t seen = 0;;) {
    round_.wait(seen);
    ++seen;  // no round begins before all others have ended the one before
    if (stopping_) return;
    take_shares();
    if (busy_.fetch_sub(1) == 1) busy_.notify_all();
  }
}

}  // namespace weightcast
