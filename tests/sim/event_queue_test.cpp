#include "sim/event_queue.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <chrono>
#include <vector>

namespace weightcast::sim {
namespace {

TEST(EventQueue, GivesTheEarliestFirstAndEqualsInOrder) {
  rc::check([](const std::vector<std::uint8_t>& times) {
    EventQueue queue;
    for (std::uint32_t i = 0; i < times.size(); ++i) {
      queue.schedule(Instant(std::chrono::seconds(times[i])), EventKind::kTimer, i);
    }
    std::optional<Event> before;
    for (std::size_t i = 0; i < times.size(); ++i) {
      const std::optional<Event> event = queue.pop();
      RC_ASSERT(event.has_value());
      if (before) RC_ASSERT(before->at < event->at || (before->at == event->at && before->a < event->a));
      before = event;
    }
    RC_ASSERT(queue.empty());
    RC_ASSERT(!queue.pop().has_value());
  });
}

}  // namespace
}  // namespace weightcast::sim
