#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"
#include "base/result.h"
#include "worker/engine/version_policy.h"

namespace weightcast {

struct VersionEvent {
  enum class Kind : std::uint8_t {
    kInstalled,     ///< the daemon has this version
    kPreparing,     ///< the daemon is about to change the files of the version in use: --single-copy
    kDisconnected,  ///< all pins are gone
  };
  Kind kind = Kind::kInstalled;
  VersionName name;
};

struct PinnedVersion {
  std::string directory;
  std::string digest;  ///< of the snapshot, in hexadecimal digits
};

/// The elements of one tensor that have new values.
struct ListedTensor {
  std::string_view name, dtype;
  Bytes indices;  ///< row-major, of `index_bytes` each: 4 or 8
  unsigned index_bytes = 4;
  Bytes values;  ///< one element of `dtype` for each
};
/// What leads from one version to another. Its arrays belong to `owner`.
struct VersionList {
  std::vector<ListedTensor> tensors;
  std::shared_ptr<const void> owner;
};

/// Where versions come from. One thread.
class VersionSource {
 public:
  virtual ~VersionSource() = default;
  /// Nothing if none came in time.
  [[nodiscard]] virtual Result<std::optional<VersionEvent>> next(std::chrono::milliseconds timeout) = 0;
  /// The files of a version, which stay as they are until unpin(). Errors: kNotFound (gone; a newer one will come), and
  /// others that may pass.
  [[nodiscard]] virtual Result<PinnedVersion> pin(VersionName name) = 0;
  /// What leads from a version, of that digest, to one that is pinned. Errors: kTooFar (the files are the shorter way),
  /// and others that may pass.
  [[nodiscard]] virtual Result<VersionList> changes(VersionName from, const std::string& digest,
                                                    VersionName pinned) = 0;
  /// Does nothing where the pin is gone.
  virtual void unpin(VersionName name) = 0;
};

/// The daemon whose state directory this is, by the client library. Connects with the first call of next(), and again
/// after an error.
[[nodiscard]] std::unique_ptr<VersionSource> subscribe_to_versions(std::string state_directory);

}  // namespace weightcast
