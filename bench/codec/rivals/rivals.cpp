#include "bench/codec/rivals/rivals.h"

#include <array>

namespace weightcast::bench {

std::span<const Codec> rivals() {
  static const std::array<Codec, 6> all = {kRawInt32, kCooLeb128, kGapLeb128, kGrail, kXorZstd, kPulseRice};
  return all;
}

}  // namespace weightcast::bench
