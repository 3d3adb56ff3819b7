#pragma once

#include <functional>
#include <string>

namespace weightcast {

/// Takes what a worker has to say to a person, a line each, from any of its threads.
struct WorkerLog {
  std::function<void(const std::string&)> info;
  std::function<void(const std::string&)> warn;  ///< of what may need somebody
};

}  // namespace weightcast
