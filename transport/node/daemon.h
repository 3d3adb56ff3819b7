#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/admission.h"
#include "base/peer_identity.h"
#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/units.h"
#include "transport/core/node_config.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/worker/worker_config.h"
#include "transport/io/disk/disk.h"
#include "transport/node/payload/packing_speed.h"
#include "transport/node/payload/payload_archive.h"
#include "transport/node/versions_place.h"
#include "transport/security/node_keys.h"

namespace weightcast {

/// Everything that `weightcast daemon` can be told. Names are those of the flags and of the config file. `name` is the
/// host's by default.
struct DaemonConfig : NodeConfig, OriginOptions, WorkerOptions {
  Role role = Role::kWorker;
  std::string state;                ///< directory of this daemon alone
  Endpoint listen{"127.0.0.1", 0};  ///< port 0: a free one, told by `status` and in the log
  std::optional<Endpoint> origin;   ///< worker only
  bool pace = true;                 ///< false: the rates inform the plan, the network enforces them
  PackingSpeed packing_speed;       ///< of this host; run_daemon() measures it
  VersionsIn versions_in = VersionsIn::kAuto;
  std::string memory_dir = "/dev/shm";            ///< a file system in memory
  std::optional<std::uint64_t> memory_bytes_max;  ///< that kAuto may take of it
  StorePlace place;                               ///< run_daemon() sets it
  /// Origin only: with versions in memory the disk gets a whole one when the newest is so many numbers further.
  std::uint32_t keep_durable_every = 16;
  std::string congestion;  ///< "" leaves the host's default
  DiskBackend disk = DiskBackend::kAuto;
  unsigned threads = 0;  ///< that take over, pack, unpack, compare and recover; 0: half of the usable cores, at most 8
  AdmissionLimits admission;                             ///< run_daemon() sets it by the descriptors that there are
  std::uint64_t storing_bytes_max = 24 * kMiB;           ///< of chunks on their way to the disk
  Duration single_copy_wait = std::chrono::seconds(60);  ///< a patch waits so long at most for the only copy
  std::string archive;           ///< worker only: where full payloads may be read beside peers; "": nowhere
  ArchiveLimits archive_limits;  ///< worker only
  std::string keys;              ///< file of this node's keys; "": connections are not encrypted, and stay on loopback
  std::string enroll;          ///< origin only: directory with the key and the tokens that enrol workers; "": none are
  std::string api_group;       ///< whose members may use the local socket, too; "": the daemon's user alone
  bool insecure = false;       ///< without keys beyond loopback, too
  Duration version_age_max{};  ///< worker only: since an announced version was published; 0: any
  std::int64_t keys_expire_unix_s = 0;  ///< run_daemon() sets it by the keys; 0: there are none
};

/// Checks what can be checked without touching the host. Errors: kInvalidArgument, kNotAllowed.
[[nodiscard]] Status validate(const DaemonConfig& config);
/// Whether `keys` are for the node that `config` describes; gives it their name if it has none.
/// Errors: kInvalidArgument (another name), kNotAllowed (another role).
[[nodiscard]] Status fit_to_keys(DaemonConfig& config, const NodeKeys& keys);

/// From the signal to the end of the process, at most: a second for goodbyes, the rest for a disk that is slow.
inline constexpr Duration kStopTimeout = std::chrono::seconds(4);

/// A daemon's configuration, read anew.
struct ReadAgain {
  DaemonConfig config;
  std::vector<std::string> changes;  ///< what differs, a line each
  std::function<void()> taken;       ///< to be called once it counts
};

/// Gives `config` what may change while a daemon runs: uplink, downlink, snapshot_bytes_max, archive_limits,
/// addresses_allowed and version_age_max.
void take_reloaded(DaemonConfig& config, const DaemonConfig& read);

/// Reads it. Errors: those of the file; kNotAllowed, which names what may not change while the daemon runs: all but
/// what take_reloaded() takes.
using ReadConfig = std::function<Result<ReadAgain>()>;

/// Runs a node until SIGINT or SIGTERM, and for kStopTimeout longer at most, whatever is under way: what a job or the
/// disk has not ended by then is cut off, as kill -9 would. Blocks. `open_archive` opens config.archive. `when_open`
/// runs once, on this thread, when the node and its local socket listen, before anything is answered. `read_config` is
/// asked at SIGHUP, and for `weightcast reload`; the keys and the list of revoked ones are read with it. Errors: what
/// kept it from starting, those of `when_open`.
[[nodiscard]] Status run_daemon(DaemonConfig config, OpenArchive open_archive = {},
                                const std::function<Status()>& when_open = {}, const ReadConfig& read_config = {});

}  // namespace weightcast
