#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/digest/content_digest.h"
#include "base/files/file_system.h"
#include "base/result.h"
#include "transport/core/manifest/manifest.h"

namespace weightcast {

/// Where a worker's daemon finds full payloads beside the nodes: archive/ has one in object storage. What it says and
/// sends is not trusted. Any thread; calls block, and each wait has a bound.
class PayloadArchive {
 public:
  using Sink = std::function<Status(Bytes)>;

  PayloadArchive() = default;
  virtual ~PayloadArchive() = default;
  PayloadArchive(const PayloadArchive&) = delete;
  PayloadArchive& operator=(const PayloadArchive&) = delete;

  /// The digests of all chunks of a full payload that it has whole. Errors: kNotFound (it has not), kCorrupt (what it
  /// has is another one), kUnsupported, and those of the storage.
  [[nodiscard]] virtual Result<std::vector<ContentDigest>> find(const Manifest& manifest) = 0;
  /// `sink` gets bytes [offset, offset + size) of a payload that was found, in order and each once, as they come.
  /// Errors: those of `sink`, as above.
  [[nodiscard]] virtual Status read(const Manifest& manifest, std::uint64_t offset, std::uint64_t size,
                                    const Sink& sink) = 0;
  /// Calls under way fail within a second or two, and all later ones at once.
  virtual void stop() = 0;
};

/// Opens the archive at a place that a person named. Errors: kInvalidArgument, kUnsupported.
using OpenArchive = std::function<Result<std::unique_ptr<PayloadArchive>>(FileSystem&, const std::string& place)>;

}  // namespace weightcast
