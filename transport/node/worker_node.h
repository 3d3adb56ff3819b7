#pragma once

#include "transport/core/worker/worker_core.h"
#include "transport/node/node.h"

namespace weightcast {

/// A node on an inference host.
class WorkerNode final : public Node {
 public:
  ~WorkerNode() override;

  Status start() override;
  void stop(std::string_view reason) override;

  local::StatusReply status() override;
  /// Refused: only an origin publishes.
  void publish(const local::PublishRequest& request, std::function<void(Result<std::uint64_t>)> taken) override;
  std::optional<local::PublishResult> publish_result(Version version, double fraction) override;
  local::PublishProgress publish_progress(Version version) override;

 private:
  std::unique_ptr<WorkerCore> core_;
};

}  // namespace weightcast
