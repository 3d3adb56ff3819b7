#include "transport/archive/archived_payloads.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "transport/archive/archive_index.h"
#include "transport/archive/archive_plan.h"
#include "transport/archive/archive_target.h"

namespace weightcast {
namespace {

// A worker has peers beside the archive, so it neither waits long nor tries again within a call.
constexpr StorageHttpLimits kReadLimits{.connect = std::chrono::milliseconds(5000),
                                        .stalled = std::chrono::seconds(10),
                                        .request = std::chrono::seconds(600),
                                        .attempts = 1};

class ArchivedPayloads final : public PayloadArchive {
 public:
  explicit ArchivedPayloads(std::unique_ptr<ObjectStore> objects) : objects_(std::move(objects)) {}

  /// Reads the index anew, as an archive grows. Errors: those of parse_index(), too.
  [[nodiscard]] Result<std::vector<ContentDigest>> find(const Manifest& manifest) override {
    WC_ASSIGN(const std::string text, objects_->read(kIndexObject, kIndexBytesMax));
    Result<ArchiveIndex> index = parse_index(text);
    if (!index.has_value()) return about(objects_->place_of(kIndexObject), index.error());
    const auto refuse = [&](Errc code, std::string why) {
      return fail(code, Op::kRead, objects_->place_of(kIndexObject) + ": " + std::move(why));
    };
    if (manifest.run != kNoRun && index->run != manifest.run) {
      return refuse(Errc::kNotFound, fmt::format("it is of run {}, and version {} of run {}", to_string(index->run),
                                                 manifest.version.value, to_string(manifest.run)));
    }
    const auto found = std::ranges::find(index->payloads, manifest.id(), &ArchivedPayload::id);
    if (found == index->payloads.end()) {
      return refuse(Errc::kNotFound, fmt::format("it does not have version {} whole, and leads to version {}",
                                                 manifest.version.value, newest_in(*index).value));
    }
    if (found->bytes != manifest.payload_bytes || found->chunk_bytes != manifest.chunk_bytes) {
      return refuse(Errc::kCorrupt,
                    fmt::format("its version {} has {} bytes in chunks of {}, and the origin's {} in chunks of {}",
                                manifest.version.value, found->bytes, found->chunk_bytes, manifest.payload_bytes,
                                manifest.chunk_bytes));
    }
    const std::string object = digests_object(index->run, manifest.id());
    std::vector<ContentDigest> digests(manifest.chunk_count());
    WC_ASSIGN(const std::string list, objects_->read(object, digests.size() * ContentDigest::kBytes));
    if (list.size() != digests.size() * ContentDigest::kBytes) {
      return fail(Errc::kCorrupt, Op::kRead, objects_->place_of(object) + ": it has another length than it should");
    }
    std::memcpy(digests.data(), list.data(), list.size());
    const std::lock_guard lock(mutex_);
    found_[manifest.version] = {index->run, index->object_bytes};
    return digests;
  }
  [[nodiscard]] Status read(const Manifest& manifest, std::uint64_t offset, std::uint64_t size,
                            const Sink& sink) override {
    Found found;
    {
      const std::lock_guard lock(mutex_);
      const auto at = found_.find(manifest.version);
      if (at == found_.end()) return fail(Errc::kNotFound, Op::kRead, "the version was not looked for");
      found = at->second;
    }
    while (size > 0) {
      const std::uint64_t number = offset / found.object_bytes;
      const std::uint64_t begin = number * found.object_bytes;
      const std::uint64_t object_bytes = std::min(found.object_bytes, manifest.payload_bytes - begin);
      const std::uint64_t bytes = std::min(size, object_bytes - (offset - begin));
      WC_TRY(objects_->read_range(data_object(found.run, manifest.id(), number), object_bytes, offset - begin, bytes,
                                  sink));
      offset += bytes;
      size -= bytes;
    }
    return {};
  }
  void stop() override { objects_->stop(); }

 private:
  struct Found {
    RunId run{};
    std::uint64_t object_bytes = 0;
  };

  const std::unique_ptr<ObjectStore> objects_;
  std::mutex mutex_;  // guards `found_`
  std::map<Version, Found> found_;
};

}  // namespace

Result<std::unique_ptr<PayloadArchive>> open_archived_payloads(FileSystem& files, const std::string& place) {
  WC_ASSIGN(std::unique_ptr<ObjectStore> objects, open_objects(files, place, kReadLimits));
  return std::unique_ptr<PayloadArchive>(std::make_unique<ArchivedPayloads>(std::move(objects)));
}

}  // namespace weightcast
