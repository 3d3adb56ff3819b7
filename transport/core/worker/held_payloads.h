#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "transport/core/edge/holdings.h"
#include "transport/core/edge/uploads.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// What a worker holds, and which version is installed. Pure. Owned by a WorkerCore, which restores it; its Intake does
/// the rest. Invariants: a worker's holdings change here alone; nothing of a version above the installed one is held,
/// but for the payload that arrives; installed() goes back only when the store has lost that version.
class HeldPayloads {
 public:
  /// All outlive it.
  HeldPayloads(const WorkerConfig& config, Holdings& holdings, Uploads& uploads)
      : config_(config), holdings_(holdings), uploads_(uploads) {}

  /// See WorkerCore.
  void restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
  void restore_patch(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests);
  /// Forgets what leads to a version that is not here any more: it helps nobody, and may be announced again.
  void handle_restored();

  [[nodiscard]] Version installed() const { return installed_; }
  /// Of the payload that brought it; null if nothing is installed.
  [[nodiscard]] const Manifest* installed_manifest() const { return installed_manifest_.get(); }
  /// Those that can be served whole, the newest first; at most `count_max`.
  [[nodiscard]] std::vector<PayloadId> complete(std::size_t count_max) const;

  /// A payload begins to arrive. Packed payloads of other versions make room for it, unless children want them.
  /// The reference holds until the payload is withdrawn.
  [[nodiscard]] Holding& begin(std::shared_ptr<const Manifest> manifest);
  /// The payload that arrived is installed. Lets go of old versions: beyond `versions_kept` at most
  /// kFetchedVersionsMax stay, because children are still fetching them.
  void handle_installed(PayloadId payload);
  /// A complete version is gone: holds no payload of it any more. If it was the installed one, `newest` is that now;
  /// null if nothing is.
  void handle_version_lost(Version version, std::shared_ptr<const Manifest> newest);
  /// Holds `payload` no more; children hear why. Returns whether it was held.
  bool withdraw(PayloadId payload, std::string_view why);

 private:
  static constexpr std::size_t kFetchedVersionsMax = 2;

  void forget_packed();
  void forget_old_versions();

  const WorkerConfig& config_;
  Holdings& holdings_;
  Uploads& uploads_;
  Version installed_{};
  std::shared_ptr<const Manifest> installed_manifest_;
};

}  // namespace weightcast
