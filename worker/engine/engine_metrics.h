#pragma once

#include <cstdint>

#include "base/ids.h"
#include "base/time.h"
#include "tools/observe/metrics_text.h"
#include "worker/engine/engine.h"

namespace weightcast {

/// How versions came into use, since the program began.
struct Installs {
  std::uint64_t installed = 0;
  std::uint64_t refused = 0;  ///< damaged, of another model, or gone
  Duration prepare{};         ///< while generation went on: to pin and read the files, and to check them
  /// Until it was in use: generation of an engine of our own stood still. Of a server that is told: its calls.
  Duration install{};
};

/// What Prometheus is told of an engine; docs/METRICS.md lists the names.
void add_engine_metrics(MetricsText& text, const EngineStatus& status);

/// The same of the version in use, 0 for none, and of those that came.
void add_version_metrics(MetricsText& text, Version version, const Installs& installs);

}  // namespace weightcast
