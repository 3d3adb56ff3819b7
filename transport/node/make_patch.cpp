#include "transport/node/make_patch.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "patch/codec.h"
#include "patch/snapshot_stream.h"
#include "transport/core/catch_up.h"
#include "transport/io/posix_file.h"

namespace weightcast {
namespace {

// A worker holds two at a time, with their code: so it stays below 16 MiB.
constexpr std::uint32_t kSegmentBytes = 7 * kMiB;
constexpr unsigned kThreads = 2;
// Encoding a snapshot in which everything changed takes seconds per gigabyte, in which nothing would be sent. So first
// these are looked at; a patch of cells of two bytes takes about as much as the full payload when half of them changed.
constexpr std::uint64_t kSamples = 64;
constexpr std::size_t kSampleBytes = 64 * kKiB;
constexpr double kChangedShareMax = 0.5;

/// A complete version, read by offset: a file that somebody cut short is an error then, and not a signal.
class VersionSource final : public ByteSource {
 public:
  explicit VersionSource(const SnapshotSource& source) : source_(source) {}
  std::uint64_t size_bytes() const override { return source_.size_bytes(); }
  Result<Bytes> view(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch) const override {
    scratch.resize(size);
    WC_TRY(source_.read_at(offset, scratch));
    return Bytes(scratch);
  }

 private:
  const SnapshotSource& source_;
};

/// The share of 2-byte words that differ in the samples, at equal places.
Result<double> changed_share(const SnapshotSource& base, const SnapshotSource& result) {
  const std::uint64_t common_bytes = std::min(base.size_bytes(), result.size_bytes());
  std::vector<std::byte> before(kSampleBytes), after(kSampleBytes);
  std::uint64_t words = 0, changed = 0;
  for (std::uint64_t i = 0; i < kSamples; ++i) {
    const std::uint64_t offset = common_bytes / kSamples * i / 2 * 2;
    const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(kSampleBytes, common_bytes - offset)) / 2 * 2;
    WC_TRY(base.read_at(offset, MutableBytes(before).first(size)));
    WC_TRY(result.read_at(offset, MutableBytes(after).first(size)));
    for (std::size_t at = 0; at < size; at += 2) changed += std::memcmp(&before[at], &after[at], 2) != 0 ? 1 : 0;
    words += size / 2;
  }
  return words == 0 ? 1.0 : double(changed) / double(words);
}

/// One patch being made; kept alive by the closures of its steps.
class PatchMaking : public std::enable_shared_from_this<PatchMaking> {
 public:
  PatchMaking(EventLoop& loop, Store& store, MakePatchRequest request, std::function<void(Result<MadePatch>)> done)
      : loop_(loop), store_(store), request_(std::move(request)), done_(std::move(done)) {}

  void start() {
    const StoredVersion* base = store_.find(request_.payload.base);
    const StoredVersion* result = store_.find(request_.payload.version);
    if (base == nullptr || result == nullptr) {
      return loop_.post([self = shared_from_this()] {
        self->done_(fail(Errc::kNotFound, Op::kEncode, "one of the two versions is not in the store any more"));
      });
    }
    base_path_ = base->path;
    result_path_ = result->path;
    base_digest_ = base->manifest.snapshot_digest;
    manifest_ = result->manifest;
    loop_.offload([self = shared_from_this()] { self->note(self->open()); },
                  [self = shared_from_this()] { self->begin(); });
  }

 private:
  Status open() {
    WC_ASSIGN(base_, SnapshotSource::open(base_path_.string()));
    WC_ASSIGN(result_, SnapshotSource::open(result_path_.string()));
    WC_ASSIGN(const double share, changed_share(*base_, *result_));
    if (share < kChangedShareMax) return {};
    return fail(Errc::kTooLarge, Op::kEncode, fmt::format("{:.0f} % of it has changed", 100 * share));
  }

  void begin() {
    if (error_) return done_(*error_);
    store_.begin_patch(request_.payload, [self = shared_from_this()](Result<std::filesystem::path> path) {
      if (!path.has_value()) return self->done_(path.error());
      self->path_ = *path;
      self->loop_.offload([self] { self->note(self->encode()); }, [self] { self->choose_chunks(); });
    });
  }

  Status encode() {
    PatchIdentity identity{request_.model_id, request_.payload.base, request_.payload.version, base_digest_,
                           manifest_.snapshot_digest};
    WC_ASSIGN(const PatchHead head, make_head(std::move(identity), layout_of(*base_), layout_of(*result_), kSegmentBytes));
    WC_ASSIGN(const File file, open_file(path_, O_WRONLY));
    const double limit_bytes = kPatchShareMax * double(manifest_.snapshot_bytes());
    EncodeOptions options;
    options.threads = kThreads;
    const VersionSource before(*base_), after(*result_);
    Result<PatchSummary> summary = encode_patch(head, before, after, options, [&](Bytes bytes) -> Status {
      WC_TRY(write_fully(file, bytes_, bytes, path_.native()));
      bytes_ += bytes.size();
      if (double(bytes_) < limit_bytes) return {};
      return fail(Errc::kTooLarge, Op::kEncode,
                  fmt::format("it takes more than {:.0f} % of the full payload", 100 * kPatchShareMax));
    });
    return summary.has_value() ? Status{} : Status{summary.error()};
  }

  void choose_chunks() {
    if (error_) return abandon();
    manifest_.kind = PayloadKind::kPatch;
    manifest_.base_version = request_.payload.base;
    manifest_.payload_bytes = bytes_;
    manifest_.chunk_bytes = request_.choose_chunk_bytes(bytes_);
    loop_.offload([self = shared_from_this()] { self->note(self->hash()); },
                  [self = shared_from_this()] { self->finish(); });
  }

  Status hash() {
    WC_ASSIGN(const File file, open_file(path_, O_RDONLY));
    std::vector<std::byte> buffer(manifest_.chunk_bytes);
    for (ChunkIndex chunk{0}; chunk.value < manifest_.chunk_count(); ++chunk) {
      const MutableBytes bytes = MutableBytes(buffer).first(manifest_.chunk_size(chunk));
      WC_TRY(read_fully(file, manifest_.chunk_offset(chunk), bytes, path_.native()));
      digests_.push_back(digest_of(bytes));
    }
    manifest_.part_digests = part_digests_of(digests_);
    return {};
  }

  void finish() {
    if (error_) return abandon();
    store_.finish_patch(manifest_, digests_, [self = shared_from_this()](const Status& status) {
      if (!status.has_value()) return self->done_(status.error());
      self->done_(MadePatch{std::make_shared<const Manifest>(self->manifest_), std::move(self->digests_)});
    });
  }

  void abandon() {
    store_.discard(request_.payload);
    done_(*error_);
  }

  void note(Status status) {
    if (!status.has_value()) error_ = status.error();
  }

  EventLoop& loop_;
  Store& store_;
  MakePatchRequest request_;
  std::function<void(Result<MadePatch>)> done_;

  std::filesystem::path base_path_, result_path_, path_;
  Digest base_digest_{};
  Manifest manifest_;
  std::optional<SnapshotSource> base_, result_;
  std::uint64_t bytes_ = 0;
  std::vector<Digest> digests_;
  std::optional<Error> error_;
};

}  // namespace

void make_patch(EventLoop& loop, Store& store, MakePatchRequest request, std::function<void(Result<MadePatch>)> done) {
  std::make_shared<PatchMaking>(loop, store, std::move(request), std::move(done))->start();
}

}  // namespace weightcast
