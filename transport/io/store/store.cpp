#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/store_incoming.h"
#include "transport/io/store/store_work.h"
#include "transport/io/uv_loop.h"

namespace weightcast {
namespace {

// For chunks on their way from the disk to a child that is behind.
constexpr std::size_t kReadBuffersKeptBytesMax = 4 * kMiB;

}  // namespace

Store::Store(EventLoop& loop, StoreOptions options, FileSystem& files, std::unique_ptr<File> lock,
             std::unique_ptr<Disk> disk, StoreRun run, RecoveredStore found)
    : loop_(loop),
      options_(std::move(options)),
      place_(options_.choose_place && found.empty() ? std::nullopt : std::optional(options_.place)),
      layout_(files, options_.directory, options_.place.memory_directory, run.count),
      lock_(std::move(lock)),
      run_(run),
      current_(found.current),
      earlier_run_(found.earlier_run),
      place_timer_(loop,
                   [this] {
                     for (const auto& task : std::exchange(waiting_for_place_, {})) task();
                   }),
      take_out_timer_(loop, [this] { take_out_again(); }),
      start_pieces_(loop, [this] { start_pieces(); }),
      sync_timer_(loop,
                  [this] {
                    for (const auto& [version, complete] : std::map(complete_)) {
                      if (complete->stored.durable || complete->syncing) continue;
                      complete->sync_failed ? sync_again(complete) : make_durable(complete);
                    }
                  }),
      kept_(found.kept),
      scrub_timer_(loop, [this] { scrub(); }),
      keep_timer_(loop, [this] { keeping_ ? go_on_keeping() : start_keeping(); }),
      cache_(options_.cache_bytes_max),
      read_buffers_(kReadBuffersKeptBytesMax),
      keep_work_(loop),
      spare_work_(loop),
      scrub_work_(loop),
      syncing_(loop),
      serial_(loop),
      disk_(std::move(disk)) {
  for (RecoveredVersion& version : found.earlier) {
    StoredVersion stored{std::move(version.record.manifest), {}, {}, version.record.durable, 0, earlier_run_};
    stored.path = layout_.of_run(earlier_run_).complete(stored.manifest.version);
    earlier_.push_back({std::move(stored), std::move(version.files)});
  }
  for (RecoveredVersion& version : found.partial) {
    const PayloadId payload = version.record.manifest.id();
    incoming_.emplace(payload, std::make_shared<Incoming>(std::move(version)));
  }
  for (RecoveredVersion& patch : found.patches) add_patch(std::move(patch.record), std::move(patch.files));
  for (RecoveredVersion& version : found.complete) {
    const bool durable = version.record.durable;
    const auto added = add_complete(std::move(version.record), std::move(version.files), std::move(version.leaves));
    if (layout_.in_memory()) {
      added->stored.durable = added->stored.manifest.version == kept_;
      continue;
    }
    if (durable) continue;
    // A sync may have failed while an earlier process lived.
    added->sync_failed = true;
    sync_again(added);
  }
  consider_keeping();
  forget_old();
}

Store::~Store() {
  *wanted_ = false;
  drop_spare();
}

Error Store::no_such(PayloadId payload) {
  return fail(Errc::kNotFound, Op::kOpen, to_string(payload) + ": not in the store");
}

Error Store::about(Version version, Error error) const {
  error.detail = fmt::format("version {} in {}: {}", version.value, layout_.versions_root().native(), error.detail);
  if (error.code == Errc::kNoSpace) {
    // A record that finds no place may lack bytes, a file, or a part of the user's quota.
    error.detail += "; make room there (df for bytes, df -i for files, quota), and it goes on from where it is";
  }
  return error;
}

Version Store::spare() const { return spare_ ? spare_->version : kNoVersion; }

std::vector<StoredVersion> Store::versions() const {
  std::vector<StoredVersion> all;
  for (const auto& [version, complete] : complete_) all.push_back(complete->stored);
  return all;
}

const StoredVersion* Store::find(Version version) const {
  const auto found = complete_.find(version);
  return found == complete_.end() ? nullptr : &found->second->stored;
}

std::vector<StoredPatch> Store::patches() const {
  std::vector<StoredPatch> all;
  for (const auto& [payload, patch] : patches_) all.push_back(patch->stored);
  return all;
}

PartialVersion Store::partial_of(const Incoming& incoming) {
  return {incoming.manifest(), incoming.record.digests.prefix(), incoming.held};
}

std::vector<PartialVersion> Store::partial() const {
  std::vector<PartialVersion> all;
  for (const auto& [version, incoming] : incoming_) all.push_back(partial_of(*incoming));
  return all;
}

/// Whether `payload` cannot be begun or imported now; then it has been refused.
bool Store::refuse_new(PayloadId payload, const std::function<void(Error)>& refuse) {
  const Version version = payload.version;
  std::optional<Error> error;
  if (version == kNoVersion) {
    error = fail(Errc::kInvalidArgument, Op::kOpen, "version 0 stands for none");
  } else if (complete_.contains(version)) {
    error = fail(Errc::kAlreadyExists, Op::kOpen, fmt::format("version {}: complete already", version.value));
  } else if (is_being_made(payload) || is_being_made(version)) {
    // Of a patch the version, too: an update in place hides its base where the files of an import lie.
    error = fail(Errc::kBusy, Op::kOpen, fmt::format("version {}: begun already", version.value));
  }
  if (!error) return false;
  later([refuse, error = *error] { refuse(error); });
  return true;
}

void Store::begin(const Manifest& manifest, std::function<void(Result<PartialVersion>)> done) {
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
    if (options_.single_copy && base->stored.manifest.files != manifest.files) {
      later([payload, done = std::move(done)] {
        done(fail(Errc::kWrongBase, Op::kOpen,
                  fmt::format("version {} has other files than version {}, which cannot take their place",
                              payload.version.value, payload.base.value)));
      });
      return;
    }
  }
  if (waits_for_place_choice(
          payload, manifest.snapshot_bytes(), [this, manifest, done] { begin(manifest, done); }, done)) {
    return;
  }
  IncomingRef there;
  std::vector<PayloadId> others;
  for (const auto& [other, incoming] : incoming_) {
    if (other == payload && incoming->manifest() == manifest) {
      there = incoming;
    } else if (other.version <= payload.version || (options_.single_copy && base && incoming->base == base)) {
      // Of two patches that take the place of the same version, one can.
      others.push_back(other);
    }
  }
  for (const PayloadId other : others) {
    const std::string lost = fmt::format("the {} chunks here of version {} are thrown away",
                                         incoming_.at(other)->held.count(), other.version.value);
    if (other.version != payload.version) {
      log_info("store: version {} is taken up instead; {}", payload.version.value, lost);
    } else {
      log_warning("store: version {} is announced anew under another manifest; {}", payload.version.value, lost);
    }
    discard(other);
  }
  if (there && !payload.is_encoded()) {
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
  std::function<Status()> check_room = [] { return Status(); };
  const std::size_t here = complete_.size() + earlier_.size();
  if (options_.check_room && options_.single_copy && layout_.in_memory() && !payload.is_patch() && here > 0) {
    // Where one copy was to fit, the kernel may hand out a second one and end other programs for it.
    check_room = [check = options_.check_room, bytes = manifest.snapshot_bytes(),
                  copies = static_cast<std::uint32_t>(here + 1)] { return check(bytes, copies); };
  }
  serial_.run(
      [layout = layout_, made, manifest, spare = spare_, beside = is_made_beside(payload), check_room] {
        if (const Status room = check_room(); !room.has_value()) {
          made->files = room.error();
          return;
        }
        if (beside) made->target = make_target(layout, manifest, spare);
        if (!made->target.has_value() || !made->record) return;
        made->files = make_incoming(layout, *made->record, spare);
        if (made->files.has_value() || !beside) return;
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
        }
        incoming->target = std::move(*made->target);
        if (is_made_beside(payload)) start_applying(*incoming);
        if (!payload.is_encoded()) start_check(*incoming);
        done(partial_of(*incoming));
      });
}

void Store::start_applying(Incoming& incoming) {
  const Manifest& manifest = incoming.manifest();
  PatchIdentity identity{manifest.model_id, manifest.base_version, manifest.version, {}, manifest.snapshot_digest};
  if (incoming.base) identity.base_digest = incoming.base->stored.manifest.snapshot_digest;
  PatchedSnapshot::Steps steps;
  if (incoming.base && lists_steps()) {
    steps = {steps_between(steps_, incoming.target->old_version(), manifest.base_version), kStepBytesMax,
             incoming.base->stored.leaves};
  } else if (incoming.base && incoming.target == incoming.base->files) {
    steps.base_leaves = incoming.base->stored.leaves;
  }
  incoming.applied = std::make_unique<PatchedSnapshot>(loop_, identity, incoming.base ? incoming.base->files : nullptr,
                                                       incoming.files, incoming.target, std::move(steps));
  incoming.applied->handle_prefix(incoming.prefix_bytes());
}

void Store::start_check(Incoming& incoming) {
  if (incoming.check) return;
  incoming.check = std::make_unique<SnapshotCheck>(loop_, incoming.files);
  for (auto chunk = incoming.held.next_in(ChunkIndex{0}); chunk;
       chunk = incoming.held.next_in(ChunkIndex{chunk->value + 1})) {
    incoming.check->handle_held(incoming.manifest().chunk_offset(*chunk), incoming.manifest().chunk_size(*chunk));
  }
}

void Store::grow(const Manifest& manifest) {
  const auto found = incoming_.find(manifest.id());
  if (found == incoming_.end()) return;
  const IncomingRef& incoming = found->second;
  if (!continues(incoming->manifest(), manifest)) {
    return log_warning("store: {}: it cannot grow to what it is said to be; left as it is", to_string(manifest.id()));
  }
  incoming->record.manifest = manifest;
  incoming->record.digests.grow(manifest);
  incoming->held.grow(manifest.chunk_count());
  if (manifest.open) return;
  run_unawaited(serial_, [layout = layout_, incoming, record = incoming->record] {
    Status sealed = seal(layout, record);
    if (!sealed.has_value()) incoming->record_is_behind = true;
    return sealed;
  });
}

void Store::put_digest_part(PayloadId payload, std::uint32_t part, const std::vector<ContentDigest>& digests) {
  const auto found = incoming_.find(payload);
  if (found == incoming_.end()) return;
  VersionRecord& record = found->second->record;
  if (record.digests.parts.contains(ChunkIndex{part})) return;
  if (const Status put = record.digests.put_part(record.manifest, part, digests); !put.has_value()) {
    return log_warning("store: {}, digest part {}: {}", to_string(payload), part, put.error().message());
  }
  if (record.manifest.open) return;  // grow() writes it down with the end
  run_unawaited(serial_, [layout = layout_, payload, incoming = found->second, part, digests] {
    Status appended = append_digest_part(layout.files(), layout.record(payload), part, digests);
    if (!appended.has_value()) incoming->record_is_behind = true;
    return appended;
  });
}

void Store::for_pieces(const FilesRef& files, std::uint64_t offset, std::uint64_t length, const Operation& operation,
                       Disk::Done done) {
  const std::uint64_t size_bytes = files->table().size_bytes();
  if (length == 0 || offset > size_bytes || length > size_bytes - offset) {
    const Error error = fail(Errc::kInvalidArgument, Op::kOpen,
                             fmt::format("bytes {} to {} of files of {} bytes", offset, offset + length, size_bytes));
    return later([error, done = std::move(done)] { done(error); });
  }
  const std::vector<FilePiece> pieces = files->table().pieces(offset, length);
  const Disk::Done joint = Disk::joint(pieces.size(), std::move(done));
  std::uint64_t at = 0;
  for (const FilePiece& piece : pieces) {
    waiting_pieces_.push_back({files, piece, at, operation, joint});
    at += piece.size_bytes;
  }
  start_pieces();
}

/// A chunk may span thousands of files, and thousands of chunks may be on their way: as many as there are descriptors
/// for go to the disk at once, and one in any case.
void Store::start_pieces() {
  while (!waiting_pieces_.empty()) {
    if (pieces_under_way_ > 0 && layout_.files().open_files().crowded()) {
      disk_->flush();  // those under way wait for no more neighbours
      return;
    }
    PieceWork next = std::move(waiting_pieces_.front());
    waiting_pieces_.pop_front();
    const Result<FileRef> file = next.files->file(next.piece.file);
    if (!file.has_value()) {
      later([done = std::move(next.done), error = file.error()] { done(error); });
      continue;
    }
    ++pieces_under_way_;
    next.operation(*file, next.piece, next.at, [this, done = std::move(next.done)](const Status& status) {
      --pieces_under_way_;
      // At the end of the turn: this piece's file is still open.
      if (!waiting_pieces_.empty()) start_pieces_.schedule();
      done(status);
    });
  }
}

void Store::write_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void(Status)> done) {
  const auto found = incoming_.find(payload);
  if (found == incoming_.end() || !found->second->begun()) {
    later([payload, done = std::move(done)] { done(no_such(payload)); });
    return;
  }
  const IncomingRef incoming = found->second;
  const Manifest& manifest = incoming->manifest();
  if (chunk.value >= manifest.chunk_count() || bytes->size() != manifest.chunk_size(chunk)) {
    const Error error = fail(Errc::kInvalidArgument, Op::kWrite,
                             fmt::format("{}: a chunk {} of {} bytes, which it does not have", to_string(payload),
                                         chunk.value, bytes->size()));
    return later([error, done = std::move(done)] { done(error); });
  }
  if (incoming->held.contains(chunk)) {
    later([done = std::move(done)] { done({}); });
    return;
  }
  cache_.put({payload, chunk}, bytes);
  incoming->unwritten[chunk] = bytes;

  const std::uint64_t begin = manifest.chunk_offset(chunk);
  static_assert(kDigestBlockBytes % kChunkBytesMax == 0, "a chunk is in one leaf");
  // While the chunk is in this core's cache.
  const std::uint64_t sum = incoming->check ? stream_sum(begin, bytes->bytes()) : 0;
  for_pieces(
      incoming->files, begin, bytes->size(),
      [this, bytes](const FileRef& file, const FilePiece& piece, std::uint64_t at, Disk::Done piece_done) {
        disk_->write(file, piece.offset_bytes, bytes->bytes().subspan(at, piece.size_bytes), std::move(piece_done));
      },
      [this, incoming, chunk, bytes, sum, done = std::move(done)](const Status& status) {
        handle_written(incoming, chunk, bytes, sum, status, done);
      });
  // The last chunk has no neighbour to wait for.
  if (incoming->held.count() + incoming->unwritten.size() == manifest.chunk_count()) disk_->flush();
}

void Store::handle_written(const IncomingRef& incoming, ChunkIndex chunk, const BufferRef& bytes, std::uint64_t sum,
                           Status status, const std::function<void(Status)>& done) {
  const Manifest& manifest = incoming->manifest();
  if (incoming->discarded) return done(no_such(incoming->id()));
  const auto mine = incoming->unwritten.find(chunk);
  if (mine != incoming->unwritten.end() && mine->second == bytes) incoming->unwritten.erase(mine);
  if (!status.has_value()) {
    if (!incoming->held.contains(chunk)) cache_.erase({incoming->id(), chunk});
    return done(about(manifest.version, status.error()));
  }
  if (incoming->held.insert(chunk)) {
    if (incoming->check) incoming->check->handle_stored(manifest.chunk_offset(chunk), manifest.chunk_size(chunk), sum);
    if (incoming->applied) incoming->applied->handle_prefix(incoming->prefix_bytes());
  }
  if (incoming->applied && incoming->applied->error()) {
    return done(about(manifest.version, *incoming->applied->error()));
  }
  done({});
}

BufferRef Store::cached_chunk(PayloadId payload, ChunkIndex chunk) const {
  if (BufferRef recent = cache_.find({payload, chunk})) return recent;
  const auto found = incoming_.find(payload);
  if (found == incoming_.end()) return nullptr;
  const auto waiting = found->second->unwritten.find(chunk);
  return waiting == found->second->unwritten.end() ? nullptr : waiting->second;
}

void Store::read_chunk(PayloadId payload, ChunkIndex chunk, ReadDone done) {
  if (BufferRef recent = cached_chunk(payload, chunk)) {
    later([recent = std::move(recent), done = std::move(done)] { done(recent); });
    return;
  }
  const Manifest* manifest = nullptr;
  FilesRef files;
  std::size_t* users = nullptr;
  std::shared_ptr<void> owner;  // of `users`
  const auto complete = payload.is_encoded() ? complete_.end() : complete_.find(payload.version);
  const auto patch = patches_.find(payload);
  const auto incoming = incoming_.find(payload);
  const auto import = imports_.find(payload);
  if (complete != complete_.end() && complete->second->full_manifest() != nullptr) {
    manifest = complete->second->full_manifest();
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
  } else if (import != imports_.end() && import->second.so_far) {
    manifest = &*import->second.so_far;
    files = import->second.files;
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
  for_pieces(
      files, manifest->chunk_offset(chunk), bytes->size(),
      [this, bytes](const FileRef& file, const FilePiece& piece, std::uint64_t at, Disk::Done piece_done) {
        disk_->read(file, piece.offset_bytes, MutableBytes(bytes->data() + at, piece.size_bytes),
                    std::move(piece_done));
      },
      [this, key, bytes, users, owner](const Status& status) {
        if (owner) {
          --*users;
          // Nothing arrives for a complete payload: what is kept here takes no place from a chunk that will be asked
          // for.
          if (status.has_value()) cache_.put(key, bytes);
        }
        handle_read(key, status.has_value() ? Result<BufferRef>(bytes) : about(key.payload.version, status.error()));
        if (owner) forget_old();
      });
}

void Store::handle_read(const ChunkKey& key, Result<BufferRef> result) {
  const auto readers = reading_.extract(key);
  for (const ReadDone& done : readers.mapped()) done(result);
}

void Store::discard(PayloadId payload) {
  bool there = false, imported = false;
  std::optional<FileTable> table, target;
  if (const auto found = complete_.find(payload.version);
      payload.is_full() && found != complete_.end() && found->second->full_so_far) {
    // It may be made again, in other chunks.
    const std::uint32_t chunks = found->second->full_so_far->chunk_count();
    for (std::uint32_t i = 0; i < chunks; ++i) cache_.erase({payload, ChunkIndex{i}});
    found->second->full_so_far.reset();
  }
  if (const auto found = imports_.find(payload); found != imports_.end()) {
    table = found->second.files->table();
    imports_.erase(found);
    there = imported = true;
  }
  if (const auto found = preparing_.find(payload); found != preparing_.end()) {
    *found->second = false;
    preparing_.erase(found);
    there = true;
  }
  if (const auto found = incoming_.find(payload); found != incoming_.end()) {
    const IncomingRef incoming = found->second;
    WC_CHECK(!incoming->finishing);
    incoming->discarded = true;
    incoming->check.reset();
    incoming->applied.reset();
    if (incoming->base) --std::exchange(incoming->base, nullptr)->users;
    for (std::uint32_t i = 0; i < incoming->manifest().chunk_count(); ++i) cache_.erase({payload, ChunkIndex{i}});
    incoming->unwritten.clear();
    table = incoming->files->table();
    if (incoming->target) target = incoming->target->table();
    incoming_.erase(found);
    there = true;
  }
  if (!there) return;
  // First what the patch was applied to: it has no record before it is whole. After a restart, the files of that name
  // may be those of the full payload, which arrived before.
  const PayloadId full(payload.version);
  const bool is_others = complete_.contains(payload.version) || incoming_.contains(full) || is_being_made(full);
  if (is_made_beside(payload) && !is_others) {
    remove(payload.version, layout_.incoming(payload.version), std::move(target));
  }
  // An installation that failed and could not be undone has left it where a start would take it for complete.
  if (imported && payload.is_full() && !complete_.contains(payload.version)) take_out(payload.version, *table);
  remove(payload, layout_.incoming(payload), std::move(table));
}

void Store::follow_run(RunId run, bool anew, std::function<void(Status)> done) {
  const StoreRun next{run, run_.count + (anew ? 1 : 0)};
  serial_.run([layout = layout_, next] { return write_run(layout, next); },
              [this, next, anew, done = std::move(done)](const Status& written) {
                if (written.has_value() && !anew) run_ = next;
                done(written);
              });
}

void Store::run_unawaited(SerialWork& jobs, std::function<Status()> work) {
  jobs.run(
      [work = std::move(work)] {
        if (const Status s = work(); !s.has_value()) log_warning("store: {}", s.error().message());
      },
      [] {});
}

void Store::remove_from(const StoreLayout& layout, PayloadId payload, const std::filesystem::path& path,
                        std::optional<FileTable> table) {
  run_unawaited(serial_, [layout, payload, path, table = std::move(table)] {
    Status removed = remove_recorded(layout, path, payload, table);
    layout.empty_trash();
    return removed;
  });
}

Result<std::unique_ptr<Store>> Store::open(UvLoop& loop, FileSystem& files, StoreOptions options) {
  WC_ASSIGN(std::unique_ptr<Disk> disk, Disk::open(loop, options.backend));
  return open(loop, files, std::move(options), std::move(disk));
}

Result<std::unique_ptr<Store>> Store::open(EventLoop& loop, FileSystem& files, StoreOptions options,
                                           std::unique_ptr<Disk> disk) {
  const StoreLayout layout(files, options.directory, options.place.memory_directory);
  // Before anything changes: another daemon may run there.
  WC_ASSIGN(std::unique_ptr<File> lock, layout.acquire());
  WC_TRY(layout.create());
  WC_ASSIGN(StoreRun run, read_run(layout));
  if (run.id == kNoRun && options.make_run) {
    run.id = options.make_run();
    WC_TRY(write_run(layout, run));
  }
  WC_ASSIGN(RecoveredStore found,
            recover_store(layout.of_run(run.count), options.keep_durable_every > 0, loop.threads_per_job_max()));
  return std::unique_ptr<Store>(
      new Store(loop, std::move(options), files, std::move(lock), std::move(disk), run, std::move(found)));
}

}  // namespace weightcast
