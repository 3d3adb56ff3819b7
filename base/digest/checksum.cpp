#include "base/digest/checksum.h"

#include <cstring>

#include "base/digest/checksum_kernels.h"
#include "base/digest/instruction_set.h"
#include "base/text.h"

namespace weightcast {
namespace {

Checksum canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Checksum digest;
  static_assert(sizeof canonical.digest == Checksum::kBytes);
  std::memcpy(digest.bytes.data(), canonical.digest, Checksum::kBytes);
  return digest;
}

// Chosen once: the digest is the largest part of verifying data that is already in cache.
const ChecksumKernels& kernels() {
  static const ChecksumKernels chosen = [] {
#if defined(WEIGHTCAST_CHECKSUM_X86)
    if (instruction_set() >= InstructionSet::kAvx512) return checksum_kernels_avx512();
    if (instruction_set() >= InstructionSet::kAvx2) return checksum_kernels_avx2();
#endif
    return checksum_kernels_of_this_file();
  }();
  return chosen;
}

}  // namespace

std::string Checksum::hex() const { return hex_of(bytes); }

Checksum checksum_of(Bytes data) { return canonical(kernels().whole(data.data(), data.size())); }

struct ChecksumStream::State {
  XXH3_state_t xxh;  // 64-byte aligned by its own declaration
};

ChecksumStream::ChecksumStream() : state_(std::make_unique<State>()) { reset(); }
ChecksumStream::~ChecksumStream() = default;
ChecksumStream::ChecksumStream(ChecksumStream&&) noexcept = default;
ChecksumStream& ChecksumStream::operator=(ChecksumStream&&) noexcept = default;

void ChecksumStream::reset() { XXH3_128bits_reset(&state_->xxh); }
void ChecksumStream::update(Bytes data) { kernels().update(&state_->xxh, data.data(), data.size()); }
Checksum ChecksumStream::digest() const { return canonical(XXH3_128bits_digest(&state_->xxh)); }

}  // namespace weightcast
