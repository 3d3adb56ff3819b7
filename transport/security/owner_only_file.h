#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.h"

namespace weightcast {

/// A secret in memory: overwritten when it goes.
class Secret {
 public:
  Secret() = default;
  explicit Secret(std::string text) : text_(std::move(text)) {}
  ~Secret();
  Secret(Secret&& other) noexcept : text_(std::move(other.text_)) {}
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;

  [[nodiscard]] const std::string& text() const { return text_; }
  /// Whether `given` is the same, in a time that says nothing of where they differ.
  [[nodiscard]] bool matches(std::string_view given) const;

 private:
  std::string text_;
};

/// Reads a file that holds a secret. It has to be a regular file that nobody but its owner may use, and the owner has
/// to be this user or root. A file of root's may be readable by its group: systemd hands credentials out like that.
/// Errors (the detail says what to do): kNotFound, kNotAllowed (mode or owner), kTooLarge (above 64 KiB), kIo.
[[nodiscard]] Result<Secret> read_owner_only(const std::filesystem::path& path);

/// Writes a file of mode 0600 under a temporary name, syncs it, and renames it over `path`. So a reader finds the old
/// file or the new one, and nobody else could ever read it. Errors: those of fail_errno().
[[nodiscard]] Status write_owner_only(const std::filesystem::path& path, std::string_view text);

/// From now on this process leaves no core dump, and processes of the same user can neither read its memory nor trace
/// it: it holds secrets.
void hide_memory();

}  // namespace weightcast
