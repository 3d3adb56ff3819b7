#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "archive/archive_index.h"
#include "archive/object_store.h"
#include "base/ids.h"
#include "transport/node/payload/payload_archive.h"

namespace weightcast {

/// An archive as a worker's daemon reads it: the versions that it has whole. The daemon checks all that comes of it
/// against a manifest that its origin has signed, so neither index nor digests count here but to find things.
class ArchivedPayloads final : public PayloadArchive {
 public:
  explicit ArchivedPayloads(std::unique_ptr<ObjectStore> objects) : objects_(std::move(objects)) {}

  /// Reads the index anew, as an archive grows. Errors: those of parse_index(), too.
  [[nodiscard]] Result<std::vector<ContentDigest>> find(const Manifest& manifest) override;
  [[nodiscard]] Status read(const Manifest& manifest, std::uint64_t offset, std::uint64_t size,
                            const Sink& sink) override;
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

/// OpenArchive of all places that open_objects() knows. A call is tried once: whoever reads has peers meanwhile.
[[nodiscard]] Result<std::unique_ptr<PayloadArchive>> open_archived_payloads(FileSystem& files,
                                                                             const std::string& place);

}  // namespace weightcast
