#include "transport/archive/fetch_version.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "transport/archive/archive_plan.h"
#include "transport/io/store/files/apply_in_place.h"
#include "transport/io/store/files/recovery_checks.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"
#include "transport/node/payload/signed_manifests.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWorkSuffix = ".fetch";

/// One payload on its way to the disk.
struct Arriving {
  ArchivedPayload payload;
  VersionRecord record;
  std::vector<ContentDigest> digests;
  FilesRef files;

  [[nodiscard]] std::uint64_t chunk_size(std::uint64_t chunk) const {
    return std::min<std::uint64_t>(payload.chunk_bytes, payload.bytes - chunk * payload.chunk_bytes);
  }
};

/// Chunks of one object that follow each other and are missing.
struct Gap {
  std::size_t arriving = 0;
  std::uint64_t first_chunk = 0;
  std::uint64_t bytes = 0;
};

class Fetch {
 public:
  Fetch(FileSystem& files, ObjectStore& objects, const NodeKeys* keys, const Revocations& revocations,
        const FetchOptions& options)
      : files_(files),
        objects_(objects),
        keys_(keys),
        revocations_(revocations),
        options_(options),
        output_(fs::absolute(options.output).lexically_normal()),
        layout_(files, work_directory(output_)) {}

  Result<FetchedVersion> run() {
    if (exists(files_, output_)) {
      return fail(Errc::kAlreadyExists, Op::kWrite, output_.native() + ": it is there already; give another -o");
    }
    WC_ASSIGN(const std::string text, objects_.read(kIndexObject, kIndexBytesMax));
    Result<ArchiveIndex> index = parse_index(text);
    if (!index.has_value()) return about(objects_.place_of(kIndexObject), index.error());
    index_ = std::move(*index);
    WC_ASSIGN(const std::vector<ArchivedPayload> way, way_to(index_, options_.version));
    WC_TRY(layout_.create());
    WC_ASSIGN(const std::unique_ptr<File> lock, layout_.acquire());
    WC_TRY(drop_others(way));
    for (const ArchivedPayload& payload : way) WC_TRY(begin(payload));
    WC_TRY(receive());
    WC_TRY(make());
    return result();
  }

 private:
  static fs::path work_directory(const fs::path& output) {
    fs::path work = output.has_filename() ? output : output.parent_path();
    work += kWorkSuffix;
    return work;
  }

  [[nodiscard]] fs::path path_of(PayloadId id) const {
    return id.is_full() ? layout_.complete(id.version) : layout_.patch(id);
  }

  [[nodiscard]] Error damaged(const std::string& object, std::string_view what) const {
    return fail(Errc::kCorrupt, Op::kVerify, fmt::format("{}: {}", objects_.place_of(object), what));
  }

  /// Takes the record, and the digests that it vouches for; finds what is on the disk.
  Status begin(const ArchivedPayload& payload) {
    const PayloadId id = payload.id;
    const std::string object = record_object(index_.run, id);
    const fs::path path = layout_.record(id);
    WC_ASSIGN(const std::string text, objects_.read(object, kRecordBytesMax));
    WC_TRY(replace_file(files_, path, text, Synced::kNothing));
    Result<VersionRecord> read = read_record(files_, path);
    if (!read.has_value()) return about(objects_.place_of(object), read.error());
    Arriving arriving{payload, std::move(*read), {}, nullptr};
    const Manifest& manifest = arriving.record.manifest;
    const Manifest& first = arriving_.empty() ? manifest : arriving_.front().record.manifest;
    const bool right = manifest.version == id.version && !manifest.open && manifest.run == index_.run &&
                       manifest.model_id == index_.model_id && manifest.files == first.files &&
                       (id.is_full() || manifest.id() == id) &&
                       payload.bytes == (id.is_full() ? manifest.snapshot_bytes() : manifest.payload_bytes);
    if (!right) return damaged(object, fmt::format("it is not the record of {} that the index says", to_string(id)));
    if (keys_ != nullptr) {
      Result<CertificateInfo> signer = check_accepted_manifest(manifest, *keys_, revocations_, unix_now_s());
      if (!signer.has_value()) return about(objects_.place_of(object), signer.error());
      signer_ = std::move(*signer);
    }
    WC_TRY(id.is_full() ? take_digests(arriving) : take_patch_digests(arriving, object));
    WC_ASSIGN(FileTable table, id.is_full() ? FileTable::make(manifest.files) : payload_files(manifest));
    const fs::path to = path_of(id);
    Result<FilesRef> there = VersionFiles::open(files_, to, table);
    const bool resumed = there.has_value();
    if (!resumed) {
      WC_TRY(remove_all(files_, to));
      there = VersionFiles::create(files_, to, std::move(table));
    }
    if (!there.has_value()) return there.error();
    arriving.files = std::move(*there);
    arriving_.push_back(std::move(arriving));
    return find_gaps(arriving_.size() - 1, resumed);
  }

  Status take_patch_digests(Arriving& arriving, const std::string& object) const {
    if (!arriving.record.digests.complete() || arriving.record.manifest.chunk_bytes != arriving.payload.chunk_bytes) {
      return damaged(object, "it lacks digests of chunks");
    }
    arriving.digests = arriving.record.digests.chunks;
    return {};
  }

  Status take_digests(Arriving& arriving) {
    const ArchivedPayload& payload = arriving.payload;
    const std::string object = digests_object(index_.run, payload.id);
    const std::uint64_t chunks = (payload.bytes + payload.chunk_bytes - 1) / payload.chunk_bytes;
    WC_ASSIGN(const std::string text, objects_.read(object, chunks * ContentDigest::kBytes));
    if (text.size() != chunks * ContentDigest::kBytes) return damaged(object, "it has another length than it should");
    arriving.digests.resize(chunks);
    std::memcpy(arriving.digests.data(), text.data(), text.size());
    const HashTree tree = arriving.record.manifest.tree_of_snapshot();
    if (tree.chunk_bytes == 0) {
      if (keys_ == nullptr) return {};  // the snapshot's digest is what counts
      return fail(Errc::kNotAllowed, Op::kVerify,
                  objects_.place_of(object) + ": no origin has signed a SHA-256 of this version");
    }
    if (tree.chunk_bytes != payload.chunk_bytes || root_over(arriving.digests, tree.part_chunks) != tree.root) {
      return damaged(object, "its digests are not those of the version's record");
    }
    return {};
  }

  Status find_gaps(std::size_t number, bool resumed) {
    const Arriving& arriving = arriving_[number];
    const std::uint64_t chunk_bytes = arriving.payload.chunk_bytes;
    std::vector<char> held(arriving.digests.size(), 0);  // not bool: threads write neighbours
    if (resumed) {
      const Status hashed = for_each_until_error(held.size(), options_.threads, [&](std::size_t chunk) -> Status {
        std::vector<std::byte> buffer(arriving.chunk_size(chunk));
        WC_TRY(read_stream(*arriving.files, chunk * chunk_bytes, buffer));
        held[chunk] = content_digest_of(buffer) == arriving.digests[chunk];
        return {};
      });
      WC_TRY(hashed);
    }
    const std::uint64_t chunks_per_object = index_.object_bytes / chunk_bytes;
    for (std::uint64_t chunk = 0; chunk < held.size(); ++chunk) {
      if (held[chunk] != 0) continue;
      const bool goes_on = chunk > 0 && held[chunk - 1] == 0 && chunk % chunks_per_object != 0;
      if (!goes_on) gaps_.push_back({number, chunk, 0});
      gaps_.back().bytes += arriving.chunk_size(chunk);
      missing_bytes_ += arriving.chunk_size(chunk);
    }
    return {};
  }

  Status receive() {
    return for_each_until_error(gaps_.size(), options_.connections,
                                [&](std::size_t gap) { return receive(gaps_[gap]); });
  }

  Status receive(const Gap& gap) {
    const Arriving& arriving = arriving_[gap.arriving];
    const ArchivedPayload& payload = arriving.payload;
    const std::uint64_t begin = gap.first_chunk * payload.chunk_bytes;
    const std::uint64_t number = begin / index_.object_bytes;
    const std::string object = data_object(index_.run, payload.id, number);
    std::uint64_t chunk = gap.first_chunk;
    std::vector<std::byte> buffer(payload.chunk_bytes);
    std::size_t filled = 0;
    return objects_.read_range(object, std::min(index_.object_bytes, payload.bytes - number * index_.object_bytes),
                               begin - number * index_.object_bytes, gap.bytes, [&](Bytes bytes) -> Status {
                                 while (!bytes.empty()) {
                                   const std::size_t size = arriving.chunk_size(chunk);
                                   const std::size_t taken = std::min(bytes.size(), size - filled);
                                   std::memcpy(buffer.data() + filled, bytes.data(), taken);
                                   bytes = bytes.subspan(taken);
                                   filled += taken;
                                   if (filled < size) break;
                                   const Bytes whole = Bytes(buffer).first(size);
                                   if (content_digest_of(whole) != arriving.digests[chunk]) {
                                     return damaged(object, fmt::format("chunk {} of {} is not what was published",
                                                                        chunk, to_string(payload.id)));
                                   }
                                   WC_TRY(write_stream(*arriving.files, chunk * payload.chunk_bytes, whole));
                                   const std::uint64_t received = received_bytes_ += size;
                                   if (options_.on_progress) options_.on_progress(received, missing_bytes_);
                                   filled = 0;
                                   ++chunk;
                                 }
                                 return {};
                               });
  }

  /// The version in the place of the output.
  Status make() {
    const Arriving& whole = arriving_.front();
    WC_TRY(check_unproven());
    // A call that ends here leaves a mixture, of which the next one fetches again what has changed.
    Checksum digest = whole.record.manifest.snapshot_digest;
    for (std::size_t i = 1; i < arriving_.size(); ++i) {
      const Manifest& manifest = arriving_[i].record.manifest;
      const Status applied = apply_in_place(*whole.files, *arriving_[i].files, manifest, digest, options_.threads);
      if (!applied.has_value()) return about(path_of(manifest.id()).native(), applied.error());
      digest = manifest.snapshot_digest;
    }
    const fs::path made = path_of(whole.payload.id);
    WC_TRY(sync(made));
    WC_TRY(files_.rename(made, output_));
    WC_TRY(sync_directory(files_, output_.parent_path()));
    return remove_all(files_, layout_.directory());
  }

  /// A whole version whose chunks nobody but the archive vouches for.
  Status check_unproven() const {
    const Arriving& whole = arriving_.front();
    const Manifest& manifest = whole.record.manifest;
    if (manifest.tree_of_snapshot().chunk_bytes != 0) return {};
    WC_ASSIGN(const bool matches, snapshot_matches(manifest, *whole.files, options_.threads));
    if (matches) return {};
    return damaged(digests_object(index_.run, whole.payload.id), "the bytes that it leads to are not the snapshot's");
  }

  /// Deletes what an earlier call for another version left: it would lead elsewhere.
  Status drop_others(const std::vector<ArchivedPayload>& way) const {
    std::set<fs::path> wanted;
    for (const ArchivedPayload& payload : way) {
      wanted.insert(path_of(payload.id));
    }
    for (const fs::path& folder : {layout_.versions(), layout_.patches()}) {
      WC_ASSIGN(const std::vector<std::string> names, files_.list(folder));
      for (const std::string& name : names) {
        if (!wanted.contains(folder / name)) WC_TRY(remove_all(files_, folder / name));
      }
    }
    return {};
  }

  Status sync(const fs::path& made) const {
    WC_ASSIGN(FileTable table, FileTable::make(arriving_.back().record.manifest.files));
    WC_ASSIGN(const FilesRef made_files, VersionFiles::open(files_, made, std::move(table)));
    for (std::size_t i = 0; i < made_files->table().files().size(); ++i) {
      WC_ASSIGN(const FileRef file, made_files->file(i));
      WC_TRY(file->sync_data());
    }
    return made_files->sync_names();
  }

  FetchedVersion result() {
    return {.manifest = arriving_.back().record.manifest,
            .signer = std::move(signer_),
            .whole = arriving_.front().payload.id.version,
            .patches = static_cast<std::uint32_t>(arriving_.size() - 1),
            .received_bytes = received_bytes_};
  }

  FileSystem& files_;
  ObjectStore& objects_;
  const NodeKeys* const keys_;
  const Revocations& revocations_;
  const FetchOptions& options_;
  const fs::path output_;
  const StoreLayout layout_;
  ArchiveIndex index_;
  std::vector<Arriving> arriving_;  // the whole version first
  std::vector<Gap> gaps_;
  std::optional<CertificateInfo> signer_;  // of the newest record
  std::atomic<std::uint64_t> received_bytes_ = 0;
  std::uint64_t missing_bytes_ = 0;
};

}  // namespace

Result<FetchedVersion> fetch_version(FileSystem& files, ObjectStore& objects, const NodeKeys* keys,
                                     const Revocations& revocations, const FetchOptions& options) {
  return Fetch(files, objects, keys, revocations, options).run();
}

}  // namespace weightcast
