#pragma once

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "transport/io/serial_work.h"
#include "transport/io/store/anchor.h"
#include "transport/io/store/files/chunk_cache.h"
#include "transport/io/store/files/patched_snapshot.h"
#include "transport/io/store/files/snapshot_check.h"
#include "transport/io/store/in_place.h"
#include "transport/io/store/store.h"
#include "transport/io/store/store_recovery.h"
#include "transport/io/store/store_work.h"

namespace weightcast {

/// The Store. store.cpp has payloads that arrive, and reads; store_retention.cpp what becomes of complete versions;
/// store_imports.cpp what the node makes itself; store_place.cpp where versions lie; store_scrub.cpp the search for
/// rot; store_single_copy.cpp in-place updates.
class StoreImpl final : public Store {
 public:
  StoreImpl(EventLoop& loop, StoreOptions options, FileSystem& files, std::unique_ptr<File> lock,
            std::unique_ptr<Disk> disk, StoreRun run, RecoveredStore found);
  /// What can be done again after the next start ends early.
  ~StoreImpl() override;
  StoreImpl(const StoreImpl&) = delete;
  StoreImpl& operator=(const StoreImpl&) = delete;

  [[nodiscard]] DiskBackend backend() const override { return disk_->backend(); }
  [[nodiscard]] const StorePlace* place() const override { return place_ ? &*place_ : nullptr; }
  [[nodiscard]] Version current() const override { return current_; }
  [[nodiscard]] Version spare() const override { return spare_ ? spare_->version : kNoVersion; }
  [[nodiscard]] StoreRun run() const override { return run_; }
  [[nodiscard]] const StoredVersion* earlier() const override {
    return current_ != kNoVersion || earlier_.empty() ? nullptr : &earlier_.back().stored;
  }
  void follow_run(RunId run, bool anew, std::function<void(Status)> done) override;
  [[nodiscard]] Version pending_in_place_update() const override { return pending_in_place_update_; }
  void on_pending_in_place_update(std::function<void()> changed) override {
    on_pending_in_place_update_ = std::move(changed);
  }

  void on_lost(std::function<void(Version, const Error&)> lost) override { on_lost_ = std::move(lost); }

  [[nodiscard]] std::vector<StoredVersion> versions() const override {
    std::vector<StoredVersion> all;
    for (const auto& [version, complete] : complete_) all.push_back(complete->stored);
    return all;
  }

  [[nodiscard]] const StoredVersion* find(Version version) const override {
    const auto found = complete_.find(version);
    return found == complete_.end() ? nullptr : &found->second->stored;
  }

  [[nodiscard]] std::vector<PartialVersion> partial() const override {
    std::vector<PartialVersion> all;
    for (const auto& [version, incoming] : incoming_) all.push_back(partial_of(*incoming));
    return all;
  }

  [[nodiscard]] std::vector<StepRef> steps(Version from, Version to) const override {
    return steps_between(steps_, from, to);
  }

  [[nodiscard]] std::vector<StoredPatch> patches() const override {
    std::vector<StoredPatch> all;
    for (const auto& [payload, patch] : patches_) all.push_back(patch->stored);
    return all;
  }

  void retain(const std::vector<PayloadId>& payloads) override {
    retained_ = std::set<PayloadId>(payloads.begin(), payloads.end());
    forget_old();
  }

  void pin(std::vector<Version> versions) override {
    pinned_ = std::move(versions);
    forget_old();
  }

  void begin(const Manifest& manifest, std::function<void(Result<PartialVersion>)> done) override;
  void grow(const Manifest& manifest) override;
  void put_digest_part(PayloadId payload, std::uint32_t part, const std::vector<ContentDigest>& digests) override;
  void write_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void(Status)> done) override;
  [[nodiscard]] BufferRef cached_chunk(PayloadId payload, ChunkIndex chunk) const override;
  void read_chunk(PayloadId payload, ChunkIndex chunk, std::function<void(Result<BufferRef>)> done) override;
  void finish(PayloadId payload, std::function<void(Result<StoredVersion>)> done) override;
  void begin_import(Version version, std::vector<SnapshotFile> files,
                    std::function<void(Result<ImportTarget>)> done) override;
  void finish_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                     std::function<void(Result<StoredVersion>)> done, ImportDetails details) override;
  void finish_patched_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                             std::function<void(Result<StoredVersion>)> done, ImportDetails details) override;
  void begin_patch(PayloadId patch, std::function<void(Result<std::filesystem::path>)> done) override;
  void grow_making(const Manifest& manifest) override;
  void finish_patch(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                    std::function<void(Status)> done) override;
  void add_full_manifest(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                         std::function<void(Status)> done) override;
  void discard(PayloadId payload) override;

 private:
  struct Complete {
    StoredVersion stored;
    FilesRef files;
    std::optional<Manifest> full_so_far = std::nullopt;  // of one that came without digests, while they are made
    std::size_t users = 0;                               // reads under way, patches that are applied to it
    bool syncing = false;
    bool sync_failed = false;        // of something of it, or may have: another sync would not say what is lost
    bool has_journal = false;        // made in place, and not durable: what it was made of can be put back
    bool looked_after_sync = false;  // at what a failed sync has left
    bool lost = false;               // being removed
    std::size_t scrub_at = 0;        // the next of its leaves that is looked at
    std::size_t scrub_left = 0;      // so many

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

  /// A payload that is arriving. Shared by the callbacks of its writes, which may outlive its place in the store.
  struct Incoming {
    explicit Incoming(RecoveredVersion from)
        : record(std::move(from.record)), files(std::move(from.files)), held(std::move(from.held)) {}

    VersionRecord record;
    FilesRef files;
    ChunkSet held;                                        // on disk
    std::unordered_map<ChunkIndex, BufferRef> unwritten;  // handed in, not on disk yet
    std::unique_ptr<SnapshotCheck> check;                 // of a full payload, from begin() on
    CompleteRef base;                                     // of a patch that needs one, from begin() on
    FilesRef target;                                      // of what is made beside, from begin() on
    std::unique_ptr<PatchedSnapshot> applied;             // of what is made beside, from begin() on
    std::shared_ptr<std::atomic<bool>> wanted = std::make_shared<std::atomic<bool>>(true);  // of one in the only copy
    bool finishing = false;
    std::function<void(Result<StoredVersion>)> awaits_digest;  // of finish(), while `check` or `applied` computes it
    bool record_is_behind = false;          // a full disk refused a part or the end; touched by serial work alone
    std::optional<InPlaceChanges> changes;  // of one in the only copy, once it is prepared
    std::optional<Instant> waits_since;     // for those who read the only copy
    bool discarded = false;

    [[nodiscard]] const Manifest& manifest() const { return record.manifest; }
    [[nodiscard]] PayloadId id() const { return record.manifest.id(); }
    [[nodiscard]] bool begun() const { return check || applied || base; }
    /// Bytes on disk, counted from the first without a gap.
    [[nodiscard]] std::uint64_t prefix_bytes() const {
      const auto gap = held.next_missing(ChunkIndex{0});
      return gap ? manifest().chunk_offset(*gap) : manifest().payload_bytes;
    }
  };

  /// A version or patch that an origin makes itself.
  struct Import {
    std::vector<SnapshotFile> table;
    FilesRef files;
    std::optional<Manifest> so_far = std::nullopt;  // of one that is served while it is made
    bool finishing = false;
  };
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

  static Error no_such(PayloadId payload);
  /// Says of what version `error` is, and what to do about a full disk.
  [[nodiscard]] Error about(Version version, Error error) const;
  static PartialVersion partial_of(const Incoming& incoming) {
    return {incoming.manifest(), incoming.record.digests.prefix(), incoming.held};
  }

  void for_pieces(const FilesRef& files, std::uint64_t offset, std::uint64_t length, const Operation& operation,
                  Disk::Done done);
  void start_pieces();
  void handle_written(const IncomingRef& incoming, ChunkIndex chunk, const BufferRef& bytes, std::uint64_t sum,
                      Status status, const std::function<void(Status)>& done);
  void handle_read(const ChunkKey& key, Result<BufferRef> result);
  void start_check(Incoming& incoming);
  void start_applying(Incoming& incoming);
  void handle_digest(const IncomingRef& incoming, const Result<Checksum>& digest,
                     const std::function<void(Result<StoredVersion>)>& done);
  void add_patch(VersionRecord record, FilesRef files);
  void set_pending_in_place_update(Version version);
  void finish_in_place(const IncomingRef& incoming, std::function<void(Result<StoredVersion>)> done);
  void prepare_place(const IncomingRef& incoming, std::function<void(Result<StoredVersion>)> done);
  void take_place(const IncomingRef& incoming, std::function<void(Result<StoredVersion>)> done);
  void restore_base();
  void change_place(const IncomingRef& incoming, std::function<void(Result<StoredVersion>)> done);
  [[nodiscard]] std::string why_in_use(const Complete& base) const;
  [[nodiscard]] bool is_pinned(Version version) const {
    return std::find(pinned_.begin(), pinned_.end(), version) != pinned_.end();
  }
  static VersionRecord record_of(const Complete& complete) {
    const Manifest& manifest = complete.stored.manifest;
    if (manifest.id().is_encoded()) return {manifest, ChunkDigests(manifest)};
    return {manifest, ChunkDigests(manifest, complete.stored.chunk_digests)};
  }
  /// Whether steps are worth listing: the files that the next version reuses are brought up to date by them, and
  /// engines ask for them.
  [[nodiscard]] bool lists_steps() const { return options_.reuse_files && !options_.single_copy; }
  void keep_step(StepRef step);
  [[nodiscard]] InPlaceWork work_of(const Incoming& incoming) const {
    const Complete& base = *incoming.base;
    return {base.files,         incoming.files,
            incoming.record,    base.stored.manifest.snapshot_digest,
            base.stored.leaves, loop_.threads_per_job_max()};
  }
  void wait_for_place(const IncomingRef& incoming, const std::string& why,
                      std::function<void(Result<StoredVersion>)> done);
  void give_up_waiting(const IncomingRef& incoming, const std::string& why,
                       std::function<void(Result<StoredVersion>)> done);
  void handle_moved(const IncomingRef& incoming, double switch_s,
                    const std::function<void(Result<StoredVersion>)>& done);
  void give_up(const IncomingRef& incoming, const Error& error, const std::function<void(Result<StoredVersion>)>& done);
  void throw_away(const IncomingRef& incoming, const Error& error,
                  const std::function<void(Result<StoredVersion>)>& done);
  /// The newest that is complete and not lost, of whatever run; kNoVersion if there is none.
  [[nodiscard]] StoreLayout::Named newest() const;
  /// Of one that is discarded, whose files may have taken their place: there they are a version that nobody knows of.
  void take_out(PayloadId payload, const FileTable& table);
  void install_checked(const IncomingRef& incoming, std::function<void(Result<StoredVersion>)> done);
  CompleteRef add_complete(VersionRecord record, FilesRef files, std::shared_ptr<const LeafSums> leaves = nullptr);
  void drop_journal(Version version);
  void handle_installed(VersionRecord record, FilesRef files, std::shared_ptr<const LeafSums> leaves, double switch_s,
                        bool in_place, const std::function<void(Result<StoredVersion>)>& done);
  void forget_old();
  void forget_earlier();
  void forget_old_patches();
  void keep_files_of(const Complete& complete);
  void drop_spare();
  void handle_spare(const SpareRef& spare);
  /// Runs `work` among `jobs`, and logs its error: nobody waits for it.
  static void run_unawaited(SerialWork& jobs, std::function<Status()> work);
  void remove_from(const StoreLayout& layout, PayloadId payload, const std::filesystem::path& path,
                   std::optional<FileTable> table);
  void remove(PayloadId payload, const std::filesystem::path& path, std::optional<FileTable> table) {
    remove_from(layout_, payload, path, std::move(table));
  }
  void make_durable(const CompleteRef& complete);
  void advance_log();
  void start_logging(PayloadId patch, const PatchRef& there);
  void mark_logged();
  /// The version of which an anchor is due; null if none is.
  [[nodiscard]] CompleteRef anchor_due() const;
  [[nodiscard]] bool is_being_anchored(const Complete& complete) const {
    return anchoring_ && anchoring_->complete.get() == &complete;
  }
  void scrub_from_now_on(const CompleteRef& complete);
  void scrub();
  [[nodiscard]] CompleteRef next_to_scrub() const;
  void consider_anchor();
  void start_anchor();
  void go_on_with_anchor();
  void end_anchor(const Status& status);
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
  /// An in-place update that failed, and whose base could not be restored yet.
  std::optional<std::pair<PayloadId, CompleteRef>> unrestored_;
  Timer restore_timer_;
  std::deque<PieceWork> waiting_pieces_;
  std::size_t pieces_under_way_ = 0;
  Deferred start_pieces_;
  Timer sync_timer_;
  VersionLog log_;
  std::vector<SnapshotFile> log_files_;  // of every version in the log
  bool logging_ = false;
  std::set<PayloadId> unloggable_;  // patches that the disk has refused
  /// A version that is copied to become the next anchor.
  struct Anchoring {
    CompleteRef complete;
    std::shared_ptr<AnchorCopy> copy;
  };
  std::optional<Anchoring> anchoring_;
  std::size_t next_scrubbed_ = 0;
  bool scrubbing_ = false;
  Timer scrub_timer_;
  Timer anchor_timer_;  // until the next piece of a copy, or the next look at whether one is due
  ChunkCache cache_;
  BufferPool read_buffers_;
  std::unordered_map<ChunkKey, std::vector<ReadDone>> reading_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
  SpareRef spare_;  // whose files may be written to; null: there are none
  // Last, so that they end first: their destructors wait for what uses the rest.
  SerialWork anchor_work_;
  SerialWork spare_work_;
  SerialWork scrub_work_;
  SerialWork syncing_;
  SerialWork serial_;
  std::unique_ptr<Disk> disk_;
};

}  // namespace weightcast
