#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/units.h"

namespace weightcast {

/// Bounds of every length that another process can send. The receiver refuses a larger one before it takes memory.
inline constexpr std::uint32_t kProtocolVersion = 6;
/// The greatest version that can be published. Negative numbers that were converted to unsigned ones lie above it.
inline constexpr Version kVersionMax{(std::uint64_t{1} << 63) - 1};
inline constexpr std::size_t kControlBytesMax = 4 * kMiB;
inline constexpr std::uint32_t kChunkBytesMin = 4 * kKiB;
inline constexpr std::uint32_t kChunkBytesMax = 4 * kMiB;
inline constexpr std::uint64_t kPayloadBytesMax = std::uint64_t{1} << 44;  // 16 TiB
inline constexpr std::uint32_t kChunksMax = 1u << 22;
inline constexpr std::uint32_t kDigestsPerPart = 1024;
inline constexpr std::size_t kFilesMax = 20'000;
inline constexpr std::size_t kNameBytesMax = 255;
inline constexpr std::size_t kStripesMax = 64;
inline constexpr std::size_t kAncestorsMax = 16;
inline constexpr std::size_t kReasonBytesMax = 1024;
/// A list of revoked certificates: some 50 bytes for each.
inline constexpr std::size_t kRevocationsBytesMax = kMiB;
inline constexpr std::size_t kSignatureBytesMax = 64;
inline constexpr std::size_t kCertificateBytesMax = 4 * kKiB;
/// Payloads that a worker names when it joins.
inline constexpr std::size_t kHeldMax = 64;

}  // namespace weightcast
