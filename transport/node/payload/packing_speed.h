#pragma once

namespace weightcast {

/// Unpacked bytes per second of one thread; 0: not measured.
struct PackingSpeed {
  double pack_bytes_per_s = 0;
  double unpack_bytes_per_s = 0;
};

/// Packs and unpacks a segment of cells that look like BF16 weights, for some 10 ms, and gives the best round's speeds
/// by the wall clock. What else the host does makes them less, as it will make the real ones.
[[nodiscard]] PackingSpeed measure_packing_speed();

}  // namespace weightcast
