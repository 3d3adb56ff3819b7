#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/digest/checksum.h"
#include "base/random.h"
#include "sim/host/sim_disk.h"
#include "sim/host/sim_file_system.h"
#include "sim/host/sim_loop.h"
#include "sim/verdict.h"
#include "sim/whole/cables.h"
#include "sim/host/run_version.h"
#include "sim/whole/weights.h"
#include "sim/whole/world.h"
#include "transport/node/node.h"

namespace weightcast::sim {

/// One machine: a disk, and the process on it while it runs. Members of the process are in the order in which they are
/// made.
struct Host {
  NodeIndex index = 0;
  DaemonConfig config;
  std::unique_ptr<SimFileSystem> disk;

  std::uint64_t process = 0;  ///< counts
  std::unique_ptr<SimLoop> loop;
  std::unique_ptr<weightcast::Network> network;
  SimDisk* chunks = nullptr;
  Store* store = nullptr;
  std::unique_ptr<Node> node;
  bool stopping = false;
  bool lost_power = false;           ///< and has not been started since
  std::optional<Fault> ends_with;    ///< killed in the middle of a change, by this
  std::optional<Fault> starts_with;  ///< what happens to its next start
  Instant stalled_until{};

  RunVersion durable;        ///< the latest that was reported so
  std::set<Version> rotten;  ///< a bit of it has changed at rest
  bool rotten_somewhere = false;
  /// Later versions that a bit went on to, since when they were seen: files of one version become those of the next.
  std::map<Version, Instant> wrong_since;
  bool has_sound_disk = true;  ///< which was never full, and never failed
  Instant disk_fails_until{};  ///< of its last kDiskErrors
  std::uint64_t checked_change = 0;
  PayloadId receiving{};
  std::uint64_t verified = 0;
  std::uint64_t early_bytes = 0;  ///< the most that waited to be verified, since its disk had room last

  struct OpenVersion {
    Version version{};
    std::uint64_t number = 0;
    std::map<std::string, std::unique_ptr<Mapping>> files;
    FileDigests digests;
    bool rotten = false;  ///< a bit has changed on the disk meanwhile
  };
  std::vector<OpenVersion> readers;
  std::uint64_t readers_so_far = 0;

  [[nodiscard]] bool runs() const { return node != nullptr; }
};

/// One run of a world. world_run.cpp starts and ends processes, and world_faults.cpp, world_publish.cpp and
/// world_invariants.cpp each hold what their names say.
class WorldRun {
 public:
  explicit WorldRun(const WorldOptions& options);
  ~WorldRun();

  [[nodiscard]] WorldResult run();

 private:
  // The lives of hosts.
  std::unique_ptr<Host> make_host(NodeIndex index);
  std::unique_ptr<SimFileSystem> make_disk(NodeIndex index);
  void start(Host& host);
  void start_later(Host& host, Duration after);
  /// Destroys what is there of the process, in the order in which the daemon does.
  void end_process(Host& host);
  void die(Host& host, const Fault& fault);
  /// What is to happen in the middle of the process's changes from now on.
  void arm(Host& host, const Fault& fault);
  /// Whether the process was to die in the middle of something, and has.
  bool bury(Host& host);
  void wipe(Host& host);
  void stop(Host& host, Duration back_after);
  /// Runs until `holds`, until that time, or until an invariant is broken. Whether it holds.
  bool run_until(Instant end, const std::function<bool()>& holds);

  // Faults.
  void begin(const Fault& fault);
  void begin(Host& host, const Fault& fault);
  void end(const Fault& fault);
  void rot(Host& host);
  /// Ends all faults.
  void calm();

  // Publications.
  void publish();
  /// Whether the next version is published as changes.
  [[nodiscard]] bool is_sparse();
  /// Publishes once more after the faults, and waits until everybody has it.
  void publish_last(unsigned tries = 3);

  // Readers.
  void open_current(const Reader& reader);
  void close_reader(Host& host, std::uint64_t number);

  // Invariants.
  /// What costs little: after every event.
  void check_step(Host& host);
  /// All that the disk shows, and what the node says of itself.
  void check_all(Host& host);
  void check_disk(Host& host);
  void check_node(Host& host);
  void check_version(Host& host, FileSystem& disk, const std::filesystem::path& directory, Version version);
  [[nodiscard]] bool over() const { return verdict_.violation().has_value(); }
  void violate(const Host& host, const std::string& what);
  void say(const Host& host, const std::string& what) { say(host.config.name + ": " + what); }
  void say(std::string event);

  const WorldOptions options_;
  Random random_;
  Random run_ids_;
  // Before the clock, whose events may hold open files.
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<FileSystem>> old_files_;
  SimClock clock_;
  Cables cables_;
  Weights weights_;
  Instant began_{};
  std::map<NodeIndex, RunVersion> host_current_;
  std::uint32_t run_ = 1;                                              // the trainer's; counts
  std::map<Version, std::map<std::uint32_t, FileDigests>> published_;  // or asked to be, by run
  std::set<RunVersion> refused_;
  Version last_number_{};
  std::optional<Version> free_number_;  // of what was refused
  Version last_published_{};
  std::vector<std::uint16_t> published_cells_;  // of that one
  bool whole_next_ = false;                     // after a refusal
  bool publishing_ = false;
  bool calm_ = false;
  unsigned failed_starts_ = 0;
  std::vector<Fault> lasting_;  // which have begun and not ended
  Verdict verdict_;
  WorldResult result_;
};

/// The files in a directory; none if it cannot be read.
[[nodiscard]] SnapshotFiles read_files(FileSystem& disk, const std::filesystem::path& directory);

/// Where each host keeps its node's state.
inline const std::filesystem::path kState = "/state";
inline const std::filesystem::path kVersionsInMemory =
    std::filesystem::path(SimFileSystem::kMemory) / "versions-of-node";

/// The version that a path ends with, as in versions/000000000007.
[[nodiscard]] Version version_of(const std::filesystem::path& path);
/// The versions that are visible in a state directory.
[[nodiscard]] std::vector<Version> versions_in(FileSystem& disk);

}  // namespace weightcast::sim
