#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <optional>

#include "base/json_of.h"
#include "base/parallel.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/fleet/interrupt.h"
#include "bench/publish/bench_origin.h"
#include "bench/times.h"
#include "tools/command.h"
#include "transport/io/log.h"

namespace weightcast::bench {
namespace {

struct ThreadsBenchOptions {
  std::string size = "1GiB";
  std::vector<unsigned> threads = {1, 2, 4};  ///< the first is what the others are compared with
  std::uint32_t repetitions = 3;
  std::string json_path;
};

/// What stays proportional to the model, by so many threads. Medians over the repetitions, which take turns.
struct ThreadsBenchCase {
  unsigned threads = 0;
  double copy_s = 0;       ///< the floor: the tensors copied in memory by so many threads
  double take_over_s = 0;  ///< a whole snapshot, until the origin has its own copy
  double scan_s = 0;       ///< the floor of what follows: two copies of the tensors compared in memory
  double compare_s = 0;    ///< a whole snapshot of which little has changed: the origin's copy, and the patch to it
  double pack_s = 0;       ///< the packed payload
  double unpack_s = 0;     ///< at a worker, from its first chunk to the switch
};

using Clock = std::chrono::steady_clock;

// As many as a fast link has under way.
constexpr std::size_t kWritesMax = 32;
constexpr std::size_t kCopyBytes = 4 * kMiB;
constexpr std::size_t kTensorCount = 64;
constexpr double kChangedShare = 0.01;  // of the cells, from version to version

double copy_seconds(Bytes from, std::vector<std::byte>& to, unsigned threads) {
  const auto start = Clock::now();
  for_each_index((from.size() + kCopyBytes - 1) / kCopyBytes, threads, [&](std::size_t i) {
    const Bytes piece = from.subspan(i * kCopyBytes, std::min(kCopyBytes, from.size() - i * kCopyBytes));
    std::memcpy(to.data() + i * kCopyBytes, piece.data(), piece.size());
  });
  return seconds_since(start);
}

/// How long it takes to look at every word of both.
double scan_seconds(Bytes one, Bytes other, unsigned threads) {
  std::atomic<std::uint64_t> differ{0};
  const auto start = Clock::now();
  for_each_index((one.size() + kCopyBytes - 1) / kCopyBytes, threads, [&](std::size_t i) {
    const std::size_t at = i * kCopyBytes, words = std::min(kCopyBytes, one.size() - at) / sizeof(std::uint64_t);
    std::uint64_t bits = 0;
    for (std::size_t word = 0; word < words; ++word) {
      std::uint64_t a, b;
      std::memcpy(&a, one.data() + at + word * sizeof a, sizeof a);
      std::memcpy(&b, other.data() + at + word * sizeof b, sizeof b);
      bits |= a ^ b;
    }
    differ |= bits;
  });
  return seconds_since(start);
}

struct Chunks {
  std::shared_ptr<const Manifest> manifest;
  std::vector<ContentDigest> digests;
  std::vector<BufferRef> bytes;
};

/// All of a payload, as it would travel.
Result<Chunks> read_chunks(BenchStore& node, const MadePayload& made) {
  Chunks chunks{made.manifest, made.chunk_digests, {}};
  chunks.bytes.resize(made.manifest->chunk_count());
  for (std::uint32_t i = 0; i < made.manifest->chunk_count(); ++i) {
    std::optional<Error> failed;
    node.store().read_chunk(made.manifest->id(), ChunkIndex{i}, [&, i](Result<BufferRef> read) {
      if (!read.has_value()) {
        failed = read.error();
      } else {
        chunks.bytes[i] = *std::move(read);
      }
    });
    WC_TRY(node.wait([&] { return failed || chunks.bytes[i]; }));
    if (failed) return *failed;
  }
  return chunks;
}

/// What a worker does with a payload that arrives as fast as it takes it. Returns the seconds until it is installed.
Result<double> receive(BenchStore& node, const Chunks& chunks) {
  const Manifest& manifest = *chunks.manifest;
  Store& store = node.store();
  std::optional<Status> begun;
  store.begin(manifest,
              [&](const Result<PartialVersion>& made) { begun = made.has_value() ? Status() : Status(made.error()); });
  WC_TRY(node.wait([&] { return begun.has_value(); }));
  WC_TRY(*begun);
  const auto start = Clock::now();
  for (std::uint32_t part = 0; part < manifest.part_count(); ++part) {
    const std::size_t first = std::size_t{part} * manifest.part_chunks;
    const std::size_t last = std::min<std::size_t>(first + manifest.part_chunks, chunks.digests.size());
    store.put_digest_part(
        manifest.id(), part,
        {chunks.digests.begin() + std::ptrdiff_t(first), chunks.digests.begin() + std::ptrdiff_t(last)});
  }
  std::size_t under_way = 0;
  std::optional<Error> failed;
  for (std::uint32_t i = 0; i < manifest.chunk_count() && !failed; ++i) {
    ++under_way;
    store.write_chunk(manifest.id(), ChunkIndex{i}, chunks.bytes[i], [&](const Status& written) {
      --under_way;
      if (!written.has_value()) failed = written.error();
    });
    WC_TRY(node.wait([&] { return under_way < kWritesMax; }));
  }
  WC_TRY(node.wait([&] { return under_way == 0; }));
  if (failed) return *failed;
  std::optional<Result<StoredVersion>> installed;
  store.finish(manifest.id(), [&](Result<StoredVersion> done) { installed = std::move(done); });
  WC_TRY(node.wait([&] { return installed.has_value(); }));
  if (!installed->has_value()) return installed->error();
  const double seconds = seconds_since(start);
  WC_TRY(node.wait([&] { return store.find(manifest.version)->durable; }));
  store.retain({});
  WC_TRY(node.wait([&] { return store.versions().size() == 1; }));
  return seconds;
}

/// An origin and a worker that may use so many threads.
struct Pair {
  unsigned threads = 0;
  std::unique_ptr<BenchOrigin> origin;
  std::unique_ptr<BenchStore> worker;
  std::vector<ThreadsBenchCase> costs;
};

Result<PublicationCost> publish(Pair& pair, const BenchTrainer& trainer, PublishBy way) {
  std::uint64_t patch_bytes = 0;
  WC_ASSIGN(const PublicationCost cost, pair.origin->publish(trainer, way, false, patch_bytes));
  WC_TRY(pair.origin->check(trainer));
  return cost;
}

/// The first of two steps, published whole, packed, and unpacked.
Result<ThreadsBenchCase> take_over(Pair& pair, const BenchTrainer& trainer, std::vector<std::byte>& memory) {
  ThreadsBenchCase cost;
  cost.threads = pair.threads;
  cost.copy_s = copy_seconds(trainer.whole().bytes(), memory, pair.threads);
  WC_ASSIGN(const PublicationCost published, publish(pair, trainer, PublishBy::kTakingOver));
  cost.take_over_s = published.copied_s;
  const auto start = Clock::now();
  WC_ASSIGN(const MadePayload packed, pair.origin->pack());
  cost.pack_s = seconds_since(start);
  WC_ASSIGN(const Chunks chunks, read_chunks(pair.origin->node(), packed));
  WC_ASSIGN(cost.unpack_s, receive(*pair.worker, chunks));
  return cost;
}

/// The last of further steps; `memory` has the first one. They are compared with those before them. The files that a
/// step is written to lack two, so the first of these copies.
Status compare(Pair& pair, const BenchTrainer& trainer, const std::vector<std::byte>& memory, ThreadsBenchCase& cost) {
  cost.scan_s = scan_seconds(trainer.whole().bytes(), memory, pair.threads);
  WC_ASSIGN(const PublicationCost published, publish(pair, trainer, PublishBy::kComparing));
  cost.compare_s = published.copied_s;
  return {};
}

/// An origin's and a worker's parts in this process, each with a loop and a store, without sockets. Each version is
/// compared with what it should be. Errors: kCorrupt (it differs); those of the stores and of the scratch directory.
Result<std::vector<ThreadsBenchCase>> measure(const ThreadsBenchOptions& options, std::uint64_t tensor_bytes) {
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  WC_ASSIGN(BenchTrainer trainer, BenchTrainer::make(tensor_bytes, kTensorCount, kChangedShare));
  std::vector<std::byte> memory(trainer.whole().bytes().size());
  // The process's pool is as large as its first loop with work wants it.
  std::vector<unsigned> descending = options.threads;
  std::ranges::sort(descending, std::ranges::greater());
  std::vector<Pair> pairs;
  for (const unsigned threads : descending) {
    Pair pair{threads, nullptr, nullptr, {}};
    WC_ASSIGN(pair.origin, BenchOrigin::open(scratch.path() / fmt::format("origin-{}", threads), threads));
    WC_ASSIGN(pair.worker, BenchStore::open(scratch.path() / fmt::format("worker-{}", threads), threads));
    pairs.push_back(std::move(pair));
  }
  // The first steps make the files that all others reuse.
  constexpr std::uint32_t kFirst = 3;
  for (std::uint32_t i = 0; i < kFirst + options.repetitions; ++i) {
    if (i > 0) WC_TRY(trainer.step());
    for (Pair& pair : pairs) {
      WC_ASSIGN(pair.costs.emplace_back(), take_over(pair, trainer, memory));
    }
    for (std::uint32_t further = 0; further < 2; ++further) {
      WC_TRY(trainer.step());
      for (Pair& pair : pairs) WC_TRY(compare(pair, trainer, memory, pair.costs.back()));
    }
  }
  std::vector<ThreadsBenchCase> cases;
  for (const unsigned threads : options.threads) {
    auto costs = std::ranges::find(pairs, threads, &Pair::threads)->costs;
    costs.erase(costs.begin(), costs.begin() + kFirst);
    cases.push_back({threads, median(costs, &ThreadsBenchCase::copy_s), median(costs, &ThreadsBenchCase::take_over_s),
                     median(costs, &ThreadsBenchCase::scan_s), median(costs, &ThreadsBenchCase::compare_s),
                     median(costs, &ThreadsBenchCase::pack_s), median(costs, &ThreadsBenchCase::unpack_s)});
  }
  return cases;
}

nlohmann::json to_json(const std::vector<ThreadsBenchCase>& cases) {
  nlohmann::json json = nlohmann::json::array();
  for (const ThreadsBenchCase& one : cases) {
    json.push_back(merged(
        WC_JSON_OF(one.threads, one.copy_s, one.take_over_s, one.scan_s, one.compare_s, one.pack_s, one.unpack_s),
        {{"compare_to_scan", one.compare_s / one.scan_s}}));
  }
  return json;
}

Status run(const ThreadsBenchOptions& options) {
  WC_ASSIGN(const std::uint64_t tensor_bytes, parse_bytes(options.size));
  set_up_log("warning", {});
  hold_interrupts();
  WC_ASSIGN(const auto cases, measure(options, tensor_bytes));
  fmt::print("{} of BF16; seconds, and how many times as fast as by {} of them\n", options.size, cases[0].threads);
  fmt::print("threads  copy            take over       scan            compare         pack            unpack\n");
  for (const ThreadsBenchCase& one : cases) {
    fmt::print("{:<8}", one.threads);
    for (const auto which : {&ThreadsBenchCase::copy_s, &ThreadsBenchCase::take_over_s, &ThreadsBenchCase::scan_s,
                             &ThreadsBenchCase::compare_s, &ThreadsBenchCase::pack_s, &ThreadsBenchCase::unpack_s}) {
      fmt::print(" {:<15}", fmt::format("{:.3f} ({:.2f})", one.*which, cases[0].*which / (one.*which)));
    }
    fmt::print("\n");
  }
  return write_json(options.json_path, to_json(cases));
}

}  // namespace

void add_threads_command(CLI::App& app) {
  const auto [command, options] =
      add_bench<const ThreadsBenchOptions>(app, "threads", "What is proportional to the model, by how many threads", run);
  command->add_option("--size", options->size, "All tensors together")->check(bytes_validator());
  command->add_option("--threads", options->threads, "Numbers of threads; the first is compared with")
      ->delimiter(',')
      ->check(CLI::Range(1, 64));
  command->add_option("--repeat", options->repetitions, "Repetitions")->check(CLI::Range(1u, 1000u));
  command->add_option("--json", options->json_path, "Also write the result to this file");
}

}  // namespace weightcast::bench
