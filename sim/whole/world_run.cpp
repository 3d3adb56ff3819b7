#include "sim/whole/world_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "sim/stand_ins.h"

namespace weightcast::sim {
namespace {

constexpr Duration kRetry = std::chrono::milliseconds(500);
// Between two looks at everything that every disk holds, in events.
constexpr std::uint64_t kCheckEvery = 400;

NetworkOptions network_of(const WorldOptions& options) {
  NetworkOptions network = options.network;
  network.worker_downlink = {};
  for (NodeIndex i = 0; i < options.hosts.size(); ++i) {
    network.uplinks[i] = options.hosts[i].uplink;
    network.delays[i] = options.hosts[i].delay;
  }
  return network;
}

}  // namespace

WorldResult simulate(const WorldOptions& options) { return WorldRun(options).run(); }

WorldRun::WorldRun(const WorldOptions& options)
    : options_(options),
      random_(options.seed),
      run_ids_(options.seed ^ 0x72756e5f6964),
      clock_(random_.next()),
      cables_(clock_, random_.next(), network_of(options), static_cast<std::uint32_t>(options.hosts.size())),
      weights_(random_, options.snapshot_bytes, options.files),
      verdict_(options.seed) {
  for (const Fault& fault : options_.faults) verdict_.add_term(to_text(fault));
  if (options.bug == PlantedBug::kIgnoredPause) cables_.ignore_pauses();
  for (NodeIndex i = 0; i < options.hosts.size(); ++i) hosts_.push_back(make_host(i));
}

WorldRun::~WorldRun() {
  for (auto& host : hosts_) {
    host->readers.clear();
    end_process(*host);
  }
}

WorldResult WorldRun::run() {
  began_ = clock_.now();
  for (auto& host : hosts_) {
    const Duration at = options_.hosts[host->index].starts_at;
    if (at == Duration::zero()) {
      start(*host);
    } else {
      start_later(*host, at);
    }
  }
  for (const Fault& fault : options_.faults) clock_.at(began_ + fault.at, [this, fault] { begin(fault); });
  for (const Reader& reader : options_.readers) clock_.at(began_ + reader.at, [this, reader] { open_current(reader); });
  clock_.at(began_ + options_.calm_at, [this] { calm(); });
  run_until(began_ + options_.calm_at + Duration(1), [] { return false; });
  publish_last();
  for (auto& host : hosts_) check_all(*host);
  result_.violation = verdict_.violation();
  result_.counts.hash = result_.counts.hash * 31 + static_cast<std::uint64_t>(clock_.now().time_since_epoch().count());
  return result_;
}

std::unique_ptr<Host> WorldRun::make_host(NodeIndex index) {
  const HostOptions& options = options_.hosts[index];
  auto host = std::make_unique<Host>();
  host->index = index;
  host->disk = make_disk(index);
  DaemonConfig& config = host->config;
  config.role = index == 0 ? Role::kOrigin : Role::kWorker;
  config.state = kState;
  config.listen = {host_of(index), kPort};
  if (index != 0) config.origin = Endpoint{host_of(0), kPort};
  config.name = index == 0 ? "origin" : member_name(index);
  config.model_id = "model";
  config.uplink = options.uplink;
  config.downlink = options.uplink;
  config.topology = options_.topology;
  config.packing = options_.packing;
  config.packing_speed = {.pack_bytes_per_s = 1.2e9, .unpack_bytes_per_s = 2.0e9};
  config.versions_kept = options.versions_kept;
  config.single_copy = options.single_copy;
  config.keep_durable_every = 3;
  config.standby = options.standby;
  config.leaf_only = options.leaf_only;
  config.streams = options.streams;
  config.storing_bytes_max = options_.storing_bytes_max;
  return host;
}

std::unique_ptr<SimFileSystem> WorldRun::make_disk(NodeIndex index) {
  return std::make_unique<SimFileSystem>(
      random_.next(),
      SimFileSystem::Options{.has_memory = options_.hosts[index].in_memory,
                             .forgets_directory_syncs = options_.bug == PlantedBug::kForgottenDirectorySync,
                             .ignores_readers = options_.bug == PlantedBug::kIgnoredReaders});
}

void WorldRun::start(Host& host) {
  if (host.runs() || over()) return;
  ++result_.counts.starts;
  ++host.process;
  host.disk->restart();
  if (host.starts_with) arm(host, *std::exchange(host.starts_with, std::nullopt));
  host.loop = std::make_unique<SimLoop>(clock_);
  host.network = cables_.attach(host.index);
  FileSystem* const files = host.disk.get();
  const auto open_store = [this, &host, files](StoreOptions options) -> Result<std::unique_ptr<Store>> {
    auto disk = std::make_unique<SimDisk>(clock_, options_.hosts[host.index].disk_delay_max);
    host.chunks = disk.get();
    WC_ASSIGN(std::unique_ptr<Store> store, Store::open(*host.loop, *files, std::move(options), std::move(disk)));
    host.store = store.get();
    return store;
  };
  const auto entropy = [this, &host] { return host.index == 0 ? run_ids_.next() : random_.next(); };
  const auto reopen = [this, &host, process = host.process] {
    clock_.at(clock_.now() + Duration(1), [this, &host, process] {
      if (host.process != process || !host.runs() || host.stopping) return;
      say(host, "begins another run");
      end_process(host);
      start(host);
    });
  };
  NodeEnvironment environment{*host.loop, *host.network, *files, open_store, entropy, reopen};
  if (options_.hosts[host.index].in_memory) {
    // As --versions-in auto: the first version decides, and later ones lie where it does.
    const bool decided = host.disk->observe(
        [](FileSystem& disk) { return StoreLayout::versions_root_of(disk, kState).value_or(kState) != kState; });
    host.config.place.memory_directory = decided ? kVersionsInMemory : std::filesystem::path();
    if (!decided) environment.choose_place = [](std::uint64_t) { return StorePlace{kVersionsInMemory, "simulated"}; };
  }
  Result<std::unique_ptr<Node>> node = open_node(host.config, std::move(environment));
  if (node.has_value()) host.node = std::move(*node);
  if (bury(host)) return;
  if (!node.has_value()) {
    say(host, "did not start: " + node.error().message());
    if (calm_ && ++failed_starts_ > 20) violate(host, "does not start: " + node.error().message());
    end_process(host);
    // A bit of the record's form makes it another release's: the node refuses, and a person gives it a new directory.
    if (node.error().code == Errc::kUnsupported && host.rotten_somewhere) wipe(host);
    return start_later(host, kRetry);
  }
  host.lost_power = false;
  host.chunks->stall_until(host.stalled_until);
  host.loop->stall_until(host.stalled_until);
  say(host, fmt::format("started with version {}", host.node->store().current().value));
  const auto [run, current] = in_use(host.node->store());
  if (RunVersion(run, current) < host.durable && !host.rotten_somewhere) {
    violate(host,
            fmt::format("version {} of run {} was reported durable, and after the start version {} of run {} is in use",
                        host.durable.second.value, host.durable.first, current.value, run));
  }
  host.receiving = {};
  host.wrong_since.clear();  // nobody has looked for it while it was down
  check_all(host);
}

void WorldRun::start_later(Host& host, Duration after) {
  clock_.at(clock_.now() + after, [this, &host] { start(host); });
}

void WorldRun::end_process(Host& host) {
  host.node.reset();
  host.chunks = nullptr;
  host.store = nullptr;
  host.network.reset();
  host.loop.reset();
  host.stopping = false;
  host.ends_with.reset();
  if (host.index == 0) publishing_ = false;
}

void WorldRun::arm(Host& host, const Fault& fault) {
  if (fault.kind == FaultKind::kFailedCall) {
    return host.disk->fail_call(fault.changes_later, random_.chance(0.5) ? EIO : ENOSPC);
  }
  host.ends_with = fault;
  host.disk->kill_before_change(host.disk->changes() + fault.changes_later);
}

bool WorldRun::bury(Host& host) {
  if (!host.loop || !host.disk->killed()) return false;
  die(host, host.ends_with.value_or(Fault{}));
  return true;
}

void WorldRun::die(Host& host, const Fault& fault) {
  if (!host.loop) return;
  const bool loses_power = fault.kind == FaultKind::kCrash;
  say(host, loses_power ? "loses power" : "is killed");
  if (loses_power) {
    cables_.network().lose_power(clock_.now(), host.index);
    host.disk->power_cut();
    host.readers.clear();
    host.lost_power = true;
  } else {
    cables_.network().drop_node(clock_.now(), host.index);
    host.disk->kill();
  }
  const Fault ended = fault;  // which may be the process's own
  end_process(host);
  if (ended.kind == FaultKind::kWipe) {
    wipe(host);
  } else if (ended.again_after > 0) {
    host.starts_with = ended;
    host.starts_with->changes_later = std::exchange(host.starts_with->again_after, 0);
  }
  start_later(host, ended.lasts);
}

void WorldRun::wipe(Host& host) {
  old_files_.push_back(std::exchange(host.disk, make_disk(host.index)));
  host.durable = {};
  host.rotten.clear();
  host.wrong_since.clear();
  host.rotten_somewhere = false;
  if (host.index != 0) return;
  ++run_;
  last_number_ = last_published_ = {};
  free_number_.reset();
  whole_next_ = true;
}

void WorldRun::stop(Host& host, Duration back_after) {
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

bool WorldRun::run_until(Instant end, const std::function<bool()>& holds) {
  while (!over() && !holds()) {
    if (clock_.now() >= end || !clock_.run_one()) return holds();
    ++result_.counts.events;
    for (auto& host : hosts_) {
      if (!bury(*host) && host->runs()) check_step(*host);
    }
    if (result_.counts.events % kCheckEvery == 0)
      check_all(*hosts_[result_.counts.events / kCheckEvery % hosts_.size()]);
  }
  return !over() && holds();
}

}  // namespace weightcast::sim
