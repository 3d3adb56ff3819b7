#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/units.h"
#include "proto/protocol.h"
#include "transport/core/node_config.h"

namespace weightcast {

class ManifestTrust;

/// The greatest version of a run that a worker has installed.
struct AcceptedVersion {
  RunId run{};
  Version version{};

  bool operator==(const AcceptedVersion&) const = default;
};

/// What a worker may read from an archive, beside its parents (archive_download.h).
struct ArchiveLimits {
  Rate rate{};                       ///< of all that is read
  Rate below{};                      ///< only while parents bring less; without a limit always
  std::uint32_t ranges_at_once = 4;  ///< each takes a connection, and 8 MiB of memory at most

  bool operator==(const ArchiveLimits&) const = default;
};

/// An operator's choices for a worker.
struct WorkerOptions {
  Rate downlink{};
  bool leaf_only = false;
  bool standby = false;
  std::uint64_t snapshot_bytes_max = 4 * 1024 * kGiB;  ///< a larger one is refused before room is made for it
  bool takes_files = false;                            ///< also file trees, which may hold what programs execute
  bool single_copy = false;   ///< a patch takes the place of its base, which can be served no more then
  std::uint32_t streams = 1;  ///< connections to each parent
};

struct WorkerConfig : NodeConfig, WorkerOptions {
  RunId run{};                    ///< that what is restored is of; kNoRun: not known
  std::uint64_t incarnation = 0;  ///< random per process
  std::string origin_host;
  std::uint16_t origin_port = 0;
  std::string listen_host;  ///< "" or unspecified: the origin advertises the address that it sees
  std::uint16_t listen_port = 0;
  double unpack_bytes_per_s = 0;               ///< of packed payloads, by a sample; 0: not known
  std::optional<ArchiveLimits> archive;        ///< absent: there is none
  std::vector<AcceptedVersion> accepted;       ///< before this process; older versions are refused
  std::shared_ptr<const ManifestTrust> trust;  ///< null: manifests need no signature
  ProtocolRange protocols{};                   ///< that it speaks; a test's older node speaks fewer
};

}  // namespace weightcast
