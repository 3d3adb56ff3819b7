#include "transport/io/event_loop.h"

#include <algorithm>
#include <utility>

#include "base/result.h"

namespace weightcast {
namespace {

// What a deferred action defers runs in the same turn, so that a chunk that came in goes out without asking the kernel
// in between; but only so often, lest actions that schedule each other keep the loop from its sockets.
constexpr int kDeferredRoundsMax = 4;

}  // namespace

EventLoop::~EventLoop() = default;

// --- Timers ----------------------------------------------------------------------------------------------------------

std::optional<Instant> EventLoop::next_due() const {
  if (heap_.empty()) return std::nullopt;
  return heap_.front()->due_;
}

void EventLoop::arm(Timer& timer, Instant due) {
  const std::optional<Instant> before = next_due();
  if (timer.armed_ && timer.index_ == Timer::kNotInHeap)
    std::ranges::replace(firing_, &timer, static_cast<Timer*>(nullptr));
  timer.armed_ = true;
  timer.due_ = due;
  timer.order_ = arms_++;
  if (timer.index_ == Timer::kNotInHeap) {
    heap_.push_back(&timer);
    timer.index_ = heap_.size() - 1;
  }
  sift_up(timer.index_);
  sift_down(timer.index_);
  if (next_due() != before) handle_due_changed();
}

void EventLoop::disarm(Timer& timer) {
  if (!timer.armed_) return;
  timer.armed_ = false;
  if (timer.index_ == Timer::kNotInHeap) {
    std::ranges::replace(firing_, &timer, static_cast<Timer*>(nullptr));
    return;
  }
  const std::optional<Instant> before = next_due();
  remove(timer);
  if (next_due() != before) handle_due_changed();
}

void EventLoop::remove(Timer& timer) {
  const std::size_t hole = std::exchange(timer.index_, Timer::kNotInHeap);
  Timer* const last = heap_.back();
  heap_.pop_back();
  if (last == &timer) return;
  place(last, hole);
  sift_up(last->index_);
  sift_down(last->index_);
}

void EventLoop::run_due_timers() {
  WC_CHECK(firing_.empty());
  const Instant now = this->now();
  while (!heap_.empty() && heap_.front()->due_ <= now) {
    firing_.push_back(heap_.front());  // armed until it runs: it may still be called off
    remove(*heap_.front());
  }
  for (std::size_t i = 0; i < firing_.size(); ++i) {
    Timer* const timer = std::exchange(firing_[i], nullptr);
    if (timer == nullptr) continue;
    timer->armed_ = false;
    const auto action = timer->on_due_;
    (*action)();
  }
  firing_.clear();
}

void EventLoop::place(Timer* timer, std::size_t index) {
  heap_[index] = timer;
  timer->index_ = index;
}

void EventLoop::sift_up(std::size_t index) {
  Timer* const timer = heap_[index];
  const auto key = [](const Timer* t) { return std::pair(t->due_, t->order_); };
  while (index > 0 && key(timer) < key(heap_[(index - 1) / 2])) {
    place(heap_[(index - 1) / 2], index);
    index = (index - 1) / 2;
  }
  place(timer, index);
}

void EventLoop::sift_down(std::size_t index) {
  Timer* const timer = heap_[index];
  const auto key = [](const Timer* t) { return std::pair(t->due_, t->order_); };
  while (2 * index + 1 < heap_.size()) {
    std::size_t child = 2 * index + 1;
    if (child + 1 < heap_.size() && key(heap_[child + 1]) < key(heap_[child])) ++child;
    if (key(timer) < key(heap_[child])) break;
    place(heap_[child], index);
    index = child;
  }
  place(timer, index);
}

Timer::Timer(EventLoop& loop, std::function<void()> on_due)
    : loop_(loop), on_due_(std::make_shared<const std::function<void()>>(std::move(on_due))) {
  ++loop_.dependants_;
}

Timer::~Timer() {
  disarm();
  --loop_.dependants_;
}

void Timer::arm(Instant due) { loop_.arm(*this, due); }

void Timer::disarm() { loop_.disarm(*this); }

// --- Deferred --------------------------------------------------------------------------------------------------------

bool EventLoop::run_deferred() {
  for (int round = 0; round < kDeferredRoundsMax && !(scheduled_.empty() && tasks_.empty()); ++round) {
    running_.swap(scheduled_);
    for (std::size_t i = 0; i < running_.size(); ++i) {
      Deferred* const next = std::exchange(running_[i], nullptr);
      if (next == nullptr) continue;  // destroyed by an action before it
      const auto action = next->action_;
      next->scheduled_ = false;
      (*action)();
    }
    running_.clear();
    const std::vector<std::function<void()>> tasks = std::exchange(tasks_, {});
    for (const auto& task : tasks) task();
  }
  return !(scheduled_.empty() && tasks_.empty());
}

void EventLoop::defer(std::function<void()> task) {
  tasks_.push_back(std::move(task));
  handle_deferred();
}

Deferred::Deferred(EventLoop& loop, std::function<void()> action)
    : loop_(loop), action_(std::make_shared<const std::function<void()>>(std::move(action))) {
  ++loop_.dependants_;
}

Deferred::~Deferred() {
  --loop_.dependants_;
  if (!scheduled_) return;
  Deferred* const gone = nullptr;
  std::ranges::replace(loop_.scheduled_, this, gone);
  std::ranges::replace(loop_.running_, this, gone);
}

void Deferred::schedule() {
  if (scheduled_) return;
  scheduled_ = true;
  loop_.scheduled_.push_back(this);
  if (loop_.scheduled_.size() == 1) loop_.handle_deferred();
}

}  // namespace weightcast
