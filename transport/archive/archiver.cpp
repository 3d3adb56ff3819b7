#include "transport/archive/archiver.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "base/parallel.h"

namespace weightcast {
namespace {

// Of a whole version that the origin has made no tree of: a cluster without keys makes none of versions from changes.
constexpr std::uint32_t kOwnChunkBytes = kMiB;
// At a log of which something is deleted each time.
constexpr unsigned kLooksMax = 5;

/// Memory for objects, of which each connection takes one after the other: new pages cost more than a copy.
class Buffers {
 public:
  explicit Buffers(std::size_t bytes) : bytes_(bytes) {}

  std::vector<std::byte> take() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return std::vector<std::byte>(bytes_);
    std::vector<std::byte> buffer = std::move(idle_.back());
    idle_.pop_back();
    return buffer;
  }
  void give_back(std::vector<std::byte> buffer) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(buffer));
  }

 private:
  const std::size_t bytes_;
  std::mutex mutex_;  // guards `idle_`
  std::vector<std::vector<std::byte>> idle_;
};

Error not_published(const NodePayload& payload) {
  return fail(Errc::kCorrupt, Op::kVerify,
              payload.path.native() + ": its bytes are not those that were published; look after the disk");
}

}  // namespace

Result<Archiver> Archiver::open(FileSystem& files, ObjectStore& objects, ArchiveOptions options) {
  Archiver archiver(files, objects, std::move(options));
  archiver.index_.object_bytes = archiver.options_.object_bytes;
  const Result<std::string> text = objects.read(kIndexObject, kIndexBytesMax);
  if (text.has_value()) {
    Result<ArchiveIndex> index = parse_index(*text);
    if (!index.has_value()) return about(objects.place_of(kIndexObject), index.error());
    archiver.index_ = std::move(*index);
  } else if (text.error().code != Errc::kNotFound) {
    return text.error();
  }
  return archiver;
}

Status Archiver::check_run(const NodePayload& payload) const {
  const Manifest& manifest = payload.manifest;
  if (index_.payloads.empty() || (index_.run == manifest.run && index_.model_id == manifest.model_id)) return {};
  return fail(Errc::kInvalidArgument, Op::kWrite,
              fmt::format("{}: the archive there has run {} of model '{}', and {} follows run {} of '{}'; give the new "
                          "run a place of its own with --to",
                          objects_->place_of(kIndexObject), to_string(index_.run), index_.model_id,
                          options_.state.native(), to_string(manifest.run), manifest.model_id));
}

Result<std::optional<Archiver::Archived>> Archiver::archive_next(Instant now) {
  for (unsigned tried = 1;; ++tried) {
    Result<std::optional<Archived>> next = archive_once(now);
    // The node has deleted it since its log was read: another look says what there is now.
    const bool again = !next.has_value() && next.error().code == Errc::kNotFound && tried < kLooksMax;
    if (!again) return next;
  }
}

Result<std::optional<Archiver::Archived>> Archiver::archive_once(Instant now) {
  WC_ASSIGN(const std::vector<NodePayload> log, read_node_log(*files_, options_.state));
  std::map<Version, Instant> seen;
  std::vector<LoggedPayload> logged;
  for (const NodePayload& payload : log) {
    WC_TRY(check_run(payload));
    const bool signed_by_origin = !payload.manifest.signature.bytes.empty();
    LoggedPayload each{payload.id, files_key(payload.manifest.files)};
    if (payload.id.is_full()) {
      const auto known = first_seen_.find(payload.id.version);
      const Instant since = known == first_seen_.end() ? now : known->second;
      seen.emplace(payload.id.version, since);
      each.may_get_patch = now - since < options_.patch_grace;
      each.provable = payload.tree().chunk_bytes != 0 || !signed_by_origin;
    }
    logged.push_back(std::move(each));
  }
  first_seen_ = std::move(seen);
  const std::optional<PayloadId> next = next_to_archive(index_, logged, options_.every);
  if (!next) return std::optional<Archived>();
  if (index_.payloads.size() == kArchivedMax) {
    return fail(Errc::kTooLarge, Op::kWrite,
                fmt::format("{}: the archive has {} payloads, and holds no more; give another place with --to",
                            objects_->place_of(kIndexObject), kArchivedMax));
  }
  if (index_.payloads.empty()) {
    index_.run = log.front().manifest.run;
    index_.model_id = log.front().manifest.model_id;
  }
  WC_ASSIGN(Archived archived, send(*std::ranges::find(log, *next, &NodePayload::id)));
  ArchiveIndex with = index_;
  with.payloads.push_back(archived.payload);
  const std::string text = to_json(with);
  WC_TRY(objects_->write(kIndexObject, std::as_bytes(std::span(text))));
  index_ = std::move(with);
  return std::optional(std::move(archived));
}

Result<std::vector<ContentDigest>> Archiver::digests_of(const HeldPayload& held, const NodePayload& payload,
                                                        std::uint32_t chunk_bytes) const {
  WC_ASSIGN(std::vector<ContentDigest> digests, held.chunk_digests(chunk_bytes, options_.connections));
  if (const HashTree tree = payload.tree(); tree.chunk_bytes != 0) {
    if (root_over(digests, tree.part_chunks) != tree.root) return not_published(payload);
  } else {
    WC_ASSIGN(const bool matches, held.matches(payload.manifest, options_.connections));
    if (!matches) return not_published(payload);
  }
  return digests;
}

Result<Archiver::Archived> Archiver::send(const NodePayload& payload) {
  WC_ASSIGN(const HeldPayload held, HeldPayload::open(*files_, payload));
  WC_ASSIGN(const std::string record, read_file(*files_, payload.record_path, kRecordBytesMax));
  const bool whole = payload.id.is_full();
  const std::uint64_t bytes = held.size_bytes();
  HashTree tree = whole ? payload.tree() : HashTree{payload.manifest.chunk_bytes};
  if (tree.chunk_bytes == 0) tree.chunk_bytes = kOwnChunkBytes;
  const std::uint32_t chunk_bytes = tree.chunk_bytes;
  std::vector<ContentDigest> digests = payload.digests;
  if (digests.empty()) {
    WC_ASSIGN(digests, digests_of(held, payload, chunk_bytes));
  }

  const std::uint64_t objects = (bytes + index_.object_bytes - 1) / index_.object_bytes;
  std::atomic<std::uint64_t> sent_bytes = 0, there_bytes = 0;
  const auto tell = [&](std::uint64_t more) {
    const std::uint64_t now = there_bytes += more;
    if (options_.on_progress) options_.on_progress(now, bytes);
  };
  Buffers buffers(std::min(index_.object_bytes, bytes));
  const auto send_object = [&](std::size_t number) -> Status {
    const std::uint64_t begin = number * index_.object_bytes;
    const std::uint64_t size = std::min(index_.object_bytes, bytes - begin);
    const std::string name = data_object(index_.run, payload.id, number);
    WC_ASSIGN(const std::optional<std::uint64_t> there, objects_->size_of(name));
    if (there == size) return tell(size), Status();
    std::vector<std::byte> buffer = buffers.take();
    const MutableBytes object = MutableBytes(buffer).first(size);
    WC_TRY(held.read(begin, object));
    for (std::uint64_t at = 0; at < size; at += chunk_bytes) {
      const Bytes chunk = Bytes(object).subspan(at, std::min<std::uint64_t>(chunk_bytes, size - at));
      if (content_digest_of(chunk) != digests[(begin + at) / chunk_bytes]) return not_published(payload);
    }
    WC_TRY(objects_->write(name, object));
    sent_bytes += size;
    tell(size);
    buffers.give_back(std::move(buffer));
    return {};
  };
  WC_TRY(for_each_until_error(objects, options_.connections, send_object));
  if (whole) WC_TRY(objects_->write(digests_object(index_.run, payload.id), std::as_bytes(std::span(digests))));
  WC_TRY(objects_->write(record_object(index_.run, payload.id), std::as_bytes(std::span(record))));
  return Archived{{payload.id, bytes, chunk_bytes, files_key(payload.manifest.files)}, sent_bytes};
}

}  // namespace weightcast
