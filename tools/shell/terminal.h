#pragma once

#include <cstdint>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>

namespace weightcast {

[[nodiscard]] bool is_terminal(std::FILE* to);
/// Whether a person sees colours there: a terminal that has them, and NO_COLOR is not set (https://no-color.org).
[[nodiscard]] bool has_colour(std::FILE* to);

enum class Colour { kRed, kYellow, kGreen };
/// `text` in that colour, for where has_colour().
[[nodiscard]] std::string coloured(Colour colour, std::string_view text);
/// As it is, or coloured where a person sees that.
[[nodiscard]] std::string coloured_for(std::FILE* to, Colour colour, std::string_view text);
/// The remarks at the ends of lines: "! ..." yellow, "!! ..." red.
[[nodiscard]] std::string coloured_remarks(std::string_view text);

/// The lines of `text` that a window of that size has room for, each cut to its width. The last one says how many are
/// left out.
[[nodiscard]] std::string fitted(std::string_view text, std::size_t rows, std::size_t columns);

/// A terminal's other screen, while this lives: what it showed before is there again afterwards.
class AlternateScreen {
 public:
  AlternateScreen();
  ~AlternateScreen();
  AlternateScreen(const AlternateScreen&) = delete;
  AlternateScreen& operator=(const AlternateScreen&) = delete;

  /// In place of what it shows, fitted to the window as it is now.
  void show(std::string_view text);
};

/// A line on stderr that says how far something is, drawn again in place. Nothing where that is no terminal. Any
/// thread.
class ProgressBar {
 public:
  explicit ProgressBar(std::string what);
  /// Takes the line away.
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  /// `done` of `total` bytes.
  void show(std::uint64_t done, std::uint64_t total);

 private:
  const std::string what_;
  const bool is_shown_;
  std::mutex mutex_;
  int percent_ = -1;  // that is drawn
};

}  // namespace weightcast
