#include "bench/publish/publish_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return to_seconds(Clock::now() - start); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// What a trainer holds: BF16 tensors of one size, all elements finite.
struct Tensors {
  Tensors(std::uint64_t bytes, std::size_t count) : storage(bytes / 2, std::uint16_t{0x3f80}) {
    const std::uint64_t each_elements = storage.size() / count;
    for (std::size_t i = 0; i < count; ++i) {
      const auto elements = std::span(storage).subspan(i * each_elements, each_elements);
      TensorSource& tensor = sources.emplace_back();
      tensor.info.name = fmt::format("layers.{}.weight", i);
      tensor.info.dtype = "BF16";
      tensor.info.shape = {elements.size()};
      tensor.info.size_bytes = elements.size_bytes();
      tensor.data = std::as_bytes(elements);
    }
  }

  std::vector<std::uint16_t> storage;
  std::vector<TensorSource> sources;
};

double time_copy(const std::vector<TensorSource>& tensors, MutableBytes into) {
  const auto start = Clock::now();
  std::byte* out = into.data();
  for (const TensorSource& tensor : tensors) {
    std::memcpy(out, tensor.data.data(), tensor.data.size());
    out += tensor.data.size();
  }
  return seconds_since(start);
}

}  // namespace

Result<PublishBenchResult> run_publish_bench(const PublishBenchOptions& options) {
  if (options.tensor_bytes / sizeof(std::uint16_t) < options.tensors) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} bytes are too few for {} BF16 tensors", options.tensor_bytes, options.tensors));
  }
  const auto network = make_loopback_network(std::vector<LinkRates>(1));
  WC_ASSIGN(const Scratch scratch, Scratch::make(options.flags.scratch));
  // The version that is kept and the one that is taken over.
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(3 * options.tensor_bytes));
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, 0, options.flags.options(scratch.path())));

  const Tensors tensors(options.tensor_bytes, options.tensors);
  std::vector<std::byte> copy(options.tensor_bytes);
  WC_ASSIGN(TensorPublisher publisher, TensorPublisher::open(fleet->state(0)));
  WC_TRY(publisher.reserve(options.tensor_bytes + kMiB));

  PublishBenchResult result;
  result.tensor_bytes = options.tensor_bytes;
  result.tensors = options.tensors;
  std::vector<double> copies, publishes, taken;
  for (std::uint32_t i = 0; i <= options.repetitions; ++i) {
    const double copy_s = time_copy(tensors.sources, copy);
    const auto start = Clock::now();
    WC_TRY(publisher.publish(Version{i + 1}, tensors.sources, {}));
    const double publish_s = seconds_since(start);
    WC_TRY(publisher.wait());
    const double taken_s = seconds_since(start);
    if (i == 0) {
      result.first_publish_s = publish_s;
      continue;
    }
    copies.push_back(copy_s);
    publishes.push_back(publish_s);
    taken.push_back(taken_s);
  }
  result.copy_s = median(std::move(copies));
  result.publish_s = median(std::move(publishes));
  result.taken_s = median(std::move(taken));
  return result;
}

nlohmann::json to_json(const PublishBenchResult& result) {
  return {{"tensor_bytes", result.tensor_bytes},
          {"tensors", result.tensors},
          {"copy_s", result.copy_s},
          {"publish_s", result.publish_s},
          {"ratio", result.ratio()},
          {"first_publish_s", result.first_publish_s},
          {"taken_s", result.taken_s}};
}

}  // namespace weightcast::bench
