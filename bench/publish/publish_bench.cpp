#include "bench/publish/publish_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "base/json_of.h"
#include "bench/proc_bytes.h"
#include "bench/times.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

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
void measure(const PublishBenchOptions& options, const Tensors& tensors, const std::string& state,
             PublishBenchResult& result) {
  constexpr std::chrono::seconds kTimeout(60);
  std::vector<std::byte> memory(options.tensor_bytes);
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
  for (std::uint32_t i = 0; i <= options.repetitions; ++i) {
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

}  // namespace

Result<PublishBenchResult> run_publish_bench(const PublishBenchOptions& options) {
  if (options.tensor_bytes / sizeof(std::uint16_t) < options.tensors) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} bytes are too few for {} BF16 tensors", options.tensor_bytes, options.tensors));
  }
  const auto network = make_loopback_network(std::vector<LinkRates>(1));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  // The version that is kept and the one that is taken over.
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(3 * options.tensor_bytes));
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, 0, options.flags.options(scratch.path())));

  const Tensors tensors(options.tensor_bytes, options.tensors);
  PublishBenchResult result;
  result.tensor_bytes = options.tensor_bytes;
  result.tensors = options.tensors;
  WC_TRY(attempt([&] { measure(options, tensors, fleet->state(0), result); }));
  return result;
}

nlohmann::json to_json(const PublishBenchResult& result) {
  return WC_JSON_OF(result.tensor_bytes, result.tensors, result.copy_s, result.begin_s, result.fill_s, result.commit_s,
                    result.calls_s_max, result.ratio(), result.extra_bytes, result.taken_s);
}

}  // namespace weightcast::bench
