#pragma once

#include <cstddef>
#include <cstdint>

#include "base/ids.h"
#include "base/units.h"

namespace weightcast {

/// The newest protocol that this release speaks.
inline constexpr std::uint32_t kProtocolVersion = 8;
/// The oldest one: that of the release before (proto/protocol.h).
inline constexpr std::uint32_t kProtocolVersionMin = 7;

// Bounds of every length that another process can send. The receiver refuses a larger one before it takes memory.

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
/// Of one phase of an installation, in seconds: thirty days.
inline constexpr double kPhaseMax_s = 30 * 24 * 3600.0;
/// Payloads that a worker names when it joins.
inline constexpr std::size_t kHeldMax = 64;
/// Members that one member cannot reach: worker and origin remember so many, and plans learn of no more.
inline constexpr std::size_t kUnreachedMax = 64;

// What one peer may do to a node. Each is several times what an honest peer ever does.

/// Messages on one accepted connection. A worker of 64 stripes reports 128 times a second at most; what piled up over a
/// stall of ten seconds comes at once. Past it the node closes the connection.
inline constexpr double kPeerMessagesPerSecond = 1000;
inline constexpr double kPeerMessagesBurst = 8000;
/// Reports about parents, of one member: each may have the origin look through a plan. Past it they are ignored.
inline constexpr double kReportsPerSecond = 200;
inline constexpr double kReportsBurst = 2000;
/// Joins under one name: each repairs plans. A worker redials every two seconds once it was refused.
inline constexpr double kJoinsPerSecond = 0.5;
inline constexpr double kJoinsBurst = 16;
/// Data connections of one peer: 16 streams, and those that have just been replaced.
inline constexpr std::size_t kConnectionsPerPeerMax = 64;
/// Subscriptions of one peer on all its connections: four times what all stripes of two versions need, for connections
/// that were replaced and whose end nobody has heard of.
inline constexpr std::size_t kSubscriptionsPerPeerMax = 512;
/// A bitmap of held chunks that a parent keeps though it has not heard of the payload: half a million chunks. Only a
/// child that resumes a larger payload sends more; it asks the next ancestor.
inline constexpr std::size_t kUnknownBitmapBytesMax = 64 * kKiB;
/// Ranges of chunks, of one subscription, that a parent remembers to skip before it has begun the payload. Those of an
/// honest child follow each other, and count as one.
inline constexpr std::size_t kSkippedRangesMax = 64;
/// Chunks in one such range: what an honest child takes at once from an archive, in the smallest chunks, twice.
inline constexpr std::uint32_t kSkippedChunksMax = 4096;
/// Chunks that a node reads again within ten seconds because children call them damaged: 4 MiB each for a message of
/// some bytes.
inline constexpr std::size_t kChunkChecksMax = 64;

}  // namespace weightcast
