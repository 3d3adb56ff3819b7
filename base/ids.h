#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
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
/// A plan's generation. A node ignores a plan unless its epoch is greater than that of the plan it has.
using Epoch = StrongId<struct EpochTag, std::uint64_t>;
/// A member, numbered by the origin when it joins; the origin itself is 0.
using PeerId = StrongId<struct PeerIdTag, std::uint32_t>;
/// A connection, numbered by the node that holds it; never reused within a process.
using ConnId = StrongId<struct ConnIdTag, std::uint64_t>;

/// A trainer's run: what one origin publishes from the first start in its state directory on. Versions of different
/// runs have no order among them. Zero is "not known".
using RunId = StrongId<struct RunIdTag, std::uint64_t>;

inline constexpr Version kNoVersion{0};
inline constexpr RunId kNoRun{0};

/// 16 hexadecimal digits; "" for kNoRun.
[[nodiscard]] std::string to_string(RunId run);
inline constexpr PeerId kOriginId{0};

/// How a payload's bytes represent its version. The values are those on the wire.
enum class PayloadKind : std::uint8_t {
  kFull = 1,    ///< the snapshot as it is
  kPacked = 2,  ///< the snapshot, encoded; needs no other version
  kPatch = 3,   ///< what turns a base version into it
};

/// One payload of a version. A version alone names its full payload. Invariant: only a patch has a `base`.
struct PayloadId {
  Version version{};
  PayloadKind kind = PayloadKind::kFull;
  Version base{};

  constexpr PayloadId() = default;
  constexpr PayloadId(Version v) : version(v) {}
  constexpr PayloadId(Version v, PayloadKind k, Version b = kNoVersion) : version(v), kind(k), base(b) {}
  constexpr auto operator<=>(const PayloadId&) const = default;
  [[nodiscard]] constexpr bool is_full() const { return kind == PayloadKind::kFull; }
  [[nodiscard]] constexpr bool is_packed() const { return kind == PayloadKind::kPacked; }
  [[nodiscard]] constexpr bool is_patch() const { return kind == PayloadKind::kPatch; }
  /// Whether a node has to decode the payload before it can install the snapshot.
  [[nodiscard]] constexpr bool is_encoded() const { return !is_full(); }
};

/// The packed payload of `version`.
[[nodiscard]] constexpr PayloadId packed_of(Version version) { return {version, PayloadKind::kPacked}; }
/// The patch that turns `base` into `version`.
[[nodiscard]] constexpr PayloadId patch_of(Version version, Version base) {
  return {version, PayloadKind::kPatch, base};
}

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
    return (id.version.value * 0x9e3779b97f4a7c15u ^ id.base.value) * 4 + static_cast<std::size_t>(id.kind);
  }
};
