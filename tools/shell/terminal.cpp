#include "tools/shell/terminal.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "base/text.h"
#include "base/units.h"

namespace weightcast {
namespace {

constexpr std::string_view kPlain = "\x1b[0m";
constexpr std::size_t kRows = 24, kColumns = 80;  // of a window that does not say

std::string_view code_of(Colour colour) {
  switch (colour) {
    case Colour::kRed: return "\x1b[31m";
    case Colour::kYellow: return "\x1b[33m";
    case Colour::kGreen: break;
  }
  return "\x1b[32m";
}

void put(std::FILE* to, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), to);
  std::fflush(to);
}

}  // namespace

bool is_terminal(std::FILE* to) { return ::isatty(::fileno(to)) == 1; }

bool has_colour(std::FILE* to) {
  const char* const unwanted = std::getenv("NO_COLOR");
  const char* const kind = std::getenv("TERM");
  if (unwanted != nullptr && *unwanted != '\0') return false;
  return is_terminal(to) && kind != nullptr && std::string_view(kind) != "dumb" && *kind != '\0';
}

std::string coloured(Colour colour, std::string_view text) {
  return fmt::format("{}{}{}", code_of(colour), text, kPlain);
}

std::string coloured_for(std::FILE* to, Colour colour, std::string_view text) {
  return has_colour(to) ? coloured(colour, text) : std::string(text);
}

std::string coloured_remarks(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, length);
    const bool is_remark = line.starts_with("! ");
    const std::size_t red = line.find("  !! "), yellow = is_remark ? 0 : line.find("  ! ");
    const std::size_t at = std::min({red, yellow, line.size()});
    out += line.substr(0, at);
    if (at < line.size()) out += coloured(red < yellow ? Colour::kRed : Colour::kYellow, line.substr(at));
    if (length < text.size()) out += '\n';
    text.remove_prefix(std::min(length + 1, text.size()));
  }
  return out;
}

std::string fitted(std::string_view text, std::size_t rows, std::size_t columns) {
  const auto lines = std::size_t(std::ranges::count(text, '\n'));
  const std::size_t shown = lines <= rows ? lines : std::max<std::size_t>(rows, 1) - 1;
  std::string out;
  for (std::size_t i = 0; i < shown; ++i) {
    const std::size_t length = text.find('\n');
    out += fmt::format("{}\n", cut_text(text.substr(0, length), columns));
    text.remove_prefix(length + 1);
  }
  if (shown < lines) out += fmt::format("{}\n", cut_text(fmt::format("... {} more lines", lines - shown), columns));
  return out;
}

AlternateScreen::AlternateScreen() { put(stdout, "\x1b[?1049h\x1b[?25l"); }
AlternateScreen::~AlternateScreen() { put(stdout, "\x1b[?25h\x1b[?1049l"); }

void AlternateScreen::show(std::string_view text) {
  winsize window{};
  const bool is_told = ::ioctl(::fileno(stdout), TIOCGWINSZ, &window) == 0 && window.ws_row > 1 && window.ws_col > 0;
  // The line after the last one, where the cursor stands, is a row, too.
  std::string frame = is_told ? fitted(text, window.ws_row - 1U, window.ws_col) : fitted(text, kRows - 1, kColumns);
  if (has_colour(stdout)) frame = coloured_remarks(frame);
  std::string out = "\x1b[H";
  for (std::size_t at = 0; at < frame.size();) {
    const std::size_t end = frame.find('\n', at);
    out += fmt::format("{}\x1b[K\n", std::string_view(frame).substr(at, end - at));  // what was longer before goes
    at = end + 1;
  }
  put(stdout, out + "\x1b[J");
}

ProgressBar::ProgressBar(std::string what) : what_(std::move(what)), is_shown_(is_terminal(stderr)) {}

ProgressBar::~ProgressBar() {
  if (percent_ >= 0) put(stderr, "\r\x1b[K");
}

void ProgressBar::show(std::uint64_t done, std::uint64_t total) {
  constexpr int kWidth = 32;
  if (!is_shown_ || total == 0) return;
  const int percent = int(100 * (double(std::min(done, total)) / double(total)));
  const std::lock_guard lock(mutex_);
  if (percent <= percent_ && !(percent == 0 && percent_ < 0)) return;
  percent_ = percent;
  const int full = percent * kWidth / 100;
  put(stderr, fmt::format("\r\x1b[K{} [{:#<{}}{:.<{}}] {:3} % of {}", what_, "", full, "", kWidth - full, percent,
                          format_bytes(total)));
}

}  // namespace weightcast
