#include "transport/core/origin/origin_payloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "transport/core/payload_wire.h"

namespace weightcast {
namespace {

// Old versions beyond those kept whose payloads stay because workers are still receiving them.
constexpr std::size_t kReceivedVersionsMax = 2;

constexpr std::string_view kWrongDigests = "chunk digests are missing, or are not those of the manifest";

Error bad(Errc code, PayloadId payload, std::string_view why) {
  return fail(code, Op::kPublish, fmt::format("{}: {}", to_string(payload), why));
}

/// One that is complete, and ours.
Holding whole(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
  const std::uint32_t chunks = manifest->chunk_count();
  Holding holding(std::move(manifest));
  holding.restore(chunk_digests, ChunkSet(chunks, true));
  return holding;
}

}  // namespace

bool OriginPayloads::taking_over() const { return latest_ != kNoVersion && holdings_.at(latest_).open(); }

Version OriginPayloads::newest_before(Version version) const {
  Version newest = kNoVersion;
  for (const auto& [payload, holding] : holdings_) {
    if (!payload.is_encoded() && payload.version < version) newest = payload.version;  // in the order of versions
  }
  return newest;
}

bool OriginPayloads::restore(std::shared_ptr<const Manifest> manifest,
                             const std::vector<ContentDigest>& chunk_digests) {
  Holding holding = whole(manifest, chunk_digests);
  if (!holding.complete()) return false;
  holdings_.emplace(manifest->id(), std::move(holding));
  if (manifest->kind == PayloadKind::kFull) latest_ = std::max(latest_, manifest->version);
  return true;
}

void OriginPayloads::begin_version(std::shared_ptr<const Manifest> manifest, double packed_share) {
  const Version version = manifest->version;
  WC_CHECK(manifest->open && version > latest_ && !taking_over());
  if (packed_share >= kPackedShareMax) useless_.insert(packed_of(version));
  packed_share_ = packed_share;
  holdings_.emplace(version, Holding(std::move(manifest)));
  latest_ = version;
}

Result<std::optional<wire::Message>> OriginPayloads::complete_version(const MadePayload& made) {
  const Version version = made.manifest->version;
  WC_CHECK(taking_over() ? version == latest_ : version > latest_);
  WC_ASSIGN(auto message, complete(made));
  set_latest(version);
  return message;
}

void OriginPayloads::set_latest(Version version) {
  latest_ = version;
  std::erase_if(useless_, [&](PayloadId p) { return p.version != latest_; });
}

bool OriginPayloads::can_make(PayloadId payload) const {
  if (making_.contains(payload)) return true;
  if (useless_.contains(payload) || !holdings_.contains(payload.version)) return false;
  return payload.is_packed() ? config_.packing != Packing::kNever : config_.patches && holdings_.contains(payload.base);
}

bool OriginPayloads::is_making_for(Version version) const {
  return std::ranges::any_of(making_, [&](PayloadId payload) { return payload.version == version; });
}

void OriginPayloads::make(PayloadId payload) {
  if (holdings_.contains(payload) || !making_.insert(payload).second) return;
  actions_.push(action::MakePatch{payload});
}

Status OriginPayloads::begin_made(std::shared_ptr<const Manifest> manifest) {
  const PayloadId payload = manifest->id();
  if (!making_.contains(payload)) return bad(Errc::kNotFound, payload, "the origin did not ask for it");
  if (!manifest->open) return bad(Errc::kInvalidArgument, payload, "its first manifest is not open");
  if (holdings_.contains(payload)) return bad(Errc::kAlreadyExists, payload, "it was begun before");
  holdings_.emplace(payload, Holding(std::move(manifest)));
  return {};
}

Result<wire::Message> OriginPayloads::grow(const MadePayload& grown) {
  const PayloadId payload = grown.manifest->id();
  const auto held = holdings_.find(payload);
  if (held == holdings_.end()) return bad(Errc::kNotFound, payload, "it was not begun");
  Holding& holding = held->second;
  if (!continues(holding.manifest(), *grown.manifest)) {
    return bad(Errc::kInvalidArgument, payload, "what was made does not continue what was announced");
  }
  wire::Message message;
  *message.mutable_growth() = growth_between(holding.manifest(), *grown.manifest);
  holding.grow(grown.manifest);
  holding.restore(grown.chunk_digests, ChunkSet(grown.manifest->chunk_count(), true));
  if (!holding.verified().complete()) return bad(Errc::kInvalidArgument, payload, kWrongDigests);
  return message;
}

Result<std::optional<wire::Message>> OriginPayloads::complete(const MadePayload& made) {
  const PayloadId payload = made.manifest->id();
  if (made.manifest->open) return bad(Errc::kInvalidArgument, payload, "its last manifest is still open");
  if (holdings_.contains(payload)) {
    WC_ASSIGN(wire::Message message, grow(made));
    return std::optional(std::move(message));
  }
  Holding holding = whole(made.manifest, made.chunk_digests);
  if (!holding.complete()) return bad(Errc::kInvalidArgument, payload, kWrongDigests);
  holdings_.emplace(payload, std::move(holding));
  return std::optional<wire::Message>();
}

bool OriginPayloads::withdraw(PayloadId payload) {
  const auto held = holdings_.find(payload);
  if (held == holdings_.end()) return false;
  if (payload.is_full() && !held->second.open()) last_used_ = std::max(last_used_, payload.version);
  holdings_.erase(held);
  if (payload == PayloadId(latest_)) set_latest(newest_before(latest_));
  return true;
}

CatchUp OriginPayloads::catch_up_to(Version version, Version installed, bool patches_fit,
                                    const std::function<bool(PayloadId)>& can_make) const {
  return choose_payload(holdings_, {installed, version, patches_fit, config_.anchor_interval, can_make});
}

std::vector<PayloadId> OriginPayloads::unneeded(const std::function<bool(PayloadId)>& in_use) const {
  if (taking_over()) return {};
  std::set<PayloadId> chain = useful_chain(holdings_, latest_, config_.anchor_interval);
  // A last link that is being made may lead on from those to its base. No others: where publications come faster than
  // patches are made, a link is always being made.
  for (const PayloadId link : making_) {
    if (link.version == latest_ && link.is_patch()) {
      chain.merge(useful_chain(holdings_, link.base, config_.anchor_interval));
    }
  }
  std::size_t newer = 0;       // full payloads met on the way from the newest to the oldest
  std::set<Version> received;  // versions that stay for those alone who are still receiving them
  std::vector<PayloadId> old;
  for (auto held = holdings_.rbegin(); held != holdings_.rend(); ++held) {
    const PayloadId payload = held->first;
    bool keep = making_.contains(payload);
    if (payload.is_packed()) {
      keep = keep || payload.version == latest_;
    } else if (payload.is_patch()) {
      keep = keep || payload.version == latest_ || chain.contains(payload);
    } else {
      const bool compared = std::ranges::any_of(
          making_, [&](PayloadId p) { return p.base == payload.version || p.version == payload.version; });
      keep = keep || newer++ < config_.versions_kept || compared;
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
