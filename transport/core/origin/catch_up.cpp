#include "transport/core/origin/catch_up.h"

#include <optional>

namespace weightcast {
namespace {

bool is_small(std::uint64_t bytes, std::uint64_t full_bytes) {
  return double(bytes) < kPatchShareMax * double(full_bytes);
}

/// The patch from `base` that leads furthest.
const Holding* longest_from(const Holdings& holdings, Version base) {
  const Holding* best = nullptr;
  for (const auto& [payload, holding] : holdings) {
    if (payload.base == base && payload.is_patch()) best = &holding;  // in the order of versions
  }
  return best;
}

/// The stored patches in turn from `base` to the latest version: the first of them, and what all take. Nothing if they
/// do not lead there, or are not worth it.
std::optional<CatchUp> chain_from(const Holdings& holdings, const CatchUpRequest& request, Version base) {
  CatchUp chain;
  Version at = base;
  for (std::uint32_t patches = 0; at != request.latest; ++patches) {
    const Holding* step = longest_from(holdings, at);
    if (step == nullptr || patches == request.patches_max) return std::nullopt;
    if (patches == 0) chain.next = step->manifest().id();
    chain.total_bytes += step->manifest().planned_bytes();
    at = step->manifest().version;
  }
  if (!is_small(chain.total_bytes, request.full_bytes)) return std::nullopt;
  return chain;
}

CatchUp full_payload(const Holdings& holdings, const CatchUpRequest& request) {
  const PayloadId packed = packed_of(request.latest);
  if (request.patches_fit) {
    if (const auto held = holdings.find(packed); held != holdings.end()) {
      return {packed, held->second.manifest().planned_bytes(), false};
    }
    if (request.can_make(packed)) return {packed, 0, true};
  }
  const PayloadId full(request.latest);
  if (holdings.contains(full)) return {full, request.full_bytes, false};
  for (auto older = request.whole.rbegin(); older != request.whole.rend() && *older > request.installed; ++older) {
    const auto chain = chain_from(holdings, request, *older);
    if (chain) return {*older, request.full_bytes + chain->total_bytes, !holdings.contains(*older)};
  }
  return request.can_make(full) ? CatchUp{full, request.full_bytes, true} : CatchUp{};
}

}  // namespace

CatchUp choose_payload(const Holdings& holdings, const CatchUpRequest& request) {
  if (request.installed == kNoVersion || !request.patches_fit) return full_payload(holdings, request);
  const PayloadId direct = patch_of(request.latest, request.installed);
  if (const auto held = holdings.find(direct); held != holdings.end()) {
    return {direct, held->second.manifest().planned_bytes(), false};
  }
  if (request.can_make(direct)) return {direct, 0, true};
  const auto chain = chain_from(holdings, request, request.installed);
  return chain ? *chain : full_payload(holdings, request);
}

std::set<PayloadId> useful_chain(const Holdings& holdings, Version latest, std::uint64_t full_bytes,
                                 std::uint32_t patches_max) {
  std::set<PayloadId> chain;
  std::uint64_t total_bytes = 0;
  for (Version at = latest; chain.size() < patches_max;) {
    // Of the patches that lead to it, the one from the nearest version is what was made when it was published.
    const Holding* step = nullptr;
    for (const auto& [payload, holding] : holdings) {
      if (payload.version == at && payload.is_patch()) step = &holding;
    }
    if (step == nullptr) break;
    total_bytes += step->manifest().planned_bytes();
    if (!is_small(total_bytes, full_bytes)) break;
    chain.insert(step->manifest().id());
    at = step->manifest().base_version;
  }
  return chain;
}

}  // namespace weightcast
