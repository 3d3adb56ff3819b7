#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>

#include "base/result.h"

namespace weightcast::bench {

struct HttpBenchOptions {
  std::size_t idle = 1000;      ///< connections that have asked once, and stay
  std::size_t streams = 64;     ///< with an event every `event_ms`, read at once
  std::size_t never_read = 16;  ///< streams that are filled as fast as the server takes it, and not read; dialled anew
  std::uint64_t event_ms = 20;
  double seconds = 10;
};

struct HttpBenchResult {
  std::size_t connections = 0;  ///< open when measuring ended
  std::uint64_t probes = 0;     ///< GET /health, half of them over a connection of their own
  double p50_ms = 0, p99_ms = 0, max_ms = 0;
  std::uint64_t events = 0;       ///< that the streams' clients have read
  std::uint64_t streams_cut = 0;  ///< of clients that do not read
  unsigned above_cap_status = 0;  ///< what one connection more is answered
  double server_cpu_share = 0;    ///< of one core: the whole process, clients included
};

/// Asks for /health all the time, beside clients of each kind, of one server in this process.
/// Errors: kIo (descriptors: each connection takes two), those of HttpServer::start().
[[nodiscard]] Result<HttpBenchResult> run_http_bench(const HttpBenchOptions& options);

[[nodiscard]] nlohmann::json to_json(const HttpBenchOptions& options, const HttpBenchResult& result);

}  // namespace weightcast::bench
