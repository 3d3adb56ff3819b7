#include "transport/io/work_thread.h"

#include <algorithm>
#include <utility>

#include "base/parallel.h"

namespace weightcast {

OffloadThreads::~OffloadThreads() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  threads_.clear();  // joins, while the queue is still there
}

void OffloadThreads::run(std::function<void()> work, std::function<void()> done) {
  std::size_t unfinished = 0;
  {
    const std::lock_guard lock(mutex_);
    unfinished = ++unfinished_;
    queue_.push_back({std::move(work), std::move(done)});
  }
  if (threads_.size() < std::min<std::size_t>(unfinished, threads_max_)) {
    if (!add_thread(threads_, [this] { serve(); }) && threads_.empty()) return serve_here();
  }
  changed_.notify_one();
}

void OffloadThreads::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return;
    Work next = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    next.work();
    loop_.post(std::move(next.done));
    lock.lock();
    --unfinished_;
  }
}

void OffloadThreads::serve_here() {
  const Work only = std::move(queue_.front());
  queue_.pop_front();
  --unfinished_;
  only.work();
  loop_.post(only.done);
}

}  // namespace weightcast
