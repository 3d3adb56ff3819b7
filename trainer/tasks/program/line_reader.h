#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// Cuts what a stream says into lines. Pure. Invariant: no more than bytes_max and one addition are held.
class LineReader {
 public:
  explicit LineReader(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  void add(std::string_view bytes) { bytes_.append(bytes); }
  /// The next whole line, without its line feed; absent if more bytes are needed for it.
  /// Errors: kTooLarge, which shows how it begins, for a line of more than bytes_max bytes, whole or not.
  [[nodiscard]] Result<std::optional<std::string>> next();
  /// What was added and not returned yet.
  [[nodiscard]] std::string_view rest() const { return bytes_; }

 private:
  std::size_t bytes_max_;
  std::size_t searched_ = 0;  // bytes without a line feed, from the front
  std::string bytes_;
};

/// How an answer begins, as an error may show it.
[[nodiscard]] std::string beginning_of(std::string_view line);

}  // namespace weightcast
