#pragma once

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
  /// Refused: only an origin publishes.
  Result<Version> next_version() override;
  void publish(PublishOrder order, std::function<void(Result<std::uint64_t>)> taken) override;
  std::optional<local::PublishResult> publish_result(Version version, double fraction) override;
  local::PublishProgress publish_progress(Version version) override;

  const Core& core() const override { return *core_; }

 protected:
  Core& mutable_core() override { return *core_; }
  void tell_core(const Revocations& revoked) override { core_->set_revocations(revoked.number()); }

 private:
  [[nodiscard]] std::string why_not_ready() const override;
  void follow_run(action::FollowRun follow);

  std::unique_ptr<WorkerCore> core_;
};

}  // namespace weightcast
