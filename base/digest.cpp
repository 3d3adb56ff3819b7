#include "base/digest.h"

#include <fmt/format.h>
// Inlined, so that short digests do not pay for a call into the library.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

namespace weightcast {
namespace {

Digest canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest digest;
  static_assert(sizeof canonical.digest == Digest::kBytes);
  std::memcpy(digest.bytes.data(), canonical.digest, Digest::kBytes);
  return digest;
}

}  // namespace

std::string Digest::hex() const {
  std::string out;
  out.reserve(2 * kBytes);
  for (const std::byte b : bytes) fmt::format_to(std::back_inserter(out), "{:02x}", std::to_integer<unsigned>(b));
  return out;
}

Digest digest_of(Bytes data) { return canonical(XXH3_128bits(data.data(), data.size())); }

struct DigestStream::State {
  XXH3_state_t xxh;  // 64-byte aligned by its own declaration
};

DigestStream::DigestStream() : state_(std::make_unique<State>()) { reset(); }
DigestStream::~DigestStream() = default;
DigestStream::DigestStream(DigestStream&&) noexcept = default;
DigestStream& DigestStream::operator=(DigestStream&&) noexcept = default;

void DigestStream::reset() { XXH3_128bits_reset(&state_->xxh); }
void DigestStream::update(Bytes data) { XXH3_128bits_update(&state_->xxh, data.data(), data.size()); }
Digest DigestStream::digest() const { return canonical(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace weightcast
