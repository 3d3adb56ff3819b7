#include "worker/engine/sampling/stop_strings.h"

#include <algorithm>

namespace weightcast {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_) longest_ = std::max(longest_, string.size());
}

std::optional<StopStrings::Found> StopStrings::append(std::string_view text) {
  if (strings_.empty()) return std::nullopt;
  const std::size_t before = tail_.size();
  tail_ += text;
  bytes_ += text.size();
  std::optional<Found> found;
  std::size_t found_end = 0;
  for (std::size_t i = 0; i < strings_.size(); ++i) {
    const std::string& string = strings_[i];
    // What lies within the old text was looked at before.
    const std::size_t from = before < string.size() ? 0 : before - string.size() + 1;
    const std::size_t position = tail_.find(string, from);
    if (position == std::string::npos) continue;
    const std::size_t end = position + string.size();
    const std::size_t text_bytes = bytes_ - tail_.size() + position;
    if (found && (end > found_end || (end == found_end && text_bytes >= found->text_bytes))) continue;
    found = Found{i, text_bytes};
    found_end = end;
  }
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return found;
}

void StopStrings::clear() {
  tail_.clear();
  bytes_ = 0;
}

}  // namespace weightcast
