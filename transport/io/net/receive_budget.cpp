#include "transport/io/net/receive_budget.h"

#include <algorithm>
#include <utility>

namespace weightcast {

bool ReceiveBudget::Share::take(ReceiveBudget& budget, std::size_t bytes) {
  budget_ = &budget;
  bytes_ = std::min(bytes, budget.bytes_max_);
  if (budget.queue_.empty() && budget.taken_bytes_ + bytes_ <= budget.bytes_max_) {
    budget.taken_bytes_ += bytes_;
    return true;
  }
  waiting_ = true;
  place_ = budget.queue_.insert(budget.queue_.end(), this);
  return false;
}

void ReceiveBudget::Share::give_back() {
  ReceiveBudget* const budget = std::exchange(budget_, nullptr);
  if (budget == nullptr) return;
  if (std::exchange(waiting_, false)) {
    budget->queue_.erase(place_);
  } else {
    budget->taken_bytes_ -= bytes_;
  }
  budget->serve();
}

void ReceiveBudget::serve() {
  while (!queue_.empty() && taken_bytes_ + queue_.front()->bytes_ <= bytes_max_) {
    Share& next = *queue_.front();
    queue_.pop_front();
    taken_bytes_ += next.bytes_;
    next.waiting_ = false;
    next.on_taken_();
  }
}

}  // namespace weightcast
