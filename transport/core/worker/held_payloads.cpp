#include "transport/core/worker/held_payloads.h"

#include <set>
#include <utility>

namespace weightcast {

void HeldPayloads::restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
  if (manifest->kind == PayloadKind::kFull && !hold_whole(holdings_, manifest, chunk_digests)) return;
  if (manifest->version < installed_) return;
  installed_ = manifest->version;
  installed_manifest_ = std::move(manifest);
}

void HeldPayloads::restore_patch(std::shared_ptr<const Manifest> manifest,
                                 const std::vector<ContentDigest>& chunk_digests) {
  (void)hold_whole(holdings_, std::move(manifest), chunk_digests);  // one that does not match is of no use
}

void HeldPayloads::handle_restored() {
  std::erase_if(holdings_, [&](const auto& held) { return held.first.version > installed_; });
}

std::vector<PayloadId> HeldPayloads::complete(std::size_t count_max) const {
  std::vector<PayloadId> payloads;
  for (auto held = holdings_.rbegin(); held != holdings_.rend() && payloads.size() < count_max; ++held) {
    if (held->second.complete()) payloads.push_back(held->first);
  }
  return payloads;
}

Holding& HeldPayloads::begin(std::shared_ptr<const Manifest> manifest) {
  const PayloadId payload = manifest->id();
  forget_packed();
  return holdings_.insert_or_assign(payload, Holding(std::move(manifest))).first->second;
}

void HeldPayloads::handle_installed(PayloadId payload) {
  installed_ = payload.version;
  installed_manifest_ = holdings_.at(payload).shared_manifest();
  forget_old_versions();
}

void HeldPayloads::handle_version_lost(Version version, std::shared_ptr<const Manifest> newest) {
  // All of them: one may have to come once more.
  for (auto held = holdings_.begin(); held != holdings_.end();) {
    const PayloadId payload = (held++)->first;
    if (payload.version == version) withdraw(payload, "what this node has of it is damaged");
  }
  if (version != installed_) return;
  installed_ = newest ? newest->version : kNoVersion;
  installed_manifest_ = std::move(newest);
}

bool HeldPayloads::withdraw(PayloadId payload, std::string_view why) {
  const auto held = holdings_.find(payload);
  if (held == holdings_.end()) return false;
  uploads_.withdraw(payload, why);
  holdings_.erase(held);
  return true;
}

// As large as most of a snapshot, and only for the children of its own publication.
void HeldPayloads::forget_packed() {
  for (auto held = holdings_.begin(); held != holdings_.end();) {
    const PayloadId payload = (held++)->first;
    if (payload.is_packed() && !uploads_.wanted(payload)) withdraw(payload, "this node takes up a newer version");
  }
}

void HeldPayloads::forget_old_versions() {
  std::set<Version> versions;
  for (const auto& [payload, holding] : holdings_) versions.insert(payload.version);
  for (auto held = holdings_.begin(); held != holdings_.end() && versions.size() > config_.versions_kept;) {
    const PayloadId payload = held->first;
    if (payload.version == installed_) break;
    ++held;
    if (uploads_.wanted(payload) && versions.size() <= config_.versions_kept + kFetchedVersionsMax) continue;
    withdraw(payload, "this node keeps newer versions only");
    if (held == holdings_.end() || held->first.version != payload.version) versions.erase(payload.version);
  }
}

}  // namespace weightcast
