#include "transport/io/net/receive_budget.h"

#include <algorithm>
#include <utility>

namespace weightcast {

bool ReceiveBudget::may_take(const Share& share) const {
  if (share.holder_ == nullptr || share.holder_->taken_bytes == 0) return true;
  return share.holder_->taken_bytes + share.bytes_ <= bytes_max_ / kHoldersMin;
}

void ReceiveBudget::take(Share& share) {
  taken_bytes_ += share.bytes_;
  if (share.holder_) share.holder_->taken_bytes += share.bytes_;
}

bool ReceiveBudget::Share::take(ReceiveBudget& budget, std::size_t bytes, std::shared_ptr<Holder> holder) {
  budget_ = &budget;
  holder_ = std::move(holder);
  bytes_ = std::min(bytes, budget.bytes_max_);
  const bool is_next =
      std::ranges::none_of(budget.queue_, [&](const Share* waiting) { return budget.may_take(*waiting); });
  if (is_next && budget.may_take(*this) && budget.taken_bytes_ + bytes_ <= budget.bytes_max_) {
    budget.take(*this);
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
    if (holder_) holder_->taken_bytes -= bytes_;
  }
  holder_.reset();
  budget->serve();
}

void ReceiveBudget::serve() {
  for (auto place = queue_.begin(); place != queue_.end();) {
    Share& next = **place;
    if (!may_take(next)) {
      ++place;
      continue;
    }
    if (taken_bytes_ + next.bytes_ > bytes_max_) return;
    place = queue_.erase(place);
    take(next);
    next.waiting_ = false;
    next.on_taken_();
  }
}

}  // namespace weightcast
