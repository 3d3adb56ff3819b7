#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weightcast {

/// A file that accompanies the weights (configuration, tokenizer) has at most this size, ...
inline constexpr std::uint64_t kSidecarBytesMax = std::uint64_t{32} << 20;
/// ... and those that a program gives with a publication from memory are at most so many and so large together.
inline constexpr std::size_t kSidecarsMax = 256;
inline constexpr std::uint64_t kSidecarsBytesMax = std::uint64_t{128} << 20;

/// Whether a file of this name may accompany the weights: it is a kind of snapshot file, not hidden, and neither
/// weights nor their index.
[[nodiscard]] bool is_sidecar_name(std::string_view name);

}  // namespace weightcast
