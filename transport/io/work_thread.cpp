#include "transport/io/work_thread.h"

#include <utility>

#include "base/parallel.h"

namespace weightcast {

OffloadThread::~OffloadThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.clear();  // joins, while the queue is still there
}

void OffloadThread::run(std::function<void()> work, std::function<void()> done) {
  if (thread_.empty() && !add_thread(thread_, [this] { serve(); })) {
    work();
    return loop_.post(std::move(done));
  }
  {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(work), std::move(done)});
  }
  changed_.notify_one();
}

void OffloadThread::serve() {
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
  }
}

}  // namespace weightcast
