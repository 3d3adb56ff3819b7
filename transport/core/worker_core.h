#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "base/units.h"
#include "transport/core/core.h"
#include "transport/core/download.h"
#include "transport/core/holdings.h"
#include "transport/core/links.h"
#include "transport/core/timeouts.h"
#include "transport/core/uploads.h"

namespace weightcast {

struct WorkerConfig {
  std::string name;
  std::string model_id;           ///< "" accepts any; another than the origin's is refused by it
  std::uint64_t incarnation = 0;  ///< random per process
  std::string origin_host;
  std::uint16_t origin_port = 0;
  std::string listen_host;  ///< "" or unspecified: the origin advertises the address that it sees
  std::uint16_t listen_port = 0;
  Rate uplink{};
  Rate downlink{};
  bool leaf_only = false;
  bool standby = false;
  std::uint32_t versions_kept = 2;
  bool single_copy = false;   ///< a patch takes the place of its base, which can be served no more then
  std::uint32_t streams = 1;  ///< connections to each parent
  Timeouts timeouts{};
};

/// A worker: joins its origin, downloads what is announced, serves its children, installs.
///
/// One version is received at a time; of those announced meanwhile the newest is next, the others are skipped. A
/// version that is being received is finished first: otherwise a trainer that publishes faster than the links carry
/// would leave every worker with nothing; it is given up only when the origin itself has it no more, or for a newer one
/// of fewer bytes than are missing of it.
///
/// A patch is taken only on the version that is installed. One that turns out not to fit it, because the base is
/// damaged or another, is told to the origin, which then assigns the full payload; until that is installed no patch is
/// taken.
///
/// A patch may be open: still being made at the origin, which says on the control connection what it has grown to. It
/// is received, forwarded and stored like any other, and installed only when it is not open any more; until then a
/// failure or a restart throws away what is here of it.
///
/// Invariants: nothing unverified is stored, forwarded or installed; installed_version() never goes back.
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
  void handle_payload_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored) override;
  void handle_chunk_stored(Instant now, PayloadId payload, ChunkIndex chunk, Status status) override;
  void handle_finished(Instant now, PayloadId payload, Status status) override;
  void handle_timeout(Instant now) override;
  [[nodiscard]] std::optional<Action> poll_action() override { return actions_.poll(); }
  [[nodiscard]] std::optional<Instant> poll_deadline() const override;

  [[nodiscard]] Version installed_version() const { return installed_; }
  [[nodiscard]] const Holdings& holdings() const override { return holdings_; }
  [[nodiscard]] bool joined() const { return joined_; }
  [[nodiscard]] PeerId id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return config_.name; }
  /// The payload that is arriving; of kNoVersion if none is.
  [[nodiscard]] PayloadId receiving() const;
  [[nodiscard]] std::uint32_t chunks_verified() const;
  [[nodiscard]] std::uint32_t chunks_total() const;
  [[nodiscard]] double receive_bytes_per_s() const;
  [[nodiscard]] std::uint64_t bytes_received() const { return bytes_received_; }
  [[nodiscard]] std::uint64_t bytes_sent() const { return uploads_.bytes_sent(); }
  [[nodiscard]] std::string parent_name() const;
  [[nodiscard]] std::vector<std::string> children() const { return uploads_.children(); }
  [[nodiscard]] const std::string& last_error() const { return last_error_; }
  /// Of the last installation: from the first chunk until all were stored, and from there on.
  [[nodiscard]] double transfer_s() const { return transfer_s_; }
  [[nodiscard]] double finish_s() const { return finish_s_; }

 private:
  enum class Phase : std::uint8_t { kBeginning, kReceiving, kFinishing };
  struct Announced {
    std::shared_ptr<const Manifest> manifest;
    wire::Assignment assignment;
  };
  struct Incoming {
    PayloadId id{};
    Phase phase = Phase::kBeginning;
    bool begun_open = false;
    std::unique_ptr<Download> download;
    ChunkSet stored;
    Instant stored_at{};  // all of it
    Announced source;
  };

  void dial_origin();
  void lose_origin(Instant now);
  void send_to_origin(wire::Message message);
  void refuse(ConnId conn, const Error& why);
  void handle_announce(Instant now, const wire::Announce& announce);
  void handle_assignment(Instant now, const wire::Assignment& assignment);
  void handle_growth(Instant now, const wire::Growth& growth);
  /// What is arriving has grown to `manifest`.
  void grow_incoming(Instant now, std::shared_ptr<const Manifest> manifest);
  void take_up_newest(Instant now);
  void finish_if_complete(Instant now);
  void fail_incoming(Instant now, const Error& why, bool discard);
  /// Gives up what is arriving for what was announced since.
  void abandon_incoming(Instant now, std::string_view why);
  /// Whether it could be installed on what is installed now.
  [[nodiscard]] bool fits(const Manifest& manifest) const;
  [[nodiscard]] bool cheaper_than_incoming(const Manifest& manifest) const;
  void report_faults();
  void send_heartbeat(Instant now);
  void send_installed();
  void forget_old_versions();
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

  // The control connection.
  ConnId origin_{};
  bool origin_open_ = false;
  bool joined_ = false;
  bool refused_ = false;  // on this connection, or the last one if there is none
  PeerId id_{};
  Instant origin_heard_at_{};
  Instant heartbeat_due_{};
  std::optional<Instant> redial_at_;
  std::uint32_t redials_ = 0;
  bool started_ = false;

  std::map<ConnId, Instant> strangers_;  // accepted, nothing said yet
  std::map<ConnId, PeerId> probes_;      // dialled for the origin, to see whether they can be

  std::optional<Announced> announced_;  // the newest that is neither installed nor arriving
  std::optional<Incoming> incoming_;
  std::optional<Instant> retry_at_;  // after a failure of our own (a full disk)
  Version installed_{};
  std::shared_ptr<const Manifest> installed_manifest_;
  bool base_unusable_ = false;
  double installed_seconds_ = 0;
  double transfer_s_ = 0;
  double finish_s_ = 0;
  std::uint64_t bytes_received_ = 0;
  std::string last_error_;
};

}  // namespace weightcast
