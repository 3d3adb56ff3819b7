#include "bench/codec/codec_bench.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/heap.h"
#include "base/json_of.h"
#include "bench/codec/cost.h"
#include "bench/codec/entropy.h"
#include "bench/codec/rivals/rivals.h"
#include "bench/codec/trace.h"
#include "bench/proc_bytes.h"

namespace weightcast::bench {
namespace {

constexpr std::uint64_t kSizeTableCells = 1'000'000;
constexpr std::uint64_t kSeed = 1;
constexpr std::string_view kZstdLine = "# libzstd ";

/// Watches how far resident memory rises above its level at construction. Linux keeps the peak (VmHWM) and lets a
/// process reset its own; unlike counting operator new, that sees libzstd's allocations too.
class PeakMemory {
 public:
  PeakMemory() {
    set_up_heap();   // what is measured is what a daemon would hold
    malloc_trim(0);  // memory that the allocator still holds would hide what is taken now
    std::ofstream clear("/proc/self/clear_refs");
    clear << "5" << std::flush;
    usable_ = clear.good();
    start_bytes_ = proc_bytes("/proc/self/status", "VmRSS:");
  }

  [[nodiscard]] std::uint64_t rise_bytes() const {
    const std::uint64_t peak_bytes = proc_bytes("/proc/self/status", "VmHWM:");
    return usable_ && peak_bytes > start_bytes_ ? peak_bytes - start_bytes_ : 0;
  }

 private:
  bool usable_ = false;
  std::uint64_t start_bytes_ = 0;
};

/// One codec at one number of threads on the trace at hand.
struct Contender {
  const Codec* codec;
  CodecCase result;
  Cost encode;
  Cost apply;
};

Error wrong_result(const Codec& codec, const Trace& trace) {
  return fail(Errc::kCorrupt, Op::kVerify,
              fmt::format("the round trip of {} on {}: its patch does not give the result", codec.name, trace.name));
}

/// Encodes and applies once, checks the result, and fills in sizes and memory. Returns false for a dtype that the codec
/// does not know.
Result<bool> verify(Contender& contender, const Trace& trace, std::vector<std::byte>& target) {
  const Codec& codec = *contender.codec;
  CodecCase& result = contender.result;
  const PeakMemory encode_memory;
  auto patch = codec.encode(trace.base, trace.result, trace.tensors, result.threads);
  result.encode_peak_bytes = encode_memory.rise_bytes();
  if (!patch.has_value()) {
    if (patch.error().code == Errc::kUnsupported) return false;
    return std::move(patch).error();
  }
  result.bytes = patch->size();

  std::memcpy(target.data(), trace.base.data(), target.size());
  const PeakMemory apply_memory;
  WC_TRY(codec.apply(*patch, trace.base, trace.tensors, target, result.threads));
  result.apply_peak_bytes = apply_memory.rise_bytes();
  if (target != trace.result) return wrong_result(codec, trace);
  return true;
}

Status time_once(Contender& contender, const Trace& trace, std::vector<std::byte>& target) {
  const Codec& codec = *contender.codec;
  const unsigned threads = contender.result.threads;
  std::optional<Result<std::vector<std::byte>>> patch;
  contender.encode.measure([&] { patch.emplace(codec.encode(trace.base, trace.result, trace.tensors, threads)); });
  if (!patch->has_value()) return std::move(*patch).error();
  std::optional<Status> applied;
  contender.apply.measure([&] { applied.emplace(codec.apply(**patch, trace.base, trace.tensors, target, threads)); });
  if (!applied->has_value()) return std::move(*applied).error();
  if (target != trace.result) return wrong_result(codec, trace);
  return {};
}

Result<std::vector<CodecCase>> run_trace(const TraceSpec& spec, std::span<const Codec> codecs,
                                         const CodecBenchOptions& options) {
  const Trace trace = make_trace(spec, options.threads);
  const PatchEntropy entropy = measure_entropy(trace.base, trace.result, trace.tensors, EntropyScope::kSnapshot);
  const PatchEntropy tensor_entropy = measure_entropy(trace.base, trace.result, trace.tensors, EntropyScope::kTensor);

  std::vector<Contender> contenders;
  std::vector<std::byte> target = trace.base;
  for (const Codec& codec : codecs) {
    for (unsigned threads = 1; threads <= (codec.threaded ? options.threads : 1);
         threads = threads == options.threads ? threads + 1 : options.threads) {
      Contender contender;
      contender.codec = &codec;
      contender.result.trace = trace.name;
      contender.result.codec = codec.name;
      contender.result.threads = threads;
      contender.result.cells = entropy.cells;
      contender.result.changed = entropy.changed;
      contender.result.snapshot_bytes = trace.base.size();
      contender.result.entropy_bits_per_changed = entropy.bits_per_changed();
      contender.result.tensor_entropy_bits_per_changed = tensor_entropy.bits_per_changed();
      WC_ASSIGN(const bool supported, verify(contender, trace, target));
      if (supported) contenders.push_back(std::move(contender));
    }
  }

  Cost compare, copy_digest;
  for (unsigned repetition = 0; repetition < options.repetitions; ++repetition) {
    int difference = 1;
    Checksum digest;
    copy_digest.measure([&] {
      std::memcpy(target.data(), trace.base.data(), target.size());
      digest = checksum_of(target);
    });
    compare.measure([&] { difference = std::memcmp(target.data(), trace.base.data(), target.size()); });
    WC_CHECK(difference == 0 && digest != Checksum{});
    for (Contender& contender : contenders) {
      std::memcpy(target.data(), trace.base.data(), target.size());
      WC_TRY(time_once(contender, trace, target));
    }
  }

  std::vector<CodecCase> cases;
  const auto cells = static_cast<double>(trace.cells);
  for (Contender& contender : contenders) {
    if (options.repetitions > 0) {
      contender.result.encode_cells_per_s = cells / contender.encode.wall_s;
      contender.result.apply_cells_per_s = cells / contender.apply.wall_s;
      contender.result.encode_cells_per_cpu_s = cells / contender.encode.cpu_s;
      contender.result.apply_cells_per_cpu_s = cells / contender.apply.cpu_s;
      contender.result.memcmp_cells_per_cpu_s = cells / compare.cpu_s;
      contender.result.copy_digest_cells_per_cpu_s = cells / copy_digest.cpu_s;
    }
    cases.push_back(std::move(contender.result));
  }
  return cases;
}

/// The items whose names are in `names`, in their own order; all of them when `names` is empty.
template <typename Item>
Result<std::vector<Item>> choose(std::span<const Item> items, const std::vector<std::string>& names,
                                 std::string_view what) {
  std::vector<Item> chosen;
  for (const Item& item : items) {
    if (names.empty() || std::find(names.begin(), names.end(), item.name) != names.end()) chosen.push_back(item);
  }
  for (const std::string& name : names) {
    if (std::any_of(items.begin(), items.end(), [&](const Item& item) { return item.name == name; })) continue;
    std::vector<std::string_view> known;
    for (const Item& item : items) known.emplace_back(item.name);
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} '{}': there are {}", what, name, fmt::join(known, ", ")));
  }
  return chosen;
}

}  // namespace

double CodecCase::bits_per_changed() const {
  return changed == 0 ? 0.0 : 8.0 * static_cast<double>(bytes) / static_cast<double>(changed);
}

std::span<const Codec> bench_codecs() {
  static const std::array all = {kWeightcast, kRawInt32, kCooLeb128, kGapLeb128, kGrail, kXorZstd, kPulseRice};
  return all;
}

Result<std::vector<CodecCase>> run_codec_bench(const CodecBenchOptions& options,
                                               const std::function<void(const CodecCase&)>& on_case) {
  if (options.cells_min == 0 || options.threads == 0) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "the codec bench: it needs at least one cell and one thread");
  }
  const std::vector<TraceSpec> all_traces = standard_traces(options.cells_min, kSeed);
  WC_ASSIGN(const auto specs, choose(std::span<const TraceSpec>(all_traces), options.traces, "trace"));
  WC_ASSIGN(const auto codecs, choose(bench_codecs(), options.codecs, "codec"));
  std::vector<CodecCase> all;
  for (const TraceSpec& spec : specs) {
    WC_ASSIGN(const auto cases, run_trace(spec, codecs, options));
    for (const CodecCase& codec_case : cases) {
      if (on_case) on_case(codec_case);
      all.push_back(codec_case);
    }
  }
  return all;
}

nlohmann::json to_json(std::span<const CodecCase> cases) {
  auto list = nlohmann::json::array();
  for (const CodecCase& c : cases) {
    list.push_back(WC_JSON_OF(c.trace, c.codec, c.threads, c.cells, c.changed, c.snapshot_bytes, c.bytes,
                              c.bits_per_changed(), c.entropy_bits_per_changed, c.tensor_entropy_bits_per_changed,
                              c.encode_cells_per_s, c.apply_cells_per_s, c.encode_cells_per_cpu_s,
                              c.apply_cells_per_cpu_s, c.memcmp_cells_per_cpu_s, c.copy_digest_cells_per_cpu_s,
                              c.encode_peak_bytes, c.apply_peak_bytes));
  }
  return {{"cases", std::move(list)}};
}

std::string table_heading() {
  return fmt::format(
             "{:<20} {:<12} {:>3} {:>10} {:>12} {:>8} {:>8} {:>8} {:>7} | {:>7} {:>7} | {:>7} {:>7} {:>7} {:>7} | "
             "{:>7} {:>7}",
             "trace", "codec", "thr", "unchanged", "bytes", "smaller", "bits/chg", "entropy", "/entr.", "encode",
             "apply", "encode", "apply", "memcmp", "cp+hash", "encode", "apply") +
         fmt::format("\n{:>96} | {:^15} | {:^31} | {:^15}", "", "G cells/s", "G cells/CPU s", "peak MiB");
}

std::string table_line(const CodecCase& c) {
  const double unchanged_percent = 100.0 * (1.0 - static_cast<double>(c.changed) / static_cast<double>(c.cells));
  constexpr double kMiB = 1024.0 * 1024.0;
  return fmt::format(
      "{:<20} {:<12} {:>3} {:>9.3f}% {:>12} {:>7.1f}x {:>8.3f} {:>8.3f} {:>7.3f} | {:>7.2f} {:>7.2f} | {:>7.2f} "
      "{:>7.2f} "
      "{:>7.2f} {:>7.2f} | {:>7.1f} {:>7.1f}",
      c.trace, c.codec, c.threads, unchanged_percent, c.bytes,
      static_cast<double>(c.snapshot_bytes) / static_cast<double>(c.bytes), c.bits_per_changed(),
      c.entropy_bits_per_changed, c.bits_per_changed() / c.entropy_bits_per_changed, c.encode_cells_per_s / 1e9,
      c.apply_cells_per_s / 1e9, c.encode_cells_per_cpu_s / 1e9, c.apply_cells_per_cpu_s / 1e9,
      c.memcmp_cells_per_cpu_s / 1e9, c.copy_digest_cells_per_cpu_s / 1e9,
      static_cast<double>(c.encode_peak_bytes) / kMiB, static_cast<double>(c.apply_peak_bytes) / kMiB);
}

Result<std::string> size_table(unsigned threads) {
  CodecBenchOptions options;
  options.cells_min = kSizeTableCells;
  options.threads = threads;
  options.repetitions = 0;
  WC_ASSIGN(const auto cases, run_codec_bench(options));
  std::string table = fmt::format("{}{}\ntrace,codec,bytes\n", kZstdLine, linked_zstd_version());
  for (const CodecCase& c : cases) {
    if (c.threads == 1) table += fmt::format("{},{},{}\n", c.trace, c.codec, c.bytes);
  }
  return table;
}

std::string size_table_zstd_version(std::string_view table) {
  if (!table.starts_with(kZstdLine)) return {};
  table.remove_prefix(kZstdLine.size());
  return std::string(table.substr(0, table.find('\n')));
}

std::string linked_zstd_version() { return ZSTD_versionString(); }

}  // namespace weightcast::bench
