#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proto/local_messages.h"

namespace weightcast {

/// Who exports, by OpenTelemetry's names: service.version, service.instance.id, host.name. What is "" is not told.
struct OtlpResource {
  std::string release = {}, instance = {}, host = {};

  /// Of this process.
  [[nodiscard]] static OtlpResource own(std::string release);
};

/// One publication as spans that an OpenTelemetry collector takes at /v1/traces: an ExportTraceServiceRequest of the
/// OpenTelemetry Protocol 1.x, in its JSON encoding (ids in hexadecimal digits, 64-bit numbers as text).
/// `history`: of that publication, with its workers; it has one.
///
/// The slices are those of publication_trace(). The publication is the root span. The origin's phases are its children,
/// and so is a span per worker, whose phases are its own children. Marks are events of the span that they lie on. Ids
/// follow from version and time of publication, so that a second export is the same spans again. Pure.
[[nodiscard]] nlohmann::json otlp_spans(const local::HistoryReply& history, const OtlpResource& resource = {});

}  // namespace weightcast
