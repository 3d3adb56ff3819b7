#include "transport/core/origin/origin_payloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "transport/core/payload_wire.h"

namespace weightcast {
namespace {

// Old versions beyond those kept whose payloads stay because workers are still receiving them.
constexpr std::size_t kReceivedVersionsMax = 2;

constexpr std::string_view kNoVersionAnyMore = "it is no version of this origin any more";
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

bool OriginPayloads::taking_over() const { return latest_ != kNoVersion && versions_.at(latest_)->open; }

PayloadId OriginPayloads::begun() const { return taking_over() ? versions_.at(latest_)->id() : PayloadId{}; }

const Manifest* OriginPayloads::find_version(Version version) const {
  const auto found = versions_.find(version);
  return found == versions_.end() ? nullptr : found->second.get();
}

std::uint64_t OriginPayloads::full_bytes(Version version) const {
  const auto full = holdings_.find(version);
  return full != holdings_.end() ? full->second.manifest().planned_bytes() : versions_.at(version)->snapshot_bytes();
}

Version OriginPayloads::newest_before(Version version) const {
  const auto next = versions_.lower_bound(version);
  return next == versions_.begin() ? kNoVersion : std::prev(next)->first;
}

bool OriginPayloads::restore(std::shared_ptr<const Manifest> manifest,
                             const std::vector<ContentDigest>& chunk_digests) {
  if (manifest->kind == PayloadKind::kFull) {
    Holding holding = whole(manifest, chunk_digests);
    if (!holding.complete()) return false;
    holdings_.emplace(manifest->id(), std::move(holding));
  }
  latest_ = std::max(latest_, manifest->version);
  versions_.insert_or_assign(manifest->version, std::move(manifest));
  return true;
}

void OriginPayloads::restore_patch(std::shared_ptr<const Manifest> manifest,
                                   const std::vector<ContentDigest>& chunk_digests) {
  Holding holding = whole(manifest, chunk_digests);
  if (holding.complete()) holdings_.emplace(manifest->id(), std::move(holding));
}

Status OriginPayloads::begin_version(std::shared_ptr<const Manifest> manifest, double packed_share) {
  const PayloadId payload = manifest->id();
  const Version version = payload.version;
  WC_CHECK(version > latest_ || taking_over());
  if (taking_over()) return bad(Errc::kInvalidArgument, payload, "another version is begun");
  if (!manifest->open) return bad(Errc::kInvalidArgument, payload, "its first manifest is not open");
  WC_TRY(check_publication(*manifest));
  // Of a patch's version nobody has looked at what packing would leave: as of the version before.
  if (payload.is_full()) packed_share_ = packed_share;
  if (packed_share_ >= kPackedShareMax) useless_.insert(packed_of(version));
  versions_.insert_or_assign(version, manifest);
  holdings_.emplace(payload, Holding(std::move(manifest)));
  latest_ = version;
  return {};
}

Status OriginPayloads::check_publication(const Manifest& manifest) const {
  const PayloadId payload = manifest.id();
  if (payload.is_packed()) return bad(Errc::kInvalidArgument, payload, "no version is published by that");
  if (taking_over()) {
    if (payload == begun()) return {};
    return bad(Errc::kInvalidArgument, payload, fmt::format("{} was begun", to_string(begun())));
  }
  if (payload.is_full() || payload.base == latest_) return {};
  return bad(Errc::kInvalidArgument, payload, fmt::format("the latest version is {}", latest_.value));
}

Result<std::optional<wire::Message>> OriginPayloads::complete_version(const MadePayload& made) {
  const Version version = made.manifest->version;
  WC_CHECK(taking_over() ? version == latest_ : version > latest_);
  WC_TRY(check_publication(*made.manifest));
  WC_ASSIGN(auto message, close(made));
  versions_.insert_or_assign(version, made.manifest);
  set_latest(version);
  // Nobody has looked at what it becomes: as the version before, as far as is known.
  if (made.manifest->id().is_patch() && packed_share_ >= kPackedShareMax) useless_.insert(packed_of(version));
  return message;
}

void OriginPayloads::set_latest(Version version) {
  latest_ = version;
  std::erase_if(useless_, [&](PayloadId p) { return p.version != latest_; });
}

bool OriginPayloads::can_make(PayloadId payload) const {
  if (making_.contains(payload)) return true;
  if (useless_.contains(payload) || !versions_.contains(payload.version)) return false;
  if (payload.is_full()) return !versions_.at(payload.version)->open;
  return payload.is_packed() ? config_.packing != Packing::kNever : config_.patches && versions_.contains(payload.base);
}

bool OriginPayloads::is_making_for(Version version) const {
  return std::ranges::any_of(making_, [&](PayloadId payload) { return payload.version == version; });
}

void OriginPayloads::make(PayloadId payload) {
  if (holdings_.contains(payload) || !making_.insert(payload).second) return;
  actions_.push(action::MakePayload{payload});
}

Status OriginPayloads::begin_made(std::shared_ptr<const Manifest> manifest) {
  const PayloadId payload = manifest->id();
  if (!making_.contains(payload)) return bad(Errc::kNotFound, payload, "the origin did not ask for it");
  if (!manifest->open) return bad(Errc::kInvalidArgument, payload, "its first manifest is not open");
  if (payload.is_full() && !versions_.contains(payload.version))
    return bad(Errc::kNotFound, payload, kNoVersionAnyMore);
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
  if (!payload.is_full()) return close(made);
  const Manifest* version = find_version(payload.version);
  if (version == nullptr) return bad(Errc::kNotFound, payload, kNoVersionAnyMore);
  if (version->snapshot_digest != made.manifest->snapshot_digest) {
    return bad(Errc::kCorrupt, payload,
               fmt::format("its bytes are not those that were published (digest {} instead of {})",
                           made.manifest->snapshot_digest.hex(), version->snapshot_digest.hex()));
  }
  return close(made);
}

Result<std::optional<wire::Message>> OriginPayloads::close(const MadePayload& made) {
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

void OriginPayloads::withdraw_version(Version version) {
  const auto found = versions_.find(version);
  if (found == versions_.end()) return;
  if (!found->second->open) last_used_ = std::max(last_used_, version);
  if (found->second->open) holdings_.erase(found->second->id());
  versions_.erase(found);
  holdings_.erase(version);
  if (version == latest_) set_latest(newest_before(latest_));
}

void OriginPayloads::forget(PayloadId payload) {
  holdings_.erase(payload);
  if (payload.is_full()) versions_.erase(payload.version);
}

CatchUp OriginPayloads::catch_up_to(Version version, Version installed, Version refused, bool patches_fit,
                                    const std::function<bool(PayloadId)>& can_make) const {
  CatchUpRequest request{installed, version, full_bytes(version), patches_fit, config_.anchor_interval, can_make, {}};
  for (const auto& [older, manifest] : versions_) {
    if (older > refused && older < version && (holdings_.contains(older) || making_.contains(older)))
      request.whole.insert(older);
  }
  return choose_payload(holdings_, request);
}

bool OriginPayloads::is_read(Version version) const {
  return std::ranges::any_of(making_, [&](PayloadId p) { return p.base == version || p.version == version; });
}

std::set<PayloadId> OriginPayloads::chain_to(Version version) const {
  if (!versions_.contains(version)) return {};
  return useful_chain(holdings_, version, full_bytes(version), config_.anchor_interval);
}

std::vector<PayloadId> OriginPayloads::unneeded(const std::function<bool(PayloadId)>& in_use) const {
  if (taking_over()) return {};
  std::set<PayloadId> chain = chain_to(latest_);
  // A last link that is being made may lead on from those to its base. No others: where publications come faster than
  // patches are made, a link is always being made.
  for (const PayloadId link : making_) {
    if (link.version == latest_ && link.is_patch()) chain.merge(chain_to(link.base));
  }
  std::set<PayloadId> payloads;
  for (const auto& [payload, holding] : holdings_) payloads.insert(payload);
  for (const auto& [version, manifest] : versions_) payloads.insert(version);
  std::size_t newer = 0;       // versions met on the way from the newest to the oldest
  std::set<Version> received;  // versions that stay for those alone who are still receiving them
  std::vector<PayloadId> old;
  for (auto at = payloads.rbegin(); at != payloads.rend(); ++at) {
    const PayloadId payload = *at;
    bool keep = making_.contains(payload);
    if (payload.is_packed()) {
      keep = keep || payload.version == latest_;
    } else if (payload.is_patch()) {
      keep = keep || payload.version == latest_ || chain.contains(payload);
    } else {
      keep = keep || newer++ < config_.versions_kept || is_read(payload.version);
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
