#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/time.h"
#include "transport/http/client.h"
#include "transport/http/server.h"
#include "transport/http/work_thread.h"

namespace weightcast {

struct FleetPageOptions {
  std::optional<Endpoint> learner;  ///< whose status /learner tells; absent: there is none
  HttpTrust learner_trust;          ///< of the connection to it
};

/// What a daemon's port for operators answers beside its own state: / is the page, /plan the planner's answer to a
/// question (what_if.h), /learner the learner's GET /v1/status, so that the page asks nobody but the daemon.
///
/// Bounds: /plan is computed on a thread of its own, one question after another, of which kWaitingMax wait; the learner
/// is asked on another one, at most once in kLearnerAgeMax whoever asks, and for kLearnerTimeout. Beyond them 503.
class FleetPage {
 public:
  static constexpr std::size_t kWaitingMax = 8;
  static constexpr Duration kLearnerAgeMax = std::chrono::seconds(1);
  static constexpr Duration kLearnerTimeout = std::chrono::seconds(3);

  /// Errors: those of check_trust() and HttpClient::make(), for the learner.
  [[nodiscard]] static Result<std::unique_ptr<FleetPage>> make(const FleetPageOptions& options);
  /// Ends the call to the learner that is under way.
  ~FleetPage();

  /// Whether `path` is one of these.
  [[nodiscard]] static bool has(std::string_view path);
  /// Of a GET whose path it has. Any thread; does not wait.
  void handle(HttpRequest request, HttpResponder responder);

 private:
  explicit FleetPage(std::unique_ptr<HttpClient> learner) : learner_(std::move(learner)) {}
  static void post(WorkThread& thread, std::function<HttpResponse()> answer, HttpResponder responder);
  [[nodiscard]] HttpResponse ask_learner();

  const std::unique_ptr<HttpClient> learner_;  // of asking_; null: there is none
  // Of asking_ alone.
  Instant asked_at_{};
  std::optional<HttpResponse> answer_;

  WorkThread planning_{kWaitingMax}, asking_{kWaitingMax};  // the last members: their jobs use the others
};

}  // namespace weightcast
