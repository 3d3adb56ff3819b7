#pragma once

#include <memory>
#include <vector>

#include "transport/io/store/store_layout.h"
#include "transport/io/store/version_files.h"
#include "transport/io/store/version_record.h"

namespace weightcast {

using FilesRef = std::shared_ptr<VersionFiles>;

// What a store has pool threads do. Free functions, so that they cannot reach into the store. All of them block. Errors
// are those of StoreLayout and VersionFiles where nothing else is said.

/// Files under incoming/, of full size if nothing else is said: those of the spare version `spare`, if it is there and
/// nobody else has them, or new ones; new ones if it is kNoVersion. Errors: kNoSpace, which says how much is wanted and
/// free; kIo.
[[nodiscard]] Result<FilesRef> make_files(const StoreLayout& layout, PayloadId payload,
                                          const std::vector<SnapshotFile>& table, Version spare,
                                          VersionFiles::Size size = VersionFiles::Size::kFull);

/// The files of a payload that will arrive, and their record.
[[nodiscard]] Result<FilesRef> make_incoming(const StoreLayout& layout, const VersionRecord& record, Version spare);

/// The files that a patch is applied to. What an earlier attempt left goes.
[[nodiscard]] Result<FilesRef> make_target(const StoreLayout& layout, const Manifest& manifest, Version spare);

/// A payload that was open has come to its end: its files and its record become those of one that never was.
[[nodiscard]] Status seal(const StoreLayout& layout, const VersionRecord& record);

/// incoming/N becomes versions/N, and `current` if it is newer; sets `switch_s` to how long the latter took.
[[nodiscard]] Status install(const StoreLayout& layout, Version version, double& switch_s);

/// The files that a patch was applied to become the version, and the patch itself is kept for children.
[[nodiscard]] Status install_patched(const StoreLayout& layout, const Manifest& manifest, double& switch_s);

/// The patch that this node made itself, whole in incoming/, moves to patches/. Its files, opened there.
[[nodiscard]] Result<FilesRef> keep_patch(const StoreLayout& layout, const VersionRecord& record);

/// Keeps a forgotten version's files for the next one, and removes its record. In this order, as remove_recorded().
/// Nothing may be written to those files before sync_records() has returned: if the power failed, the version would be
/// back under its old name, with a record that calls it durable, and with other bytes.
[[nodiscard]] Status retire(const StoreLayout& layout, Version version);

/// Makes it sure that records which were removed stay so. Waits for the disk.
[[nodiscard]] Status sync_records(const StoreLayout& layout);

/// Removes a directory and its record. In this order: files without a record are thrown away at start, too.
[[nodiscard]] Status remove_recorded(const StoreLayout& layout, const std::filesystem::path& path, PayloadId payload);

/// Hands a version's bytes to the kernel once more, as they are, so that a sync that failed can be repeated. Errors:
/// kCorrupt when they are not the version's any more: what the kernel could not write is gone.
[[nodiscard]] Status write_again(VersionFiles& files, const Digest& snapshot_digest);

/// The last part of making a version durable: its files are synced already.
[[nodiscard]] Status sync_names_and_mark(const StoreLayout& layout, Version version, const VersionFiles& files);

}  // namespace weightcast
