#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/files/file_system.h"
#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/time.h"
#include "trainer/model/config.h"
#include "transport/http/trust.h"
#include "worker/backend/backend_protocol.h"
#include "worker/engine/answer_source.h"
#include "worker/engine/engine_metrics.h"
#include "worker/engine/version_source.h"

namespace weightcast {

struct BackendOptions {
  BackendKind kind = BackendKind::kVllm;
  Endpoint server = {};   ///< that generates
  Endpoint control = {};  ///< that installs versions; without a host, the same
  HttpTrust trust = {};   ///< of both
  BackendSwitch on_switch = BackendSwitch::kWait;
  BackendProtocolOptions protocol = {};
  ModelConfig model = {};   ///< versions that come with another config.json, or other tensors, are refused
  BackendNeeds needs = {};  ///< on_switch is set by Backend
  /// After each install the server's log-probabilities are compared with our own (InstallCheck), and a version that it
  /// has not loaded right is refused.
  bool checks_installs = true;
  double tolerance = 0;          ///< of that; 0: install_tolerance() of what the server computes in
  unsigned check_threads = 1;    ///< of our own forward pass
  std::size_t running_max = 64;  ///< requests that the server has at once, each over a connection and thread of its own
  Duration answer_time_max = std::chrono::minutes(10);   ///< of one request; with kWait an install waits for so long
  Duration install_time_max = std::chrono::minutes(10);  ///< of one install
  Duration check_time_max = std::chrono::seconds(10);    ///< of one question which version the server has
  Duration examine_time_max = std::chrono::seconds(60);  ///< of the questions how it was started; vLLM's take seconds
};

/// A server that generates for a worker, and is told where the versions are that the host's daemon installs. What
/// counts is BackendCore's to say; here are its threads: one that follows versions, one that asks which version the
/// server has, and one for each request under way. One thread uses it. Its destructor ends the calls under way, and
/// undoes nothing else at the server.
class Backend : public AnswerSource {
 public:
  /// Asks the server how it was started, for at most examine_time_max, and for nothing else. `files` outlives it. `say`
  /// takes lines for a person, from a thread of its own. Errors: kInvalidArgument (answers cannot go on where the
  /// server does not say versions; kParallax without a directory for blocks), those of HttpClient::make() and
  /// BackendProtocol::examine().
  [[nodiscard]] static Result<std::unique_ptr<Backend>> start(FileSystem& files, std::unique_ptr<VersionSource> source,
                                                              BackendOptions options,
                                                              std::function<void(const std::string&)> say);

  /// BackendProtocol::has_log_probs()
  [[nodiscard]] virtual bool has_log_probs() const = 0;
  /// The version that the server generates under, once after each install.
  [[nodiscard]] virtual std::optional<Version> take_version() = 0;
  [[nodiscard]] virtual Installs installs() const = 0;
};

}  // namespace weightcast
