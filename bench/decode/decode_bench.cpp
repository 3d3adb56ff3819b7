#include "bench/decode/decode_bench.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/json_of.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/time.h"
#include "bench/decode/products.h"
#include "bench/decode/read_loop.h"
#include "bench/proc_bytes.h"
#include "bench/times.h"
#include "worker/engine/cpu_model.h"
#include "worker/engine/engine.h"

namespace weightcast::bench {
namespace {

constexpr std::size_t kReadBlock = std::size_t{1} << 20;

/// Of this process: what only it has in memory.
std::uint64_t resident_bytes() { return proc_bytes("/proc/self/status", "VmRSS:"); }

/// Like Qwen3-0.6B, with as many layers as make up the bytes.
ModelConfig model_of(const DecodeBenchOptions& options) {
  ModelConfig config;
  config.architecture = Architecture::kQwen3;
  config.vocab_size = 151936;
  config.hidden_size = 1024;
  config.intermediate_size = 3072;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.qk_norm = true;
  config.tie_word_embeddings = true;
  config.rope.theta = 1e6;
  const std::uint64_t cells = options.weight_bytes / (options.bfloat16 ? 2 : 4);
  if (cells < 4 * static_cast<std::uint64_t>(config.vocab_size * config.hidden_size)) {
    // A small one: sizes in proportion to what models of a few million parameters have.
    config.vocab_size = 512;
    config.hidden_size = 256;
    config.intermediate_size = 768;
    config.num_attention_heads = 4;
    config.num_key_value_heads = 2;
    config.head_dim = 64;
  }
  for (config.num_hidden_layers = 1; static_cast<std::uint64_t>(model_size(config).parameters) < cells;) {
    ++config.num_hidden_layers;
  }
  return config;
}

Result<std::shared_ptr<const EngineWeights>> make_weights(const ModelConfig& config, bool bfloat16) {
  const std::size_t cell_bytes = bfloat16 ? 2 : 4;
  const auto parameters = static_cast<std::uint64_t>(model_size(config).parameters);
  const std::uint64_t bytes = parameters * cell_bytes;
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return fail(Errc::kTooLarge, Op::kOpen, fmt::format("the weights: the system has no {} bytes", bytes));
  }
  static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE));
  std::shared_ptr<std::byte> owner(static_cast<std::byte*>(memory), [bytes](std::byte* m) { ::munmap(m, bytes); });
  // The same numbers again and again: products do not care.
  Random random(1);
  std::vector<std::byte> pattern(std::size_t{1} << 20);
  for (std::size_t i = 0; i < pattern.size(); i += cell_bytes) {
    const auto value = static_cast<float>(0.04 * (random.unit() - 0.5));
    std::byte cell[4];
    std::memcpy(cell, &value, 4);
    std::memcpy(pattern.data() + i, cell + 4 - cell_bytes, cell_bytes);
  }
  for (std::uint64_t at = 0; at < bytes; at += pattern.size()) {
    std::memcpy(owner.get() + at, pattern.data(), std::min<std::uint64_t>(pattern.size(), bytes - at));
  }
  std::vector<NamedTensor> tensors;
  const std::byte* place = owner.get();
  for (const TensorSpec& spec : tensor_specs(config)) {
    const std::size_t size = static_cast<std::size_t>(spec.elements()) * cell_bytes;
    tensors.push_back({spec.name, bfloat16 ? "BF16" : "F32", {place, size}});
    place += size;
  }
  return EngineWeights::make(config, tensors, owner);
}

/// The matrices that a token is multiplied with, in order.
std::vector<WeightMatrix> matrices_of(const EngineWeights& weights) {
  std::vector<WeightMatrix> result;
  for (const WeightLayer& layer : weights.layers()) {
    for (const WeightLinear* linear : {&layer.query, &layer.key, &layer.value, &layer.output, &layer.dense.gate,
                                       &layer.dense.up, &layer.dense.down}) {
      result.push_back(linear->matrix);
    }
  }
  result.push_back(weights.head());
  return result;
}

/// Reads matrices once.
void read_all(std::span<const WeightMatrix> matrices, unsigned threads) {
  struct Part {
    const std::uint64_t* words;
    std::size_t count;
  };
  std::vector<Part> parts;
  for (const WeightMatrix& matrix : matrices) {
    const auto* words = static_cast<const std::uint64_t*>(matrix.data);
    for (std::size_t left = matrix.bytes() / 8; left > 0;) {
      const std::size_t count = std::min(left, kReadBlock);
      parts.push_back({words, count});
      words += count;
      left -= count;
    }
  }
  for_each_index(parts.size(), threads, [&](std::size_t i) {
    const volatile std::uint64_t sum = read_loop(parts[i].words, parts[i].count);
    static_cast<void>(sum);
  });
}

Result<const kernels::Kernels*> kernels_named(const std::string& name) {
  if (name.empty()) return &kernels::best();
  for (const kernels::Kernels* here : kernels::available()) {
    if (name == here->name) return here;
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("kernels {}: this processor has none of them", name));
}

Result<DecodeCase> measure(const std::shared_ptr<const EngineWeights>& weights, const DecodeBenchOptions& options,
                           const kernels::Kernels& kernel, std::size_t batch, std::uint64_t& cache_bytes) {
  CpuModelOptions model_options;
  const std::size_t positions = options.prompt_tokens + options.steps + 2;
  model_options.blocks = static_cast<std::uint32_t>(batch * (positions / kBlockPositions + 1));
  model_options.threads = options.threads;
  model_options.kernels = &kernel;
  WC_ASSIGN(std::unique_ptr<EngineModel> model, make_cpu_model(weights, model_options));
  EngineOptions engine_options;
  WC_ASSIGN(const auto engine, Engine::make(std::move(model), kNoVersion, engine_options));
  for (std::size_t i = 0; i < batch; ++i) {
    EngineRequest request;
    Random random(i);
    for (std::size_t k = 0; k < options.prompt_tokens; ++k) {
      request.prompt.push_back(
          static_cast<TokenId>(random.below(static_cast<std::uint64_t>(weights->config().vocab_size))));
    }
    request.tokens_max = options.steps + 2;
    request.seed = i;
    WC_TRY(engine->add(std::move(request)));
  }
  // Until all decode.
  while (engine->status().answer_tokens < batch) static_cast<void>(engine->step());
  const std::vector<WeightMatrix> matrices = matrices_of(*weights);
  std::vector<Times> steps, reads, products;
  for (std::size_t i = 0; i <= options.steps && engine->busy(); ++i) {
    const Times step = times_of([&] { static_cast<void>(engine->step()); });
    cache_bytes = std::max(cache_bytes, engine->status().blocks_used * engine->status().block_bytes);
    const Times read = times_of([&] { read_all(matrices, options.threads); });
    bool multiplied = false;
    const Times product = times_of([&] { multiplied = multiply_all(matrices, batch, options.threads); });
    if (i == 0) continue;
    steps.push_back(step);
    reads.push_back(read);
    if (multiplied) products.push_back(product);
  }
  DecodeCase result;
  result.batch = batch;
  result.step_s = median(steps, &Times::wall_s);
  result.step_cpu_s = median(steps, &Times::cpu_s);
  result.read_s = median(reads, &Times::wall_s);
  result.read_cpu_s = median(reads, &Times::cpu_s);
  if (!products.empty()) {
    result.products_s = median(products, &Times::wall_s);
    result.products_cpu_s = median(products, &Times::cpu_s);
  }
  return result;
}

}  // namespace

Result<DecodeBenchResult> run_decode_bench(const DecodeBenchOptions& options) {
  WC_ASSIGN(const kernels::Kernels* const kernel, kernels_named(options.kernels));
  const std::uint64_t before = resident_bytes();
  WC_ASSIGN(const auto weights, make_weights(model_of(options), options.bfloat16));
  DecodeBenchResult result;
  result.kernels = kernel->name;
  result.weight_bytes = weights->bytes();
  result.token_bytes = weights->bytes_per_token();
  for (const std::size_t batch : options.batches) {
    WC_ASSIGN(result.cases.emplace_back(), measure(weights, options, *kernel, batch, result.cache_bytes));
    result.resident_bytes = std::max(result.resident_bytes, resident_bytes() - before);
  }
  return result;
}

nlohmann::json to_json(const DecodeBenchResult& result) {
  nlohmann::json cases = nlohmann::json::array();
  for (const DecodeCase& one : result.cases) {
    cases.push_back(
        merged(WC_JSON_OF(one.batch, one.step_s, one.step_cpu_s, one.tokens_per_s(), one.read_s, one.read_cpu_s,
                          one.products_s, one.products_cpu_s),
               {{"bandwidth_share", one.read_s / one.step_s}, {"products_share", one.products_s / one.step_s}}));
  }
  return {{"weight_bytes", result.weight_bytes}, {"token_bytes", result.token_bytes},
          {"cache_bytes", result.cache_bytes},   {"resident_bytes", result.resident_bytes},
          {"kernels", result.kernels},           {"cases", cases}};
}

}  // namespace weightcast::bench
