#include "transport/core/origin/publication.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

constexpr std::string_view kNoVersionAnyMore = "it is no version of this origin any more";
constexpr std::string_view kWrongDigests = "chunk digests are missing, or are not those of the manifest";

Error bad(Errc code, PayloadId payload, std::string_view why) {
  return fail(code, Op::kPublish, fmt::format("{}: {}", to_string(payload), why));
}

}  // namespace

std::uint64_t Publication::full_bytes() const {
  const auto full = context_.holdings.find(version_);
  return full != context_.holdings.end() ? full->second.manifest().planned_bytes() : manifest_->snapshot_bytes();
}

// ---- the version

void Publication::begin(std::shared_ptr<const Manifest> manifest) {
  WC_CHECK(manifest->open && !in_store());
  manifest_ = manifest;
  const PayloadId payload = manifest->id();
  context_.holdings.emplace(payload, Holding(std::move(manifest)));
  context_.uploads.handle_known(payload);
}

Status Publication::publish(const MadePayload& made) {
  WC_ASSIGN(const auto growth, complete(made));
  manifest_ = made.manifest;
  if (growth) tell(made.manifest->id(), *growth);
  return {};
}

bool Publication::restore(std::shared_ptr<const Manifest> manifest, const std::vector<ContentDigest>& chunk_digests) {
  if (manifest->id().is_full() && !hold_whole(context_.holdings, manifest, chunk_digests)) return false;
  manifest_ = std::move(manifest);
  return true;
}

void Publication::withdraw(std::string_view why) {
  if (open()) withdraw(begun(), why);
  withdraw(version_, why);
  manifest_.reset();
}

// ---- payloads that are made when somebody needs them

bool Publication::can_make(PayloadId payload) const {
  if (is_making(payload)) return true;
  if (useless_.contains(payload) || put_off_.contains(payload) || !in_store()) return false;
  if (payload.is_full()) return !open();
  return payload.is_packed() ? context_.config.packing != Packing::kNever : context_.config.patches;
}

void Publication::make(Instant now, PayloadId payload) {
  if (!context_.holds(payload) && making_.insert(payload).second) {
    context_.actions.push(action::MakePayload{payload});
  }
  context_.history.handle_making(now, payload);
}

Status Publication::begin_made(std::shared_ptr<const Manifest> manifest) {
  const PayloadId payload = manifest->id();
  if (!is_making(payload)) return bad(Errc::kNotFound, payload, "the origin did not ask for it");
  if (!manifest->open) return bad(Errc::kInvalidArgument, payload, "its first manifest is not open");
  if (payload.is_full() && !in_store()) return bad(Errc::kNotFound, payload, kNoVersionAnyMore);
  if (context_.holds(payload)) return bad(Errc::kAlreadyExists, payload, "it was begun before");
  context_.holdings.emplace(payload, Holding(std::move(manifest)));
  context_.uploads.handle_known(payload);
  return {};
}

Status Publication::grow(const MadePayload& grown) {
  WC_ASSIGN(const wire::Message growth, take_growth(grown));
  const PayloadId payload = grown.manifest->id();
  tell(payload, growth);
  context_.uploads.handle_known(payload);
  return {};
}

Status Publication::hold_made(const MadePayload& made) {
  const PayloadId payload = made.manifest->id();
  if (payload.is_full() && !in_store()) return bad(Errc::kNotFound, payload, kNoVersionAnyMore);
  if (payload.is_full() && manifest_->snapshot_digest != made.manifest->snapshot_digest) {
    return bad(Errc::kCorrupt, payload,
               fmt::format("its bytes are not those that were published (digest {} instead of {})",
                           made.manifest->snapshot_digest.hex(), manifest_->snapshot_digest.hex()));
  }
  WC_ASSIGN(const auto growth, complete(made));
  context_.actions.push(
      action::info(fmt::format("{}: {}", to_string(payload), format_bytes(made.manifest->payload_bytes))));
  if (growth) tell(payload, *growth);
  context_.uploads.handle_known(payload);
  return {};
}

Result<wire::Message> Publication::take_growth(const MadePayload& grown) {
  const PayloadId payload = grown.manifest->id();
  const auto held = context_.holdings.find(payload);
  if (held == context_.holdings.end()) return bad(Errc::kNotFound, payload, "it was not begun");
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

Result<std::optional<wire::Message>> Publication::complete(const MadePayload& made) {
  const PayloadId payload = made.manifest->id();
  if (made.manifest->open) return bad(Errc::kInvalidArgument, payload, "its last manifest is still open");
  if (context_.holds(payload)) {
    WC_ASSIGN(wire::Message message, take_growth(made));
    return std::optional(std::move(message));
  }
  if (!hold_whole(context_.holdings, made.manifest, made.chunk_digests))
    return bad(Errc::kInvalidArgument, payload, kWrongDigests);
  return std::optional<wire::Message>();
}

void Publication::tell(PayloadId payload, const wire::Message& message) {
  if (const PayloadPlan* plan = find_plan(payload)) plan->tell_all(message);
}

void Publication::withdraw(PayloadId payload, std::string_view why) {
  if (!context_.holds(payload)) return;
  tell(payload, not_available(payload, why));
  drop(payload, why);
}

std::vector<Member*> Publication::forget(PayloadId payload) {
  if (payload.is_full()) manifest_.reset();
  return drop(payload, "the origin keeps newer versions only");
}

std::vector<Member*> Publication::drop(PayloadId payload, std::string_view why) {
  context_.uploads.withdraw(payload, why);
  end_plan(payload);
  context_.holdings.erase(payload);
  std::vector<Member*> left;
  for (auto& [id, member] : context_.members.all()) {
    if (member.assigned != payload) continue;
    member.assigned = {};
    left.push_back(&member);
  }
  return left;
}

// ---- plans

PayloadPlan& Publication::plan_of(PayloadId payload) {
  return plans_.try_emplace(payload, context_, context_.holdings.at(payload)).first->second;
}

PayloadPlan* Publication::find_plan(PayloadId payload) {
  const auto found = plans_.find(payload);
  return found == plans_.end() ? nullptr : &found->second;
}

const PayloadPlan* Publication::main_plan() const {
  const PayloadPlan* most = nullptr;
  for (const auto& [payload, plan] : plans_) {
    if (most == nullptr || plan.plan().members.size() >= most->plan().members.size()) most = &plan;
  }
  return most;
}

std::set<PeerId> Publication::planned() const {
  std::set<PeerId> planned;
  for (const auto& [payload, plan] : plans_) planned.insert(plan.plan().members.begin(), plan.plan().members.end());
  return planned;
}

void Publication::end_plan(PayloadId payload) {
  context_.forecasts.forget(payload);
  plans_.erase(payload);
  context_.faults.forget(payload);
}

void Publication::handle_end(Instant now) {
  context_.faults.handle_publication_end(version_, planned());
  for (auto& [payload, plan] : plans_) plan.handle_end(now);
}

}  // namespace weightcast
