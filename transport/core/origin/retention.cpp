#include "transport/core/origin/retention.h"

#include <algorithm>
#include <set>

#include "transport/core/origin/catch_up.h"

namespace weightcast {
namespace {

// Old versions beyond those kept whose payloads stay because workers are still receiving them.
constexpr std::size_t kReceivedVersionsMax = 2;

}  // namespace

std::vector<PayloadId> unneeded_payloads(const OriginConfig& config, const Holdings& holdings,
                                         const std::map<Version, Publication>& publications, Version latest,
                                         const std::function<bool(PayloadId)>& in_use) {
  const auto chain_to = [&](Version version) {
    const auto found = publications.find(version);
    if (found == publications.end() || !found->second.in_store()) return std::set<PayloadId>();
    return useful_chain(holdings, version, found->second.full_bytes(), config.anchor_interval);
  };
  std::set<PayloadId> chain = chain_to(latest);
  std::set<PayloadId> payloads, making;
  for (const auto& [payload, holding] : holdings) payloads.insert(payload);
  for (const auto& [version, publication] : publications) {
    if (publication.in_store()) payloads.insert(version);
    making.insert(publication.making().begin(), publication.making().end());
  }
  // A last link that is being made may lead on from those to its base. No others: where publications come faster than
  // patches are made, a link is always being made.
  for (const PayloadId link : making) {
    if (link.version == latest && link.is_patch()) chain.merge(chain_to(link.base));
  }
  // Whether a payload that is being made is made of that version.
  const auto is_read = [&](Version version) {
    return std::ranges::any_of(making, [&](PayloadId p) { return p.base == version || p.version == version; });
  };
  std::size_t newer = 0;       // versions met on the way from the newest to the oldest
  std::set<Version> received;  // versions that stay for those alone who are still receiving them
  std::vector<PayloadId> old;
  for (auto at = payloads.rbegin(); at != payloads.rend(); ++at) {
    const PayloadId payload = *at;
    bool keep = making.contains(payload);
    if (payload.is_packed()) {
      keep = keep || payload.version == latest;
    } else if (payload.is_patch()) {
      keep = keep || payload.version == latest || chain.contains(payload);
    } else {
      keep = keep || newer++ < config.versions_kept || is_read(payload.version);
    }
    if (keep) continue;
    // A child that reads nothing keeps no more than these from being forgotten.
    const bool room = received.size() < kReceivedVersionsMax || received.contains(payload.version);
    if (room && in_use(payload)) {
      received.insert(payload.version);
    } else {
      old.push_back(payload);
    }
  }
  return old;
}

}  // namespace weightcast
