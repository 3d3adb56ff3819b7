#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/json_of.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/proc_bytes.h"
#include "bench/publish/bench_origin.h"
#include "bench/times.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

struct PublishBenchOptions {
  std::string size = "1GiB";
  std::size_t tensors = 64;
  std::uint32_t repetitions = 5;
  double changed_share = 0;  ///< of the cells, from version to version; 0: see measure_fill(), else measure_sparse()
  FleetFlags flags;
};

using Clock = std::chrono::steady_clock;

/// What publishing from memory, by fill in place, costs a trainer.
struct PublishBenchResult {
  std::uint64_t tensor_bytes = 0;
  std::size_t tensors = 0;
  // Medians over the repetitions, which take turns. Each is wall-clock time of one thread, with memory that
  // wc_reserve() took ahead of time.
  double copy_s = 0;    ///< the floor: memcpy of every tensor into memory of this process that has been touched before
  double begin_s = 0;   ///< wc_begin()
  double fill_s = 0;    ///< memcpy of every tensor to its place
  double commit_s = 0;  ///< wc_commit()
  double taken_s = 0;   ///< from wc_begin() until the origin had its own copy; the trainer does not wait
  double calls_s_max = 0;  ///< the longest begin and commit together
  /// The most memory of this process beyond the tensors, seen after each step.
  std::uint64_t extra_bytes = 0;

  [[nodiscard]] double ratio() const { return (begin_s + fill_s + commit_s) / copy_s; }
};

/// What a trainer holds: BF16 tensors of one size, all elements finite.
struct Tensors {
  Tensors(std::uint64_t bytes, std::size_t count) : storage(bytes / 2, std::uint16_t{0x3f80}) {
    const std::uint64_t each_elements = storage.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      const auto elements = std::span(storage).subspan(i * each_elements, each_elements);
      wc::Tensor& tensor = described.emplace_back();
      tensor.name = fmt::format("layers.{}.weight", i);
      tensor.dtype = "BF16";
      tensor.shape = {elements.size()};
      data.push_back(std::as_bytes(elements));
    }
  }

  std::vector<std::uint16_t> storage;
  std::vector<wc::Tensor> described;
  std::vector<Bytes> data;
};

double time_copies(const std::vector<Bytes>& tensors, const std::vector<void*>& places) {
  const auto start = Clock::now();
  for (std::size_t i = 0; i < tensors.size(); ++i) std::memcpy(places[i], tensors[i].data(), tensors[i].size());
  return seconds_since(start);
}

/// Places one after another in `into`.
std::vector<void*> places_in(MutableBytes into, const std::vector<Bytes>& tensors) {
  std::vector<void*> places;
  for (const Bytes tensor : tensors) {
    places.push_back(into.data());
    into = into.subspan(tensor.size());
  }
  return places;
}

/// Memory of this process: its own, and what it shares by a memfd.
std::uint64_t memory_bytes() {
  return proc_bytes("/proc/self/status", "RssAnon:") + proc_bytes("/proc/self/status", "RssShmem:");
}

/// Publishes again and again, and notes the times.
void publish_all(std::uint32_t repetitions, const Tensors& tensors, const std::string& state,
                 PublishBenchResult& result) {
  constexpr std::chrono::seconds kTimeout(60);
  std::vector<std::byte> memory(result.tensor_bytes);
  const std::vector<void*> copy = places_in(memory, tensors.data);
  time_copies(tensors.data, copy);
  const std::uint64_t before_bytes = memory_bytes();
  const auto note_memory = [&] {
    const std::uint64_t now_bytes = memory_bytes();
    result.extra_bytes = std::max(result.extra_bytes, now_bytes - std::min(now_bytes, before_bytes));
  };
  wc::Client client(state);
  client.reserve(tensors.described);
  std::vector<double> copies, begins, fills, commits, taken;
  // The first one lays the tensors out.
  for (std::uint32_t i = 0; i <= repetitions; ++i) {
    const double copy_s = time_copies(tensors.data, copy);
    const auto start = Clock::now();
    const std::vector<void*> places = client.begin(tensors.described, {}, kTimeout);
    const double begin_s = seconds_since(start);
    const double fill_s = time_copies(tensors.data, places);
    note_memory();
    const auto filled = Clock::now();
    const std::uint64_t version = client.commit(kTimeout);
    const double commit_s = seconds_since(filled);
    client.wait(version, {}, kTimeout);
    const double taken_s = seconds_since(start);
    note_memory();
    if (i == 0) continue;
    copies.push_back(copy_s);
    begins.push_back(begin_s);
    fills.push_back(fill_s);
    commits.push_back(commit_s);
    taken.push_back(taken_s);
    result.calls_s_max = std::max(result.calls_s_max, begin_s + commit_s);
  }
  result.copy_s = median(std::move(copies));
  result.begin_s = median(std::move(begins));
  result.fill_s = median(std::move(fills));
  result.commit_s = median(std::move(commits));
  result.taken_s = median(std::move(taken));
}

/// An origin without workers, on loopback. Errors: kInvalidArgument (less than an element per tensor); those of the
/// fleet and of the library.
Result<PublishBenchResult> measure_fill(const PublishBenchOptions& options, std::uint64_t tensor_bytes) {
  if (tensor_bytes / sizeof(std::uint16_t) < options.tensors) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} bytes are too few for {} BF16 tensors", tensor_bytes, options.tensors));
  }
  const auto network = make_loopback_network(std::vector<LinkRates>(1));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  // The version that is kept and the one that is taken over.
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(3 * tensor_bytes));
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, 0, options.flags.options(scratch.path())));

  const Tensors tensors(tensor_bytes, options.tensors);
  PublishBenchResult result;
  result.tensor_bytes = tensor_bytes;
  result.tensors = options.tensors;
  WC_TRY(attempt([&] { publish_all(options.repetitions, tensors, fleet->state(0), result); }));
  return result;
}

nlohmann::json to_json(const PublishBenchResult& result) {
  return WC_JSON_OF(result.tensor_bytes, result.tensors, result.copy_s, result.begin_s, result.fill_s, result.commit_s,
                    result.calls_s_max, result.ratio(), result.extra_bytes, result.taken_s);
}

/// The cost of one step at an origin, as a whole snapshot and as changes. Medians over the repetitions, which take
/// turns; wall-clock time from the beginning of the take-over, and processor time of all its threads. Each origin gets
/// every step.
struct SparseBenchResult {
  std::uint64_t tensor_bytes = 0;
  std::uint64_t changes_bytes = 0;  ///< that the trainer hands over
  std::uint64_t patch_bytes = 0;
  PublicationCost whole, sparse;
  std::uint32_t in_place = 0;  ///< repetitions in which the spare files were brought up to date where they are
  double memory_floor_s = 0;   ///< one copy of the tensors in memory, by one thread

  [[nodiscard]] double ratio() const { return sparse.encoded_s / whole.encoded_s; }
};

PublicationCost medians(const std::vector<PublicationCost>& costs) {
  using Cost = PublicationCost;
  return {median(costs, &Cost::copied_s), median(costs, &Cost::encoded_s), median(costs, &Cost::cpu_s), false};
}

double copy_seconds(Bytes from) {
  std::vector<std::byte> to(from.begin(), from.end());
  const auto start = Clock::now();
  std::memcpy(to.data(), from.data(), from.size());
  return seconds_since(start);
}

/// An origin's store, take-over and encoder in this process, without daemons and workers, on BF16 weights. Each version
/// is compared with what it should be. Errors: kCorrupt (it differs); those of the store and of the scratch directory.
Result<SparseBenchResult> measure_sparse(const PublishBenchOptions& options, std::uint64_t tensor_bytes) {
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  WC_ASSIGN(BenchTrainer trainer, BenchTrainer::make(tensor_bytes, options.tensors, options.changed_share));
  // Each is given every step.
  WC_ASSIGN(const std::unique_ptr<BenchOrigin> by_whole, BenchOrigin::open(scratch.path() / "whole"));
  WC_ASSIGN(const std::unique_ptr<BenchOrigin> by_changes, BenchOrigin::open(scratch.path() / "changes"));
  SparseBenchResult result;
  result.tensor_bytes = tensor_bytes;
  result.memory_floor_s = copy_seconds(trainer.whole().bytes());
  // The first steps make the files that all others reuse.
  constexpr std::uint32_t kFirst = 3;
  std::vector<PublicationCost> whole, sparse;
  for (std::uint32_t i = 0; i < kFirst + options.repetitions; ++i) {
    if (i > 0) WC_TRY(trainer.step());
    for (const bool is_sparse : {i % 2 == 0, i % 2 == 1}) {
      BenchOrigin& origin = is_sparse ? *by_changes : *by_whole;
      WC_ASSIGN(const PublicationCost cost,
                origin.publish(trainer, is_sparse && i > 0 ? PublishBy::kListing : PublishBy::kComparing, i > 0,
                               result.patch_bytes));
      WC_TRY(origin.check(trainer));
      if (i >= kFirst) (is_sparse ? sparse : whole).push_back(cost);
    }
  }
  result.changes_bytes = trainer.changes_bytes();
  for (const PublicationCost& cost : sparse) result.in_place += cost.in_place ? 1 : 0;
  result.whole = medians(whole);
  result.sparse = medians(sparse);
  return result;
}

nlohmann::json to_json(const SparseBenchResult& result) {
  const auto costs = [](const PublicationCost& of) { return WC_JSON_OF(of.copied_s, of.encoded_s, of.cpu_s); };
  return merged(WC_JSON_OF(result.tensor_bytes, result.changes_bytes, result.patch_bytes, result.in_place,
                           result.memory_floor_s, result.ratio()),
                {{"whole", costs(result.whole)}, {"sparse", costs(result.sparse)}});
}

Status run_sparse(const PublishBenchOptions& options, std::uint64_t tensor_bytes) {
  WC_ASSIGN(const SparseBenchResult result, measure_sparse(options, tensor_bytes));
  const auto show = [](const PublicationCost& cost) {
    return fmt::format("own copy after {:.3f} s, patch after {:.3f} s ({:.2f} CPU s)", cost.copied_s, cost.encoded_s,
                       cost.cpu_s);
  };
  fmt::print(
      "{} with {} of changes, a patch of {}: whole: {}; as changes: {}, {} of {} in place; {:.3f} of the time; one "
      "copy in memory takes {:.3f} s\n",
      format_bytes(result.tensor_bytes), format_bytes(result.changes_bytes), format_bytes(result.patch_bytes),
      show(result.whole), show(result.sparse), result.in_place, options.repetitions, result.ratio(),
      result.memory_floor_s);
  return write_json(options.flags.json_path, to_json(result));
}

Status run(const PublishBenchOptions& options) {
  WC_ASSIGN(const std::uint64_t tensor_bytes, parse_bytes(options.size));
  if (options.changed_share > 0) return run_sparse(options, tensor_bytes);
  WC_ASSIGN(const PublishBenchResult result, measure_fill(options, tensor_bytes));
  fmt::print(
      "{} in {} tensors: begin {:.3f} ms, fill {:.3f} s, commit {:.3f} ms (begin and commit at most {:.3f} ms); {:.2f} "
      "times one copy in memory ({:.3f} s); {} of memory beside the tensors; the origin has its own copy after {:.3f} "
      "s\n",
      format_bytes(result.tensor_bytes), result.tensors, 1e3 * result.begin_s, result.fill_s, 1e3 * result.commit_s,
      1e3 * result.calls_s_max, result.ratio(), result.copy_s, format_bytes(result.extra_bytes), result.taken_s);
  return write_json(options.flags.json_path, to_json(result));
}

}  // namespace

void add_publish_command(CLI::App& app) {
  const auto [command, options] =
      add_bench<const PublishBenchOptions>(app, "publish", "What publishing from memory costs the trainer", run);
  command->add_option("--size", options->size, "All tensors together")->check(bytes_validator());
  command->add_option("--tensors", options->tensors, "Number of tensors")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100000}));
  command->add_option("--repeat", options->repetitions, "Repetitions, after one that does not count")
      ->check(CLI::Range(1u, 1000u));
  command
      ->add_option("--changed", options->changed_share,
                   "Compare publishing a step that changes this share of the cells, whole and as a list of changes")
      ->check(CLI::Range(1e-6, 0.5))
      ->default_str("");
  options->flags.add_to(*command);
}

}  // namespace weightcast::bench
