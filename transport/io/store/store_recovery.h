#pragma once

#include <memory>
#include <vector>

#include "base/result.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"

namespace weightcast {

/// A version that was found on disk.
struct RecoveredVersion {
  VersionRecord record;
  FilesRef files;
  ChunkSet held;                                     ///< of an arriving one
  std::shared_ptr<const LeafSums> leaves = nullptr;  ///< of a complete one that was read; null: not known
};

struct RecoveredStore {
  std::vector<RecoveredVersion> complete;  ///< oldest first
  std::vector<RecoveredVersion> patches;   ///< complete payloads, oldest first
  std::vector<RecoveredVersion> partial;   ///< oldest first
  Version current{};                       ///< of this run
  Version kept{};                          ///< with versions in memory, that the disk has whole; kNoVersion: none
  bool is_kept_durable = true;             ///< false: it is there, and is written anew
  /// Complete versions of the last run before this one, oldest first; the last one is in use while this run has none.
  /// None once a version of this run is durable.
  std::vector<RecoveredVersion> earlier;
  std::uint32_t earlier_run = 0;

  [[nodiscard]] bool empty() const { return complete.empty() && patches.empty() && partial.empty() && earlier.empty(); }
};

/// Finds what a store's directory holds and puts it in order, at whatever moment the last process died. Blocks, and
/// hashes what it cannot trust, by `threads` where there is much.
///
/// Recovery deletes only what is proven wrong: missing files, wrong sizes, wrong digests. Errors: kNotAllowed,
/// kNoSpace, kTimedOut, kIo (something cannot be read or written now: it stays as it is, and the detail says what to
/// do); kUnsupported (another release wrote a record).
///
/// The table lists the moments and what each leaves. Every step is one rename, link or unlink, so there are no others.
///   begin          files made, no record           nothing had been promised: thrown away
///                  record under its ".tmp" name    as above
///   arriving       any chunks, any torn write       kept; chunks that match their digests are held
///   open patch     begun, arriving                 thrown away: only what is known to its end is kept
///                  of its final size, record old   as above
///                  record written anew             an arriving patch, with the chunks that match
///   finish         in versions/, `current` older   complete after a look at its bytes; `current` moves on
///                  "current.tmp" made              removed; as above
///                  `current` moved, not synced     complete after a look at its bytes
///                  synced, not marked               as above
///   complete       marked                          read once; thrown away if it does not match its digest any more
///   given up       record gone, files still there  the files go
///   import         files made, no record           thrown away
///                  record written, not moved       an arriving version with every chunk: finish() completes it
///   forget         in trash/, record still there   the record goes
///   discard        in trash/, record still there   the record goes
///                  trash half emptied              emptied
///   patch          target files made or written    thrown away; the patch is applied again from what is here of it
///                  record of the version written   as above
///                  version moved, patch not yet    the version is complete; the patch is thrown away
///   digests added  record old, or under its ".tmp" name   a version without digests of its own, as before
///   making a patch no record                       thrown away
///                  record written, not moved       thrown away by the origin, which makes it again when it is wanted
///   patch kept     its version lost, or another    thrown away: its number may come back with other bytes
///   in place       in incoming/, cells torn or new thrown away, and its record
///                  in versions/, patch not yet     complete if it matches its digest
///   kept on disk   in incoming/, record or none    thrown away
///                  named, older ones still there   the older ones go
///   memory lost    versions gone, kept one there   that is copied to memory
///   to memory      versions on the disk            the newest one is copied to memory
///   next run       in the run file                 of the earlier run its complete versions stay until one of this
///                                                  run is durable; the rest is thrown away
/// After a power cut a version in versions/ may not match its digest: it is thrown away. A record or a version may also
/// be missing or empty, as if never begun. `layout` has the names of the run that the directory follows. With versions
/// in memory and `keeps_on_disk` a whole version stays on the disk; else nothing does.
[[nodiscard]] Result<RecoveredStore> recover_store(const StoreLayout& layout, bool keeps_on_disk, unsigned threads);

}  // namespace weightcast
