#include "sim/whole/world.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <utility>

#include "base/digest.h"
#include "sim/random.h"
#include "sim/sim_disk.h"
#include "sim/sim_file_system.h"
#include "sim/whole/planted_bugs.h"
#include "transport/core/worker/worker_core.h"
#include "transport/io/log.h"
#include "transport/node/node.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

constexpr std::uint16_t kPort = 7100;
constexpr Duration kRetry = std::chrono::milliseconds(500);
// After the faults: until somebody could publish, and from then on until everybody has it. What a worker is busy with
// when it is told of the last version may take the first half.
constexpr Duration kPublishLimit = std::chrono::seconds(90);
constexpr Duration kCatchUpLimit = std::chrono::seconds(180);
// One chunk of each connection that a worker may have had to a parent since its disk fell behind, beyond the bound.
constexpr std::uint64_t kStoringSlackBytes = 12 * 4 * kKiB;
// Between two looks at everything that every disk holds, in events.
constexpr std::uint64_t kLookEvery = 400;

const fs::path kState = "/state";

/// BF16 weights as training leaves them: few exponents, and a step moves some of the mantissas.
class Weights {
 public:
  Weights(Random& random, std::uint64_t bytes) : random_(random), cells_(bytes / 2) {
    for (std::uint16_t& cell : cells_) {
      const auto exponent = static_cast<std::uint16_t>(0x78 + std::min<std::uint64_t>(random_.below(7), 4));
      cell = static_cast<std::uint16_t>((random_.below(2) << 15) | (exponent << 7) | random_.below(128));
    }
  }

  void step(double changed_share) {
    const auto changes = static_cast<std::uint64_t>(changed_share * double(cells_.size()));
    for (std::uint64_t i = 0; i < changes; ++i) {
      cells_[random_.below(cells_.size())] ^= static_cast<std::uint16_t>(1 + random_.below(7));
    }
  }

  /// As a safetensors file of two tensors.
  [[nodiscard]] std::string file() const {
    const std::uint64_t half = cells_.size() / 2 * 2;
    const std::uint64_t all = cells_.size() * 2;
    std::string header = fmt::format(
        R"({{"a":{{"dtype":"BF16","shape":[{}],"data_offsets":[0,{}]}},"b":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}}}})",
        half / 2, half, (all - half) / 2, half, all);
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const std::uint64_t header_bytes = header.size();
    std::string out(sizeof header_bytes, '\0');
    std::memcpy(out.data(), &header_bytes, sizeof header_bytes);
    out += header;
    out.append(reinterpret_cast<const char*>(cells_.data()), all);
    return out;
  }

 private:
  Random& random_;
  std::vector<std::uint16_t> cells_;
};

/// One machine: a disk, and the process on it while it runs. Members of the process are in the order in which they are
/// made.
struct Host {
  HostIndex index = 0;
  DaemonConfig config;
  std::unique_ptr<SimFileSystem> disk;

  std::uint64_t process = 0;  // counts
  std::unique_ptr<HostLoop> loop;
  std::unique_ptr<Network> network;
  std::unique_ptr<FileSystem> buggy_files;
  SimDisk* chunks = nullptr;
  std::unique_ptr<Node> node;
  bool recovering = false;
  bool stopping = false;
  bool lost_power = false;             // and has not been started since
  std::optional<HostFault> ends_with;  // killed in the middle of a change, by this

  Version durable{};         // the latest that was reported so
  std::set<Version> rotten;  // a bit of it has changed at rest
  bool rotten_somewhere = false;
  std::uint64_t looked_at_change = 0;
  PayloadId receiving{};
  std::uint64_t verified = 0;
  std::uint64_t early_bytes = 0;  // the most that waited to be verified, since its disk had room last

  [[nodiscard]] bool runs() const { return node != nullptr; }
};

class World {
 public:
  explicit World(const WorldOptions& options)
      : options_(options),
        random_(options.seed),
        clock_(random_.next()),
        cables_(clock_, random_.next(), static_cast<std::uint32_t>(options.hosts.size())),
        weights_(random_, options.snapshot_bytes) {
    using Kind = HostFault::Kind;
    disks_are_sound_ = std::ranges::none_of(options.faults, [](const HostFault& fault) {
      return fault.kind == Kind::kNoSpace || fault.kind == Kind::kDiskErrors || fault.kind == Kind::kBitRot;
    });
    if (options.bug == PlantedBug::kIgnoredPause) cables_.ignore_pauses();
    for (HostIndex i = 0; i < options.hosts.size(); ++i) hosts_.push_back(make_host(i));
  }

  ~World() {
    for (auto& host : hosts_) end_process(*host);
  }

  WorldResult run() {
    began_ = clock_.now();
    for (auto& host : hosts_) start(*host);
    for (const HostFault& fault : options_.faults) clock_.at(began_ + fault.at, [this, fault] { begin(fault); });
    for (const Duration at : options_.publish_at) clock_.at(began_ + at, [this] { publish(); });
    clock_.at(began_ + options_.calm_at, [this] { calm(); });
    run_until(began_ + options_.calm_at + Duration(1), [] { return false; });
    publish_last();
    for (auto& host : hosts_) look_at_all(*host);
    result_.counts.hash =
        result_.counts.hash * 31 + static_cast<std::uint64_t>(clock_.now().time_since_epoch().count());
    return result_;
  }

 private:
  // --- The hosts' lives ----------------------------------------------------------------------------------------------

  std::unique_ptr<Host> make_host(HostIndex index) {
    const HostOptions& options = options_.hosts[index];
    auto host = std::make_unique<Host>();
    host->index = index;
    host->disk = std::make_unique<SimFileSystem>(random_.next());
    DaemonConfig& config = host->config;
    config.role = index == 0 ? Role::kOrigin : Role::kWorker;
    config.state = kState;
    config.listen = {Cables::address_of(index), kPort};
    if (index != 0) config.origin = Endpoint{Cables::address_of(0), kPort};
    config.name = index == 0 ? "origin" : fmt::format("w{}", index);
    config.model_id = "model";
    config.uplink = options.uplink;
    config.downlink = options.uplink;
    config.topology = options_.topology;
    config.packing = options_.packing;
    config.versions_kept = options.versions_kept;
    config.single_copy = options.single_copy;
    config.standby = options.standby;
    config.leaf_only = options.leaf_only;
    config.streams = options.streams;
    config.storing_bytes_max = options_.storing_bytes_max;
    cables_.set_uplink(index, options.uplink);
    cables_.set_latency(index, options.latency);
    return host;
  }

  void start(Host& host) {
    if (host.runs() || over()) return;
    ++result_.counts.starts;
    ++host.process;
    host.disk->restart();
    cables_.power_on(host.index);
    host.loop = std::make_unique<HostLoop>(clock_, random_.next());
    host.network = cables_.attach(host.index, *host.loop);
    FileSystem* files = host.disk.get();
    if (options_.bug == PlantedBug::kForgottenDirectorySync) {
      host.buggy_files = forget_directory_syncs(*files);
      files = host.buggy_files.get();
    } else if (options_.bug == PlantedBug::kBelievedRecord) {
      host.buggy_files = mark_records_durable(*files, &host.recovering);
      files = host.buggy_files.get();
    }
    const auto open_store = [this, &host, files](StoreOptions options) -> Result<std::unique_ptr<Store>> {
      auto disk = std::make_unique<SimDisk>(clock_, options_.hosts[host.index].disk_delay_max);
      host.chunks = disk.get();
      WC_ASSIGN(std::unique_ptr<Store> store, Store::open(*host.loop, *files, std::move(options), std::move(disk)));
      if (options_.bug == PlantedBug::kForgottenBase) store = forget_bases(std::move(store));
      return store;
    };
    host.recovering = true;
    Result<std::unique_ptr<Node>> node =
        open_node(host.config, {*host.loop, *host.network, *files, open_store, [this] { return random_.next(); }});
    host.recovering = false;
    if (!node.has_value()) {
      say(host, "did not start: " + node.error().message());
      if (calm_ && ++failed_starts_ > 20) violate(host, "does not start: " + node.error().message());
      end_process(host);
      // A bit of the record's form makes it another release's: the node refuses, and a person gives it a new directory.
      if (node.error().code == Errc::kUnsupported && host.rotten_somewhere) wipe(host);
      return start_later(host, kRetry);
    }
    host.node = std::move(*node);
    host.lost_power = false;
    say(host, fmt::format("started with version {}", host.node->store().current().value));
    if (host.node->store().current() < host.durable && !host.rotten_somewhere) {
      violate(host, fmt::format("version {} was reported durable, and after the start version {} is current",
                                host.durable.value, host.node->store().current().value));
    }
    host.receiving = {};
    look_at_all(host);
  }

  void start_later(Host& host, Duration after) {
    clock_.at(clock_.now() + after, [this, &host] { start(host); });
  }

  /// Destroys what is there of the process, in the order in which the daemon does.
  void end_process(Host& host) {
    host.node.reset();
    host.chunks = nullptr;
    host.network.reset();
    if (host.buggy_files) old_files_.push_back(std::move(host.buggy_files));
    host.loop.reset();
    host.stopping = false;
    host.ends_with.reset();
    if (host.index == 0) publishing_ = false;
  }

  void die(Host& host, HostFault::Kind how, Duration back_after) {
    if (!host.runs()) return;
    say(host, how == HostFault::Kind::kPowerCut ? "loses power" : "is killed");
    cables_.silence(host.index);
    if (how == HostFault::Kind::kPowerCut) {
      cables_.power_cut(host.index);
      host.disk->power_cut();
      host.lost_power = true;
    } else {
      host.disk->kill();
    }
    end_process(host);
    if (how == HostFault::Kind::kWipe) wipe(host);
    start_later(host, back_after);
  }

  void wipe(Host& host) {
    old_files_.push_back(std::exchange(host.disk, std::make_unique<SimFileSystem>(random_.next())));
    host.durable = {};
    host.rotten.clear();
    host.rotten_somewhere = false;
  }

  void stop(Host& host, Duration back_after) {
    if (!host.runs() || host.stopping) return;
    say(host, "is stopped");
    host.stopping = true;
    host.node->stop("it was stopped");
    clock_.at(clock_.now() + Node::kGoodbye, [this, &host, back_after, process = host.process] {
      if (host.process != process || !host.runs()) return;
      end_process(host);
      start_later(host, back_after);
    });
  }

  // --- Faults --------------------------------------------------------------------------------------------------------

  void begin(const HostFault& fault) {
    using Kind = HostFault::Kind;
    Host& host = *hosts_[fault.host];
    const Instant now = clock_.now();
    const auto after = [this, &fault](std::function<void()> task) {
      clock_.at(clock_.now() + fault.lasts, std::move(task));
    };
    say(host, fmt::format("fault {}", static_cast<int>(fault.kind)));
    switch (fault.kind) {
      case Kind::kKill:
      case Kind::kPowerCut:
      case Kind::kWipe:
        if (fault.changes_later == 0 || !host.runs()) return die(host, fault.kind, fault.lasts);
        host.ends_with = fault;
        host.disk->kill_before_change(host.disk->changes() + fault.changes_later);
        break;
      case Kind::kStop: return stop(host, fault.lasts);
      case Kind::kNoSpace: {
        host.disk->set_capacity(host.disk->used_bytes() + random_.below(options_.snapshot_bytes));
        after([&host] { host.disk->set_capacity(SimFileSystem::kUnlimited); });
        break;
      }
      case Kind::kDiskErrors: {
        FileFaults faults;
        faults.error = 0.02;
        faults.no_space = 0.01;
        faults.short_io = 0.2;
        // A version that cannot be read at a start is thrown away, and fetched again.
        host.rotten_somewhere = true;
        host.disk->set_faults(faults);
        after([&host] { host.disk->set_faults({}); });
        break;
      }
      case Kind::kStalledDisk:
        if (!host.runs()) return;
        host.chunks->stall_until(now + fault.lasts);
        host.loop->stall_until(now + fault.lasts);
        break;
      case Kind::kBitRot: return rot(host);
      case Kind::kIsolate:
        for (HostIndex i = 0; i < hosts_.size(); ++i) {
          if (i != fault.host) cables_.partition(fault.host, i, now + fault.lasts);
        }
        break;
      case Kind::kPartition: cables_.partition(fault.host, fault.other, now + fault.lasts); break;
      case Kind::kReset: cables_.reset(fault.host, fault.other); break;
      case Kind::kSlowUplink:
        cables_.set_uplink(fault.host, Rate{options_.hosts[fault.host].uplink.bytes_per_s / 50});
        after([this, i = fault.host] { cables_.set_uplink(i, options_.hosts[i].uplink); });
        break;
      case Kind::kCorrupt:
        cables_.set_corruption(fault.host, 0.1);
        after([this, i = fault.host] { cables_.set_corruption(i, 0); });
        break;
    }
  }

  void rot(Host& host) {
    std::vector<fs::path> files;
    host.disk->observe([&](FileSystem& disk) {
      for (const char* folder : {"versions", "patches", "incoming", "records", "undo"})
        list_files(disk, kState / folder, files);
    });
    if (files.empty()) return;
    const fs::path victim = files[random_.below(files.size())];
    const std::uint64_t size =
        host.disk->observe([&](FileSystem& disk) { return disk.info(victim).value_or(FileInfo{}).size_bytes; });
    if (size == 0) return;
    say(host, "a bit changes in " + victim.string());
    host.disk->flip_bit(victim, random_.below(size), static_cast<unsigned>(random_.below(8)));
    host.rotten_somewhere = true;
    for (const std::uint64_t version : versions_on(host)) host.rotten.insert(Version{version});
    host.rotten.insert(version_of(victim.parent_path()));  // of one that is arriving
  }

  static void list_files(FileSystem& disk, const fs::path& folder, std::vector<fs::path>& out) {
    const auto names = disk.list(folder);
    if (!names.has_value()) return;
    for (const std::string& name : *names) {
      const auto info = disk.link_info(folder / name);
      if (info.has_value() && info->is_directory()) list_files(disk, folder / name, out);
      if (info.has_value() && info->is_file()) out.push_back(folder / name);
    }
  }

  void calm() {
    calm_ = true;
    say(*hosts_[0], "all faults have ended");
    for (auto& host : hosts_) {
      host->disk->set_faults({});
      host->disk->set_capacity(SimFileSystem::kUnlimited);
      if (host->ends_with) die(*host, host->ends_with->kind, Duration(1));
      start(*host);
    }
  }

  // --- Publishing ----------------------------------------------------------------------------------------------------

  void publish() {
    Host& origin = *hosts_[0];
    if (publishing_ || over()) return;
    if (!origin.runs() || origin.stopping) return;
    const Version version{++last_number_};
    weights_.step(options_.changed_share);
    const std::string file = weights_.file();
    published_[version] = digest_of(std::as_bytes(std::span(file)));
    const fs::path source = fmt::format("/trainer/{}.safetensors", version.value);
    origin.disk->observe([&](FileSystem& disk) {
      static_cast<void>(make_directories(disk, "/trainer"));
      for (const std::string& old : disk.list("/trainer").value_or(std::vector<std::string>{})) {
        static_cast<void>(disk.remove("/trainer/" + old));
      }
      auto made = disk.open(source, {.write = true, .create = Create::kEmpty});
      if (made.has_value()) static_cast<void>(write_fully(**made, 0, std::as_bytes(std::span(file)), "source"));
    });
    local::PublishRequest request;
    request.set_path(source);
    request.set_version(version.value);
    publishing_ = true;
    say(origin, fmt::format("is asked to publish version {}", version.value));
    origin.node->publish(request,
                         [this, version, &origin, process = origin.process](const Result<std::uint64_t>& taken) {
                           if (process != origin.process)
                             return violate(origin, "a publication called back after its process had ended");
                           publishing_ = false;
                           if (taken.has_value()) {
                             ++result_.counts.published;
                             last_published_ = version;
                             say(origin, fmt::format("has published version {}", version.value));
                           } else {
                             ++result_.counts.refused;
                             refused_.insert(version);
                             say(origin, fmt::format("refused version {}: {}", version.value, taken.error().message()));
                           }
                         });
  }

  void publish_last() {
    if (over()) return;
    const Version before = last_published_;
    std::function<void()> again = [&] {
      if (last_published_ != before || over()) return;
      publish();
      clock_.at(clock_.now() + kRetry, again);
    };
    // What was under way when the faults ended may end first.
    clock_.at(clock_.now() + kRetry, again);
    if (!run_until(clock_.now() + kPublishLimit, [&] { return last_published_ != before; })) {
      if (!over()) violate(*hosts_[0], "nothing can be published after the faults have ended");
      return;
    }
    const Version last = last_published_;
    const auto everybody = [&] {
      return std::ranges::all_of(hosts_, [&](const auto& host) {
        return host->config.standby || (host->runs() && host->node->store().current() == last);
      });
    };
    const bool reached = run_until(clock_.now() + kCatchUpLimit, everybody);
    again = nullptr;
    if (reached || over()) return;
    for (const auto& host : hosts_) {
      if (host->config.standby) continue;
      const Version has = host->runs() ? host->node->store().current() : kNoVersion;
      if (has == last) continue;
      violate(*host, fmt::format("has version {} and not {}, long after the faults have ended: {}", has.value,
                                 last.value, state_of(*host)));
      return;
    }
  }

  static std::string state_of(Host& host) {
    if (!host.runs()) return "it does not run";
    const local::NodeStatus self = host.node->status().nodes(0);
    return fmt::format("{}, has {} of {} chunks of version {} from {}, last error: {}", self.state(),
                       self.chunks_verified(), self.chunks_total(), self.receiving_version(), self.parent(),
                       self.last_error());
  }

  // --- Running, and looking ------------------------------------------------------------------------------------------

  bool run_until(Instant end, const std::function<bool()>& holds) {
    while (!over() && !holds()) {
      if (clock_.now() >= end || !clock_.run_one()) return holds();
      ++result_.counts.events;
      for (auto& host : hosts_) {
        if (host->runs() && host->disk->killed()) {
          const HostFault fault = host->ends_with.value_or(HostFault{HostFault::Kind::kKill});
          die(*host, fault.kind, fault.lasts);
        }
        if (host->runs()) look(*host);
      }
      if (result_.counts.events % kLookEvery == 0)
        look_at_all(*hosts_[result_.counts.events / kLookEvery % hosts_.size()]);
    }
    return !over() && holds();
  }

  /// What costs little: after every event.
  void look(Host& host) {
    const std::uint64_t storing = host.node->driver().storing_bytes();
    if (storing <= options_.storing_bytes_max) host.early_bytes = 0;
    // What waited in memory goes to the disk all at once, when the origin has said what it is.
    if (storing > options_.storing_bytes_max + kStoringSlackBytes + host.early_bytes) {
      violate(host, fmt::format("{} bytes are on their way to the disk, at most {} should be", storing,
                                options_.storing_bytes_max));
    }
    if (const auto* worker = dynamic_cast<const WorkerCore*>(&host.node->core())) {
      host.early_bytes = std::max<std::uint64_t>(host.early_bytes, worker->intake().early_bytes());
    }
    if (host.disk->changes() == host.looked_at_change) return;
    host.looked_at_change = host.disk->changes();
    const Version current = host.node->store().current();
    if (const StoredVersion* stored = host.node->store().find(current); stored != nullptr && stored->durable) {
      host.durable = std::max(host.durable, current);
    }
    if (current != host_current_[host.index]) {
      host_current_[host.index] = current;
      if (const StoredVersion* stored = host.node->store().find(current)) {
        const PayloadId by = stored->manifest.id();
        ++(by.is_packed() ? result_.counts.packed : by.is_patch() ? result_.counts.patches : result_.counts.full);
      }
      result_.counts.hash = result_.counts.hash * 31 + current.value * 7 + host.index;
      look_at_all(host);
    }
  }

  /// All that the disk shows, and what the node says of itself.
  void look_at_all(Host& host) {
    if (over()) return;
    // After a power cut `current` may name what was torn, until the next start has looked at it.
    if (host.runs() || !host.lost_power) look_at_disk(host);
    if (host.runs()) look_at_node(host);
  }

  void look_at_disk(Host& host) {
    host.disk->observe([&](FileSystem& disk) {
      const auto link = disk.read_link(kState / "current");
      if (link.has_value() && exists(disk, kState / "current"))
        look_at_version(host, disk, kState / "current", version_of(*link));
      if (host.config.single_copy) return;  // its files change in place, and `current` leads nowhere meanwhile
      for (const std::uint64_t version : versions_in(disk)) {
        look_at_version(host, disk, kState / "versions" / fmt::format("{:012}", version), Version{version});
      }
    });
  }

  void look_at_node(Host& host) {
    for (const auto& [payload, holding] : host.node->core().holdings()) {
      if (!holding.complete()) continue;
      const Store& store = host.node->store();
      const auto is_it = [payload](const auto& stored) { return stored.manifest.id() == payload; };
      const bool there =
          payload.is_full() ? store.find(payload.version) != nullptr : std::ranges::any_of(store.patches(), is_it);
      if (!there && std::ranges::none_of(store.partial(), is_it)) {
        violate(host, fmt::format("may be asked for {}, which its store does not have", to_string(payload)));
      }
    }
    const auto* worker = dynamic_cast<const WorkerCore*>(&host.node->core());
    if (worker == nullptr) return;
    const PayloadId receiving = worker->receiving();
    const std::uint64_t verified = worker->intake().chunks_verified();
    if (disks_are_sound_ && receiving != PayloadId{} && receiving == host.receiving && verified < host.verified) {
      violate(host, fmt::format("{} chunks of {} were verified, and now {} are", host.verified, to_string(receiving),
                                verified));
    }
    host.receiving = receiving;
    host.verified = verified;
  }

  static Version version_of(const fs::path& target) {
    return Version{std::strtoull(target.filename().c_str(), nullptr, 10)};
  }

  static std::vector<std::uint64_t> versions_in(FileSystem& disk) {
    std::vector<std::uint64_t> found;
    for (const std::string& name : disk.list(kState / "versions").value_or(std::vector<std::string>{})) {
      found.push_back(std::strtoull(name.c_str(), nullptr, 10));
    }
    return found;
  }
  static std::vector<std::uint64_t> versions_on(Host& host) {
    return host.disk->observe([](FileSystem& disk) { return versions_in(disk); });
  }

  void look_at_version(Host& host, FileSystem& disk, const fs::path& directory, Version version) {
    if (host.rotten.contains(version)) return;
    const auto names = disk.list(directory);
    if (!names.has_value() || names->size() != 1) {
      return violate(host, fmt::format("{} does not hold the one file of a version", directory.string()));
    }
    const auto expected = published_.find(version);
    if (expected == published_.end())
      return violate(host, fmt::format("version {} was never published", version.value));
    if (refused_.contains(version)) {
      return violate(host, fmt::format("has version {}, which was refused", version.value));
    }
    const auto text = read_file(disk, directory / names->front(), 64 * kMiB);
    if (!text.has_value()) return violate(host, "cannot read what it shows: " + text.error().message());
    if (digest_of(std::as_bytes(std::span(*text))) != expected->second) {
      violate(host, fmt::format("{} is not what was published as version {}", directory.string(), version.value));
    }
  }

  [[nodiscard]] bool over() const { return result_.violation.has_value(); }

  void violate(const Host& host, const std::string& what) {
    if (over()) return;
    result_.violation = fmt::format("seed {}, {:.6f} s, {}: {}", options_.seed, to_seconds(clock_.now() - began_),
                                    host.config.name, what);
    log_info("VIOLATION {}", *result_.violation);
  }

  void say(const Host& host, const std::string& what) const {
    log_info("{:.6f} {}: {}", to_seconds(clock_.now() - began_), host.config.name, what);
  }

  const WorldOptions options_;
  Random random_;
  // Before the clock, whose events may hold open files.
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<std::unique_ptr<FileSystem>> old_files_;
  SimLoop clock_;
  Cables cables_;
  Weights weights_;
  Instant began_{};
  std::map<HostIndex, Version> host_current_;
  std::map<Version, Digest> published_;  // or asked to be
  std::set<Version> refused_;
  std::uint64_t last_number_ = 0;
  Version last_published_{};
  bool publishing_ = false;
  bool calm_ = false;
  bool disks_are_sound_ = true;  // never full, never wrong
  unsigned failed_starts_ = 0;
  WorldResult result_;
};

}  // namespace

WorldResult::Counts& WorldResult::Counts::operator+=(const Counts& other) {
  events += other.events;
  published += other.published;
  refused += other.refused;
  starts += other.starts;
  patches += other.patches;
  packed += other.packed;
  full += other.full;
  hash += other.hash;
  return *this;
}

WorldResult simulate(const WorldOptions& options) { return World(options).run(); }

}  // namespace weightcast::sim
