#pragma once

#include "bench/codec/codec.h"

namespace weightcast::bench {

// Others publish with these, each written anew from its description, in the order of the seed paper to the best known:
//   raw-int32     Hugging Face and TRL: int32 positions and new values, nothing compressed
//   coo-leb128    the seed paper on sparse patches: LEB128 positions and new values, zstd level 1
//   gap-leb128    SparrowRL (arXiv 2602.11456): the same with the gaps between positions
//   grail-3.1     PULSE / grail (arXiv 2602.03839): COO deltas in narrow integers and new values, one zstd-1 frame
//   xor-zstd      slime and its kin: XOR of the bytes, a zstd-1 frame per tensor
//   pulse-rice    PULSEPT1 v3: Rice-coded ranks within the old exponent's class, value differences, one zstd-1 frame
// Containers hold the least that decoding needs (no names, no digests, no JSON), in the rivals' favour. All run on one
// thread. Patches are checked against running off their end, as a fair decoder would, but carry no digests.

extern const Codec kRawInt32;
extern const Codec kCooLeb128;
extern const Codec kGapLeb128;
extern const Codec kGrail;
extern const Codec kXorZstd;
extern const Codec kPulseRice;

}  // namespace weightcast::bench
