#pragma once

#include <string_view>

namespace weightcast {

/// Changed cells of a snapshot, in a file: a safetensors file with two tensors for each tensor NAME that has changes.
///
///   indices/NAME  U32 or U64, [n]: which elements of NAME, row-major, ascending, each once
///   values/NAME   the dtype of NAME, [n]: their new values
///   old/NAME      the same, where they were asked for: the values before
///
/// Elements of NAME have whole bytes. A value may be the old one.
inline constexpr std::string_view kIndicesPrefix = "indices/";
inline constexpr std::string_view kValuesPrefix = "values/";
inline constexpr std::string_view kOldPrefix = "old/";

}  // namespace weightcast
