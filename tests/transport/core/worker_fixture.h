#pragma once

#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// Of worker "w", which dials its origin at "origin", port 1.
inline WorkerConfig worker_config() {
  WorkerConfig config;
  config.name = "w";
  config.origin_host = "origin";
  config.origin_port = 1;
  config.listen_port = 2;
  return config;
}

}  // namespace weightcast
