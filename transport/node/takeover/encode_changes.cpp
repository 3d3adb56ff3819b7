#include "transport/node/takeover/encode_changes.h"

#include <utility>

#include "patch/codec/listed.h"
#include "transport/node/payload/encoded_payload.h"

namespace weightcast {
namespace {

/// The source of a patch: lists of changes, with the old values.
class ChangesEncoding final : public PayloadSource {
 public:
  ChangesEncoding(Jobs& jobs, FileSystem& files, EncodeChangesRequest request)
      : jobs_(jobs), files_(files), request_(std::move(request)) {}

  Status open() override { return {}; }

  Result<Announcement> announce() override {
    Announcement announcement = announce_encoded(
        patch().manifest, {.expected_bytes = request_.expected_bytes, .bytes_max = request_.bytes_limit},
        request_.choose_chunk_bytes, request_.author);
    chunk_bytes_ = announcement.manifest.chunk_bytes;
    return announcement;
  }

  void begin(Store& store, std::function<void(Status)> done) override {
    store.begin_patch(patch().manifest.id(), [this, done = std::move(done)](const Result<std::filesystem::path>& path) {
      if (path.has_value()) path_ = *path;
      done(path.has_value() ? Status() : Status(path.error()));
    });
  }

  // Segments are encoded by threads of the encoder's own.
  [[nodiscard]] unsigned jobs() const override { return 1; }

  Status produce(const Report& report) override {
    WC_ASSIGN(EncodedFile file, EncodedFile::open(jobs_, files_, path_, chunk_bytes_, request_.bytes_limit, report));
    const auto new_maker = [this]() -> SegmentMaker {
      return [this, encoder = std::make_shared<ListedEncoder>()](const SegmentRange& range) {
        return make(range, *encoder);
      };
    };
    const Result<PatchSummary> summary = write_patch(patch().head, jobs_.loop().threads_per_job_max(), new_maker,
                                                     [&](Bytes bytes) { return file.write(bytes); });
    if (!summary.has_value()) return summary.error();
    file.finish();
    return {};
  }

  // There is one job, and so no other that could fail.
  void stop() override {}

  Result<Checksum> end() override { return patch().manifest.snapshot_digest; }

  void finish(Store& store, const MadePayload& made, std::function<void(Status)> done) override {
    store.finish_patched_import(*made.manifest, made.chunk_digests,
                                [done = std::move(done)](const Result<StoredVersion>& stored) {
                                  done(stored.has_value() ? Status() : Status(stored.error()));
                                },
                                {patch().leaves, patch().step});
  }

 private:
  [[nodiscard]] PatchToEncode& patch() { return request_.patch; }

  Result<EncodedSegment> make(const SegmentRange& range, ListedEncoder& encoder) {
    EncodedSegment& encoded = patch().encoded[range.index];
    if (!encoded.frame.empty()) return std::exchange(encoded, {});
    const CellChanges& changes = *patch().step->segments[range.index];
    const std::vector<std::byte> old_values = std::exchange(patch().old_values[range.index], {});
    EncodedSegment made;
    WC_ASSIGN(made.header, encoder.encode(range, changes.cells, old_values, changes.values, made.frame));
    return made;
  }

  Jobs& jobs_;
  FileSystem& files_;
  EncodeChangesRequest request_;
  std::uint32_t chunk_bytes_ = 0;
  std::filesystem::path path_;
};

}  // namespace

void encode_changes(Jobs& jobs, FileSystem& files, Store& store, EncodeChangesRequest request,
                    PayloadObserver observer) {
  auto source = std::make_unique<ChangesEncoding>(jobs, files, std::move(request));
  std::make_shared<PayloadProducer>(jobs, store, std::move(source), std::move(observer))->start();
}

}  // namespace weightcast
