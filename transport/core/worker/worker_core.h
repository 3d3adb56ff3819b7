#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/core/core.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/edge/links.h"
#include "transport/core/edge/self_check.h"
#include "transport/core/edge/uploads.h"
#include "transport/core/unidentified_connections.h"
#include "transport/core/worker/intake.h"
#include "transport/core/worker/origin_link.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// A worker: joins its origin, serves its children, and leaves what arrives to its Intake.
/// Invariant: a connection is the origin's, a parent's, a child's, a probe, or unidentified.
class WorkerCore final : public Core {
 public:
  explicit WorkerCore(WorkerConfig config);

  /// A complete version that a store recovered; before start(). The newest is the installed one. Of a version that came
  /// as a patch the digests are of no interest.
  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests);
  /// A complete patch that a store recovered, for children; before start().
  void restore_patch(std::shared_ptr<const Manifest> manifest, const std::vector<Digest>& chunk_digests);

  void start(Instant now) override;
  void stop(std::string_view reason) override;
  [[nodiscard]] ConnId next_conn() override { return conn_ids_.next(); }
  void handle_accepted(Instant now, ConnId conn, std::string_view peer_host) override;
  void handle_connected(Instant now, ConnId conn) override;
  void handle_closed(Instant now, ConnId conn, const Error& why) override;
  void handle_message(Instant now, ConnId conn, const wire::Message& message) override;
  void handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) override;
  void handle_chunk_sent(Instant now, ConnId conn) override;
  void handle_chunk_unreadable(Instant now, PayloadId payload, ChunkIndex chunk) override {
    self_check_.handle_suspected(now, payload, chunk);
  }
  void handle_chunk_checked(Instant now, PayloadId payload, ChunkIndex chunk, Result<Digest> digest) override;
  void handle_payload_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored) override;
  void handle_chunk_stored(Instant now, PayloadId payload, ChunkIndex chunk, Status status) override;
  void handle_finished(Instant now, PayloadId payload, Status status) override;
  void handle_timeout(Instant now) override;
  [[nodiscard]] std::optional<Action> poll_action() override { return actions_.poll(); }
  [[nodiscard]] std::optional<Instant> poll_deadline() const override;

  [[nodiscard]] Version installed_version() const { return intake_.installed_version(); }
  [[nodiscard]] const Holdings& holdings() const override { return holdings_; }
  [[nodiscard]] bool joined() const { return origin_.joined(); }
  [[nodiscard]] PeerId id() const { return origin_.id(); }
  [[nodiscard]] const std::string& name() const { return config_.name; }
  /// What is arriving and what is installed.
  [[nodiscard]] const Intake& intake() const { return intake_; }
  [[nodiscard]] PayloadId receiving() const { return intake_.receiving(); }
  [[nodiscard]] std::uint64_t bytes_received() const { return intake_.bytes_received(); }
  [[nodiscard]] std::uint64_t bytes_sent() const { return uploads_.bytes_sent(); }
  [[nodiscard]] std::vector<std::string> children() const { return uploads_.children(); }
  /// Why it is not joined, or else why the last version could not be installed.
  [[nodiscard]] const std::string& last_error() const {
    return origin_.last_error().empty() ? intake_.last_error() : origin_.last_error();
  }

 private:
  void handle_origin_message(Instant now, const wire::Message& message);
  void handle_first_message(Instant now, ConnId conn, const wire::Message& message);
  void join(Instant now);
  void refuse(ConnId conn, const Error& why);
  void say_hello(ConnId conn);
  void handle_probe(const wire::Probe& probe);
  /// Whether `conn` was a probe; then the origin is told how it went.
  bool end_probe(ConnId conn, bool reached);

  WorkerConfig config_;
  ActionQueue actions_;
  ConnIds conn_ids_;
  Links links_;
  Holdings holdings_;
  Uploads uploads_;
  SelfCheck self_check_;
  OriginLink origin_;
  Intake intake_;
  UnidentifiedConnections unidentified_;
  std::map<ConnId, PeerId> probes_;  // dialled for the origin, to see whether they can be
  bool started_ = false;
};

}  // namespace weightcast
