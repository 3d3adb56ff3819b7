#include "trainer/intake/worker_table.h"

#include <algorithm>

namespace weightcast {

IntakeWorker* WorkerTable::handle_heard(Instant now, const std::string& name) {
  auto found = workers_.find(name);
  if (found == workers_.end()) {
    if (workers_.size() >= kWorkersMax) {
      const auto quietest = std::min_element(workers_.begin(), workers_.end(), [](const auto& a, const auto& b) {
        return a.second.heard < b.second.heard;
      });
      if (!quietest->second.is_silent) return nullptr;
      workers_.erase(quietest);
    }
    found = workers_.emplace(name, IntakeWorker{.name = name, .weights_since = now}).first;
  }
  found->second.heard = now;
  found->second.is_silent = false;
  return &found->second;
}

IntakeWorker* WorkerTable::find(const std::string& name) {
  const auto found = workers_.find(name);
  return found == workers_.end() ? nullptr : &found->second;
}

std::vector<std::string> WorkerTable::poll_silent(Instant now) {
  std::vector<std::string> names;
  for (auto& [name, worker] : workers_) {
    if (worker.is_silent || now - worker.heard < silence_max_) continue;
    worker.is_silent = true;
    names.push_back(name);
  }
  return names;
}

std::vector<IntakeWorker> WorkerTable::all() const {
  std::vector<IntakeWorker> all;
  for (const auto& [name, worker] : workers_) all.push_back(worker);
  return all;
}

}  // namespace weightcast
