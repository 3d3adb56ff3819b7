#pragma once

#include <nlohmann/json_fwd.hpp>

#include "proto/local_messages.h"

namespace weightcast {

/// One publication as a trace that Perfetto and chrome://tracing open (the Trace Event Format, JSON object form).
/// `history`: of that publication, with its workers. Times count in microseconds from the publication's beginning.
///
/// The origin is one process, with a slice for each of its phases. The workers are threads of another, in the order in
/// which they had the version; a worker's phases follow one another from when the origin told it of the version, by the
/// worker's own word. An arrow leads from who fed a worker to that worker. Pure.
[[nodiscard]] nlohmann::json publication_trace(const local::HistoryReply& history);

}  // namespace weightcast
