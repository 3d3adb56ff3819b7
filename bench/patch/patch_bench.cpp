#include "bench/patch/patch_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "base/json_of.h"
#include "bench/codec/trace.h"
#include "patch/codec/codec.h"

namespace weightcast::bench {
namespace {

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

Result<PatchBenchCase> measure(Fleet& fleet, const PatchBenchOptions& options, Version version,
                               const Payload& payload) {
  WC_ASSIGN(const Broadcast broadcast, fleet.broadcast(version, payload, {}));
  PatchBenchCase c;
  c.version = version.value;
  c.take_s = broadcast.outcome.take_s.value_or(0);
  c.t50_s = broadcast.t_s(0.5);
  c.t90_s = broadcast.t_s(0.9);
  c.t100_s = broadcast.t_s(1.0);
  c.origin_egress_bytes = broadcast.origin_egress_bytes;
  c.cpu_s = broadcast.cpu_s;
  c.stolen_s = broadcast.stolen_s;
  c.rss_anon_bytes_max = broadcast.rss_anon_bytes_max;
  WC_ASSIGN(const nlohmann::json status, fleet.status());
  status.at("nodes")[0].at("encode_s").get_to(c.encode_s);
  status.at("nodes")[0].at("first_sent_s").get_to(c.first_sent_s);
  for (NodeIndex node = 1; node <= options.workers; ++node) {
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
  c.line_s = double(c.payload_bytes) / options.links.peer.downlink.bytes_per_s;
  return c;
}

}  // namespace

Result<PatchBenchResult> run_patch_bench(const PatchBenchOptions& options) {
  PatchBenchResult result;
  result.options = options;
  WC_ASSIGN(const std::unique_ptr<Network> network, options.flags.make_network(options.links.rates(options.workers)));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  // At each node the version in use, the one before and the one that is made.
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory((3 * options.workers + 5) * options.links.payload_bytes));
  FleetOptions fleet_options = options.flags.options(scratch.path());
  fleet_options.topology = Topology::kChain;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, options.workers, fleet_options));

  const std::uint64_t cells = std::min(options.links.payload_bytes / 2, kTraceCellsMax);
  for (unsigned step = 0; step <= options.steps; ++step) {
    WC_ASSIGN(const Payload payload, write_snapshot(scratch.path() / "model.safetensors", weights_after(cells, step),
                                                    options.links.payload_bytes));
    WC_ASSIGN(const PatchBenchCase measured, measure(*fleet, options, Version{step + 1}, payload));
    result.cases.push_back(measured);
  }
  WC_TRY(compare_fold_with_steps(result));
  return result;
}

nlohmann::json to_json(const PatchBenchResult& result) {
  nlohmann::json cases = nlohmann::json::array();
  for (const PatchBenchCase& c : result.cases) {
    cases.push_back(merged(WC_JSON_OF(c.version, c.kind, result.options.workers, c.payload_bytes, c.line_s, c.take_s,
                                      c.encode_s, c.first_sent_s, c.t50_s, c.t90_s, c.t100_s, c.transfer_s, c.finish_s,
                                      c.switch_s, c.origin_egress_bytes, c.cpu_s, c.stolen_s, c.rss_anon_bytes_max),
                           {{"snapshot_bytes", result.options.links.payload_bytes}}));
  }
  return {{"cases", cases}, {"ten_steps_bytes", result.steps_bytes}, {"fold_bytes", result.fold_bytes}};
}

}  // namespace weightcast::bench
