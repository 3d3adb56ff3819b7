#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weightcast {

/// Looks for strings in the text of a sequence while it grows.
class StopStrings {
 public:
  StopStrings() = default;
  /// None of them is empty.
  explicit StopStrings(std::vector<std::string> strings);

  [[nodiscard]] bool empty() const { return strings_.empty(); }

  struct Found {
    std::size_t string = 0;      ///< which one
    std::size_t text_bytes = 0;  ///< of all text, that come before it
  };
  /// Appends to the text. The string that is complete first; of several that end together, the longest.
  [[nodiscard]] std::optional<Found> append(std::string_view text);
  void clear();

 private:
  std::vector<std::string> strings_;
  std::string tail_;       // the end of the text, in which a string may have begun
  std::size_t bytes_ = 0;  // of all text
  std::size_t longest_ = 0;
};

}  // namespace weightcast
