#include "base/parallel.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <system_error>
#include <utility>

namespace weightcast {

bool add_thread(std::vector<std::jthread>& threads, std::function<void()> work) {
  try {
    threads.emplace_back(std::move(work));
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

unsigned usable_cores() {
  cpu_set_t cores;
  // Fails where the machine has more cores than such a set has room for.
  if (::sched_getaffinity(0, sizeof cores, &cores) != 0) return std::max(1u, std::thread::hardware_concurrency());
  return std::max(1u, static_cast<unsigned>(CPU_COUNT(&cores)));
}

unsigned default_threads() { return std::clamp(usable_cores() / 2, 1u, 8u); }

void for_each_index(std::size_t count, unsigned threads_max, const std::function<void(std::size_t)>& body) {
  std::atomic<std::size_t> next{0};
  const auto drain = [&] {
    for (std::size_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> others;
  while (others.size() + 1 < threads_max && others.size() + 1 < count && add_thread(others, drain)) {
  }
  drain();
}

Status for_each_until_error(std::size_t count, unsigned threads_max, const std::function<Status(std::size_t)>& body) {
  std::atomic<bool> failed = false;
  std::mutex mutex;  // guards `status`
  Status status;
  for_each_index(count, threads_max, [&](std::size_t index) {
    if (failed) return;
    Status done = body(index);
    if (done.has_value()) return;
    failed = true;
    const std::lock_guard lock(mutex);
    if (status.has_value()) status = std::move(done);
  });
  return status;
}

}  // namespace weightcast
