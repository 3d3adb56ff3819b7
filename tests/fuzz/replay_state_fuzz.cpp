// Arbitrary text as the replay buffer of a checkpoint: it is refused with a reason, or gives a buffer that keeps its
// accounts, is the same when it is written and read again, and goes on.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tests/trainer/replay/replay_fixture.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  using namespace std::chrono_literals;
  const Instant now{1h};
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ReplayOptions options = replay_options();
  options.leased_only = size % 2 == 1;
  Result<ReplayBuffer> buffer = ReplayBuffer::restore(options, replay_rules(), text, now);
  if (!buffer.has_value()) {
    WC_CHECK(!buffer.error().detail.empty());
    return 0;
  }
  const std::string saved = buffer->save(now);
  const Result<ReplayBuffer> again = ReplayBuffer::restore(options, replay_rules(), saved, now);
  WC_CHECK(again.has_value() && again->buffered() == buffer->buffered());
  buffer->lease(now, "w", 3, 4, 2);
  (void)buffer->handle_trajectory(now, rollout("w", 4, "group3", buffer->learner().value));
  (void)buffer->handle_trajectory(now, rollout("w", 5, "group3", buffer->learner().value));
  if (buffer->leasable(now, "v", 1) == 1) (void)buffer->lease(now, "v", buffer->take_group(), 0, 2);
  (void)buffer->supply();
  (void)buffer->take_batch(now);
  while (buffer->poll_abort()) continue;
  buffer->handle_step(Version{buffer->learner().value + 1});
  buffer->handle_published(buffer->learner());
  buffer->handle_time(now + 24h);
  (void)buffer->save(now + 24h);
  return 0;
}
