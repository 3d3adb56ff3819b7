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

}  // namespace weightcast
