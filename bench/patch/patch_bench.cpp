#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/json_of.h"
#include "bench/add_bench.h"
#include "bench/codec/trace.h"
#include "bench/commands.h"
#include "patch/codec/codec.h"

namespace weightcast::bench {
namespace {

struct PatchBenchOptions {
  std::size_t workers = 6;
  LinkFlags links{.size = "1GiB"};  ///< the whole snapshot
  unsigned steps = 3;               ///< versions after the first, each one optimiser step from the one before
  FleetFlags flags;
};

/// One version through the engine.
struct PatchBenchCase : BroadcastCost {
  std::uint64_t version = 0;
  std::string kind;
  std::uint64_t payload_bytes = 0;
  double line_s = 0;  ///< payload over a worker's rate: computed, not measured
  double encode_s = 0;
  double first_sent_s = 0;                            ///< until the origin had sent the first chunk
  double transfer_s = 0, finish_s = 0, switch_s = 0;  ///< the slowest worker's; see local.proto
};

struct PatchBenchResult {
  std::vector<PatchBenchCase> cases;
  std::uint64_t steps_bytes = 0;  ///< of ten patches of one step each, of a part of the snapshot
  std::uint64_t fold_bytes = 0;   ///< of one patch over the same ten steps
};

constexpr std::uint64_t kTraceCellsMax = 16u << 20;
constexpr std::uint64_t kFoldCells = 4u << 20;
constexpr unsigned kFoldSteps = 10;

Trace trace_of(std::uint64_t cells, unsigned steps) {
  TraceSpec spec;
  spec.name = "patch";
  spec.steps = std::max(steps, 1u);
  spec.cells_min = cells;
  return make_trace(spec, std::max(1u, std::thread::hardware_concurrency()));
}

/// The weights after `steps` optimiser steps.
std::vector<std::byte> weights_after(std::uint64_t cells, unsigned steps) {
  Trace trace = trace_of(cells, steps);
  return steps == 0 ? std::move(trace.base) : std::move(trace.result);
}

/// A snapshot of one tensor: `weights`, repeated up to `bytes`.
Result<Payload> write_snapshot(const std::filesystem::path& path, Bytes weights, std::uint64_t bytes) {
  TensorInfo tensor;
  tensor.name = "weight";
  tensor.dtype = "BF16";
  tensor.size_bytes = bytes / 2 * 2;
  tensor.shape = {tensor.size_bytes / 2};
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(std::span(&tensor, 1), {}));
  return write_payload(path, layout, [&] { return weights; });
}

Result<std::uint64_t> patch_bytes(const std::vector<std::byte>& base, const std::vector<std::byte>& result,
                                  const std::vector<TensorInfo>& tensors) {
  const SnapshotLayout layout{base.size(), tensors};
  WC_ASSIGN(const PatchHead head, make_head({"bench", Version{1}, Version{2}, {}, {}}, layout, layout));
  WC_ASSIGN(const PatchSummary summary,
            encode_patch(head, MemorySource(base), MemorySource(result), {}, [](Bytes) -> Status { return {}; }));
  return summary.patch_bytes;
}

Status compare_fold_with_steps(PatchBenchResult& result) {
  const std::vector<TensorInfo> tensors = trace_of(kFoldCells, 1).tensors;
  const std::vector<std::byte> first = weights_after(kFoldCells, 0);
  std::vector<std::byte> before = first;
  for (unsigned step = 1; step <= kFoldSteps; ++step) {
    std::vector<std::byte> after = weights_after(kFoldCells, step);
    WC_ASSIGN(const std::uint64_t bytes, patch_bytes(before, after, tensors));
    result.steps_bytes += bytes;
    before = std::move(after);
  }
  WC_ASSIGN(result.fold_bytes, patch_bytes(first, before, tensors));
  return {};
}

Result<PatchBenchCase> measure(Fleet& fleet, const LinkSpec& links, Version version, const Payload& payload) {
  WC_ASSIGN(const Broadcast broadcast, fleet.broadcast(version, payload, {}));
  PatchBenchCase c;
  static_cast<BroadcastCost&>(c) = broadcast;
  c.version = version.value;
  WC_ASSIGN(const nlohmann::json status, fleet.status());
  status.at("nodes")[0].at("encode_s").get_to(c.encode_s);
  status.at("nodes")[0].at("first_sent_s").get_to(c.first_sent_s);
  for (NodeIndex node = 1; node <= fleet.worker_count(); ++node) {
    WC_TRY(check_installed(fleet.state(node), payload));
    WC_ASSIGN(const nlohmann::json own, fleet.status(node));
    const nlohmann::json& self = own.at("nodes")[0];
    c.transfer_s = std::max(c.transfer_s, self.at("transfer_s").get<double>());
    c.finish_s = std::max(c.finish_s, self.at("finish_s").get<double>());
    c.switch_s = std::max(c.switch_s, self.at("switch_s").get<double>());
    if (node > 1) continue;
    WC_ASSIGN(const nlohmann::json versions, fleet.versions(node));
    for (const nlohmann::json& entry : versions.at("versions")) {
      if (entry.at("version") != version.value) continue;
      entry.at("kind").get_to(c.kind);
      entry.at("payload_bytes").get_to(c.payload_bytes);
    }
  }
  c.line_s = double(c.payload_bytes) / links.peer.downlink.bytes_per_s;
  return c;
}

/// Publishes consecutive versions of an optimiser to real processes by chain, and compares each installed snapshot with
/// the published one. The versions come from a trace of at most 16 Mi cells (bench/codec/trace.h), repeated to the
/// wanted size. Errors: those of the fleet; kTimedOut (a worker does not finish).
Result<PatchBenchResult> measure_all(const PatchBenchOptions& options, const LinkSpec& links) {
  PatchBenchResult result;
  WC_ASSIGN(const std::unique_ptr<Network> network, options.flags.make_network(links.rates(options.workers)));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  // At each node the version in use, the one before and the one that is made.
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory((3 * options.workers + 5) * links.payload_bytes));
  FleetOptions fleet_options = options.flags.options(scratch.path());
  fleet_options.topology = Topology::kChain;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, options.workers, fleet_options));

  const std::uint64_t cells = std::min(links.payload_bytes / 2, kTraceCellsMax);
  for (unsigned step = 0; step <= options.steps; ++step) {
    WC_ASSIGN(const Payload payload,
              write_snapshot(scratch.path() / "model.safetensors", weights_after(cells, step), links.payload_bytes));
    WC_ASSIGN(const PatchBenchCase measured, measure(*fleet, links, Version{step + 1}, payload));
    result.cases.push_back(measured);
  }
  WC_TRY(compare_fold_with_steps(result));
  return result;
}

nlohmann::json to_json(const PatchBenchResult& result, std::size_t workers, std::uint64_t snapshot_bytes) {
  nlohmann::json cases = nlohmann::json::array();
  for (const PatchBenchCase& c : result.cases) {
    cases.push_back(merged(WC_JSON_OF(c.version, c.kind, workers, c.payload_bytes, c.line_s, c.take_s, c.encode_s,
                                      c.first_sent_s, c.t50_s, c.t90_s, c.t100_s, c.transfer_s, c.finish_s, c.switch_s,
                                      c.origin_egress_bytes, c.cpu_s, c.stolen_s, c.rss_anon_bytes_max),
                           {{"snapshot_bytes", snapshot_bytes}}));
  }
  return {{"cases", cases}, {"ten_steps_bytes", result.steps_bytes}, {"fold_bytes", result.fold_bytes}};
}

Status run(const PatchBenchOptions& options) {
  WC_ASSIGN(const LinkSpec links, options.links.parse());
  WC_ASSIGN(const PatchBenchResult result, measure_all(options, links));
  fmt::print(
      "version  kind   payload     line s   take s   encode s   first s  t50 s    t100 s   transfer s  finish s   "
      "switch ms  CPU s  stolen s\n");
  for (const PatchBenchCase& c : result.cases) {
    fmt::print(
        "{:<8} {:<6} {:<11} {:<8.3f} {:<8.3f} {:<10.3f} {:<8.3f} {:<8} {:<8} {:<11.3f} {:<10.3f} {:<10.3f} {:<6.2f} "
        "{:.2f}\n",
        c.version, c.kind, format_bytes(c.payload_bytes), c.line_s, c.take_s, c.encode_s, c.first_sent_s,
        seconds_or_dash(c.t50_s), seconds_or_dash(c.t100_s), c.transfer_s, c.finish_s, 1e3 * c.switch_s, c.cpu_s,
        c.stolen_s);
  }
  fmt::print("ten steps: {} as ten patches, {} as one fold ({:.2f})\n", format_bytes(result.steps_bytes),
             format_bytes(result.fold_bytes), double(result.fold_bytes) / double(result.steps_bytes));
  return write_json(options.flags.json_path, to_json(result, options.workers, links.payload_bytes));
}

}  // namespace

void add_patch_command(CLI::App& app) {
  const auto [command, options] = add_bench<const PatchBenchOptions>(
      app, "patch", "Versions of an optimiser's steps through a fleet, as patches", run);
  options->links.add_to(*command);
  command->add_option("--workers", options->workers, "How many")->check(CLI::Range(1, 1000));
  command->add_option("--steps", options->steps, "Versions after the first")->check(CLI::Range(1u, 100u));
  options->flags.add_to(*command);
}

}  // namespace weightcast::bench
