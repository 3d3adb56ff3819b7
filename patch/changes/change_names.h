#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weightcast {

/// Changed cells of a snapshot, in a file: a safetensors file with two tensors for each tensor NAME that has changes.
///
///   indices/NAME  U32 or U64, [n]: which elements of NAME, row-major, ascending, each once
///   values/NAME   the dtype of NAME, [n]: their new values
///   old/NAME      the same, where they were asked for: the values before
///
/// Elements of NAME have whole bytes. A value may be the old one.
///
/// A trainer whose processes each know the changes of a part of NAME gives several lists for it, one for each piece.
/// A piece is a box of NAME: from element START on, LENGTH of them, in each dimension. Pieces do not overlap.
///
///   indices[START+LENGTH,...]/NAME  the same, but elements of the box, row-major in it
///   values[START+LENGTH,...]/NAME
inline constexpr std::string_view kIndicesPrefix = "indices/";
inline constexpr std::string_view kValuesPrefix = "values/";
inline constexpr std::string_view kOldPrefix = "old/";

struct Side {
  std::uint64_t start = 0;
  std::uint64_t length = 0;
  bool operator==(const Side&) const = default;
};
/// One side for each dimension of a tensor. Without any it is the whole tensor, of whatever dimensions.
using Box = std::vector<Side>;

/// Elements of a box; absent where they exceed 64 bits.
[[nodiscard]] std::optional<std::uint64_t> volume_of(const Box& box);

/// The name of a list, with one of the prefixes above.
[[nodiscard]] std::string change_name(std::string_view prefix, const Box& box, std::string_view tensor);

struct ChangeName {
  Box box;
  std::string_view tensor;
};
/// The inverse; absent where `name` is not of that form.
[[nodiscard]] std::optional<ChangeName> parse_change_name(std::string_view prefix, std::string_view name);

}  // namespace weightcast
