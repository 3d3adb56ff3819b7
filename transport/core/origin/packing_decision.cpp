#include "transport/core/origin/packing_decision.h"

#include <algorithm>

namespace weightcast {

double packed_s(const PackingCosts& costs) {
  return costs.take_over_s + std::max({costs.pack_s, costs.packed_share * costs.as_it_is_s, costs.unpack_s});
}

bool packing_pays(const PackingCosts& costs) { return packed_s(costs) < (1 - kPackingGainMin) * costs.as_it_is_s; }

void PackingSpeeds::handle_made(const MadePayload& made) {
  const double seconds = to_seconds(made.took);
  const Manifest& manifest = *made.manifest;
  if (seconds <= 0 || manifest.snapshot_bytes() < kBytesMin) return;
  const double bytes_per_s = double(manifest.snapshot_bytes()) / seconds;
  if (manifest.kind == PayloadKind::kPacked) pack_bytes_per_s_ = bytes_per_s;
  if (manifest.kind == PayloadKind::kFull) {
    take_over_bytes_per_s_ = bytes_per_s;
    if (sampled_bytes_per_s_ > 0) pack_bytes_per_s_ = (pack_bytes_per_s_ + sampled_bytes_per_s_) / 2;
  }
}

std::optional<PackingCosts> packing_costs(const PublicationContext& context, Instant now, const Publication& latest,
                                          double packed_share, const PackingSpeeds& speeds) {
  const std::uint64_t bytes = latest.full_bytes();
  const PlanRequest request =
      plan_request(context, now, bytes, [&](const Member& member) { return member.installed < latest.version(); });
  const bool known =
      origin_rate_source(context) != RateSource::kNone && speeds.pack_bytes_per_s() > 0 &&
      std::ranges::all_of(request.members, [&](const PlanMember& m) {
        const Member& member = *context.members.find(m.id);
        return member.planned_downlink().limited() && (member.planned_uplink().limited() || !m.can_relay);
      });
  if (!known) return std::nullopt;
  PackingCosts costs;
  for (const auto& [id, member] : context.members.all()) {
    if (!member.active() || member.installed >= latest.version()) continue;
    if (member.unpack_bytes_per_s <= 0) return std::nullopt;
    costs.unpack_s = std::max(costs.unpack_s, double(bytes) / member.unpack_bytes_per_s);
  }
  costs.as_it_is_s = to_seconds(make_plan(request).predicted_t100);
  costs.packed_share = packed_share;
  costs.take_over_s = latest.open() ? double(bytes) / speeds.take_over_bytes_per_s() : 0;
  costs.pack_s = double(bytes) / speeds.pack_bytes_per_s();
  return costs;
}

}  // namespace weightcast
