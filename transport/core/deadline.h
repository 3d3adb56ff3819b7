#pragma once

#include <optional>

#include "base/time.h"

namespace weightcast {

/// The earliest of several deadlines, some of which may be absent.
class EarliestDeadline {
 public:
  void consider(std::optional<Instant> due) {
    if (due && (!first_ || *due < *first_)) first_ = due;
  }
  [[nodiscard]] std::optional<Instant> first() const { return first_; }

 private:
  std::optional<Instant> first_;
};

}  // namespace weightcast
