#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weightcast {

// The order-0 code of bytes that patch/codec/entropy/byte_rans.h describes, as its kernels see it. rANS (Duda, arXiv 1311.2540)
// with one state for each of 32 lanes (byte i belongs to lane i mod 32), as vectors of any width up to 32 can run them.

inline constexpr std::size_t kByteLanes = 32;
/// A byte owns frequency / 2^kByteBits of the slots.
inline constexpr unsigned kByteBits = 12;
inline constexpr std::uint32_t kByteTotal = 1u << kByteBits;
/// A state lies in [kByteStateLow, kByteStateEnd); below it takes a word of 16 bits. The end fits a signed number,
/// which is what vectors compare and convert.
inline constexpr std::uint32_t kByteStateLow = 1u << 15;
inline constexpr std::uint32_t kByteStateEnd = 1u << 31;
/// The most words that a group reads: one for each byte.
inline constexpr std::size_t kByteGroupWordBytes = 2 * kByteLanes;
/// How many words a vector may overwrite below those that it writes.
inline constexpr std::size_t kByteWordsSlack = 16;

using ByteStates = std::array<std::uint32_t, kByteLanes>;
/// For each byte frequency | first slot << 16. No frequency is kByteTotal.
using ByteSymbols = std::array<std::uint32_t, 256>;
/// For each slot frequency | (slot - first slot) << 12 | byte << 24.
using ByteSlots = std::array<std::uint32_t, kByteTotal>;

}  // namespace weightcast
