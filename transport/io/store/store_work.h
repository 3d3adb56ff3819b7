#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "transport/io/store/files/spare_update.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"
#include "transport/io/store/store_recovery.h"

namespace weightcast {

/// The files of a deleted version, in DIR/spare/, for the next one.
struct Spare {
  Version version{};           ///< that was deleted
  std::filesystem::path path;  ///< where they are
  FilesRef files;              ///< old_version() is what they hold
  /// Held by whoever brings them up to date or takes them.
  std::mutex mutex;
  /// Somebody wants to take them: who brings them up to date stops.
  std::atomic<bool> taken = false;
};
using SpareRef = std::shared_ptr<Spare>;

// The store's jobs on pool threads. They are free functions, so that they cannot reach into the store. All block.
// Errors are those of StoreLayout and VersionFiles where nothing else is said.

/// Makes files under incoming/. Reuses those of `spare` if they are there and nobody else has them;
/// makes new ones otherwise, or if it is null. Errors: kNoSpace, which says how much is needed and free; kIo.
[[nodiscard]] Result<FilesRef> make_files(const StoreLayout& layout, PayloadId payload,
                                          const std::vector<SnapshotFile>& table, const SpareRef& spare,
                                          VersionFiles::Size size = VersionFiles::Size::kFull);

/// Makes the files and the record of a payload that will arrive.
[[nodiscard]] Result<FilesRef> make_incoming(const StoreLayout& layout, const VersionRecord& record,
                                             const SpareRef& spare);

/// Makes the files that a patch is applied to. Deletes those of an earlier attempt.
[[nodiscard]] Result<FilesRef> make_target(const StoreLayout& layout, const Manifest& manifest, const SpareRef& spare);

/// Ends an open payload: its files and its record become those of one that was never open.
[[nodiscard]] Status seal(const StoreLayout& layout, const VersionRecord& record);

/// Moves incoming/N to versions/N, and switches `current` if N is newer. Returns how long the switch took, in seconds.
[[nodiscard]] Result<double> install(const StoreLayout& layout, Version version);

/// The same with the files that a patch was applied to; keeps the patch for children.
[[nodiscard]] Result<double> install_patched(const StoreLayout& layout, const Manifest& manifest);

// In-place update: a version's only copy, `base`, becomes the next version, which the patch of `manifest` leads to.
// hide_base() moves it to incoming/N, where its cells are overwritten; then install_in_place(), or drop_base(). A start
// throws away what it finds between these.

/// From here on nobody can open the version by its name: `current` leads nowhere. Errors: kBusy (somebody else has one
/// of its files open, mapped or linked), kUnsupported (the file system cannot tell), kWrongBase (it cannot be moved),
/// kNoSpace, kIo: it is where it was; kCorrupt: it is not.
[[nodiscard]] Status hide_base(const StoreLayout& layout, const Manifest& manifest, VersionFiles& base);
/// As install_patched(), of what the base has become.
[[nodiscard]] Result<double> install_in_place(const StoreLayout& layout, const Manifest& manifest);
/// Deletes what is a mixture. `next` is what `current` then names. After an error a start does so.
[[nodiscard]] Status drop_base(const StoreLayout& layout, const Manifest& manifest, StoreLayout::Named next);

/// Undoes install() of a version that nobody wants any more: `current` names `next` again, or nothing if that is
/// kNoVersion. The record is gone, or goes by drop_mark().
[[nodiscard]] Status uninstall(const StoreLayout& layout, Version version, StoreLayout::Named next,
                               const FileTable& table);

/// Of a version that is proven wrong: no start takes it for complete from here on, wherever its files lie. Needs no
/// room on the disk. Waits for it.
[[nodiscard]] Status drop_mark(const StoreLayout& layout, Version version);

/// Moves a patch that this node made, complete in incoming/, to patches/. Returns its files, opened there.
[[nodiscard]] Result<FilesRef> keep_patch(const StoreLayout& layout, const VersionRecord& record);

/// Brings spare files up to the version that `steps` lead to, where they are, unless somebody takes them meanwhile, or
/// somebody else has one of them open.
void bring_up_to_date(const StoreLayout& layout, Spare& spare, const std::vector<StepRef>& steps);

/// Keeps a deleted version's files for the next one, and removes its record; in this order, as remove_recorded().
/// Nobody writes to those files before sync_records() has returned. Otherwise a power cut could bring the version back
/// under its old name, with a record that calls it durable, and with other bytes.
[[nodiscard]] Status retire(const StoreLayout& layout, Version version, const FileTable& table);

/// Makes sure that a power cut does not bring removed records back. Waits for the disk.
[[nodiscard]] Status sync_records(const StoreLayout& layout);

/// Deletes a directory and its record. In this order: recovery deletes files without a record, too. Moves foreign files
/// in it aside first, as StoreLayout::throw_away().
[[nodiscard]] Status remove_recorded(const StoreLayout& layout, const std::filesystem::path& path, PayloadId payload,
                                     const std::optional<FileTable>& table);

/// Writes a version's bytes and its record once more, so that a failed sync can be repeated. After a failed sync the
/// kernel may drop pages, or believe that they are on the disk. Stops early when `wanted` becomes false. Errors:
/// kCorrupt (the kernel has dropped bytes of the version), kBusy (it stopped early).
[[nodiscard]] Status write_again(const StoreLayout& layout, const VersionRecord& record, VersionFiles& files,
                                 const std::atomic<bool>& wanted);

/// Deletes a version that is proven wrong, wherever it lies: drop_mark(), then uninstall(). After an error all of it
/// may be done again.
[[nodiscard]] Status give_up_version(const StoreLayout& layout, Version version, StoreLayout::Named next,
                                     const FileTable& table);

/// Makes a version durable whose files are synced: syncs names, then marks its record.
[[nodiscard]] Status sync_names_and_mark(const StoreLayout& layout, Version version, const VersionFiles& files);

}  // namespace weightcast
