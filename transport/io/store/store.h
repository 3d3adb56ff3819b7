#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/core/manifest/chunk_set.h"
#include "transport/core/manifest/manifest.h"
#include "transport/io/buffer.h"
#include "transport/io/disk/disk.h"
#include "transport/io/event_loop.h"
#include "transport/io/store/files/spare_update.h"
#include "transport/io/store/files/version_log.h"
#include "transport/io/store/run_file.h"

namespace weightcast {

/// Where the versions of a store lie, and why there.
struct StorePlace {
  std::filesystem::path memory_directory = {};  ///< in memory (tmpfs), of this store alone; "": the store's directory
  std::string why = {};
};

struct StoreOptions {
  std::filesystem::path directory;
  /// Complete versions that stay on disk, the current one included; at least 1. Until the newest is durable, the newest
  /// durable one stays, too.
  std::uint32_t versions_kept = 2;
  DiskBackend backend = DiskBackend::kAuto;
  /// A patch changes the files of its base in place, so room for one copy is enough. No version is visible meanwhile.
  /// versions_kept and reuse_files do not count. See retain() and finish().
  bool single_copy = false;
  /// With single_copy, finish() waits this long for others to close the files.
  Duration single_copy_wait = std::chrono::seconds(60);
  /// Of a directory that does not say which run it follows: writes that down before open() returns.
  std::function<RunId()> make_run;
  /// A new version reuses the files of the version that was deleted last. A patch changes them where they are, if the
  /// store knows what the last patches have changed (spare_update.h).
  bool reuse_files = true;
  /// Recent chunks in memory, for the children that follow: a few round trips' worth. The kernel's page cache has the
  /// older ones.
  std::size_t cache_bytes_max = 2 * kMiB;
  /// With versions in memory a power cut leaves what the log has: version_log.h.
  StorePlace place;
  /// Asked in place of `place` where the store opens empty: on a pool thread, once, with the size of the first version.
  std::function<StorePlace(std::uint64_t version_bytes)> choose_place;
  /// Asked where a version of that size is to be made beside the only copy in memory, with which there would be so many
  /// copies: whether there is room. On a pool thread. Null: the file system in memory alone says so. Errors: kNoSpace.
  std::function<Status(std::uint64_t version_bytes, std::uint32_t copies)> check_room;
  VersionLog::Options log;
  /// The part of its time for which a disk is busy with a new anchor.
  double anchor_disk_share = 0.5;
  /// The part of a core's time in which the newest version is read and compared with its leaves; 0: never.
  double scrub_share = 0.02;
};

/// A complete version: every byte is here and verified.
struct StoredVersion {
  Manifest manifest;                         ///< of the payload that brought it, or of its full one
  std::vector<ContentDigest> chunk_digests;  ///< of a full payload; else empty or all 0
  std::filesystem::path path;                ///< the directory with the snapshot's files
  bool durable = false;                      ///< synced: survives a power cut, and recovery does not hash it again
  double switch_s = 0;                       ///< how long the switch of `current` took; 0 if recovery found the version
  std::uint32_t run = 1;                     ///< the count of its run: StoreRun
  std::shared_ptr<const LeafSums> leaves = nullptr;  ///< of its bytes, by snapshot_digest.h; null: not known
};

/// What whoever made a version knows of it: the next ones need no pass over it then.
struct ImportDetails {
  std::shared_ptr<const LeafSums> leaves = nullptr;  ///< null: not known
  StepRef step = nullptr;                            ///< from the version before; null: not known
};

/// The complete payload of a patch.
struct StoredPatch {
  Manifest manifest;
  std::vector<ContentDigest> chunk_digests;
};

/// A payload that is partly here.
struct PartialVersion {
  Manifest manifest;
  std::vector<ContentDigest> chunk_digests;  ///< those of whole parts, from the first part to the first unknown one
  ChunkSet held;                             ///< chunks whose bytes on disk match their digests
};

class VersionFiles;

/// Where an origin writes a version that it makes itself.
struct ImportTarget {
  std::filesystem::path directory;
  std::vector<std::filesystem::path> paths;  ///< one per file, of full size; the caller fills them by any means
  std::shared_ptr<VersionFiles> files;       ///< the same files, for write_stream()
};

/// A node's versions on disk. Loop thread only; callbacks run on the loop, never from inside the call.
///
///   DIR/lock                held (flock) while a daemon runs
///   DIR/incoming/N/         files of a version that is arriving, preallocated to their full size
///   DIR/incoming/N-B/       the patch from version B to N while it arrives; it is applied to N/
///   DIR/incoming/N-packed/  the packed payload of version N while it arrives; it is unpacked to N/
///   DIR/versions/N/         a complete, verified version: byte for byte as published
///   DIR/patches/N-B/        the payload of a complete patch, for children; a restart deletes N-packed/
///   DIR/records/N, N-B      manifest and chunk digests (version_record.h)
///   DIR/current             symbolic link to versions/N, replaced by rename: readers see the old or the new one
///   DIR/trash/              what is being deleted; emptied at start
///   DIR/spare/              files of the version that was deleted last, for the next one; emptied at start
///   DIR/undo/N-B            with single_copy: the journal of B's old cells (in_place.h)
///   DIR/aside/              foreign files that were in the folders above; never deleted
///   DIR/run                 which run the directory follows (run_file.h)
///
/// With a directory in memory, incoming/ of whole versions, versions/, undo/, spare/ and a trash/ and aside/ of their
/// own are in that one. DIR/arriving/ has the payloads of patches, and DIR/anchors/ what the log goes on from. A
/// version is durable when the log holds it: version_log.h.
///
/// N and B have 12 digits everywhere. A store holds the versions of one run, in whose names it is at home. When it
/// begins another one, names of that one end with its count: N@2. Complete versions of the run before stay readable,
/// and `current` names the newest of them, until a version of the new run is complete; they are deleted when one is
/// durable. The store offers them to no other node.
///
/// No bookkeeping of chunks: at start, recovery hashes the bytes of an arriving version against their digests, and
/// skips holes. Sync policy: the store does not sync chunk writes. A version becomes visible when its snapshot digest
/// matches. The store then syncs it in the background, and it is durable. At start, recovery hashes every version that
/// is not durable, and deletes it if it does not match.
///
/// Foreign files inside a version's directory stay there. When the store deletes the directory, it moves them to
/// aside/ first.
class Store {
 public:
  /// Locks the directory and recovers its contents. Blocks while it hashes. `files` outlives the loop, because jobs
  /// under way hold open files. Errors: kBusy (another daemon has the lock; the detail says its pid); kNotAllowed;
  /// kUnsupported (another release wrote a record); kNoSpace and kIo (something cannot be read or written now: it stays
  /// as it is, and the detail says what to do).
  [[nodiscard]] static Result<std::unique_ptr<Store>> open(UvLoop& loop, FileSystem& files, StoreOptions options);
  /// The same with the caller's Disk over those files: a simulated one, or one that a test makes fail.
  [[nodiscard]] static Result<std::unique_ptr<Store>> open(EventLoop& loop, FileSystem& files, StoreOptions options,
                                                           std::unique_ptr<Disk> disk);
  /// Waits for jobs on pool threads and operations in the kernel; long jobs end early. Callbacks that have not run
  /// never will. Not from inside a callback.
  virtual ~Store() = default;

  [[nodiscard]] virtual DiskBackend backend() const = 0;
  /// Null until the first version is made, where that decides.
  [[nodiscard]] virtual const StorePlace* place() const = 0;

  /// Complete versions, oldest first.
  [[nodiscard]] virtual std::vector<StoredVersion> versions() const = 0;
  /// One of them, without a copy; null if it is not complete. Valid until the loop's next turn.
  [[nodiscard]] virtual const StoredVersion* find(Version version) const = 0;
  /// The one of this run that `current` names, or kNoVersion.
  [[nodiscard]] virtual Version current() const = 0;
  /// The version whose files the next one may reuse: the one that was deleted last, once the disk knows that it is
  /// gone. kNoVersion until then.
  [[nodiscard]] virtual Version spare() const = 0;
  /// Which run the versions are of.
  [[nodiscard]] virtual StoreRun run() const = 0;
  /// What `current` names while this run has no version: of the run before. Else null.
  [[nodiscard]] virtual const StoredVersion* earlier() const = 0;
  /// Writes down that the directory follows `run`. `anew`: what it holds is of another run. Then the caller opens the
  /// store again after `done`; until that it goes on as it is. Errors: kNoSpace, kIo (nothing has changed, or all).
  virtual void follow_run(RunId run, bool anew, std::function<void(Status)> done) = 0;
  /// With single_copy: the version whose in-place update is prepared and waits for readers to close the files. It stays
  /// so until finish() calls back. Else kNoVersion.
  [[nodiscard]] virtual Version pending_in_place_update() const = 0;
  /// Calls `changed` whenever pending_in_place_update() changes.
  virtual void on_pending_in_place_update(std::function<void()> changed) = 0;
  /// Calls `lost` after a sync has failed and the kernel has dropped bytes of a complete version. The store has deleted
  /// the version by then, and `current` names the newest good one, or nothing.
  virtual void on_lost(std::function<void(Version version, const Error& why)> lost) = 0;
  /// Complete patches, oldest first.
  [[nodiscard]] virtual std::vector<StoredPatch> patches() const = 0;

  /// What led from one version to the other, oldest first, each step from where the one before it ended. None where
  /// that is not known: then a version in between came whole, or so long ago that the lists are gone.
  [[nodiscard]] virtual std::vector<StepRef> steps(Version from, Version to) const = 0;

  /// The payloads in use: the store keeps them besides the last versions_kept versions. It deletes all other patches,
  /// from the first call on.
  virtual void retain(const std::vector<PayloadId>& payloads) = 0;
  /// Versions that programs on this host use: they stay, complete and unchanged, whatever their number. With
  /// single_copy no other takes the place of one.
  virtual void pin(std::vector<Version> versions) = 0;
  /// Payloads that recovery found and those that have begun since, oldest first. They stay until they are complete or
  /// discarded.
  [[nodiscard]] virtual std::vector<PartialVersion> partial() const = 0;

  /// Makes files of full size for a payload that will arrive. A part that is here already under an equal manifest is
  /// kept and returned. The store deletes parts under another manifest, other payloads of the version, and those of
  /// older versions. A patch is applied to new files while it arrives, and its base stays until then.
  /// Errors: kNoSpace (nothing is left behind), kAlreadyExists (complete already), kBusy (begun already, or being
  /// imported), kWrongBase (the patch's base is not here), kNotFound (discarded meanwhile), kInvalidArgument, kIo.
  virtual void begin(const Manifest& manifest, std::function<void(Result<PartialVersion>)> done) = 0;

  /// An open payload has grown to `manifest`, which continues its present one; any other is logged and ignored. A
  /// restart deletes an open payload. Once it is closed, it is as if it had begun with this manifest. Harmless if it
  /// was discarded.
  virtual void grow(const Manifest& manifest) = 0;

  /// Records the digests of part `part`, so that a restart need not fetch them. Digests that do not match the manifest
  /// are logged and ignored.
  virtual void put_digest_part(PayloadId payload, std::uint32_t part, const std::vector<ContentDigest>& digests) = 0;

  /// Stores a chunk of a payload that has begun. The caller has verified it, and it can be read from now on. After an
  /// error only this chunk is missing, and the caller may write it again. Errors: kNoSpace, kIo, kNotFound (not begun,
  /// or discarded meanwhile), kInvalidArgument (no chunk of this manifest); kWrongBase (the patch does not fit its
  /// base); kCorrupt (the payload does not decode).
  virtual void write_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void(Status)> done) = 0;

  /// The chunk if it is in memory, else null. read_chunk() has it then.
  [[nodiscard]] virtual BufferRef cached_chunk(PayloadId payload, ChunkIndex chunk) const = 0;

  /// Reads a stored chunk, from memory if it is recent. Readers of one chunk at one time share one read. Errors:
  /// kNotFound, kCorrupt (somebody has cut the file short), kIo.
  virtual void read_chunk(PayloadId payload, ChunkIndex chunk, std::function<void(Result<BufferRef>)> done) = 0;

  /// Installs a payload of which every chunk is stored and every digest part is put. Checks the snapshot's digest,
  /// moves the version to versions/, and switches `current` if it is newer. Then deletes versions beyond versions_kept,
  /// as soon as nobody reads them, and syncs in the background. Most of the digest was computed while chunks arrived.
  ///
  /// With single_copy a patch is applied here, and not before. The store waits until nobody else has a file of the base
  /// open, mapped or linked, and until its own reads have ended. After single_copy_wait it gives up for now: kTimedOut
  /// says who has the files, and begin() and finish() may be called again. After any error, and after a kill, the base
  /// is as it was.
  ///
  /// Errors: kCorrupt (a digest does not match, or the payload does not decode: it is deleted; or something is still
  /// missing), kWrongBase (the patch does not fit the base: it is deleted), kNotFound (not begun, or discarded
  /// meanwhile), kNoSpace and kIo (nothing has changed, and begin() and finish() may be called again).
  virtual void finish(PayloadId payload, std::function<void(Result<StoredVersion>)> done) = 0;

  /// Makes files for a version that this node makes itself; its manifest is known only with its last byte. The caller
  /// fills the files on any thread, hashes the bytes, and reports progress by grow_making(). A crash before
  /// finish_import() leaves nothing.
  /// Errors: those of begin().
  virtual void begin_import(Version version, std::vector<SnapshotFile> files,
                            std::function<void(Result<ImportTarget>)> done) = 0;

  /// The files of begin_import() hold the version that `manifest` describes; `chunk_digests` are all of its digests. A
  /// patch's manifest, without digests, describes what the patch leads to. The store compares these two with each
  /// other, not with the files, and goes on as finish() does. Errors: kNotFound
  /// (no import of this version), kInvalidArgument (manifest and files or digests disagree), kNoSpace and kIo (the
  /// import is still open, to be finished again or discarded).
  virtual void finish_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                             std::function<void(Result<StoredVersion>)> done, ImportDetails details = {}) = 0;

  /// Makes an empty file for a patch, or for a packed payload, of a version that is here or being imported; returns its
  /// path. Errors: those of begin_import(), and kNotFound (the version is not here).
  virtual void begin_patch(PayloadId patch, std::function<void(Result<std::filesystem::path>)> done) = 0;
  /// The files of begin_import() or begin_patch() hold all chunks of this open manifest: they can be read now. Or those
  /// of a complete version do, which has no digests so far. Harmless if it was discarded.
  virtual void grow_making(const Manifest& manifest) = 0;
  /// The file of begin_patch() is complete, and the store keeps it. Errors: those of finish_import(); after kNoSpace
  /// and kIo the payload is deleted.
  virtual void finish_patch(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                            std::function<void(Status)> done) = 0;

  /// The files of begin_import() and begin_patch() hold a version and the patch that leads to it, which `manifest` and
  /// all of its `chunk_digests` describe: both are complete in one moment. Errors: those of finish_import().
  virtual void finish_patched_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                                     std::function<void(Result<StoredVersion>)> done, ImportDetails details = {}) = 0;

  /// The full payload of a complete version that came without its digests: from now on its chunks can be read, and a
  /// restart finds them. Errors: kNotFound (no such version), kInvalidArgument (manifest, digests and version disagree,
  /// or the manifest is open), kNoSpace and kIo (it can be read; a restart does not know of it).
  virtual void add_full_manifest(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                                 std::function<void(Status)> done) = 0;

  /// Deletes an arriving payload or an import. The chunks of a complete version that grow_making() told of are not read
  /// any more. Its writes under way call back with kNotFound. Harmless if there is
  /// none.
  virtual void discard(PayloadId payload) = 0;
};

}  // namespace weightcast
