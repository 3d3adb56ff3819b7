#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/files/file_system.h"
#include "base/ids.h"
#include "base/result.h"
#include "base/units.h"
#include "patch/snapshot/file_table.h"
#include "patch/snapshot/snapshot_digest.h"
#include "transport/core/manifest/chunk_set.h"
#include "transport/core/manifest/manifest.h"
#include "transport/io/buffer.h"
#include "transport/io/disk/disk.h"
#include "transport/io/event_loop.h"
#include "transport/io/serial_work.h"
#include "transport/io/store/files/chunk_cache.h"
#include "transport/io/store/files/spare_update.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/run_file.h"
#include "transport/io/store/store_layout.h"

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
  StorePlace place;
  /// Asked in place of `place` where the store opens empty: on a pool thread, once, with the size of the first version.
  std::function<StorePlace(std::uint64_t version_bytes)> choose_place;
  /// Asked where a version of that size is to be made beside the only copy in memory, with which there would be so many
  /// copies: whether there is room. On a pool thread. Null: the file system in memory alone says so. Errors: kNoSpace.
  std::function<Status(std::uint64_t version_bytes, std::uint32_t copies)> check_room;
  /// With versions in memory the disk has a whole one, which is so many numbers behind the newest at most, and what is
  /// being written; 0: none.
  std::uint32_t keep_durable_every = 0;
  /// The part of its time for which a disk is busy with that.
  double keep_disk_share = 0.5;
  /// The part of a core's time in which the newest version is read and compared with its leaves; 0: never.
  double scrub_share = 0.02;
};

/// A complete version: every byte is here and verified.
struct StoredVersion {
  Manifest manifest;                         ///< of the payload that brought it, or of its full one
  std::vector<ContentDigest> chunk_digests;  ///< of a full payload; else empty or all 0
  std::filesystem::path path;                ///< the directory with the snapshot's files
  bool durable = false;                      ///< synced: survives a power cut
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

/// Where an origin writes a version that it makes itself.
struct ImportTarget {
  std::filesystem::path directory;
  std::vector<std::filesystem::path> paths;  ///< one per file, of full size; the caller fills them by any means
  FilesRef files;                            ///< the same files, for write_stream()
};

class KeptCopy;
class UvLoop;
struct RecoveredStore;
struct Spare;

/// A node's versions on disk. Loop thread only; callbacks run on the loop, never from inside the call.
/// ARCHITECTURE.md, "Where things are on disk", lists the folders.
///
/// With a directory in memory all folders are in that one. A version is durable while the disk has a copy of it:
/// kept_version.h.
///
/// N and B have 12 digits everywhere. A store holds the versions of one run. When it begins another one, names of that
/// one end with its count: N@2. Complete versions of the run before stay readable, and `current` names the newest of
/// them, until a version of the new run is complete; they are deleted when one is durable. The store offers them to no
/// other node.
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
  /// Hears of a version that is installed, or why it is not.
  using InstallDone = std::function<void(Result<StoredVersion>)>;

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
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  [[nodiscard]] DiskBackend backend() const { return disk_->backend(); }
  /// Null until the first version is made, where that decides.
  [[nodiscard]] const StorePlace* place() const { return place_ ? &*place_ : nullptr; }
  [[nodiscard]] bool lies_in_memory() const { return layout_.in_memory(); }

  /// Complete versions, oldest first.
  [[nodiscard]] std::vector<StoredVersion> versions() const;
  /// One of them, without a copy; null if it is not complete. Valid until the loop's next turn.
  [[nodiscard]] const StoredVersion* find(Version version) const;
  /// The one of this run that `current` names, or kNoVersion.
  [[nodiscard]] Version current() const { return current_; }
  /// The version whose files the next one may reuse: the one that was deleted last, once the disk knows that it is
  /// gone. kNoVersion until then.
  [[nodiscard]] Version spare() const;
  /// Which run the versions are of.
  [[nodiscard]] StoreRun run() const { return run_; }
  /// What `current` names while this run has no version: of the run before. Else null.
  [[nodiscard]] const StoredVersion* earlier() const {
    return current_ != kNoVersion || earlier_.empty() ? nullptr : &earlier_.back().stored;
  }
  /// Writes down that the directory follows `run`. `anew`: what it holds is of another run. Then the caller opens the
  /// store again after `done`; until that it goes on as it is. Errors: kNoSpace, kIo (nothing has changed, or all).
  void follow_run(RunId run, bool anew, std::function<void(Status)> done);
  /// With single_copy: the version whose in-place update is prepared and waits for readers to close the files. It stays
  /// so until finish() calls back. Else kNoVersion.
  [[nodiscard]] Version pending_in_place_update() const { return pending_in_place_update_; }
  /// Calls `changed` whenever pending_in_place_update() changes.
  void on_pending_in_place_update(std::function<void()> changed) { on_pending_in_place_update_ = std::move(changed); }
  /// Calls `lost` after a sync has failed and the kernel has dropped bytes of a complete version. The store has deleted
  /// the version by then, and `current` names the newest good one, or nothing.
  void on_lost(std::function<void(Version version, const Error& why)> lost) { on_lost_ = std::move(lost); }
  /// Complete patches, oldest first.
  [[nodiscard]] std::vector<StoredPatch> patches() const;

  /// What led from one version to the other, oldest first, each step from where the one before it ended. None where
  /// that is not known: then a version in between came whole, or so long ago that the lists are gone.
  [[nodiscard]] std::vector<StepRef> steps(Version from, Version to) const { return steps_between(steps_, from, to); }

  /// The payloads in use: the store keeps them besides the last versions_kept versions. It deletes all other patches,
  /// from the first call on.
  void retain(const std::vector<PayloadId>& payloads);
  /// Versions that programs on this host use: they stay, complete and unchanged, whatever their number. With
  /// single_copy no other takes the place of one.
  void pin(std::vector<Version> versions);
  /// Payloads that recovery found and those that have begun since, oldest first. They stay until they are complete or
  /// discarded.
  [[nodiscard]] std::vector<PartialVersion> partial() const;

  /// Makes files of full size for a payload that will arrive. A part that is here already under an equal manifest is
  /// kept and returned. The store deletes parts under another manifest, other payloads of the version, and those of
  /// older versions. A patch is applied to new files while it arrives, and its base stays until then.
  /// Errors: kNoSpace (nothing is left behind), kAlreadyExists (complete already), kBusy (begun already, or being
  /// imported), kWrongBase (the patch's base is not here), kNotFound (discarded meanwhile), kInvalidArgument, kIo.
  void begin(const Manifest& manifest, std::function<void(Result<PartialVersion>)> done);

  /// An open payload has grown to `manifest`, which continues its present one; any other is logged and ignored. A
  /// restart deletes an open payload. Once it is closed, it is as if it had begun with this manifest. Harmless if it
  /// was discarded.
  void grow(const Manifest& manifest);

  /// Records the digests of part `part`, so that a restart need not fetch them. Digests that do not match the manifest
  /// are logged and ignored.
  void put_digest_part(PayloadId payload, std::uint32_t part, const std::vector<ContentDigest>& digests);

  /// Stores a chunk of a payload that has begun. The caller has verified it, and it can be read from now on. After an
  /// error only this chunk is missing, and the caller may write it again. Errors: kNoSpace, kIo, kNotFound (not begun,
  /// or discarded meanwhile), kInvalidArgument (no chunk of this manifest); kWrongBase (the patch does not fit its
  /// base); kCorrupt (the payload does not decode).
  void write_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void(Status)> done);

  /// The chunk if it is in memory, else null. read_chunk() has it then.
  [[nodiscard]] BufferRef cached_chunk(PayloadId payload, ChunkIndex chunk) const;

  /// Reads a stored chunk, from memory if it is recent. Readers of one chunk at one time share one read. Errors:
  /// kNotFound, kCorrupt (somebody has cut the file short), kIo.
  void read_chunk(PayloadId payload, ChunkIndex chunk, std::function<void(Result<BufferRef>)> done);

  /// Installs a payload of which every chunk is stored and every digest part is put. Checks the snapshot's digest,
  /// moves the version to versions/, and switches `current` if it is newer. Then deletes versions beyond versions_kept,
  /// as soon as nobody reads them, and syncs in the background. Most of the digest was computed while chunks arrived.
  ///
  /// With single_copy a patch is applied here, and not before. The store waits until nobody else has a file of the base
  /// open, mapped or linked, and until its own reads have ended. After single_copy_wait it gives up for now: kTimedOut
  /// says who has the files, and begin() and finish() may be called again. Once it overwrites the base, any error loses
  /// that, and on_lost() tells; so does a kill.
  ///
  /// Errors: kCorrupt (a digest does not match, or the payload does not decode: it is deleted; or something is still
  /// missing), kWrongBase (the patch does not fit the base: it is deleted), kNotFound (not begun), kNoSpace and kIo
  /// (nothing has changed, and begin() and finish() may be called again).
  void finish(PayloadId payload, InstallDone done);

  /// Makes files for a version that this node makes itself; its manifest is known only with its last byte. The caller
  /// fills the files on any thread, hashes the bytes, and reports progress by grow_making(). A crash before
  /// finish_import() leaves nothing.
  /// Errors: those of begin().
  void begin_import(Version version, std::vector<SnapshotFile> files, std::function<void(Result<ImportTarget>)> done);

  /// The files of begin_import() hold the version that `manifest` describes; `chunk_digests` are all of its digests. A
  /// patch's manifest, without digests, describes what the patch leads to. The store compares these two with each
  /// other, not with the files, and goes on as finish() does. Errors: kNotFound
  /// (no import of this version), kInvalidArgument (manifest and files or digests disagree), kNoSpace and kIo (the
  /// import is still open, to be finished again or discarded).
  void finish_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests, InstallDone done,
                     ImportDetails details = {});

  /// Makes an empty file for a patch, or for a packed payload, of a version that is here or being imported; returns its
  /// path. Errors: those of begin_import(), and kNotFound (the version is not here).
  void begin_patch(PayloadId patch, std::function<void(Result<std::filesystem::path>)> done);
  /// The files of begin_import() or begin_patch() hold all chunks of this open manifest: they can be read now. Or those
  /// of a complete version do, which has no digests so far. Harmless if it was discarded.
  void grow_making(const Manifest& manifest);
  /// The file of begin_patch() is complete, and the store keeps it. Errors: those of finish_import(); after kNoSpace
  /// and kIo the payload is deleted.
  void finish_patch(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                    std::function<void(Status)> done);

  /// The files of begin_import() and begin_patch() hold a version and the patch that leads to it, which `manifest` and
  /// all of its `chunk_digests` describe: both are complete in one moment. Errors: those of finish_import().
  void finish_patched_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                             InstallDone done, ImportDetails details = {});

  /// The full payload of a complete version that came without its digests: from now on its chunks can be read, and a
  /// restart finds them. Errors: kNotFound (no such version), kInvalidArgument (manifest, digests and version disagree,
  /// or the manifest is open), kNoSpace and kIo (it can be read; a restart does not know of it).
  void add_full_manifest(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                         std::function<void(Status)> done);

  /// Deletes an arriving payload, but not while finish() is at work on it, or an import. The chunks of a complete
  /// version that grow_making() told of are not read any more. Its writes under way call back with kNotFound. Harmless
  /// if there is none.
  void discard(PayloadId payload);

 private:
  // store.cpp has payloads that arrive, and reads; store_install.cpp their end; store_single_copy.cpp in-place updates;
  // store_imports.cpp what the node makes itself; store_retention.cpp what becomes of complete versions; store_keep.cpp
  // how one of those in memory is kept on the disk; store_place.cpp where versions lie; store_scrub.cpp the search for
  // rot.

  struct Complete {
    StoredVersion stored;
    FilesRef files;
    std::optional<Manifest> full_so_far = std::nullopt;  // of one that came without digests, while they are made
    std::size_t users = 0;                               // reads under way, patches that are applied to it
    bool syncing = false;
    bool sync_failed = false;        // of something of it, or may have: another sync would not say what is lost
    bool looked_after_sync = false;  // at what a failed sync has left
    bool lost = false;               // being removed
    std::size_t scrub_at = 0;        // the next of its leaves that is looked at
    std::size_t scrub_left = 0;      // so many
    Instant scrub_from{};            // not before: the disk refused

    /// By which its chunks are read; null if it has no digests.
    [[nodiscard]] const Manifest* full_manifest() const {
      if (stored.manifest.kind == PayloadKind::kFull) return &stored.manifest;
      return full_so_far ? &*full_so_far : nullptr;
    }
  };
  using CompleteRef = std::shared_ptr<Complete>;

  /// A complete version of the run before.
  struct Earlier {
    StoredVersion stored;
    FilesRef files;
  };

  /// A complete patch.
  struct Patch {
    StoredPatch stored;
    FilesRef files;
    std::size_t reads_under_way = 0;
  };
  using PatchRef = std::shared_ptr<Patch>;

  /// A version or patch that an origin makes itself.
  struct Import {
    std::vector<SnapshotFile> table;
    FilesRef files;
    std::optional<Manifest> so_far = std::nullopt;  // of one that is served while it is made
    bool finishing = false;
  };

  /// A payload that is arriving: store_incoming.h. Shared by the callbacks of its writes, which may outlive its place
  /// in the store.
  struct Incoming;
  using IncomingRef = std::shared_ptr<Incoming>;
  static constexpr std::size_t kStepsMax = 4;
  using ReadDone = std::function<void(Result<BufferRef>)>;

  /// On a piece of one file, `at` bytes into the range that it is a piece of; its end is told to `done`.
  using Operation = std::function<void(const FileRef& file, const FilePiece& piece, std::uint64_t at, Disk::Done done)>;
  struct PieceWork {
    FilesRef files;
    FilePiece piece;
    std::uint64_t at = 0;
    Operation operation;
    Disk::Done done;
  };

  Store(EventLoop& loop, StoreOptions options, FileSystem& files, std::unique_ptr<File> lock,
        std::unique_ptr<Disk> disk, StoreRun run, RecoveredStore found);

  /// Runs `task` on the loop, soon, unless the store is gone by then.
  void later(std::function<void()> task) {
    loop_.post([task = std::move(task), alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) task();
    });
  }

  /// Whether it becomes files of their own while it arrives. Else it is those files, or changes the only copy.
  [[nodiscard]] bool is_made_beside(PayloadId payload) const {
    return payload.is_encoded() && !(options_.single_copy && payload.is_patch());
  }

  /// Whether the node makes it itself: its files are being made, or filled.
  [[nodiscard]] bool is_being_made(PayloadId payload) const {
    return preparing_.contains(payload) || imports_.contains(payload);
  }

  static Error no_such(PayloadId payload);
  /// Says of what version `error` is, and what to do about a full disk.
  [[nodiscard]] Error about(Version version, Error error) const;
  static PartialVersion partial_of(const Incoming& incoming);

  void for_pieces(const FilesRef& files, std::uint64_t offset, std::uint64_t length, const Operation& operation,
                  Disk::Done done);
  void start_pieces();
  void handle_written(const IncomingRef& incoming, ChunkIndex chunk, const BufferRef& bytes, std::uint64_t sum,
                      Status status, const std::function<void(Status)>& done);
  void handle_read(const ChunkKey& key, Result<BufferRef> result);
  void start_check(Incoming& incoming);
  void start_applying(Incoming& incoming);
  void handle_digest(const IncomingRef& incoming, const Result<Checksum>& digest, const InstallDone& done);
  void add_patch(VersionRecord record, FilesRef files);
  void set_pending_in_place_update(Version version);
  void finish_in_place(const IncomingRef& incoming, InstallDone done);
  void take_place(const IncomingRef& incoming, InstallDone done);
  void change_place(const IncomingRef& incoming, InstallDone done);
  void overwrite(const IncomingRef& incoming, InstallDone done);
  void lose_base(const IncomingRef& incoming, const Error& why, InstallDone done);
  [[nodiscard]] std::string why_in_use(const Complete& base) const;
  [[nodiscard]] bool is_pinned(Version version) const {
    return std::find(pinned_.begin(), pinned_.end(), version) != pinned_.end();
  }
  static VersionRecord record_of(const Complete& complete);
  /// Whether steps are worth listing: the files that the next version reuses are brought up to date by them, and
  /// engines ask for them.
  [[nodiscard]] bool lists_steps() const { return options_.reuse_files && !options_.single_copy; }
  void keep_step(StepRef step);
  void wait_for_place(const IncomingRef& incoming, const std::string& why, InstallDone done);
  void give_up_waiting(const IncomingRef& incoming, const std::string& why, InstallDone done);
  void handle_moved(const IncomingRef& incoming, double switch_s, const InstallDone& done);
  void give_up(const IncomingRef& incoming, const Error& error, const InstallDone& done);
  void throw_away(const IncomingRef& incoming, const Error& error, const InstallDone& done);
  /// Takes what no start may find from where complete versions lie: the files of an import that was refused, or of a
  /// version that is proven wrong. Tries again until the disk does it.
  void take_out(Version version, FileTable table);
  void take_out_later(Version version, FileTable table);
  void take_out_again();
  /// The newest that is complete and not lost, of whatever run; kNoVersion if there is none.
  [[nodiscard]] StoreLayout::Named newest() const;
  void install_checked(const IncomingRef& incoming, InstallDone done);
  CompleteRef add_complete(VersionRecord record, FilesRef files, std::shared_ptr<const LeafSums> leaves = nullptr);
  void handle_installed(VersionRecord record, FilesRef files, std::shared_ptr<const LeafSums> leaves, double switch_s,
                        const InstallDone& done);
  void forget_old();
  void forget_earlier();
  void forget_old_patches();
  void keep_files_of(const Complete& complete);
  void drop_spare();
  void handle_spare(const std::shared_ptr<Spare>& spare);
  /// Runs `work` among `jobs`, and logs its error: nobody waits for it.
  static void run_unawaited(SerialWork& jobs, std::function<Status()> work);
  void remove_from(const StoreLayout& layout, PayloadId payload, const std::filesystem::path& path,
                   std::optional<FileTable> table);
  void remove(PayloadId payload, const std::filesystem::path& path, std::optional<FileTable> table) {
    remove_from(layout_, payload, path, std::move(table));
  }
  void make_durable(const CompleteRef& complete);
  /// The version of which a copy on the disk is due; null if none is.
  [[nodiscard]] CompleteRef due_to_keep() const;
  void scrub_from_now_on(const CompleteRef& complete);
  void scrub();
  [[nodiscard]] CompleteRef next_to_scrub() const;
  void scrub_again(Complete& complete, std::size_t first, std::size_t count, const Error& why);
  void consider_keeping();
  void start_keeping();
  void go_on_keeping();
  void end_keeping(const Status& status);
  void sync_again(const CompleteRef& complete);
  void give_up_lost(const CompleteRef& complete, const Error& why);
  void sync_files_from(std::size_t file, const CompleteRef& complete);
  /// Whether it is not the store's any more.
  [[nodiscard]] bool is_forgotten(const CompleteRef& complete) const;
  bool refuse_new(PayloadId payload, const std::function<void(Error)>& refuse);
  bool waits_for_place_choice(PayloadId payload, std::uint64_t version_bytes, std::function<void()> begin,
                              std::function<void(Error)> refuse);
  void begin_making(PayloadId payload, const std::vector<SnapshotFile>& table,
                    std::function<void(Result<ImportTarget>)> done);
  std::shared_ptr<VersionRecord> close_import(PayloadId payload, const Manifest& manifest,
                                              const std::vector<ContentDigest>& chunk_digests,
                                              const std::function<void(Error)>& refuse);

  EventLoop& loop_;
  const StoreOptions options_;
  std::optional<StorePlace> place_;  // nothing until the first version decides
  bool choosing_place_ = false;
  StoreLayout layout_;  // of the disk until then
  const std::unique_ptr<File> lock_;
  StoreRun run_;
  Version current_;
  std::vector<Earlier> earlier_;  // oldest first; empty once a version of this run is durable
  std::uint32_t earlier_run_ = 0;
  std::map<PayloadId, IncomingRef> incoming_;
  std::map<PayloadId, Import> imports_;
  std::map<Version, CompleteRef> complete_;
  std::map<PayloadId, PatchRef> patches_;
  std::deque<StepRef> steps_;  // that patches have made, oldest first
  std::optional<std::set<PayloadId>> retained_;
  std::vector<Version> pinned_;
  /// Payloads whose files are being made; what they point to says whether they are still wanted.
  std::map<PayloadId, std::shared_ptr<bool>> preparing_;
  Version pending_in_place_update_{};
  std::function<void()> on_pending_in_place_update_;
  std::function<void(Version, const Error&)> on_lost_;
  /// False once the store is being destroyed.
  std::shared_ptr<std::atomic<bool>> wanted_ = std::make_shared<std::atomic<bool>>(true);
  std::vector<std::function<void()>> waiting_for_place_;
  Timer place_timer_;
  /// Whose files the disk did not let go from where complete versions lie: take_out().
  std::map<Version, FileTable> misplaced_;
  Timer take_out_timer_;
  std::deque<PieceWork> waiting_pieces_;
  std::size_t pieces_under_way_ = 0;
  Deferred start_pieces_;
  Timer sync_timer_;
  Version kept_{};  // with versions in memory, what the disk has
  /// A version that is being copied to the disk.
  struct Keeping {
    CompleteRef complete;
    std::shared_ptr<KeptCopy> copy;
  };
  std::optional<Keeping> keeping_;
  std::size_t next_scrubbed_ = 0;
  bool scrubbing_ = false;
  Timer scrub_timer_;
  Timer keep_timer_;  // until the next piece of a copy, or its next try
  ChunkCache cache_;
  BufferPool read_buffers_;
  std::unordered_map<ChunkKey, std::vector<ReadDone>> reading_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
  std::shared_ptr<Spare> spare_;  // whose files may be written to; null: there are none
  // Last, so that they end first: their destructors wait for what uses the rest.
  SerialWork keep_work_;
  SerialWork spare_work_;
  SerialWork scrub_work_;
  SerialWork syncing_;
  SerialWork serial_;
  std::unique_ptr<Disk> disk_;
};

}  // namespace weightcast
