#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "client/client.h"
#include "tools/observe/fleet_state.h"
#include "tools/observe/otlp_exporter.h"
#include "tools/observe/publication_meters.h"
#include "transport/http/server.h"

namespace weightcast {

/// Answers at a daemon's port for operators: /status, /events, /publications/N, /metrics, /healthz. docs/OPERATING.md
/// describes them.
///
/// One thread asks the daemon by its local socket, as any program does, and writes all answers from what it heard: at
/// most kStateAgeMax old, so that many clients ask the node no more often than one. While somebody follows /events it
/// asks kEventsEvery, and as much more seldom as a large fleet costs, so that it takes a hundredth of a core.
class DaemonView {
 public:
  static constexpr std::size_t kRequestsWaitingMax = 128;  ///< beyond it 503
  static constexpr std::size_t kFollowersMax = 64;         ///< of /events; beyond it 503

  /// The daemon of `state_dir` need not run yet. `release`: of this program. `exporter` outlives it; null: there is
  /// none.
  DaemonView(std::string state_dir, std::string release, const OtlpExporter* exporter = nullptr);
  /// Ends the streams.
  ~DaemonView();
  DaemonView(const DaemonView&) = delete;
  DaemonView& operator=(const DaemonView&) = delete;

  /// Of a GET. On any thread; does not wait.
  void handle(HttpRequest request, HttpResponder responder);

 private:
  using Clock = client::Clock;
  struct Asked {
    HttpRequest request;
    HttpResponder responder;
  };

  void run();
  void answer(Asked asked);
  [[nodiscard]] HttpResponse answer_to(const std::string& path);
  void follow(HttpResponder responder);
  /// Tells those who follow what has changed since the last time.
  void tell_followers();

  /// A client of the daemon, which may be starting, or opening its store again.
  [[nodiscard]] Result<client::Client*> daemon();
  [[nodiscard]] Result<FleetState> ask();
  /// One of kStateAgeMax at most.
  [[nodiscard]] Result<const FleetState*> state();
  /// whole_json() of it, as text.
  [[nodiscard]] const std::string& whole_text();
  [[nodiscard]] HttpResponse publication(std::string_view number);
  [[nodiscard]] HttpResponse metrics();
  [[nodiscard]] HttpResponse health();
  /// Whether the node does what it is there for.
  [[nodiscard]] Result<local::ReadyReply> readiness();

  const std::string state_dir_;
  const std::string release_;
  const OtlpExporter* const exporter_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Asked> asked_;  // guarded, as stopping_
  bool stopping_ = false;

  // Of the thread alone.
  std::unique_ptr<client::Client> client_;
  std::optional<FleetState> state_;
  Clock::time_point state_at_{};
  std::optional<std::string> whole_text_;  // of state_
  PublicationMeters meters_;
  std::vector<HttpStream> followers_;
  std::optional<FleetState> told_;  // what all of them know; while there are any
  Clock::time_point tell_at_{};
  Clock::time_point answered_at_{};  // the daemon, the last time
  Clock::time_point beat_at_{};      // of the last event "heartbeat"

  std::thread thread_;  // the last member: it uses the others
};

}  // namespace weightcast
