#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/file_system.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "transport/core/chunk_set.h"
#include "transport/core/manifest.h"
#include "transport/io/buffer.h"
#include "transport/io/disk/disk.h"
#include "transport/io/event_loop.h"

namespace weightcast {

struct StoreOptions {
  std::filesystem::path directory;
  /// Installed versions on disk, the current one included; at least 1. Until the newest ones are durable, one more.
  std::uint32_t versions_kept = 2;
  DiskBackend backend = DiskBackend::kAuto;
  /// A patch changes the files of its base instead of new ones: room for one copy is enough, versions_kept and
  /// reuse_files do not count, and no version is visible while that goes on. See retain() and finish().
  bool single_copy = false;
  /// How long finish() waits with single_copy until others have let go of the files.
  Duration single_copy_wait = std::chrono::seconds(60);
  bool reuse_files = true;  ///< a forgotten version's files are written anew, instead of new ones being made
  /// Chunks just written, kept in memory for the children that follow: a few round trips' worth. More would only be
  /// memory to touch, as what is older is in the kernel's page cache.
  std::size_t cache_bytes_max = 2 * kMiB;
};

/// A version whose every byte is here and verified.
struct StoredVersion {
  Manifest manifest;
  std::vector<Digest> chunk_digests;
  std::filesystem::path path;  ///< the directory with the snapshot's files
  bool durable = false;        ///< synced: survives a power cut without another look
  double switch_s = 0;         ///< how long making `current` point to it took; 0 for one that was found at start
};

/// The complete payload of a patch.
struct StoredPatch {
  Manifest manifest;
  std::vector<Digest> chunk_digests;
};

/// A payload that is partly here.
struct PartialVersion {
  Manifest manifest;
  std::vector<Digest> chunk_digests;  ///< as far as they are known: whole parts, from the first
  ChunkSet held;                      ///< chunks whose bytes on disk match their digests
};

class VersionFiles;

/// Where an origin puts the bytes of a version that it makes itself.
struct ImportTarget {
  std::filesystem::path directory;
  std::vector<std::filesystem::path> paths;  ///< one per file, of full size; to be filled in by any means
  std::shared_ptr<VersionFiles> files;       ///< the same files, for write_stream()
};

/// A node's versions on disk. Loop thread only; callbacks run on the loop, never from inside the call.
///
///   DIR/lock              held (flock) while a daemon runs
///   DIR/incoming/N/       files of a version that is arriving, preallocated to their full size
///   DIR/incoming/N-B/     the patch from version B to N while it arrives; N/ beside it is what it is applied to
///   DIR/incoming/N-packed/  the packed payload of version N while it arrives; N/ beside it is what is made of it
///   DIR/versions/N/       a complete, verified version: byte for byte what was published, nothing else
///   DIR/patches/N-B/      the payload of a complete patch, for children; N-packed/ is not kept over a restart
///   DIR/records/N, N-B    manifest and chunk digests of a version or patch (length-prefixed protobuf with a digest of
///                         its own); N and B are written with 12 digits everywhere
///   DIR/current           symbolic link to versions/N, replaced by rename: readers see the old or the new one
///   DIR/trash/            what is being deleted; emptied at start
///   DIR/spare/            files of the version that was forgotten last; the next one is written to them, unless some
///                         reader has one of them open, mapped or linked; emptied at start
///   DIR/undo/N-B          with single_copy: what version B held before N was made of it
///   (transport/io/store/in_place.h) DIR/aside/            what was found in the folders above and is not ours; never
///   deleted
///
/// What is verified is found again by looking: after a restart the bytes of an arriving version are hashed against
/// their digests (holes are skipped), so no bookkeeping can disagree with the data. Sync policy: chunk writes are not
/// synced one by one; a version becomes visible when its snapshot digest matches, and is synced right after, in the
/// background. A version that was not yet durable when the power went is hashed again at the next start, before it is
/// used, and thrown away (and `current` set back to the newest good one) if it does not match.
class Store {
 public:
  /// Locks the directory and recovers what is there. Blocks (hashing) on start only. `files` outlives the loop: what is
  /// under way holds open files.
  /// Errors: kBusy when another daemon holds it (the detail says its pid), kNotAllowed, kIo.
  [[nodiscard]] static Result<std::unique_ptr<Store>> open(UvLoop& loop, FileSystem& files, StoreOptions options);
  /// The same with a Disk of the caller's over those files: a simulated one, or one that a test makes fail.
  [[nodiscard]] static Result<std::unique_ptr<Store>> open(EventLoop& loop, FileSystem& files, StoreOptions options,
                                                           std::unique_ptr<Disk> disk);
  /// Waits for what is under way on pool threads and in the kernel; callbacks that have not run never will. Not from
  /// inside a callback.
  virtual ~Store() = default;

  [[nodiscard]] virtual DiskBackend backend() const = 0;

  /// Complete versions, oldest first.
  [[nodiscard]] virtual std::vector<StoredVersion> versions() const = 0;
  /// One of them, without a copy; null if it is not complete. Good until the loop's next turn.
  [[nodiscard]] virtual const StoredVersion* find(Version version) const = 0;
  /// The one that `current` names, or kNoVersion.
  [[nodiscard]] virtual Version current() const = 0;
  /// With single_copy: the version that wants to take the place of the current one's files, from when it is prepared
  /// until finish() calls back; who has them open or mapped is waited for. Else kNoVersion.
  [[nodiscard]] virtual Version pending_in_place_update() const = 0;
  /// Calls `changed` each time that it becomes another.
  virtual void on_pending_in_place_update(std::function<void()> changed) = 0;
  /// Complete patches, oldest first.
  [[nodiscard]] virtual std::vector<StoredPatch> patches() const = 0;

  /// What is in use: these payloads stay, besides the last versions_kept versions. Patches that are not named go, from
  /// the first call on.
  virtual void retain(const std::vector<PayloadId>& payloads) = 0;
  /// Versions that programs on this host use: they stay, complete and unchanged, whatever their number. With
  /// single_copy no other takes the place of one.
  virtual void pin(std::vector<Version> versions) = 0;
  /// What was found at start and what has begun since, oldest first. Those that nobody begins stay until discarded.
  [[nodiscard]] virtual std::vector<PartialVersion> partial() const = 0;

  /// Makes room for a payload that will arrive: files of full size. If a part of it is here already under an equal
  /// manifest, that part is kept and told; a part under another manifest, of another payload of the version, or of an
  /// older version, is thrown away. A patch is applied to a copy of its base while it arrives; the base stays for as
  /// long.
  /// Errors: kNoSpace (nothing is left behind), kAlreadyExists (complete already), kBusy (this version is beginning or
  /// being imported), kWrongBase (the patch's base is not here), kNotFound (discarded meanwhile), kIo.
  virtual void begin(const Manifest& manifest, std::function<void(Result<PartialVersion>)> done) = 0;

  /// An open payload that has begun has grown to `manifest`, which continues the one of now. Of an open payload nothing
  /// is kept over a restart; once it is not open any more it is as if it had begun with this manifest. Harmless if it
  /// was discarded.
  virtual void grow(const Manifest& manifest) = 0;

  /// Keeps the digests of part `part` (already checked against the manifest) for a restart.
  virtual void put_digest_part(PayloadId payload, std::uint32_t part, const std::vector<Digest>& digests) = 0;

  /// Stores a chunk of a payload that has begun; the caller has verified it. From here on it can be read. After an
  /// error it is not stored, the others are, and it may be written again. Errors: kNoSpace, kIo, kNotFound (not begun,
  /// or discarded meanwhile); kWrongBase and kCorrupt for a patch that turns out not to fit its base, or to be none.
  virtual void write_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void(Status)> done) = 0;

  /// The chunk if it is in memory, else null; then read_chunk() has it.
  [[nodiscard]] virtual BufferRef cached_chunk(PayloadId payload, ChunkIndex chunk) const = 0;

  /// Reads a chunk that was written (or of a complete version): from memory if it is recent. Readers of one chunk at
  /// one time share one read. Errors: kNotFound, kCorrupt (the file was cut short by someone), kIo.
  virtual void read_chunk(PayloadId payload, ChunkIndex chunk, std::function<void(Result<BufferRef>)> done) = 0;

  /// Every chunk is stored (write_chunk has called back) and every digest part was put: checks the snapshot digest over
  /// what was handed to the kernel in order, and over what is on disk for the rest, moves the version to versions/,
  /// switches `current` if it is newer, forgets the versions beyond versions_kept (when the last read of them has
  /// ended), and syncs in the background. The digest is computed leaf by leaf while chunks arrive, so little is left to
  /// do here.
  /// Errors: kCorrupt (the digest does not match, or the patch is none: what arrived is thrown away); kWrongBase (the
  /// patch does not fit what is here; thrown away too); kNotFound (not begun, or discarded meanwhile); kNoSpace, kIo
  /// (the version stays as it was before, and begin() and finish() may be called again). With single_copy a patch is
  /// applied here, and not before: as soon as nobody else has a file of its base open, mapped or linked, and reads of
  /// it have ended; if that takes longer than single_copy_wait, kTimedOut tells who has one, and begin() and finish()
  /// may be called again. After an error, and after the process was killed, the base is what it was.
  virtual void finish(PayloadId payload, std::function<void(Result<StoredVersion>)> done) = 0;

  /// Makes room for a version that this node makes itself, whose manifest is not known before its bytes are. The caller
  /// fills the files, on any thread, and hashes what it wrote; grow_making() says how far it is. A crash before
  /// finish_import() leaves nothing.
  /// Errors: those of begin().
  virtual void begin_import(Version version, std::vector<SnapshotFile> files,
                            std::function<void(Result<ImportTarget>)> done) = 0;

  /// The files of begin_import() hold what `manifest` says, of which `chunk_digests` are all; neither is checked
  /// against the files, only against each other. Goes on as finish() does. Errors: kNotFound (no import of this
  /// version), kInvalidArgument (manifest and files or digests disagree), kNoSpace, kIo (the import is still open, to
  /// be finished again or discarded).
  virtual void finish_import(const Manifest& manifest, const std::vector<Digest>& chunk_digests,
                             std::function<void(Result<StoredVersion>)> done) = 0;

  /// Makes room for a patch between two versions that are here: gives the path of an empty file for its payload.
  /// Errors: those of begin_import(), and kNotFound (the version that it leads to is not here).
  virtual void begin_patch(PayloadId patch, std::function<void(Result<std::filesystem::path>)> done) = 0;
  /// The files of begin_import() or begin_patch() hold what this open manifest says: its chunks can be read. Harmless
  /// if it was discarded.
  virtual void grow_making(const Manifest& manifest) = 0;
  /// The file of begin_patch() holds all of it: the patch is kept. Errors: those of finish_import(); after kNoSpace and
  /// kIo it is gone.
  virtual void finish_patch(const Manifest& manifest, const std::vector<Digest>& chunk_digests,
                            std::function<void(Status)> done) = 0;

  /// Throws an arriving payload (or an import) away. Its writes that are under way call back with kNotFound. Harmless
  /// when there is none.
  virtual void discard(PayloadId payload) = 0;
};

}  // namespace weightcast
