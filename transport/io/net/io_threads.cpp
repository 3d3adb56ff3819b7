#include "transport/io/net/io_threads.h"

#include <algorithm>

#include "base/parallel.h"

namespace weightcast {
namespace {

constexpr Duration kFarAway = std::chrono::hours(1);

}  // namespace

unsigned IoThreads::default_count() { return std::clamp(usable_cores() / 2, 1u, kThreadsMax); }

IoThreads::One::One()
    : far_away(loop, [this] { far_away.arm(loop.now() + kFarAway); }), seat(std::make_shared<const Seat>(Seat{&loop})) {
  far_away.arm(loop.now() + kFarAway);
}

IoThreads::IoThreads(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    auto one = std::make_unique<One>();
    if (!add_thread(one->thread, [&loop = one->loop] { loop.run(); })) return;
    all_.push_back(std::move(one));
  }
}

IoThreads::~IoThreads() {
  // After what was posted before: connections that leave.
  for (const auto& one : all_) one->loop.post([&loop = one->loop] { loop.stop(); });
  for (const auto& one : all_) one->thread.clear();
}

std::shared_ptr<const IoThreads::Seat> IoThreads::take_seat() {
  const One* best = nullptr;
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const One& one = *all_[(next_ + i) % all_.size()];
    if (best == nullptr || one.seat.use_count() < best->seat.use_count()) best = &one;
  }
  if (best == nullptr) return nullptr;
  ++next_;
  return best->seat;
}

}  // namespace weightcast
