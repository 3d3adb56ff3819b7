#pragma once

#include <optional>
#include <vector>

#include "transport/core/worker/worker_core.h"
#include "transport/node/node.h"

namespace weightcast {

/// A node on an inference host.
class WorkerNode final : public Node {
 public:
  using Node::Node;
  ~WorkerNode() override;

  Status start() override;

  local::StatusReply status() override;
  /// Also notes when an engine takes the version in use.
  void pin(std::vector<Version> versions) override;
  /// Refused: the origin remembers publications.
  Result<local::HistoryReply> history(Version version) override;
  /// Refused: only an origin publishes.
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
  void tell_core(const Revocations& revoked) override;
  void tell_limits() override;

 private:
  [[nodiscard]] std::string why_not_ready() const override;
  void follow_run(action::FollowRun follow);
  /// Gives the core what is on disk, unless something there is not vouched for.
  void restore();
  /// Looks whether everything that is complete here is vouched for. If not, that is `unproven_`.
  void look_for_unproven();
  /// Goes on without what is unproven: it stays in use until the first version that is proven.
  void leave_unproven();
  void handle_change();
  void note_accepted(Manifest newest);
  /// Counts how long the version took that was installed last.
  void note_phases();

  std::unique_ptr<WorkerCore> core_;
  std::optional<Error> unproven_;
  Version accepted_noted_{};
  Version metered_{};  // whose phases have been counted
  bool writing_accepted_ = false;
  std::vector<AcceptedVersion> accepted_written_;
};

}  // namespace weightcast
