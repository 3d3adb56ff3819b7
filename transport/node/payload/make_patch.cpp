#include "transport/node/payload/make_patch.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "patch/snapshot/layout_pair.h"
#include "patch/snapshot/snapshot_stream.h"
#include "transport/core/origin/catch_up.h"
#include "transport/node/payload/encoded_payload.h"
#include "transport/node/payload/model_files.h"
#include "transport/node/payload/sampled_share.h"

namespace weightcast {
namespace {

// Nothing is sent before the first is made, and the last is unpacked when everything has arrived: a few milliseconds
// each. Of a snapshot that would have too many they are longer.
constexpr std::uint32_t kPackedSegmentBytes = kMiB;
// Encoding a snapshot in which everything changed takes seconds per gigabyte, in which nothing would be sent. So first
// these are looked at. If half of their words changed, a patch may still be small: of BF16 weights of which nine tenths
// moved by a step or two it takes a quarter of their bytes. Then samples are encoded, which takes longer.
constexpr double kFewChanged = 0.5;
// A packed payload serves members on any version, so a dense patch is worth it if it is much smaller.
constexpr double kDenseOverPackedMax = 0.8;
// What a changed word takes in a patch, about: only what the chunk size is chosen by.
constexpr double kExpectedBytesPerWord = 1.0;

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

/// The source of a patch, or of a packed payload: complete versions of the store.
class VersionEncoding final : public PayloadSource {
 public:
  /// `base` is null for a packed payload.
  VersionEncoding(Jobs& jobs, FileSystem& files, MakePatchRequest request, const StoredVersion* base,
                  const StoredVersion& result)
      : jobs_(jobs),
        files_(files),
        request_(std::move(request)),
        base_path_(base != nullptr ? base->path : std::filesystem::path()),
        base_digest_(base != nullptr ? base->manifest.snapshot_digest : Checksum{}),
        base_files_(base != nullptr ? base->manifest.files : std::vector<SnapshotFile>()),
        base_is_tree_(base != nullptr && base->manifest.file_tree),
        result_path_(result.path),
        manifest_(result.manifest),
        snapshot_bytes_(result.manifest.snapshot_bytes()) {}

  Status open() override {
    WC_ASSIGN(result_, open_stored(files_, result_path_.string(), manifest_.files, manifest_.file_tree));
    if (is_packed()) {
      layouts_.result = layout_of(*result_);
      return look_at_result();
    }
    WC_ASSIGN(base_, open_stored(files_, base_path_.string(), base_files_, base_is_tree_));
    WC_ASSIGN(layouts_, layouts_of(*base_, *result_));
    return compare();
  }

  Result<Announcement> announce() override {
    manifest_.snapshot_tree = manifest_.tree_of_snapshot();  // of the full payload that it still is
    manifest_.kind = request_.payload.kind;
    manifest_.base_version = request_.payload.base;
    Announcement announcement =
        announce_encoded(manifest_,
                         {.expected_bytes = static_cast<std::uint64_t>(expected_share_ * double(snapshot_bytes_)),
                          .bytes_max = bytes_limit()},
                         request_.choose_chunk_bytes, request_.author);
    manifest_ = announcement.manifest;
    return announcement;
  }

  void begin(Store& store, std::function<void(Status)> done) override {
    store.begin_patch(request_.payload, [this, done = std::move(done)](const Result<std::filesystem::path>& path) {
      if (path.has_value()) path_ = *path;
      done(path.has_value() ? Status() : Status(path.error()));
    });
  }

  // Segments are encoded by threads of the encoder's own.
  [[nodiscard]] unsigned jobs() const override { return 1; }

  Status produce(const Report& report) override {
    PatchIdentity identity{request_.model_id, request_.payload.base, request_.payload.version, base_digest_,
                           manifest_.snapshot_digest};
    WC_ASSIGN(const PatchHead head, make_head(std::move(identity), layouts_.base, layouts_.result, segment_bytes()));
    WC_ASSIGN(EncodedFile file, EncodedFile::open(jobs_, files_, path_, manifest_.chunk_bytes, bytes_limit(), report));
    const Result<PatchSummary> summary = encode(head, [&](Bytes bytes) { return file.write(bytes); });
    if (!summary.has_value()) return summary.error();
    file.finish();
    return {};
  }

  // There is one job, and so no other that could fail.
  void stop() override {}

  Result<Checksum> end() override { return manifest_.snapshot_digest; }

  void finish(Store& store, const MadePayload& made, std::function<void(Status)> done) override {
    store.finish_patch(*made.manifest, made.chunk_digests, std::move(done));
  }

 private:
  [[nodiscard]] bool is_packed() const { return request_.payload.is_packed(); }
  [[nodiscard]] double share_max() const { return is_packed() ? kPackedShareMax : kPatchShareMax; }
  [[nodiscard]] std::uint64_t bytes_limit() const {
    return static_cast<std::uint64_t>(share_max() * double(snapshot_bytes_));
  }

  Result<PatchSummary> encode(const PatchHead& head, const PatchSink& sink) const {
    EncodeOptions options;
    options.threads = jobs_.loop().threads_per_job_max();
    options.sparse_form = SparseForm::kListed;
    const VersionSource after(*result_);
    const std::unique_ptr<ByteSource> before =
        base_ ? std::unique_ptr<ByteSource>(std::make_unique<VersionSource>(*base_))
              : std::make_unique<MemorySource>(Bytes());
    return encode_patch(head, *before, after, options, sink);
  }

  Status compare() {
    if (manifest_.file_tree) {
      // What stands at equal places says nothing of files that moved.
      WC_ASSIGN(expected_share_, sampled_patch_share());
      return check_expected_share();
    }
    WC_ASSIGN(const double changed, changed_share(*base_, *result_));
    if (changed < kFewChanged) {
      expected_share_ = changed / 2 * kExpectedBytesPerWord;
      return {};
    }
    if (!request_.may_be_dense) {
      return fail(Errc::kTooLarge, Op::kEncode, fmt::format("{:.0f} % of it has changed", 100 * changed));
    }
    WC_ASSIGN(expected_share_, sampled_patch_share());
    WC_ASSIGN(const double packed, packed_share(*result_));
    if (expected_share_ < kDenseOverPackedMax * packed) return check_expected_share();
    return fail(
        Errc::kTooLarge, Op::kEncode,
        fmt::format("it would take {:.0f} % of it, and packed it takes {:.0f} %", 100 * expected_share_, 100 * packed));
  }

  [[nodiscard]] Result<double> sampled_patch_share() const {
    WC_ASSIGN(const PatchHead head, make_head({}, layouts_.base, layouts_.result, segment_bytes()));
    return patch_share(head, *base_, *result_);
  }

  Status look_at_result() {
    WC_ASSIGN(expected_share_, packed_share(*result_));
    return check_expected_share();
  }

  [[nodiscard]] Status check_expected_share() const {
    if (expected_share_ < share_max()) return {};
    return fail(Errc::kTooLarge, Op::kEncode, fmt::format("it would take {:.0f} % of it", 100 * expected_share_));
  }

  [[nodiscard]] std::uint32_t segment_bytes() const {
    if (!is_packed()) return kPatchSegmentBytes;
    const std::uint64_t least = result_->size_bytes() / (kSegmentsMax / 2);
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(least, kPackedSegmentBytes, kPatchSegmentBytes));
  }

  Jobs& jobs_;
  FileSystem& files_;
  const MakePatchRequest request_;
  const std::filesystem::path base_path_;
  const Checksum base_digest_;
  const std::vector<SnapshotFile> base_files_;
  const bool base_is_tree_;
  const std::filesystem::path result_path_;
  Manifest manifest_;  // the result's, then the one that is announced
  const std::uint64_t snapshot_bytes_;
  std::filesystem::path path_;
  std::optional<SnapshotSource> base_, result_;
  LayoutPair layouts_;         // of these two
  double expected_share_ = 0;  // of the full payload
};

}  // namespace

void make_patch(Jobs& jobs, FileSystem& files, Store& store, MakePatchRequest request, PayloadObserver observer) {
  const StoredVersion* base = store.find(request.payload.base);
  const StoredVersion* result = store.find(request.payload.version);
  if (result == nullptr || (base == nullptr && !request.payload.is_packed())) {
    return jobs.post([done = std::move(observer.done)] {
      done(fail(Errc::kNotFound, Op::kEncode, "what it is made from is not in the store any more"));
    });
  }
  auto source = std::make_unique<VersionEncoding>(jobs, files, std::move(request), base, *result);
  std::make_shared<PayloadProducer>(jobs, store, std::move(source), std::move(observer))->start();
}

}  // namespace weightcast
