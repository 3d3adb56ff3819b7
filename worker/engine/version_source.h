#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

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

/// Where versions come from. One thread.
class VersionSource {
 public:
  virtual ~VersionSource() = default;
  /// Nothing if none came in time.
  [[nodiscard]] virtual Result<std::optional<VersionEvent>> next(std::chrono::milliseconds timeout) = 0;
  /// The files of a version, which stay as they are until unpin(). Errors: kNotFound (gone; a newer one will come), and
  /// others that may pass.
  [[nodiscard]] virtual Result<PinnedVersion> pin(VersionName name) = 0;
  /// Does nothing where the pin is gone.
  virtual void unpin(VersionName name) = 0;
};

/// The daemon whose state directory this is, by the client library. Connects with the first call of next(), and again
/// after an error.
[[nodiscard]] std::unique_ptr<VersionSource> subscribe_to_versions(std::string state_directory);

}  // namespace weightcast
