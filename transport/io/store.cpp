#include "transport/io/store.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <set>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "base/units.h"
#include "transport/io/chunk_cache.h"
#include "transport/io/patched_snapshot.h"
#include "transport/io/serial_work.h"
#include "transport/io/snapshot_check.h"
#include "transport/io/store_layout.h"
#include "transport/io/store_recovery.h"
#include "transport/io/version_files.h"
#include "transport/io/version_record.h"

namespace weightcast {
namespace {

// For chunks on their way from the disk to a child that is behind.
constexpr std::size_t kReadBuffersKeptBytesMax = 4 * kMiB;

using FilesRef = std::shared_ptr<VersionFiles>;

struct Complete {
  StoredVersion stored;
  FilesRef files;
  std::size_t users = 0;  // reads under way, patches that are applied to it
};
using CompleteRef = std::shared_ptr<Complete>;

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
  FilesRef target;                                      // of a patch, from begin() on
  CompleteRef base;                                     // of a patch, from begin() on
  std::unique_ptr<PatchedSnapshot> applied;             // of a patch, from begin() on
  bool finishing = false;
  bool discarded = false;

  [[nodiscard]] const Manifest& manifest() const { return record.manifest; }
  [[nodiscard]] PayloadId id() const { return record.manifest.id(); }
  [[nodiscard]] bool begun() const { return check || applied; }
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
  bool finishing = false;
};

Error no_such(PayloadId payload) {
  return fail(Errc::kNotFound, Op::kOpen,
              payload.is_patch() ? fmt::format("patch from version {} to {}: not in the store", payload.base.value,
                                               payload.version.value)
                                 : fmt::format("version {}: not in the store", payload.version.value));
}

/// Says of what version `error` is, and what to do about a full disk.
Error about(Version version, const std::filesystem::path& directory, Error error) {
  error.detail = fmt::format("version {} in {}: {}", version.value, directory.native(), error.detail);
  if (error.code == Errc::kNoSpace) error.detail += "; make room there, and it goes on from where it is";
  return error;
}

// --- What pool threads do. Free functions, so that they cannot reach into the store. ---------------------------------

/// The spare files under a new name, if there are such and nobody else has them.
Result<FilesRef> take_spare(const StoreLayout& layout, PayloadId payload, const FileTable& files) {
  std::error_code error;
  const std::filesystem::directory_iterator spares(layout.spare(), error);
  if (error || spares == std::filesystem::directory_iterator()) return fail(Errc::kNotFound, Op::kOpen, "none");
  Result<FilesRef> taken = VersionFiles::reuse(spares->path(), layout.incoming(payload), files);
  if (!taken.has_value()) static_cast<void>(layout.throw_away(layout.incoming(payload)));
  layout.drop_spare();
  layout.empty_trash();
  return taken;
}

Result<FilesRef> make_files(const StoreLayout& layout, PayloadId payload, const std::vector<SnapshotFile>& table) {
  WC_ASSIGN(FileTable files, FileTable::make(table));
  if (!payload.is_patch()) {
    if (Result<FilesRef> taken = take_spare(layout, payload, files); taken.has_value()) return taken;
  }
  const std::uint64_t needed_bytes = files.size_bytes();
  Result<FilesRef> made = VersionFiles::create(layout.incoming(payload), files);
  if (!made.has_value() && made.error().code == Errc::kNoSpace) {
    layout.drop_spare();
    layout.empty_trash();
    made = VersionFiles::create(layout.incoming(payload), std::move(files));
  }
  if (!made.has_value() && made.error().code == Errc::kNoSpace) {
    std::error_code ignored;
    const std::filesystem::space_info space = std::filesystem::space(layout.directory(), ignored);
    return fail(Errc::kNoSpace, Op::kWrite,
                fmt::format("version {} needs {} in {}, of which {} are free; make room there, or keep fewer versions",
                            payload.version.value, format_bytes(needed_bytes), layout.directory().native(),
                            format_bytes(space.available)));
  }
  return made;
}

Result<FilesRef> make_incoming(const StoreLayout& layout, const VersionRecord& record) {
  const PayloadId payload = record.manifest.id();
  WC_ASSIGN(const FileTable table, payload_files(record.manifest));
  WC_ASSIGN(FilesRef files, make_files(layout, payload, table.files()));
  const Status written = write_record(layout.record(payload), record);
  if (written.has_value()) return files;
  static_cast<void>(layout.throw_away(layout.incoming(payload)));
  layout.empty_trash();
  return written.error();
}

/// The files that a patch is applied to. What an earlier attempt left goes.
Result<FilesRef> make_target(const StoreLayout& layout, const Manifest& manifest) {
  WC_TRY(layout.throw_away(layout.incoming(manifest.version)));
  layout.empty_trash();
  return make_files(layout, manifest.version, manifest.files);
}

/// incoming/N becomes versions/N, and `current` if it is newer; sets `switch_s` to how long the latter took.
Status install(const StoreLayout& layout, Version version, double& switch_s) {
  WC_TRY(rename_path(layout.incoming(version), layout.complete(version)));
  if (layout.read_current().value_or(kNoVersion) >= version) return {};
  const auto began_at = std::chrono::steady_clock::now();
  const Status switched = layout.switch_current(version);
  switch_s = to_seconds(std::chrono::steady_clock::now() - began_at);
  if (switched.has_value()) return {};
  // As it was before, so that it can be done again.
  WC_TRY(rename_path(layout.complete(version), layout.incoming(version)));
  return switched;
}

/// The files that a patch was applied to become the version, and the patch itself is kept for children.
Status install_patched(const StoreLayout& layout, const VersionRecord& record, double& switch_s) {
  VersionRecord of_version{record.manifest, ChunkDigests(record.manifest)};
  WC_TRY(write_record(layout.record(record.manifest.version), of_version));
  WC_TRY(install(layout, record.manifest.version, switch_s));
  const PayloadId payload = record.manifest.id();
  return rename_path(layout.incoming(payload), layout.patch(payload));
}

/// Keeps a forgotten version's files for the next one, and removes its record. In this order, as remove_recorded().
Status retire(const StoreLayout& layout, Version version) {
  WC_TRY(layout.make_spare(layout.complete(version)));
  return remove_file(layout.record(version));
}

/// Removes a directory and its record. In this order: files without a record are thrown away at start, too.
Status remove_recorded(const StoreLayout& layout, const std::filesystem::path& path, PayloadId payload) {
  WC_TRY(layout.throw_away(path));
  return remove_file(layout.record(payload));
}

/// The last part of making a version durable: its files are synced already.
Status sync_names_and_mark(const StoreLayout& layout, Version version, const VersionFiles& files) {
  WC_TRY(files.sync_names());
  for (const auto& directory : {layout.versions(), layout.incoming(), layout.records(), layout.directory()}) {
    WC_TRY(sync_directory(directory));
  }
  return append_durable_mark(layout.record(version));
}

// ---------------------------------------------------------------------------------------------------------------------

class StoreImpl final : public Store {
 public:
  StoreImpl(EventLoop& loop, StoreOptions options, File lock, std::unique_ptr<Disk> disk, RecoveredStore found)
      : loop_(loop),
        options_(std::move(options)),
        layout_(options_.directory),
        lock_(std::move(lock)),
        current_(found.current),
        cache_(options_.cache_bytes_max),
        read_buffers_(kReadBuffersKeptBytesMax),
        serial_(loop),
        disk_(std::move(disk)) {
    for (RecoveredVersion& version : found.partial) {
      const PayloadId payload = version.record.manifest.id();
      incoming_.emplace(payload, std::make_shared<Incoming>(std::move(version)));
    }
    for (RecoveredVersion& patch : found.patches) add_patch(std::move(patch.record), std::move(patch.files));
    for (RecoveredVersion& version : found.complete) {
      const bool durable = version.record.durable;
      const auto added = add_complete(std::move(version.record), std::move(version.files));
      if (!durable) make_durable(added);
    }
    forget_old();
  }

  [[nodiscard]] DiskBackend backend() const override { return disk_->backend(); }
  [[nodiscard]] Version current() const override { return current_; }

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

  [[nodiscard]] std::vector<StoredPatch> patches() const override {
    std::vector<StoredPatch> all;
    for (const auto& [payload, patch] : patches_) all.push_back(patch->stored);
    return all;
  }

  void retain(const std::vector<PayloadId>& payloads) override {
    retained_ = std::set<PayloadId>(payloads.begin(), payloads.end());
    forget_old();
  }

  void begin(const Manifest& manifest, std::function<void(Result<PartialVersion>)> done) override;
  void put_digest_part(PayloadId payload, std::uint32_t part, const std::vector<Digest>& digests) override;
  void write_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void(Status)> done) override;
  [[nodiscard]] BufferRef cached_chunk(PayloadId payload, ChunkIndex chunk) const override;
  void read_chunk(PayloadId payload, ChunkIndex chunk, std::function<void(Result<BufferRef>)> done) override;
  void finish(PayloadId payload, std::function<void(Result<StoredVersion>)> done) override;
  void begin_import(Version version, std::vector<SnapshotFile> files,
                    std::function<void(Result<ImportTarget>)> done) override;
  void finish_import(const Manifest& manifest, const std::vector<Digest>& chunk_digests,
                     std::function<void(Result<StoredVersion>)> done) override;
  void begin_patch(PayloadId patch, std::function<void(Result<std::filesystem::path>)> done) override;
  void finish_patch(const Manifest& manifest, const std::vector<Digest>& chunk_digests,
                    std::function<void(Status)> done) override;
  void discard(PayloadId payload) override;

 private:
  using IncomingRef = std::shared_ptr<Incoming>;
  using ReadDone = std::function<void(Result<BufferRef>)>;

  /// Operations on several files that end as one.
  struct Joint {
    std::size_t left = 0;
    Status status;
  };
  using Operation = std::function<void(const FileRef& file, const FilePiece& piece, Disk::Done done)>;

  /// Runs `task` on the loop, soon, unless the store is gone by then.
  void later(std::function<void()> task) {
    loop_.post([task = std::move(task), alive = std::weak_ptr(alive_)] {
      if (!alive.expired()) task();
    });
  }

  static PartialVersion partial_of(const Incoming& incoming) {
    return {incoming.manifest(), incoming.record.digests.prefix(), incoming.held};
  }

  void for_pieces(VersionFiles& files, std::uint64_t offset, std::uint64_t length, const Operation& operation,
                  Disk::Done done);
  void handle_written(const IncomingRef& incoming, ChunkIndex chunk, const BufferRef& bytes, Status status,
                      const std::function<void(Status)>& done);
  void handle_read(const ChunkKey& key, Result<BufferRef> result);
  void start_check(Incoming& incoming);
  void start_applying(Incoming& incoming);
  void handle_digest(const IncomingRef& incoming, const Result<Digest>& digest,
                     const std::function<void(Result<StoredVersion>)>& done);
  void add_patch(VersionRecord record, FilesRef files);
  void install_checked(const IncomingRef& incoming, std::function<void(Result<StoredVersion>)> done);
  CompleteRef add_complete(VersionRecord record, FilesRef files);
  void handle_installed(VersionRecord record, FilesRef files, double switch_s,
                        const std::function<void(Result<StoredVersion>)>& done);
  void forget_old();
  void forget_old_patches();
  void remove(PayloadId payload, const std::filesystem::path& path);
  void make_durable(const CompleteRef& complete);
  void sync_files_from(std::size_t file, const CompleteRef& complete);
  bool refuse_new(PayloadId payload, const std::function<void(Error)>& refuse);

  EventLoop& loop_;
  const StoreOptions options_;
  const StoreLayout layout_;
  File lock_;
  Version current_;
  std::map<PayloadId, IncomingRef> incoming_;
  std::map<PayloadId, Import> imports_;
  std::map<Version, CompleteRef> complete_;
  std::map<PayloadId, PatchRef> patches_;
  std::optional<std::set<PayloadId>> retained_;
  /// Payloads whose files are being made; what they point to says whether they are still wanted.
  std::map<PayloadId, std::shared_ptr<bool>> preparing_;
  ChunkCache cache_;
  BufferPool read_buffers_;
  std::unordered_map<ChunkKey, std::vector<ReadDone>> reading_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>();
  // Last, so that they end first: their destructors wait for what uses the rest.
  SerialWork serial_;
  std::unique_ptr<Disk> disk_;
};

/// Whether `payload` cannot be begun or imported now; then it has been refused.
bool StoreImpl::refuse_new(PayloadId payload, const std::function<void(Error)>& refuse) {
  const Version version = payload.version;
  std::optional<Error> error;
  if (version == kNoVersion) {
    error = fail(Errc::kInvalidArgument, Op::kOpen, "version 0 stands for none");
  } else if (complete_.contains(version)) {
    error = fail(Errc::kAlreadyExists, Op::kOpen, fmt::format("version {}: complete already", version.value));
  } else if (preparing_.contains(payload) || imports_.contains(payload)) {
    error = fail(Errc::kBusy, Op::kOpen, fmt::format("version {}: begun already", version.value));
  }
  if (!error) return false;
  later([refuse, error = *error] { refuse(error); });
  return true;
}

void StoreImpl::begin(const Manifest& manifest, std::function<void(Result<PartialVersion>)> done) {
  const PayloadId payload = manifest.id();
  if (refuse_new(payload, done)) return;
  CompleteRef base;
  if (payload.is_patch()) {
    const auto found = complete_.find(payload.base);
    if (found == complete_.end()) {
      later([payload, done = std::move(done)] {
        done(fail(Errc::kWrongBase, Op::kOpen,
                  fmt::format("a patch from version {} to {}: the former is not here", payload.base.value,
                              payload.version.value)));
      });
      return;
    }
    base = found->second;
  }
  IncomingRef there;
  std::vector<PayloadId> others;
  for (const auto& [other, incoming] : incoming_) {
    if (other.version != payload.version) continue;
    if (other == payload && incoming->manifest() == manifest) {
      there = incoming;
    } else {
      others.push_back(other);
    }
  }
  for (const PayloadId other : others) {
    spdlog::warn("store: version {} is announced anew under another manifest; its {} chunks here are thrown away",
                 payload.version.value, incoming_.at(other)->held.count());
    discard(other);
  }
  if (there && !payload.is_patch()) {
    start_check(*there);
    later([there, done = std::move(done)] { done(partial_of(*there)); });
    return;
  }

  auto wanted = std::make_shared<bool>(true);
  preparing_[payload] = wanted;
  if (base) ++base->users;
  struct Made {
    std::shared_ptr<VersionRecord> record;  // null if the payload's files were here
    Result<FilesRef> files = FilesRef();
    Result<FilesRef> target = FilesRef();
  };
  auto made = std::make_shared<Made>();
  if (!there) made->record = std::make_shared<VersionRecord>(VersionRecord{manifest, ChunkDigests(manifest)});
  serial_.run(
      [layout = layout_, made, manifest] {
        if (manifest.kind == PayloadKind::kPatch) made->target = make_target(layout, manifest);
        if (!made->target.has_value() || !made->record) return;
        made->files = make_incoming(layout, *made->record);
        if (made->files.has_value() || manifest.kind != PayloadKind::kPatch) return;
        static_cast<void>(layout.throw_away(layout.incoming(manifest.version)));
        layout.empty_trash();
      },
      [this, payload, wanted, there, base, made, done = std::move(done)] {
        if (base) --base->users;
        if (!*wanted) return done(no_such(payload));
        preparing_.erase(payload);
        if (!made->target.has_value()) return done(made->target.error());
        if (!made->files.has_value()) return done(made->files.error());
        IncomingRef incoming = there;
        if (!incoming) {
          const std::uint32_t chunks = made->record->manifest.chunk_count();
          incoming = std::make_shared<Incoming>(
              RecoveredVersion{std::move(*made->record), std::move(*made->files), ChunkSet(chunks)});
          incoming_[payload] = incoming;
        }
        if (base) {
          if (incoming->base) --incoming->base->users;
          incoming->base = base;
          ++base->users;
          incoming->target = std::move(*made->target);
          start_applying(*incoming);
        } else {
          start_check(*incoming);
        }
        done(partial_of(*incoming));
      });
}

void StoreImpl::start_applying(Incoming& incoming) {
  const Manifest& manifest = incoming.manifest();
  const PatchIdentity identity{manifest.model_id, manifest.base_version, manifest.version,
                               incoming.base->stored.manifest.snapshot_digest, manifest.snapshot_digest};
  incoming.applied =
      std::make_unique<PatchedSnapshot>(loop_, identity, incoming.base->files, incoming.files, incoming.target);
  incoming.applied->handle_prefix(incoming.prefix_bytes());
}

void StoreImpl::start_check(Incoming& incoming) {
  if (incoming.check) return;
  incoming.check = std::make_unique<SnapshotCheck>(loop_, incoming.files);
  for (auto chunk = incoming.held.next_in(ChunkIndex{0}); chunk;
       chunk = incoming.held.next_in(ChunkIndex{chunk->value + 1})) {
    incoming.check->handle_stored(incoming.manifest().chunk_offset(*chunk), incoming.manifest().chunk_size(*chunk));
  }
}

void StoreImpl::put_digest_part(PayloadId payload, std::uint32_t part, const std::vector<Digest>& digests) {
  const auto found = incoming_.find(payload);
  if (found == incoming_.end()) return;
  VersionRecord& record = found->second->record;
  if (record.digests.parts.contains(ChunkIndex{part})) return;
  WC_CHECK(record.digests.put_part(record.manifest, part, digests).has_value());
  serial_.run(
      [path = layout_.record(payload), payload, part, digests] {
        const Status appended = append_digest_part(path, payload.version, part, digests);
        // Costs a restart the part, nothing else.
        if (!appended.has_value()) spdlog::warn("store: {}", appended.error().message());
      },
      [] {});
}

void StoreImpl::for_pieces(VersionFiles& files, std::uint64_t offset, std::uint64_t length, const Operation& operation,
                           Disk::Done done) {
  const auto joint = std::make_shared<Joint>();
  const std::vector<FilePiece> pieces = files.table().pieces(offset, length);
  std::vector<FileRef> opened;
  for (const FilePiece& piece : pieces) {
    Result<FileRef> file = files.file(piece.file);
    if (!file.has_value()) {
      later([done = std::move(done), error = file.error()] { done(error); });
      return;
    }
    opened.push_back(std::move(*file));
  }
  joint->left = pieces.size();
  const auto shared_done = std::make_shared<Disk::Done>(std::move(done));
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    // The file stays open until the operation has ended, whatever becomes of the version.
    operation(opened[i], pieces[i], [joint, shared_done, file = opened[i]](const Status& status) {
      if (!status.has_value()) joint->status = status;
      if (--joint->left == 0) (*shared_done)(joint->status);
    });
  }
}

void StoreImpl::write_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void(Status)> done) {
  const auto found = incoming_.find(payload);
  if (found == incoming_.end() || !found->second->begun()) {
    later([payload, done = std::move(done)] { done(no_such(payload)); });
    return;
  }
  const IncomingRef incoming = found->second;
  const Manifest& manifest = incoming->manifest();
  WC_CHECK(chunk.value < manifest.chunk_count() && bytes->size() == manifest.chunk_size(chunk));
  if (incoming->held.contains(chunk)) {
    later([done = std::move(done)] { done({}); });
    return;
  }
  cache_.put({payload, chunk}, bytes);
  incoming->unwritten[chunk] = bytes;

  const std::uint64_t begin = manifest.chunk_offset(chunk);
  std::uint64_t written = 0;
  for_pieces(
      *incoming->files, begin, bytes->size(),
      [&](const FileRef& file, const FilePiece& piece, Disk::Done piece_done) {
        disk_->write(file->fd(), piece.offset_bytes, bytes->bytes().subspan(written, piece.size_bytes),
                     std::move(piece_done));
        written += piece.size_bytes;
      },
      [this, incoming, chunk, bytes, done = std::move(done)](const Status& status) {
        handle_written(incoming, chunk, bytes, status, done);
      });
  // The last chunk has no neighbour to wait for.
  if (incoming->held.count() + incoming->unwritten.size() == manifest.chunk_count()) disk_->flush();
}

void StoreImpl::handle_written(const IncomingRef& incoming, ChunkIndex chunk, const BufferRef& bytes, Status status,
                               const std::function<void(Status)>& done) {
  const Manifest& manifest = incoming->manifest();
  if (incoming->discarded) return done(no_such(incoming->id()));
  const auto mine = incoming->unwritten.find(chunk);
  if (mine != incoming->unwritten.end() && mine->second == bytes) incoming->unwritten.erase(mine);
  if (!status.has_value()) {
    if (!incoming->held.contains(chunk)) cache_.erase({incoming->id(), chunk});
    return done(about(manifest.version, layout_.directory(), status.error()));
  }
  if (incoming->held.insert(chunk)) {
    if (incoming->check) incoming->check->handle_stored(manifest.chunk_offset(chunk), manifest.chunk_size(chunk));
    if (incoming->applied) incoming->applied->handle_prefix(incoming->prefix_bytes());
  }
  if (incoming->applied && incoming->applied->error()) {
    return done(about(manifest.version, layout_.directory(), *incoming->applied->error()));
  }
  done({});
}

BufferRef StoreImpl::cached_chunk(PayloadId payload, ChunkIndex chunk) const {
  if (BufferRef recent = cache_.find({payload, chunk})) return recent;
  const auto found = incoming_.find(payload);
  if (found == incoming_.end()) return nullptr;
  const auto waiting = found->second->unwritten.find(chunk);
  return waiting == found->second->unwritten.end() ? nullptr : waiting->second;
}

void StoreImpl::read_chunk(PayloadId payload, ChunkIndex chunk, ReadDone done) {
  if (BufferRef recent = cached_chunk(payload, chunk)) {
    later([recent = std::move(recent), done = std::move(done)] { done(recent); });
    return;
  }
  const Manifest* manifest = nullptr;
  FilesRef files;
  std::size_t* users = nullptr;
  std::shared_ptr<void> owner;  // of `users`
  const auto complete = payload.is_patch() ? complete_.end() : complete_.find(payload.version);
  const auto patch = patches_.find(payload);
  const auto incoming = incoming_.find(payload);
  if (complete != complete_.end() && complete->second->stored.manifest.kind == PayloadKind::kFull) {
    manifest = &complete->second->stored.manifest;
    files = complete->second->files;
    users = &complete->second->users;
    owner = complete->second;
  } else if (patch != patches_.end()) {
    manifest = &patch->second->stored.manifest;
    files = patch->second->files;
    users = &patch->second->reads_under_way;
    owner = patch->second;
  } else if (incoming != incoming_.end() && incoming->second->held.contains(chunk)) {
    manifest = &incoming->second->manifest();
    files = incoming->second->files;
  }
  if (manifest == nullptr || chunk.value >= manifest->chunk_count()) {
    later([payload, done = std::move(done)] { done(no_such(payload)); });
    return;
  }

  const ChunkKey key{payload, chunk};
  const auto [readers, first] = reading_.try_emplace(key);
  readers->second.push_back(std::move(done));
  if (!first) return;
  if (users != nullptr) ++*users;
  const BufferRef bytes = read_buffers_.take(manifest->chunk_size(chunk));
  bytes->set_size(manifest->chunk_size(chunk));
  std::uint64_t read = 0;
  for_pieces(
      *files, manifest->chunk_offset(chunk), bytes->size(),
      [&](const FileRef& file, const FilePiece& piece, Disk::Done piece_done) {
        disk_->read(file->fd(), piece.offset_bytes, MutableBytes(bytes->data() + read, piece.size_bytes),
                    std::move(piece_done));
        read += piece.size_bytes;
      },
      [this, key, bytes, users, owner](const Status& status) {
        if (owner) {
          --*users;
          // Nothing arrives for a complete payload: what is kept here takes no place from a chunk that will be asked
          // for.
          if (status.has_value()) cache_.put(key, bytes);
        }
        handle_read(key, status.has_value() ? Result<BufferRef>(bytes)
                                            : about(key.payload.version, layout_.directory(), status.error()));
        if (owner) forget_old();
      });
}

void StoreImpl::handle_read(const ChunkKey& key, Result<BufferRef> result) {
  const auto readers = reading_.extract(key);
  for (const ReadDone& done : readers.mapped()) done(result);
}

void StoreImpl::finish(PayloadId payload, std::function<void(Result<StoredVersion>)> done) {
  const auto found = incoming_.find(payload);
  if (found == incoming_.end() || !found->second->begun()) {
    later([payload, done = std::move(done)] { done(no_such(payload)); });
    return;
  }
  const IncomingRef incoming = found->second;
  WC_CHECK(incoming->held.complete() && incoming->record.digests.complete() && !incoming->finishing);
  incoming->finishing = true;
  auto handle = [this, incoming, done = std::move(done)](const Result<Digest>& digest) {
    handle_digest(incoming, digest, done);
  };
  incoming->check ? incoming->check->finish(std::move(handle)) : incoming->applied->finish(std::move(handle));
}

void StoreImpl::handle_digest(const IncomingRef& incoming, const Result<Digest>& digest,
                              const std::function<void(Result<StoredVersion>)>& done) {
  const Version version = incoming->manifest().version;
  std::optional<Error> error;
  if (!digest.has_value()) {
    incoming->finishing = false;
    error = about(version, layout_.directory(), digest.error());
    // Another try would end the same.
    const bool useless = error->code == Errc::kWrongBase || error->code == Errc::kCorrupt;
    if (useless && incoming->applied) discard(incoming->id());
  } else if (*digest != incoming->manifest().snapshot_digest) {
    error = fail(Errc::kCorrupt, Op::kVerify,
                 fmt::format("version {}: its chunks match their digests, its files do not match the snapshot's ({} "
                             "instead of {}); thrown away",
                             version.value, digest->hex(), incoming->manifest().snapshot_digest.hex()));
    discard(incoming->id());
  }
  if (!error) return install_checked(incoming, done);
  later([error = *error, done] { done(error); });
}

void StoreImpl::install_checked(const IncomingRef& incoming, std::function<void(Result<StoredVersion>)> done) {
  auto status = std::make_shared<Status>();
  auto switch_s = std::make_shared<double>(0);
  serial_.run(
      [layout = layout_, incoming, status, switch_s] {
        const Manifest& manifest = incoming->manifest();
        *status = manifest.kind == PayloadKind::kPatch ? install_patched(layout, incoming->record, *switch_s)
                                                       : install(layout, manifest.version, *switch_s);
      },
      [this, incoming, status, switch_s, done = std::move(done)] {
        const Version version = incoming->manifest().version;
        if (incoming->discarded) return done(no_such(incoming->id()));
        incoming->finishing = false;
        if (!status->has_value()) return done(about(version, layout_.directory(), status->error()));
        incoming_.erase(incoming->id());
        if (incoming->base) --std::exchange(incoming->base, nullptr)->users;
        incoming->applied.reset();
        VersionRecord record = incoming->record;
        if (record.manifest.kind == PayloadKind::kPatch) {
          add_patch(std::move(incoming->record), std::move(incoming->files));
          handle_installed(std::move(record), std::move(incoming->target), *switch_s, done);
        } else {
          handle_installed(std::move(record), std::move(incoming->files), *switch_s, done);
        }
      });
}

void StoreImpl::add_patch(VersionRecord record, FilesRef files) {
  const PayloadId payload = record.manifest.id();
  auto patch = std::make_shared<Patch>();
  patch->stored = {std::move(record.manifest), std::move(record.digests.chunks)};
  patch->files = std::move(files);
  patches_[payload] = std::move(patch);
}

CompleteRef StoreImpl::add_complete(VersionRecord record, FilesRef files) {
  const Version version = record.manifest.version;
  auto complete = std::make_shared<Complete>();
  complete->stored = {std::move(record.manifest), std::move(record.digests.chunks), layout_.complete(version),
                      record.durable, 0};
  complete->files = std::move(files);
  complete_[version] = complete;
  current_ = std::max(current_, version);
  return complete;
}

void StoreImpl::handle_installed(VersionRecord record, FilesRef files, double switch_s,
                                 const std::function<void(Result<StoredVersion>)>& done) {
  const CompleteRef complete = add_complete(std::move(record), std::move(files));
  complete->stored.switch_s = switch_s;
  done(complete->stored);
  forget_old();
  make_durable(complete);
}

void StoreImpl::begin_import(Version version, std::vector<SnapshotFile> files,
                             std::function<void(Result<ImportTarget>)> done) {
  if (refuse_new(version, done)) return;
  discard(version);
  auto wanted = std::make_shared<bool>(true);
  preparing_[version] = wanted;
  auto made = std::make_shared<Result<FilesRef>>();
  serial_.run([layout = layout_, version, files, made] { *made = make_files(layout, version, files); },
              [this, version, files, wanted, made, done = std::move(done)] {
                if (!*wanted) return done(no_such(version));
                preparing_.erase(version);
                if (!made->has_value()) return done(made->error());
                imports_[version] = {files, std::move(**made)};
                ImportTarget target{layout_.incoming(version), {}};
                for (const SnapshotFile& file : files) target.paths.push_back(target.directory / file.name);
                done(std::move(target));
              });
}

void StoreImpl::finish_import(const Manifest& manifest, const std::vector<Digest>& chunk_digests,
                              std::function<void(Result<StoredVersion>)> done) {
  const Version version = manifest.version;
  const auto found = imports_.find(version);
  if (found == imports_.end() || found->second.finishing) {
    later([version, done = std::move(done)] { done(no_such(version)); });
    return;
  }
  auto record = std::make_shared<VersionRecord>(VersionRecord{manifest, ChunkDigests(manifest)});
  if (found->second.table != manifest.files || manifest.kind != PayloadKind::kFull ||
      chunk_digests.size() != manifest.chunk_count() || part_digests_of(chunk_digests) != manifest.part_digests) {
    later([version, done = std::move(done)] {
      done(fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("version {}: the manifest disagrees with the imported files or digests", version.value)));
    });
    return;
  }
  record->digests.chunks = chunk_digests;
  record->digests.parts = ChunkSet(manifest.part_count(), true);

  found->second.finishing = true;
  auto status = std::make_shared<Status>();
  auto switch_s = std::make_shared<double>(0);
  const FilesRef files = found->second.files;
  serial_.run(
      [layout = layout_, version, record, status, switch_s] {
        *status = write_record(layout.record(version), *record);
        if (status->has_value()) *status = install(layout, version, *switch_s);
      },
      [this, version, files, record, status, switch_s, done = std::move(done)] {
        const auto import = imports_.find(version);
        if (import == imports_.end() || import->second.files != files) return done(no_such(version));
        import->second.finishing = false;
        if (!status->has_value()) return done(about(version, layout_.directory(), status->error()));
        imports_.erase(import);
        handle_installed(std::move(*record), files, *switch_s, done);
      });
}

void StoreImpl::begin_patch(PayloadId patch, std::function<void(Result<std::filesystem::path>)> done) {
  if (patches_.contains(patch) || preparing_.contains(patch) || imports_.contains(patch)) {
    later([patch, done = std::move(done)] {
      done(fail(Errc::kBusy, Op::kOpen,
                fmt::format("patch from version {} to {}: it is here, or being made", patch.base.value,
                            patch.version.value)));
    });
    return;
  }
  discard(patch);
  auto wanted = std::make_shared<bool>(true);
  preparing_[patch] = wanted;
  auto made = std::make_shared<Result<FilesRef>>();
  const std::vector<SnapshotFile> table{{kPatchFileName, 0}};
  serial_.run([layout = layout_, patch, table, made] { *made = make_files(layout, patch, table); },
              [this, patch, table, wanted, made, done = std::move(done)] {
                if (!*wanted) return done(no_such(patch));
                preparing_.erase(patch);
                if (!made->has_value()) return done(made->error());
                imports_[patch] = {table, std::move(**made)};
                done(layout_.incoming(patch) / kPatchFileName);
              });
}

void StoreImpl::finish_patch(const Manifest& manifest, const std::vector<Digest>& chunk_digests,
                             std::function<void(Status)> done) {
  const PayloadId patch = manifest.id();
  const auto found = imports_.find(patch);
  if (found == imports_.end() || found->second.finishing) {
    later([patch, done = std::move(done)] { done(no_such(patch)); });
    return;
  }
  if (chunk_digests.size() != manifest.chunk_count() || part_digests_of(chunk_digests) != manifest.part_digests) {
    later([patch, done = std::move(done)] {
      done(fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("patch from version {} to {}: the manifest disagrees with the digests", patch.base.value,
                            patch.version.value)));
    });
    return;
  }
  found->second.finishing = true;
  auto record = std::make_shared<VersionRecord>(VersionRecord{manifest, ChunkDigests(manifest)});
  record->digests.chunks = chunk_digests;
  record->digests.parts = ChunkSet(manifest.part_count(), true);
  auto files = std::make_shared<Result<FilesRef>>();
  serial_.run(
      [layout = layout_, patch, record, files] {
        const auto move = [&]() -> Result<FilesRef> {
          WC_TRY(write_record(layout.record(patch), *record));
          WC_TRY(rename_path(layout.incoming(patch), layout.patch(patch)));
          WC_ASSIGN(FileTable table, payload_files(record->manifest));
          return VersionFiles::open(layout.patch(patch), std::move(table));
        };
        *files = move();
      },
      [this, patch, record, files, done = std::move(done)] {
        if (imports_.erase(patch) == 0) return done(no_such(patch));
        if (!files->has_value()) {
          remove(patch, layout_.incoming(patch));
          return done(about(patch.version, layout_.directory(), files->error()));
        }
        add_patch(std::move(*record), std::move(**files));
        done({});
      });
}

void StoreImpl::discard(PayloadId payload) {
  bool there = imports_.erase(payload) > 0;
  if (const auto found = preparing_.find(payload); found != preparing_.end()) {
    *found->second = false;
    preparing_.erase(found);
    there = true;
  }
  if (const auto found = incoming_.find(payload); found != incoming_.end()) {
    const IncomingRef incoming = found->second;
    incoming->discarded = true;
    incoming->check.reset();
    incoming->applied.reset();
    if (incoming->base) --std::exchange(incoming->base, nullptr)->users;
    for (std::uint32_t i = 0; i < incoming->manifest().chunk_count(); ++i) cache_.erase({payload, ChunkIndex{i}});
    incoming->unwritten.clear();
    incoming_.erase(found);
    there = true;
  }
  if (!there) return;
  // First what the patch was applied to: it has no record before it is whole.
  if (payload.is_patch() && !complete_.contains(payload.version)) {
    remove(payload.version, layout_.incoming(payload.version));
  }
  remove(payload, layout_.incoming(payload));
}

void StoreImpl::remove(PayloadId payload, const std::filesystem::path& path) {
  serial_.run(
      [layout = layout_, payload, path] {
        const Status removed = remove_recorded(layout, path, payload);
        if (!removed.has_value()) spdlog::warn("store: {}", removed.error().message());
        layout.empty_trash();
      },
      [] {});
}

void StoreImpl::forget_old_patches() {
  if (!retained_) return;
  for (auto it = patches_.begin(); it != patches_.end();) {
    if (it->second->reads_under_way > 0 || retained_->contains(it->first)) {
      ++it;
      continue;
    }
    remove(it->first, layout_.patch(it->first));
    it = patches_.erase(it);
  }
}

void StoreImpl::forget_old() {
  forget_old_patches();
  const std::size_t kept = std::max<std::size_t>(options_.versions_kept, 1);
  if (complete_.size() <= kept) return;
  std::size_t excess = complete_.size() - kept;
  for (auto it = complete_.begin(); excess > 0; --excess) {
    const auto& [version, complete] = *it;
    if (complete->users > 0 || (retained_ && retained_->contains(version))) {
      ++it;
      continue;
    }
    spdlog::info("store: version {} is forgotten; the last {} are kept", version.value, kept);
    if (options_.reuse_files) {
      serial_.run(
          [layout = layout_, version = version] {
            const Status retired = retire(layout, version);
            if (!retired.has_value()) spdlog::warn("store: {}", retired.error().message());
            layout.empty_trash();
          },
          [] {});
    } else {
      remove(version, complete->stored.path);
    }
    it = complete_.erase(it);
  }
}

void StoreImpl::make_durable(const CompleteRef& complete) { sync_files_from(0, complete); }

void StoreImpl::sync_files_from(std::size_t file, const CompleteRef& complete) {
  const Version version = complete->stored.manifest.version;
  const auto forgotten = [this, version, complete] {
    const auto found = complete_.find(version);
    return found == complete_.end() || found->second != complete;
  };
  const auto report = [version](const Error& error) {
    spdlog::error("store: version {} is installed, but not safe from a power cut: {}", version.value, error.message());
  };
  if (forgotten()) return;
  if (file < complete->files->table().files().size()) {
    const Result<FileRef> opened = complete->files->file(file);
    if (!opened.has_value()) return report(opened.error());
    disk_->sync((*opened)->fd(), [this, file, complete, report, open = *opened](const Status& status) {
      if (!status.has_value()) return report(status.error());
      sync_files_from(file + 1, complete);
    });
    return;
  }
  auto status = std::make_shared<Status>();
  serial_.run([layout = layout_, version, files = complete->files,
               status] { *status = sync_names_and_mark(layout, version, *files); },
              [complete, status, report, forgotten] {
                if (forgotten()) return;
                if (!status->has_value()) return report(status->error());
                complete->stored.durable = true;
              });
}

}  // namespace

Result<std::unique_ptr<Store>> Store::open(EventLoop& loop, StoreOptions options) {
  WC_ASSIGN(std::unique_ptr<Disk> disk, Disk::open(loop, options.backend));
  return open(loop, std::move(options), std::move(disk));
}

Result<std::unique_ptr<Store>> Store::open(EventLoop& loop, StoreOptions options, std::unique_ptr<Disk> disk) {
  const StoreLayout layout(options.directory);
  WC_TRY(layout.create());
  WC_ASSIGN(File lock, layout.acquire());
  WC_ASSIGN(RecoveredStore found, recover_store(layout));
  return std::unique_ptr<Store>(
      std::make_unique<StoreImpl>(loop, std::move(options), std::move(lock), std::move(disk), std::move(found)));
}

}  // namespace weightcast
