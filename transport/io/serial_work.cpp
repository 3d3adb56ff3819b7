#include "transport/io/serial_work.h"

#include <condition_variable>
#include <mutex>
#include <utility>

namespace weightcast {

/// Shared with the pool thread, and with callbacks that the loop runs after the owner is gone.
struct SerialWork::UnderWay {
  std::mutex mutex;
  std::condition_variable ended;
  bool working = false;
  bool abandoned = false;  // loop thread only
};

SerialWork::SerialWork(EventLoop& loop) : loop_(loop), under_way_(std::make_shared<UnderWay>()) {}

SerialWork::~SerialWork() {
  under_way_->abandoned = true;
  std::unique_lock lock(under_way_->mutex);
  under_way_->ended.wait(lock, [this] { return !under_way_->working; });
}

void SerialWork::run(std::function<void()> work, std::function<void()> done) {
  jobs_.push_back({std::move(work), std::move(done)});
  if (jobs_.size() == 1) start_first();
}

void SerialWork::start_first() {
  {
    const std::lock_guard lock(under_way_->mutex);
    under_way_->working = true;
  }
  loop_.offload(
      [work = std::move(jobs_.front().work), under_way = under_way_] {
        work();
        const std::lock_guard lock(under_way->mutex);
        under_way->working = false;
        under_way->ended.notify_all();
      },
      [this, under_way = under_way_] {
        if (under_way->abandoned) return;
        const std::function<void()> done = std::move(jobs_.front().done);
        jobs_.pop_front();
        if (!jobs_.empty()) start_first();
        done();
      });
}

}  // namespace weightcast
