#include "base/digest.h"

#include <fmt/format.h>

#include <cstring>

#include "base/digest_kernels.h"

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

// Chosen once: the digest is the largest part of verifying data that is already in cache.
const DigestKernels& kernels() {
  static const DigestKernels chosen = [] {
#if defined(WEIGHTCAST_DIGEST_X86)
    if (__builtin_cpu_supports("avx512f")) return digest_kernels_avx512();
    if (__builtin_cpu_supports("avx2")) return digest_kernels_avx2();
#endif
    return digest_kernels_of_this_file();
  }();
  return chosen;
}

}  // namespace

std::string Digest::hex() const {
  std::string out;
  out.reserve(2 * kBytes);
  for (const std::byte b : bytes) fmt::format_to(std::back_inserter(out), "{:02x}", std::to_integer<unsigned>(b));
  return out;
}

Digest digest_of(Bytes data) { return canonical(kernels().whole(data.data(), data.size())); }

struct DigestStream::State {
  XXH3_state_t xxh;  // 64-byte aligned by its own declaration
};

DigestStream::DigestStream() : state_(std::make_unique<State>()) { reset(); }
DigestStream::~DigestStream() = default;
DigestStream::DigestStream(DigestStream&&) noexcept = default;
DigestStream& DigestStream::operator=(DigestStream&&) noexcept = default;

void DigestStream::reset() { XXH3_128bits_reset(&state_->xxh); }
void DigestStream::update(Bytes data) { kernels().update(&state_->xxh, data.data(), data.size()); }
Digest DigestStream::digest() const { return canonical(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace weightcast
