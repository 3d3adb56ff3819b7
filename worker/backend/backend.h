#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/files/file_system.h"
#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/time.h"
#include "transport/http/trust.h"
#include "worker/backend/backend_protocol.h"
#include "worker/engine/answer_source.h"
#include "worker/engine/engine_metrics.h"
#include "worker/engine/version_source.h"

namespace weightcast {

struct BackendOptions {
  BackendKind kind = BackendKind::kVllm;
  Endpoint server = {};   ///< that generates
  Endpoint control = {};  ///< that says which version it has, or is told (kParallax); without a host, the same
  HttpTrust trust = {};   ///< of both
  BackendProtocolOptions protocol = {};
  BackendNeeds needs = {};
  std::size_t running_max = 64;  ///< requests that the server has at once, each over a connection and thread of its own
  Duration answer_time_max = std::chrono::minutes(10);   ///< of one request
  Duration install_time_max = std::chrono::minutes(10);  ///< of one install: kParallax
  Duration check_time_max = std::chrono::seconds(10);    ///< of one question which version the server has
  Duration examine_time_max = std::chrono::seconds(60);  ///< of the questions how it was started; vLLM's take seconds
};

/// A server that generates for a worker, under the versions that the host's daemon installs. It follows them by itself;
/// Parallax is told. What counts is BackendCore's to say; here are its threads: one that follows versions and asks the
/// server for its own, and one for each request under way. One thread uses it. Its destructor ends the calls under way.
class Backend : public AnswerSource {
 public:
  /// Asks the server how it was started, for at most examine_time_max, and for nothing else. `files` outlives it. `say`
  /// takes lines for a person, from a thread of its own. Errors: kInvalidArgument (kParallax without a directory for
  /// blocks; adapters for a server that follows none), those of HttpClient::make() and BackendProtocol::examine().
  [[nodiscard]] static Result<std::unique_ptr<Backend>> start(FileSystem& files, std::unique_ptr<VersionSource> source,
                                                              BackendOptions options,
                                                              std::function<void(const std::string&)> say);

  /// BackendProtocol::has_log_probs()
  [[nodiscard]] virtual bool has_log_probs() const = 0;
  /// The version that the server generates under, once after each change.
  [[nodiscard]] virtual std::optional<Version> take_version() = 0;
  [[nodiscard]] virtual Installs installs() const = 0;
};

}  // namespace weightcast
