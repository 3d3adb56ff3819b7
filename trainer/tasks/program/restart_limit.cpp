#include "trainer/tasks/program/restart_limit.h"

namespace weightcast {

bool RestartLimit::take(Instant now) {
  while (!times_.empty() && now - times_.front() >= window_) times_.pop_front();
  if (times_.size() >= most_) return false;
  times_.push_back(now);
  return true;
}

}  // namespace weightcast
