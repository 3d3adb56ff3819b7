#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>

namespace weightcast {

/// An integer that cannot be mixed up with another: `Tag` makes the type, `value` is the number.
template <typename Tag, typename Int>
struct StrongId {
  using Underlying = Int;
  Int value{};

  constexpr StrongId() = default;
  constexpr explicit StrongId(Int v) : value(v) {}
  constexpr auto operator<=>(const StrongId&) const = default;
  constexpr StrongId& operator++() {
    ++value;
    return *this;
  }
};

/// A publication's number: grows by publication, never reused. Zero is "none".
using Version = StrongId<struct VersionTag, std::uint64_t>;
/// The position of a chunk in its payload.
using ChunkIndex = StrongId<struct ChunkIndexTag, std::uint32_t>;
/// A plan's generation; a node ignores a plan of an epoch that is not greater than the one it has.
using Epoch = StrongId<struct EpochTag, std::uint64_t>;
/// A member, numbered by the origin when it joins; the origin itself is 0.
using PeerId = StrongId<struct PeerIdTag, std::uint32_t>;
/// A connection, numbered by the node that holds it; never reused within a process.
using ConnId = StrongId<struct ConnIdTag, std::uint64_t>;

inline constexpr Version kNoVersion{0};
/// The snapshot that holds nothing: what a packed full payload is a patch from. Nobody can publish it.
inline constexpr Version kEmptyVersion{std::numeric_limits<std::uint64_t>::max()};
inline constexpr PeerId kOriginId{0};

/// One payload of a version: the whole snapshot as it is, or what turns `base` into it. A version alone names its full
/// payload.
struct PayloadId {
  Version version{};
  Version base{};  ///< kNoVersion: full; kEmptyVersion: full, too, but packed

  constexpr PayloadId() = default;
  constexpr PayloadId(Version v, Version b = kNoVersion) : version(v), base(b) {}
  constexpr auto operator<=>(const PayloadId&) const = default;
  /// Coded: other bytes than the snapshot's own.
  [[nodiscard]] constexpr bool is_patch() const { return base != kNoVersion; }
  [[nodiscard]] constexpr bool is_packed() const { return base == kEmptyVersion; }
  /// Worth nothing without another version.
  [[nodiscard]] constexpr bool needs_base() const { return is_patch() && !is_packed(); }
};

/// The packed full payload of `version`.
[[nodiscard]] constexpr PayloadId packed_of(Version version) { return {version, kEmptyVersion}; }

/// "version 7", "packed version 7", "patch from version 6 to 7".
[[nodiscard]] std::string to_string(PayloadId payload);

}  // namespace weightcast

template <typename Tag, typename Int>
struct std::hash<weightcast::StrongId<Tag, Int>> {
  std::size_t operator()(const weightcast::StrongId<Tag, Int>& id) const noexcept { return std::hash<Int>{}(id.value); }
};

template <>
struct std::hash<weightcast::PayloadId> {
  std::size_t operator()(const weightcast::PayloadId& id) const noexcept {
    return id.version.value * 0x9e3779b97f4a7c15u ^ id.base.value;
  }
};
