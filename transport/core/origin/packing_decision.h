#pragma once

#include <cstdint>
#include <optional>

#include "base/units.h"
#include "transport/core/origin/made_payload.h"
#include "transport/core/origin/publication.h"

namespace weightcast {

/// What a full payload costs packed, and as it is.
struct PackingCosts {
  double as_it_is_s = 0;    ///< until all have it as it is, as the plan predicts
  double packed_share = 1;  ///< bytes that travel packed, over those as it is
  double take_over_s = 0;   ///< that the origin's copy still takes: packing reads that copy
  double pack_s = 0;        ///< of the origin
  double unpack_s = 0;      ///< of the slowest worker
};

/// Until all have it packed. Packing, sending and unpacking go on side by side, and the slowest decides.
[[nodiscard]] double packed_s(const PackingCosts& costs);
/// Whether packing gains at least kPackingGainMin: it takes cores at both ends, and files that no sample knew of.
[[nodiscard]] bool packing_pays(const PackingCosts& costs);
inline constexpr double kPackingGainMin = 0.1;

/// How fast the origin copies and packs snapshots: what a sample at start said, then what the last payload took. With
/// each version the speed of packing returns half way to the sample's: a host that was busy once packs again. Pure.
class PackingSpeeds {
 public:
  /// `sampled_bytes_per_s`: of packing; 0: not measured, and so not known before a payload was packed.
  explicit PackingSpeeds(double sampled_bytes_per_s)
      : sampled_bytes_per_s_(sampled_bytes_per_s), pack_bytes_per_s_(sampled_bytes_per_s) {}

  /// A full or packed payload was made. Patches say nothing, nor do snapshots below kBytesMin.
  void handle_made(const MadePayload& made);
  static constexpr std::uint64_t kBytesMin = 16 * kMiB;

  /// Unpacked bytes; 0: not known.
  [[nodiscard]] double pack_bytes_per_s() const { return pack_bytes_per_s_; }
  /// Before any was measured: as packing, which is not faster than a copy.
  [[nodiscard]] double take_over_bytes_per_s() const {
    return take_over_bytes_per_s_ > 0 ? take_over_bytes_per_s_ : pack_bytes_per_s_;
  }

 private:
  const double sampled_bytes_per_s_;
  double pack_bytes_per_s_;
  double take_over_bytes_per_s_ = 0;
};

/// What the latest version costs packed, for the members that lack it; `packed_share` as samples say. Nothing if a rate
/// or a speed is not known: links of unknown rate may be faster than anything, and ends of unknown speed slower.
[[nodiscard]] std::optional<PackingCosts> packing_costs(const PublicationContext& context, Instant now,
                                                        const Publication& latest, double packed_share,
                                                        const PackingSpeeds& speeds);

}  // namespace weightcast
