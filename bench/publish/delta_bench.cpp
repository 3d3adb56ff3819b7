#include "bench/publish/delta_bench.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <numeric>
#include <thread>

#include "base/files/posix_file_system.h"
#include "base/files/unique_fd.h"
#include "base/json_of.h"
#include "bench/fleet/interrupt.h"
#include "bench/publish/bench_trainer.h"
#include "bench/times.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

// The first steps make the files that all others reuse.
constexpr std::uint32_t kUnmeasured = 6;
// Syncs, copies to the disk and the removal of old versions go on after a step is told. It is over when both nodes together
// have not used two hundredths of a processor for so long.
constexpr Duration kQuiet = std::chrono::seconds(1);
constexpr double kQuietCpuShare = 0.02;
constexpr Duration kQuietLimit = std::chrono::seconds(120);

/// How long the first version of so many bytes may take, and each further one.
std::chrono::seconds time_limit(std::uint64_t bytes) {
  return std::chrono::seconds(120 + 60 * std::int64_t(bytes / kGiB));
}

/// Empties this processor's caches of the trainer's weights, since an engine's weights are not in them either.
void displace_caches() {
  static std::vector<std::uint64_t> other(
      2 * std::max<std::uint64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), 32 * kMiB) / sizeof(std::uint64_t), 1);
  volatile std::uint64_t sum = std::accumulate(other.begin(), other.end(), std::uint64_t{0});
  (void)sum;
}

/// What was written so far to the disk that holds `path`, of all processes, after all that waits has been written.
std::optional<std::uint64_t> device_written_bytes(const std::filesystem::path& path) {
  const UniqueFd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  struct stat info {};
  if (!directory.valid() || ::syncfs(directory.get()) != 0 || ::fstat(directory.get(), &info) != 0) return std::nullopt;
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

/// Waits until both nodes have done what a step leaves behind, and reads what they have used so far.
Result<Counters> settled_counters(Fleet& fleet, const std::filesystem::path& scratch) {
  const auto limit = Clock::now() + kQuietLimit;
  for (double before = fleet.cpu_s(); Clock::now() < limit;) {
    WC_TRY(sleep_for(kQuiet));
    const double now = fleet.cpu_s();
    if (now - before < kQuietCpuShare * to_seconds(kQuiet)) break;
    before = now;
  }
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

/// A trainer, its fleet, and what its steps took.
class DeltaRun {
 public:
  DeltaRun(BenchTrainer& trainer, Fleet& fleet, std::uint64_t tensor_bytes)
      : trainer_(trainer), fleet_(fleet), limit_(time_limit(tensor_bytes)) {}

  Status open() {
    return attempt([&] {
      client_.emplace(fleet_.state(0));
      subscription_.emplace(fleet_.state(1));
    });
  }
  Status publish_first() {
    std::vector<wc::Tensor> tensors;
    for (std::size_t t = 0; t < trainer_.infos().size(); ++t) {
      const TensorInfo& info = trainer_.infos()[t];
      tensors.push_back({info.name, "BF16", {info.shape[0]}, trainer_.data(t), 0});
    }
    WC_TRY(attempt([&] { version_ = client_->publish(tensors, {}, limit_); }));
    return wait_until_installed();
  }
  Status publish_step(bool is_measured) {
    trainer_.choose();
    displace_caches();
    const auto begin = Clock::now();
    trainer_.apply();
    const double floor = seconds_since(begin);
    const std::vector<wc::Change> changes = changes_of(trainer_);
    const auto start = Clock::now();
    WC_TRY(attempt([&] { version_ = client_->publish_sparse(version_, changes, {}, limit_); }));
    const double call = seconds_since(start);
    WC_TRY(wait_until_installed());
    if (!is_measured) return {};
    installed_s.push_back(seconds_since(start));
    call_s.push_back(call);
    floor_s.push_back(floor);
    cells = 0;
    for (const auto& changed : trainer_.changed()) cells += changed.indices.size();
    return {};
  }

  std::vector<double> floor_s, call_s, installed_s;
  std::uint64_t cells = 0;  // of the last step

 private:
  Status wait_until_installed() {
    for (const auto end = Clock::now() + limit_; Clock::now() < end;) {
      WC_TRY(check_interrupt());
      WC_ASSIGN(const auto next, attempt([&] { return subscription_->next(std::chrono::seconds(1)); }));
      if (next && next->kind == WC_EVENT_INSTALLED && next->version >= version_) return {};
    }
    return fail(Errc::kTimedOut, Op::kPublish, fmt::format("the worker does not install version {}", version_));
  }

  BenchTrainer& trainer_;
  Fleet& fleet_;
  const wc::Milliseconds limit_;
  std::optional<wc::Client> client_;
  std::optional<wc::Subscription> subscription_;
  std::uint64_t version_ = 0;
};

Result<DeltaBenchCase> run_case(const DeltaBenchOptions& options, std::uint64_t tensor_bytes, double changed_share) {
  DeltaBenchCase result;
  result.tensor_bytes = tensor_bytes;
  result.changed_share = changed_share;
  result.single_copy = tensor_bytes >= options.single_copy_bytes_min;
  WC_ASSIGN(BenchTrainer trainer, BenchTrainer::make(tensor_bytes, options.tensors, changed_share));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  // Two copies at either node.
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(4 * tensor_bytes));
  WC_ASSIGN(const auto network,
            options.flags.make_network(std::vector<LinkRates>(2, LinkRates{options.link, options.link})));
  FleetOptions fleet_options = options.flags.options(scratch.path());
  if (result.single_copy) fleet_options.worker_flags.emplace_back("--single-copy");
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, 1, fleet_options));
  DeltaRun run(trainer, *fleet, tensor_bytes);
  WC_TRY(run.open());
  WC_TRY(run.publish_first());
  for (std::uint32_t i = 0; i < kUnmeasured; ++i) WC_TRY(run.publish_step(false));
  WC_ASSIGN(const Counters from, settled_counters(*fleet, scratch.path()));
  for (std::uint32_t i = 0; i < options.steps; ++i) {
    const auto next = Clock::now() + from_seconds(options.interval_s);
    WC_TRY(run.publish_step(true));
    WC_TRY(sleep_for(next - Clock::now()));
  }
  WC_ASSIGN(const Counters after, settled_counters(*fleet, scratch.path()));
  PosixFileSystem files;
  WC_TRY(trainer.check_copy(files, fleet->state(1) / "current" / "model.safetensors"));
  result.changed_cells = run.cells;
  result.floor_s = median(std::move(run.floor_s));
  result.call_s = median(std::move(run.call_s));
  result.installed_s = median(std::move(run.installed_s));
  const auto node = [&](ProcessUsage Counters::*which) {
    return DeltaBenchCase::Node{((after.*which).cpu_s - (from.*which).cpu_s) / options.steps,
                                ((after.*which).written_bytes - (from.*which).written_bytes) / options.steps};
  };
  result.origin = node(&Counters::origin);
  result.worker = node(&Counters::worker);
  result.patch_bytes = (after.received_bytes - from.received_bytes) / options.steps;
  if (options.link.limited()) result.link_s = double(result.patch_bytes) / options.link.bytes_per_s;
  if (after.device_bytes && from.device_bytes) {
    result.device_written_bytes = (*after.device_bytes - *from.device_bytes) / options.steps;
  }
  return result;
}

/// Runs of cases of one size.
std::vector<std::span<const DeltaBenchCase>> by_size(std::span<const DeltaBenchCase> cases) {
  std::vector<std::span<const DeltaBenchCase>> sizes;
  while (!cases.empty()) {
    const auto end = std::ranges::find_if(
        cases, [&](const DeltaBenchCase& one) { return one.tensor_bytes != cases.front().tensor_bytes; });
    sizes.push_back(cases.first(std::size_t(end - cases.begin())));
    cases = cases.subspan(sizes.back().size());
  }
  return sizes;
}

std::optional<CpuLine> line_through(std::span<const DeltaBenchCase> cases, DeltaBenchCase::Node DeltaBenchCase::*node) {
  double cells = 0, seconds = 0;
  for (const DeltaBenchCase& one : cases) {
    cells += double(one.changed_cells) / double(cases.size());
    seconds += (one.*node).cpu_s / double(cases.size());
  }
  double products = 0, squares = 0;
  for (const DeltaBenchCase& one : cases) {
    const double away = double(one.changed_cells) - cells;
    products += away * ((one.*node).cpu_s - seconds);
    squares += away * away;
  }
  if (squares == 0) return std::nullopt;
  return CpuLine{seconds - products / squares * cells, products / squares};
}

nlohmann::json json_of(const DeltaBenchCase::Node& node, const DeltaBenchCase& one) {
  return {{"cpu_s", node.cpu_s},
          {"cpu_s_per_gib", node.cpu_s / one.gib()},
          {"cpu_to_floor", node.cpu_s / one.floor_s},
          {"written_bytes", node.written_bytes},
          {"written_to_patch", double(node.written_bytes) / double(one.patch_bytes)}};
}

nlohmann::json json_of(const CpuLine& line) {
  return {{"intercept_cpu_s", line.intercept_s}, {"cpu_ns_per_changed_cell", 1e9 * line.slope_s}};
}

}  // namespace

Result<std::vector<DeltaBenchCase>> run_delta_bench(const DeltaBenchOptions& options,
                                                    const std::function<void(const DeltaBenchCase&)>& observe) {
  std::vector<DeltaBenchCase> cases;
  for (const std::uint64_t bytes : options.sizes_bytes) {
    for (const double share : options.changed_shares) {
      WC_ASSIGN(cases.emplace_back(), run_case(options, bytes, share));
      observe(cases.back());
    }
  }
  return cases;
}

std::vector<DeltaLines> cpu_lines(std::span<const DeltaBenchCase> cases) {
  std::vector<DeltaLines> lines;
  for (const auto size : by_size(cases)) {
    const auto origin = line_through(size, &DeltaBenchCase::origin),
               worker = line_through(size, &DeltaBenchCase::worker);
    if (origin && worker) lines.push_back({size.front().tensor_bytes, *origin, *worker});
  }
  return lines;
}

nlohmann::json to_json(std::span<const DeltaBenchCase> cases) {
  nlohmann::json json = {{"cases", nlohmann::json::array()}, {"lines", nlohmann::json::array()}};
  for (const DeltaBenchCase& one : cases) {
    json["cases"].push_back(merged(WC_JSON_OF(one.tensor_bytes, one.single_copy, one.changed_share, one.changed_cells,
                                              one.patch_bytes, one.floor_s, one.link_s, one.call_s, one.installed_s),
                                   {{"call_to_floor", one.call_s / one.floor_s},
                                    {"installed_to_floor", one.installed_s / one.floor_s},
                                    {"installed_to_floor_and_link", one.installed_s / (one.floor_s + one.link_s)},
                                    {"origin", json_of(one.origin, one)},
                                    {"worker", json_of(one.worker, one)}}));
    if (one.device_written_bytes) json["cases"].back()["device_written_bytes"] = *one.device_written_bytes;
  }
  for (const DeltaLines& size : cpu_lines(cases)) {
    json["lines"].push_back(
        {{"tensor_bytes", size.tensor_bytes}, {"origin", json_of(size.origin)}, {"worker", json_of(size.worker)}});
  }
  return json;
}

Figure delta_figure(std::span<const DeltaBenchCase> cases) {
  Figure figure;
  figure.title = "A step that is published as a list of changes";
  figure.caption =
      "Origin and worker as real processes. Lines: one thread writes the same cells; the patch at the link's rate.";
  figure.x = {"changed cells, %", Figure::Scale::kLog};
  figure.y = {"seconds", Figure::Scale::kLog};
  for (const auto size : by_size(cases)) {
    Figure::Panel panel{format_bytes(size.front().tensor_bytes), {}};
    if (size.front().single_copy) panel.title += ", one copy";
    const auto add = [&](const char* name, bool is_bound, const auto& seconds) {
      Figure::Series& series = panel.series.emplace_back(Figure::Series{name, is_bound, {}});
      for (const DeltaBenchCase& one : size) series.points.push_back({100 * one.changed_share, seconds(one)});
    };
    add("publish to installed", false, [](const DeltaBenchCase& one) { return one.installed_s; });
    add("publish call", false, [](const DeltaBenchCase& one) { return one.call_s; });
    add("processor, origin", false, [](const DeltaBenchCase& one) { return one.origin.cpu_s; });
    add("processor, worker", false, [](const DeltaBenchCase& one) { return one.worker.cpu_s; });
    add("floor", true, [](const DeltaBenchCase& one) { return one.floor_s; });
    if (size.front().link_s > 0) add("link", true, [](const DeltaBenchCase& one) { return one.link_s; });
    figure.panels.push_back(std::move(panel));
  }
  return figure;
}

std::string delta_heading() {
  return fmt::format("{:<9} {:<8} {:<10} {:<8} {:<7} {:<15} {:<16} {:<23} {:<23} {:<21} {}", "size", "changed", "patch",
                     "floor ms", "link ms", "call ms (ratio)", "installed ms (r)", "origin CPU s, /GiB (r)",
                     "worker CPU s, /GiB (r)", "written origin, worker", "device");
}

std::string delta_line(const DeltaBenchCase& one) {
  const auto with_ratio = [&](double seconds) {
    return fmt::format("{:.1f} ({:.2f})", 1e3 * seconds, seconds / one.floor_s);
  };
  const auto cpu = [&](const DeltaBenchCase::Node& node) {
    return fmt::format("{:.4f}, {:.4f} ({:.2f})", node.cpu_s, node.cpu_s / one.gib(), node.cpu_s / one.floor_s);
  };
  return fmt::format(
      "{:<9} {:<8} {:<10} {:<8.2f} {:<7.1f} {:<15} {:<16} {:<23} {:<23} {:<21} {}", format_bytes(one.tensor_bytes),
      fmt::format("{:.3g} %", 100 * one.changed_share), format_bytes(one.patch_bytes), 1e3 * one.floor_s,
      1e3 * one.link_s, with_ratio(one.call_s), with_ratio(one.installed_s), cpu(one.origin), cpu(one.worker),
      fmt::format("{}, {}", format_bytes(one.origin.written_bytes), format_bytes(one.worker.written_bytes)),
      one.device_written_bytes ? format_bytes(*one.device_written_bytes) : "-");
}

}  // namespace weightcast::bench
