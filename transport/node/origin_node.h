#pragma once

#include <map>
#include <optional>

#include "transport/core/origin/origin_core.h"
#include "transport/node/history_reply.h"
#include "transport/node/members/enrolment_desk.h"
#include "transport/node/node.h"
#include "transport/node/takeover/apply_changes.h"

namespace weightcast {

/// The node on the trainer's host.
class OriginNode final : public Node {
 public:
  using Node::Node;
  ~OriginNode() override;

  Status start() override;

  local::StatusReply status() override;
  Result<local::HistoryReply> history(Version version) override;
  Result<Version> next_version() override;
  Status set_serving(std::string_view name, bool serves) override;
  Status forget(std::string_view name) override;
  Status set_provisioned(bool provisioned) override;
  void publish(PublishOrder order, std::function<void(Result<TakenOver>)> taken) override;
  std::optional<local::PublishResult> publish_result(Version version, double fraction) override;
  local::PublishProgress publish_progress(Version version) override;

  const Core& core() const override { return *core_; }

 protected:
  Core& mutable_core() override { return *core_; }
  void tell_core(const Revocations& revoked) override { core_->set_revocations(revoked.number(), revoked.to_pem()); }
  void tell_limits() override { core_->set_limits(config_.uplink, config_.addresses_allowed); }

 private:
  struct Started {
    Instant at{};
    std::uint64_t egress_bytes = 0;  // of the node, when it began
    std::optional<Instant> first_sent_at;
  };

  /// A publication that is under way.
  struct Publishing {
    Version version{};
    Version base{};  ///< the version before, or kNoVersion
    bool allow_nonfinite = false;
    Instant started_at{};
    std::function<void(Result<TakenOver>)> taken;
  };

  void handle_change();
  /// Keeps what has ended over a restart.
  void write_history();
  /// To the origin's status that it cannot dial the member, and to the member's whom that cannot dial.
  void add_unreached(const Member& member, local::NodeStatus& self, local::NodeStatus& node) const;
  /// Of a member that is not connected: since when, and whether it has not come back since this process began.
  void describe_absent(PeerId id, const Member& member, local::NodeStatus& node);
  void publish_snapshot(Publishing publishing, std::shared_ptr<const PublishedSnapshot> snapshot);
  void take_over_snapshot(Publishing publishing, std::shared_ptr<const PublishedSnapshot> snapshot);
  /// `base_lost` is called instead of an error that taking over the whole may mend; null: there is no whole.
  void publish_changes(Publishing publishing, std::unique_ptr<ChangeSource> source,
                       std::function<void(const Error&)> base_lost = nullptr);
  /// Chooses as the plan for a payload of so many bytes does.
  [[nodiscard]] std::function<std::uint32_t(std::uint64_t payload_bytes)> chunk_bytes_chooser();
  /// Tells the core of a version's payload while it is made.
  [[nodiscard]] PayloadObserver observe(Version version);
  void note_started(Version version);
  void end_publication(const Publishing& publishing, const Result<MadePayload>& made);
  [[nodiscard]] Status check_base(Version version, Version base) const;
  /// Whether it may spend processor time to send less where most cells changed: by --pack, and where it knows its rate.
  [[nodiscard]] bool compresses_weights() const;
  [[nodiscard]] ManifestAuthor author() const;
  /// The manifest of what the store has found, under today's keys.
  template <typename Stored>
  [[nodiscard]] std::shared_ptr<const Manifest> signed_again(const Stored& stored) const;
  void make(PayloadId payload);
  void enroll(action::Enroll enroll);

  std::unique_ptr<OriginCore> core_;
  std::optional<EnrolmentDesk> enrolment_desk_;  // of an origin that enrols workers
  std::uint64_t peer_records_written_ = 0;       // generation
  bool writing_peer_records_ = false;
  std::uint32_t unproven_ = 0;          // publications since one whose SHA-256 tree is signed
  double encode_s_ = 0;                 // of the last patch
  std::map<Version, Started> started_;  // the last few publications

  /// By the clock, as it was asked first: asked again it would be some other millisecond, and a change to tell.
  struct AbsentSince {
    Instant at{};
    UnixMillis unix_ms = 0;
  };
  std::map<PeerId, AbsentSince> absent_since_;  // of those that have been asked for

  /// Of a publication, as it was written: how it ended, how many have it, and how many engines.
  struct Written {
    PublicationRecord::End end{};
    std::uint32_t installed = 0, taken = 0;
    bool operator==(const Written&) const = default;
  };
  EarlierPublications earlier_;
  std::map<Version, Written> history_written_;
  std::optional<std::pair<Version, Written>> history_seen_;  // the newest one, when it was looked for what to write
  bool writing_history_ = false;
};

}  // namespace weightcast
