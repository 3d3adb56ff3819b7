#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/units.h"

namespace weightcast {

/// Every length that another process can send has its bound here; a larger one is refused before memory is taken.
inline constexpr std::uint32_t kProtocolVersion = 5;
/// The last that anybody can publish. A negative number that became an unsigned one lies above it.
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
/// Payloads that a worker names when it joins.
inline constexpr std::size_t kHeldMax = 64;

}  // namespace weightcast
