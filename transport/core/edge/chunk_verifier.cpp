#include "transport/core/edge/chunk_verifier.h"

namespace weightcast {

ChunkVerifier::Verdict ChunkVerifier::take_chunk(Instant now, ConnId sender, const ChunkArrival& chunk, bool may_wait) {
  const Status verified = holding_.verify(chunk.chunk, chunk.size_bytes, chunk.digest);
  if (verified.has_value()) {
    if (!first_chunk_at_) first_chunk_at_ = now;
    count_bytes(now, chunk.size_bytes);
    actions_.push(action::StoreChunk{chunk.payload, chunk.chunk, chunk.bytes});
    return Verdict::kNew;
  }
  const Errc why = verified.error().code;
  if (why == Errc::kAlreadyExists) return Verdict::kKnown;
  if (why == Errc::kNotFound) {
    if (!may_wait || early_.add(sender, chunk)) return Verdict::kEarly;
    if (holding_.open()) return Verdict::kTooEarly;
  }
  actions_.push(action::warning(verified.error().message()));
  return why == Errc::kCorrupt ? Verdict::kDamaged : Verdict::kForeign;
}

Result<ChunkVerifier::Verdict> ChunkVerifier::take_part(ConnId sender, std::uint32_t part, Bytes digests,
                                                        bool may_wait) {
  if (holding_.part_known(part)) {
    WC_TRY(holding_.put_part(part, digests));
    return Verdict::kKnown;
  }
  if (Status put = holding_.put_part(part, digests); !put.has_value()) {
    if (put.error().code != Errc::kNotFound) return put.error();
    return !may_wait || early_.add(sender, part, digests) ? Verdict::kEarly : Verdict::kTooEarly;
  }
  actions_.push(action::PutDigestPart{holding_.manifest().id(), part, holding_.part(part)});
  return Verdict::kNew;
}

void ChunkVerifier::count_bytes(Instant now, std::uint32_t bytes) {
  if (counted_bytes_ == 0) counted_since_ = now;
  counted_bytes_ += bytes;
  if (now - counted_since_ < timeouts_.rate_window) return;
  bytes_per_s_ = double(counted_bytes_) / to_seconds(now - counted_since_);
  counted_bytes_ = 0;
}

}  // namespace weightcast
