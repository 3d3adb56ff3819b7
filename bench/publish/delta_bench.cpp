#include "bench/publish/delta_bench.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/json_text.h"
#include "base/posix_file_system.h"
#include "bench/publish/bench_trainer.h"
#include "bench/times.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kTimeout(120);
// The first steps make the files that all others reuse.
constexpr std::uint32_t kUnmeasured = 3;
// What goes on after a step is told: syncs, and removal of what is old.
constexpr std::chrono::seconds kSettle(3);

/// What was written so far to the disk that holds `path`, of all processes.
std::optional<std::uint64_t> device_written_bytes(const std::filesystem::path& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return std::nullopt;
  std::ifstream file(fmt::format("/sys/dev/block/{}:{}/stat", major(info.st_dev), minor(info.st_dev)));
  std::uint64_t field = 0;
  // The seventh is sectors of 512 bytes.
  for (int i = 0; i < 7; ++i) {
    if (!(file >> field)) return std::nullopt;
  }
  return field * 512;
}

struct Counters {
  ProcessUsage origin, worker;
  std::uint64_t received_bytes = 0;
  std::optional<std::uint64_t> device_bytes;
};

Result<Counters> read_counters(Fleet& fleet, const std::filesystem::path& scratch) {
  const auto origin = fleet.process(0).usage(), worker = fleet.process(1).usage();
  const auto received = fleet.received_bytes();
  if (!origin || !worker || !received.at(0)) return fail(Errc::kClosed, Op::kConnect, "a node has ended");
  return Counters{*origin, *worker, *received[0], device_written_bytes(scratch)};
}

std::vector<wc::Change> changes_of(const BenchTrainer& trainer) {
  std::vector<wc::Change> changes;
  for (std::size_t t = 0; t < trainer.infos().size(); ++t) {
    const BenchTrainer::Changed& changed = trainer.changed()[t];
    changes.push_back(
        {trainer.infos()[t].name, "BF16", changed.indices.data(), 4, changed.values.data(), changed.indices.size()});
  }
  return changes;
}

/// Writes the cells of the last step where they are in `copy`, as one thread of an engine would.
double scatter_s(const BenchTrainer& trainer, std::vector<std::uint16_t>& copy) {
  const auto start = Clock::now();
  std::uint16_t* tensor = copy.data();
  for (std::size_t t = 0; t < trainer.infos().size(); ++t) {
    const BenchTrainer::Changed& changed = trainer.changed()[t];
    for (std::size_t i = 0; i < changed.indices.size(); ++i) tensor[changed.indices[i]] = changed.values[i];
    tensor += trainer.infos()[t].shape[0];
  }
  return seconds_since(start);
}

/// Publishes the first version whole.
std::uint64_t publish_whole(wc::Client& client, const BenchTrainer& trainer) {
  std::vector<wc::Tensor> tensors;
  for (std::size_t t = 0; t < trainer.infos().size(); ++t) {
    tensors.push_back({trainer.infos()[t].name, "BF16", {trainer.infos()[t].shape[0]}, trainer.data(t), 0});
  }
  return client.publish(tensors, {}, kTimeout);
}

Result<DeltaBenchCase> run_case(const DeltaBenchOptions& options, double changed_share) {
  WC_ASSIGN(BenchTrainer trainer, BenchTrainer::make(options.tensor_bytes, options.tensors, changed_share));
  WC_ASSIGN(const Scratch scratch, Scratch::make(options.flags.scratch));
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(4 * options.tensor_bytes));
  const auto network = make_loopback_network(std::vector<LinkRates>(2));
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, 1, options.flags.options(scratch.path())));
  std::vector<std::uint16_t> copy(options.tensor_bytes / 2);
  DeltaBenchCase result;
  result.changed_share = changed_share;
  std::vector<double> floors, calls, installs;
  std::optional<Result<Counters>> before;
  WC_TRY(attempt([&] {
    wc::Client client(fleet->state(0));
    wc::Subscription subscription(fleet->state(1));
    const auto installed = [&](std::uint64_t version) {
      for (const auto limit = Clock::now() + kTimeout; Clock::now() < limit;) {
        const auto next = subscription.next(std::chrono::seconds(1));
        if (next && next->version >= version) return;
      }
    };
    std::uint64_t version = publish_whole(client, trainer);
    installed(version);
    for (std::uint32_t i = 0; i < kUnmeasured + options.steps; ++i) {
      const Status stepped = trainer.step();
      WC_CHECK(stepped.has_value());
      const double floor_s = scatter_s(trainer, copy);
      const std::vector<wc::Change> changes = changes_of(trainer);
      const auto start = Clock::now();
      version = client.publish_sparse(version, changes, {}, kTimeout);
      const double call_s = seconds_since(start);
      installed(version);
      const double installed_s = seconds_since(start);
      if (i >= kUnmeasured) {
        floors.push_back(floor_s);
        calls.push_back(call_s);
        installs.push_back(installed_s);
        result.changed_cells = 0;
        for (const auto& changed : trainer.changed()) result.changed_cells += changed.indices.size();
      }
      if (i + 1 == kUnmeasured) {
        std::this_thread::sleep_for(kSettle);
        before = read_counters(*fleet, scratch.path());
      }
      std::this_thread::sleep_until(start + std::chrono::duration<double>(options.interval_s));
    }
  }));
  std::this_thread::sleep_for(kSettle);
  WC_ASSIGN(const Counters from, *before);
  WC_ASSIGN(const Counters after, read_counters(*fleet, scratch.path()));
  PosixFileSystem files;
  WC_TRY(trainer.check_copy(files, fleet->state(1) / "current" / "model.safetensors"));
  result.floor_s = median(std::move(floors));
  result.call_s = median(std::move(calls));
  result.installed_s = median(std::move(installs));
  result.origin_cpu_s = (after.origin.cpu_s - from.origin.cpu_s) / options.steps;
  result.worker_cpu_s = (after.worker.cpu_s - from.worker.cpu_s) / options.steps;
  result.origin_written_bytes = (after.origin.written_bytes - from.origin.written_bytes) / options.steps;
  result.worker_written_bytes = (after.worker.written_bytes - from.worker.written_bytes) / options.steps;
  result.patch_bytes = (after.received_bytes - from.received_bytes) / options.steps;
  if (after.device_bytes && from.device_bytes) {
    result.device_written_bytes = (*after.device_bytes - *from.device_bytes) / options.steps;
  }
  return result;
}

}  // namespace

Result<std::vector<DeltaBenchCase>> run_delta_bench(const DeltaBenchOptions& options) {
  std::vector<DeltaBenchCase> cases;
  for (const double share : options.changed_shares) {
    WC_ASSIGN(cases.emplace_back(), run_case(options, share));
  }
  return cases;
}

nlohmann::json to_json(const std::vector<DeltaBenchCase>& cases) {
  nlohmann::json json = nlohmann::json::array();
  for (const DeltaBenchCase& one : cases) {
    nlohmann::json written = {{"origin", one.origin_written_bytes}, {"worker", one.worker_written_bytes}};
    if (one.device_written_bytes) written["device"] = *one.device_written_bytes;
    json.push_back({{"changed_share", one.changed_share},
                    {"changed_cells", one.changed_cells},
                    {"patch_bytes", one.patch_bytes},
                    {"floor_s", one.floor_s},
                    {"call_s", one.call_s},
                    {"installed_s", one.installed_s},
                    {"ratio", one.ratio()},
                    {"origin_cpu_s", one.origin_cpu_s},
                    {"worker_cpu_s", one.worker_cpu_s},
                    {"written_bytes", std::move(written)}});
  }
  return json;
}

}  // namespace weightcast::bench
