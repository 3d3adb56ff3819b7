#include "transport/io/serial_work.h"

namespace weightcast {

SerialWork::~SerialWork() {
  if (under_way_) under_way_->wait();
}

void SerialWork::run(std::function<void()> work, std::function<void()> done) {
  queue_.push_back({std::move(work), std::move(done)});
  if (queue_.size() == 1) start_first();
}

void SerialWork::start_first() {
  under_way_ = loop_.offload(std::move(queue_.front().work), [this, alive = std::weak_ptr(alive_)] {
    if (alive.expired()) return;
    under_way_.reset();
    const std::function<void()> done = std::move(queue_.front().done);
    queue_.pop_front();
    if (!queue_.empty()) start_first();
    done();
  });
}

}  // namespace weightcast
