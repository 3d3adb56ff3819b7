#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tools/observe/fleet_state.h"
#include "tools/observe/otlp_exporter.h"
#include "tools/observe/publication_meters.h"

namespace weightcast {

/// What a daemon tells Prometheus. Of a fleet of any size as many lines: no label names a worker or a version.
/// docs/METRICS.md lists the names. `release`: of this program. Pure, but for what add_process_metrics() adds.
/// `exported`: where a collector gets spans.
[[nodiscard]] std::string daemon_metrics(const FleetState& state, const local::ReadyReply& ready,
                                         std::string_view release,
                                         const std::optional<OtlpExporter::Counts>& exported = std::nullopt,
                                         const PublicationMeters& meters = PublicationMeters(0));

}  // namespace weightcast
