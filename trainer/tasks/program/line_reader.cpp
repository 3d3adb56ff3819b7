#include "trainer/tasks/program/line_reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::size_t kShownBytesMax = 80;

}  // namespace

std::string beginning_of(std::string_view line) {
  const std::string_view shown = cut_text(line, kShownBytesMax);
  return fmt::format("'{}{}'", printable(shown), shown.size() < line.size() ? "..." : "");
}

Result<std::optional<std::string>> LineReader::next() {
  const std::size_t end = bytes_.find('\n', searched_);
  if (std::min(end, bytes_.size()) > bytes_max_) {
    return fail(
        Errc::kTooLarge, Op::kReceive,
        fmt::format("it said a line of more than {} bytes, which begins with {}", bytes_max_, beginning_of(bytes_)));
  }
  searched_ = bytes_.size();
  if (end == std::string::npos) return std::optional<std::string>();
  std::string line = bytes_.substr(0, end);
  bytes_.erase(0, end + 1);
  searched_ = 0;
  return std::optional(std::move(line));
}

}  // namespace weightcast
