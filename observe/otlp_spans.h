#pragma once

#include <nlohmann/json_fwd.hpp>

#include "proto/local_messages.h"

namespace weightcast {

/// One publication as spans that an OpenTelemetry collector takes at /v1/traces: an ExportTraceServiceRequest of the
/// OpenTelemetry Protocol 1.x, in its JSON encoding (ids in hexadecimal digits, 64-bit numbers as text).
/// `history`: of that publication, with its workers; it has one.
///
/// The slices are those of publication_trace(). The publication is the root span. The origin's phases are its children,
/// and so is a span per worker, whose phases are its own children. Marks are events of the span that they lie on. Ids
/// follow from version and time of publication, so that a second export is the same spans again. Pure.
[[nodiscard]] nlohmann::json otlp_spans(const local::HistoryReply& history);

}  // namespace weightcast
