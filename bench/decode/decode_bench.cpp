#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/json_of.h"
#include "base/parallel.h"
#include "base/random.h"
#include "base/units.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/decode/products.h"
#include "bench/decode/read_loop.h"
#include "bench/proc_bytes.h"
#include "bench/times.h"
#include "worker/engine/cpu_model.h"
#include "worker/engine/engine.h"

namespace weightcast::bench {
namespace {

struct DecodeBenchOptions {
  std::uint64_t weight_bytes = std::uint64_t{2} << 30;  ///< about; of a model like Qwen3
  std::string dtype = "bfloat16";
  std::vector<std::size_t> batches{1, 32};
  std::size_t prompt_tokens = 32;
  std::size_t steps = 8;  ///< of each batch, after one that does not count
  unsigned threads = 1;
  std::string kernels;  ///< plain, avx2, avx512, amx; empty: the best
  std::string json_path;

  [[nodiscard]] bool bfloat16() const { return dtype == "bfloat16"; }
};

/// Decoding steps of one batch size. Medians over the steps; the floors are measured between them.
struct DecodeCase {
  std::size_t batch = 0;
  double step_s = 0;
  double step_cpu_s = 0;  ///< of all threads
  double read_s = 0;      ///< the floor: reading as many bytes of weights as a token takes, once
  double read_cpu_s = 0;
  double products_s = 0;  ///< a plain loop of matrix products over the same shapes, by the machine's BLAS
  double products_cpu_s = 0;

  [[nodiscard]] double tokens_per_s() const { return static_cast<double>(batch) / step_s; }
};

struct DecodeBenchResult {
  std::uint64_t weight_bytes = 0;
  std::uint64_t token_bytes = 0;     ///< of weights that a token takes
  std::uint64_t cache_bytes = 0;     ///< of keys and values in use at the end
  std::uint64_t resident_bytes = 0;  ///< of the process, less what it had before the model was made
  std::string kernels;
  std::vector<DecodeCase> cases;
};

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
  const std::uint64_t cells = options.weight_bytes / (options.bfloat16() ? 2 : 4);
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

/// Errors: those of Engine::make(); kInvalidArgument (kernels that the processor does not have).
Result<DecodeBenchResult> measure_all(const DecodeBenchOptions& options) {
  WC_ASSIGN(const kernels::Kernels* const kernel, kernels_named(options.kernels));
  const std::uint64_t before = resident_bytes();
  WC_ASSIGN(const auto weights, make_weights(model_of(options), options.bfloat16()));
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
  return merged(
      WC_JSON_OF(result.weight_bytes, result.token_bytes, result.cache_bytes, result.resident_bytes, result.kernels),
      {{"cases", cases}});
}

Status run(const DecodeBenchOptions& options) {
  WC_ASSIGN(const DecodeBenchResult result, measure_all(options));
  fmt::print("{:.2f} GiB of {} weights, {} threads, kernels {}; {:.2f} GiB resident\n",
             static_cast<double>(result.weight_bytes) / kGiB, options.dtype, options.threads, result.kernels,
             static_cast<double>(result.resident_bytes) / kGiB);
  for (const DecodeCase& one : result.cases) {
    fmt::print(
        "batch {}: a step takes {:.1f} ms ({:.1f} of processor time), {:.1f} tokens/s; reading the weights once {:.1f} "
        "ms ({:.1f}), {:.1f} GB/s, {:.2f} of that bound; LibTorch's products {:.1f} ms ({:.1f}), {:.2f} of their "
        "speed\n",
        one.batch, 1e3 * one.step_s, 1e3 * one.step_cpu_s, one.tokens_per_s(), 1e3 * one.read_s, 1e3 * one.read_cpu_s,
        1e-9 * static_cast<double>(result.token_bytes) / one.read_s, one.read_cpu_s / one.step_cpu_s,
        1e3 * one.products_s, 1e3 * one.products_cpu_s, one.products_cpu_s / one.step_cpu_s);
  }
  return write_json(options.json_path, to_json(result));
}

}  // namespace

void add_decode_command(CLI::App& app) {
  const auto [command, options] = add_bench<const DecodeBenchOptions>(
      app, "decode", "Decoding steps of the engine against memory and against products", run);
  command->add_option("--weights", options->weight_bytes, "About so many bytes of weights")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--dtype", options->dtype, "Of the weights")->check(CLI::IsMember({"float32", "bfloat16"}));
  command->add_option("--batch", options->batches, "Sequences of a step: 1,32")
      ->delimiter(',')
      ->check(CLI::Range(std::size_t{1}, std::size_t{256}));
  command->add_option("--prompt", options->prompt_tokens, "Tokens of each prompt")
      ->check(CLI::Range(std::size_t{1}, std::size_t{4096}));
  command->add_option("--steps", options->steps, "Steps of each batch, after one that does not count")
      ->check(CLI::Range(std::size_t{1}, std::size_t{10000}));
  command->add_option("--threads", options->threads, "Of the engine, the reading and the products")
      ->check(CLI::Range(1u, 256u));
  command->add_option("--kernels", options->kernels, "plain, avx2, avx512 or amx; the best by default");
  command->add_option("--json", options->json_path, "Write the result to this file; - is stdout");
}

}  // namespace weightcast::bench
