#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/time.h"
#include "proto/local_messages.h"
#include "tools/observe/otlp_spans.h"
#include "transport/http/client.h"

namespace weightcast {

/// An OpenTelemetry collector that takes spans as OTLP over HTTP, in JSON: POST /v1/traces. Whom the URL names is
/// trusted with them, as with any exporter of OpenTelemetry's. One thread at a time.
class OtlpCollector {
 public:
  /// `url`: http://HOST[:PORT][/PATH], of port 4318 without one. `release`: of this program, which spans name. Dials at
  /// the first call. Errors: kInvalidArgument.
  [[nodiscard]] static Result<std::unique_ptr<OtlpCollector>> make(const std::string& url, std::string release);

  /// Sends the publication's spans; `history` is of it, with its workers. `limit` bounds everything. Errors, with the
  /// URL in the detail: those of HttpClient::call(); kBusy (the collector has no room now: status 429, 502, 503 or 504,
  /// which OTLP says to try again), kUnsupported (it refuses them).
  [[nodiscard]] Status send(const local::HistoryReply& history, Duration limit);
  /// Any thread: HttpClient's.
  void interrupt() { client_->interrupt(); }

 private:
  OtlpCollector(std::string url, std::string target, OtlpResource resource, std::unique_ptr<HttpClient> client)
      : url_(std::move(url)), target_(std::move(target)), resource_(std::move(resource)), client_(std::move(client)) {}

  const std::string url_;
  const std::string target_;
  const OtlpResource resource_;
  const std::unique_ptr<HttpClient> client_;
};

}  // namespace weightcast
