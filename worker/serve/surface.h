#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "transport/http/server.h"
#include "transport/http/work_thread.h"
#include "worker/serve/engine_host.h"
#include "worker/serve/generation.h"

namespace weightcast {

struct SurfaceOptions {
  HttpServerOptions http;
  std::string model_name;
  std::string release = {};                         ///< of this program
  std::optional<QwenChat> chat = QwenChat::kQwen3;  ///< how messages become text; nothing: calls with them are refused
  std::shared_ptr<const Task> task = {};            ///< computes trajectories' rewards; null: they have none
  /// For which a call waits for the version that it wants, for POST /resume, or for rewards: 503 after it.
  Duration wait_max = std::chrono::seconds(30);
  std::function<void(const std::string&)> say = {};  ///< of versions that are not used; on the engine's thread
};

/// The HTTP surface of a worker:
///   GET  /health, /liveness            200 while it answers
///   GET  /v1/models, /v1/models/NAME   data[0].{id, max_model_len}; the same of one
///   POST /v1/completions, /v1/chat/completions
///   POST /tokenize, /detokenize
///   POST /pause?mode=abort|wait|keep, /resume; GET /is_paused
///   POST /abort_requests               {"request_ids": [...]}: ids of completions
///   GET  /get_weight_version           of what is generated from now on, and what became of other versions
///   POST /v1/rl/trajectories           ECHO's mode sequential: {prompts, param_version, metadata, ...}
///   GET  /metrics                      for Prometheus
class Surface {
 public:
  /// Listens. `tokenizer` may be null: then prompts are ids. Errors: kInvalidArgument (a task without a
  /// tokenizer); those of HttpServer::start().
  [[nodiscard]] static Result<std::unique_ptr<Surface>> start(std::unique_ptr<Engine> engine,
                                                              std::unique_ptr<VersionFollower> versions,
                                                              std::shared_ptr<const Tokenizer> tokenizer,
                                                              SurfaceOptions options);
  /// Lets answers end for at most `grace`, then ends all.
  void stop(Duration grace) { server_->stop(grace); }
  ~Surface();

  /// Answers what GET /metrics is answered with. Any thread; the answer comes between two steps of the engine.
  void answer_metrics(HttpResponder responder);

  [[nodiscard]] const Endpoint& endpoint() const { return server_->endpoint(); }

 private:
  Surface(std::unique_ptr<Engine> engine, std::unique_ptr<VersionFollower> versions,
          std::shared_ptr<const Tokenizer> tokenizer, const SurfaceOptions& options);

  void handle(HttpRequest request, HttpResponder responder);
  /// What reads a whole body, on a thread of its own.
  void read_body(const HttpRequest& request, HttpResponder responder);
  void complete(const nlohmann::json& json, CallKind kind, std::string client, HttpResponder responder);
  void post(std::function<HttpResponse()> job, HttpResponder responder);
  void add_metrics(MetricsText& text) const;
  [[nodiscard]] HttpResponse version() const;
  [[nodiscard]] nlohmann::json model_json() const;
  [[nodiscard]] HttpResponse pause(const std::string& mode);

  const ServedModel model_;
  const std::string release_;
  const Duration wait_max_;
  std::map<std::string, std::weak_ptr<Generation>> generations_;  // by id; of the engine's thread
  std::atomic<std::uint64_t> calls_ = 0;
  std::unique_ptr<HttpServer> server_;  // before the host, whose jobs read its counters
  WorkThread scores_;                   // the same
  EngineHost host_;
  std::unique_ptr<WorkThread> bodies_;
};

}  // namespace weightcast
