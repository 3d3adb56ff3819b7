#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "base/files/file_system.h"
#include "base/ids.h"
#include "base/result.h"
#include "patch/snapshot/file_table.h"
#include "transport/io/store/files/version_record.h"

namespace weightcast {

/// Paths in a store's directory, and the basic steps on them. ARCHITECTURE.md has the picture. The file system outlives
/// this. The names of versions and payloads are those of one run (run_file.h): in the first one "N", in the k-th "N@k".
class StoreLayout {
 public:
  /// `memory`: the directory in memory that versions lie in; "": they lie in `directory`.
  StoreLayout(FileSystem& files, std::filesystem::path directory, std::filesystem::path memory = {},
              std::uint32_t run = 1)
      : files_(&files), directory_(std::move(directory)), memory_(std::move(memory)), run_(run) {}
  /// The same directories, with the names of another run.
  [[nodiscard]] StoreLayout of_run(std::uint32_t run) const { return {*files_, directory_, memory_, run}; }
  /// The same directory, with versions on its disk.
  [[nodiscard]] StoreLayout on_disk() const { return {*files_, directory_, {}, run_}; }
  /// Where whole versions of it may lie: on its disk, and then in memory, if they lie there.
  [[nodiscard]] std::vector<StoreLayout> places() const {
    if (in_memory()) return {on_disk(), *this};
    return {*this};
  }
  /// The same directory, with versions below `memory`.
  [[nodiscard]] StoreLayout in_memory_at(std::filesystem::path memory) const {
    return {*files_, directory_, std::move(memory), run_};
  }
  /// The layout of a directory of versions, DIR/versions or MEMORY/versions, as create() left it. For those who look
  /// from outside.
  [[nodiscard]] static StoreLayout around(FileSystem& files, const std::filesystem::path& versions, std::uint32_t run);
  /// Where the versions of a state directory lie: DIR, or MEMORY. Errors: kIo.
  [[nodiscard]] static Result<std::filesystem::path> versions_root_of(FileSystem& files,
                                                                      const std::filesystem::path& directory);
  [[nodiscard]] std::uint32_t run() const { return run_; }

  [[nodiscard]] FileSystem& files() const { return *files_; }

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }
  [[nodiscard]] bool in_memory() const { return !memory_.empty(); }
  /// What versions lie in: directory(), or the directory in memory.
  [[nodiscard]] const std::filesystem::path& versions_root() const { return in_memory() ? memory_ : directory_; }
  [[nodiscard]] std::filesystem::path lock() const { return directory_ / "lock"; }
  [[nodiscard]] std::filesystem::path incoming() const { return versions_root() / "incoming"; }
  [[nodiscard]] std::filesystem::path versions() const { return versions_root() / "versions"; }
  [[nodiscard]] std::filesystem::path patches() const { return versions_root() / "patches"; }
  [[nodiscard]] std::filesystem::path records() const { return versions_root() / "records"; }
  /// The files of the version that was deleted last, for the next one. Emptied at start.
  [[nodiscard]] std::filesystem::path spare() const { return versions_root() / "spare"; }
  /// What is being deleted. Emptied at start.
  [[nodiscard]] std::filesystem::path trash() const { return versions_root() / "trash"; }
  /// Foreign files. Never deleted.
  [[nodiscard]] std::filesystem::path aside() const { return versions_root() / "aside"; }
  [[nodiscard]] std::filesystem::path current() const { return directory_ / "current"; }
  /// Which run the directory follows: run_file.h.
  [[nodiscard]] std::filesystem::path run_file() const { return directory_ / "run"; }

  [[nodiscard]] std::filesystem::path incoming(PayloadId payload) const;
  [[nodiscard]] std::filesystem::path complete(Version version) const;
  [[nodiscard]] std::filesystem::path patch(PayloadId payload) const;
  [[nodiscard]] std::filesystem::path record(PayloadId payload) const;

  struct Named {
    PayloadId payload{};
    std::uint32_t run = 1;
  };
  /// The payload with the name `name`; nothing if this class gives no payload of any run that name.
  [[nodiscard]] static std::optional<Named> named(std::string_view name);
  /// The same, of this run alone.
  [[nodiscard]] std::optional<PayloadId> payload_of(std::string_view name) const;

  /// Makes the directory, the folders that versions lie in, and what leads there. Errors: kNotAllowed, kIo.
  [[nodiscard]] Status create() const;
  /// The folders alone.
  [[nodiscard]] Status make_folders() const;

  /// Takes the lock for this process, until the File is closed. Errors: kBusy, which names the process that has it;
  /// kNotAllowed, kIo.
  [[nodiscard]] Result<std::unique_ptr<File>> acquire() const;

  /// Points `current` at `version`, by rename: readers see the old or the new one. Errors: kIo, kNoSpace.
  [[nodiscard]] Status switch_current(Version version) const;
  struct Current {
    Version version{};      ///< of this run that `current` names, whether or not it exists; else kNoVersion
    bool foreign = false;   ///< `current` exists, but switch_current() did not make it
    std::uint32_t run = 0;  ///< of the version that `current` names; 0: it names none
  };
  /// Errors: kIo. A missing `current` is none.
  [[nodiscard]] Result<Current> read_current() const;

  /// Moves a directory to the trash; empty_trash() does the long work. Before that it moves foreign files in it aside:
  /// see foreign_names(). Harmless if there is no such directory.
  [[nodiscard]] Status throw_away(const std::filesystem::path& path,
                                  const std::optional<FileTable>& table = std::nullopt) const;
  void empty_trash() const;
  /// Keeps the directory of a deleted version as the spare one, instead of the one before. Treats foreign files in it
  /// as throw_away() does.
  [[nodiscard]] Status make_spare(const std::filesystem::path& path, const FileTable& table) const;
  void drop_spare() const;
  /// Moves a foreign file or directory to aside(), and logs that. Also logs its error.
  Status move_aside(const std::filesystem::path& path) const;

 private:
  [[nodiscard]] Status rescue_foreign(const std::filesystem::path& path, const std::optional<FileTable>& table) const;

  [[nodiscard]] std::string name_of(PayloadId payload) const;

  FileSystem* files_;
  std::filesystem::path directory_;
  std::filesystem::path memory_;
  std::uint32_t run_;
};

}  // namespace weightcast
