#include "transport/io/jobs.h"

#include <utility>

namespace weightcast {

void Jobs::run(std::function<void()> work, std::function<void()> done) {
  const auto place = under_way_.emplace(under_way_.end());
  *place = loop_.offload(std::move(work), [this, place, alive = std::weak_ptr(alive_), done = std::move(done)] {
    if (alive.expired()) return;
    under_way_.erase(place);
    done();
  });
}

void Jobs::post(std::function<void()> task) {
  loop_.post([alive = std::weak_ptr(alive_), task = std::move(task)] {
    if (!alive.expired()) task();
  });
}

void Jobs::stop() {
  cancel();
  for (const auto& job : under_way_) job->wait();
  under_way_.clear();
  alive_.reset();
}

}  // namespace weightcast
