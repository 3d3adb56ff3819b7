#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "base/file_system.h"
#include "base/ids.h"
#include "base/result.h"

namespace weightcast {

/// Where things are in a store's directory (the picture stands in store.h), and the file system that it is on, which
/// outlives it.
class StoreLayout {
 public:
  StoreLayout(FileSystem& files, std::filesystem::path directory) : files_(&files), directory_(std::move(directory)) {}

  [[nodiscard]] FileSystem& files() const { return *files_; }

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] std::filesystem::path lock() const { return directory_ / "lock"; }
  [[nodiscard]] std::filesystem::path incoming() const { return directory_ / "incoming"; }
  [[nodiscard]] std::filesystem::path versions() const { return directory_ / "versions"; }
  [[nodiscard]] std::filesystem::path patches() const { return directory_ / "patches"; }
  [[nodiscard]] std::filesystem::path records() const { return directory_ / "records"; }
  /// What is being deleted: emptied at start.
  [[nodiscard]] std::filesystem::path trash() const { return directory_ / "trash"; }
  /// The files of the version that was forgotten last, to be written anew: emptied at start.
  [[nodiscard]] std::filesystem::path spare() const { return directory_ / "spare"; }
  /// What a version held that is being changed in its only copy.
  [[nodiscard]] std::filesystem::path undo() const { return directory_ / "undo"; }
  /// What was found and is not ours: never deleted.
  [[nodiscard]] std::filesystem::path aside() const { return directory_ / "aside"; }
  [[nodiscard]] std::filesystem::path current() const { return directory_ / "current"; }

  [[nodiscard]] std::filesystem::path incoming(PayloadId payload) const;
  [[nodiscard]] std::filesystem::path complete(Version version) const;
  [[nodiscard]] std::filesystem::path patch(PayloadId payload) const;
  [[nodiscard]] std::filesystem::path record(PayloadId payload) const;
  [[nodiscard]] std::filesystem::path undo(PayloadId payload) const;

  /// The payload that `name` is the name of; nothing if it is not one that this class would give.
  [[nodiscard]] static std::optional<PayloadId> payload_of(std::string_view name);

  /// Makes the directory and the folders in it. Errors: kNotAllowed, kIo.
  [[nodiscard]] Status create() const;

  /// Takes the lock for this process, for as long as the File lives. Errors: kBusy, which names the process that has
  /// it; kNotAllowed, kIo.
  [[nodiscard]] Result<std::unique_ptr<File>> acquire() const;

  /// Points `current` at `version`, by rename: readers see the old or the new one. Errors: kIo, kNoSpace.
  [[nodiscard]] Status switch_current(Version version) const;
  /// The version that `current` names, whether it is there or not.
  [[nodiscard]] std::optional<Version> read_current() const;

  /// Moves a directory of ours out of sight, at once; empty_trash() does the long work. Harmless when it is not there.
  [[nodiscard]] Status throw_away(const std::filesystem::path& path) const;
  void empty_trash() const;
  /// Keeps the directory of a forgotten version as the spare one, in place of the one before.
  [[nodiscard]] Status make_spare(const std::filesystem::path& path) const;
  void drop_spare() const;
  /// Keeps what is not ours under another name, and logs it.
  void move_aside(const std::filesystem::path& path) const;

 private:
  FileSystem* files_;
  std::filesystem::path directory_;
};

}  // namespace weightcast
