// weightcast-bench-learner [key=value ...]: where the time and the memory of an update go. Keys are those of
// `weightcast-train run`; and sequences, tokens (of a sequence), repeat. One JSON object on stdout.
//
// The GEMM rate of the machine is measured between the updates, with the shapes of a layer, so that other load on the
// machine slows both. Live tensor bytes are those that LibTorch's allocator has given out. `changes` is what a sparse
// publication waits for: the cells that the update has changed, in the host's memory.
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files/posix_file_system.h"
#include "base/random.h"
#include "base/settings/settings.h"
#include "bench/times.h"
#include "trainer/loss/token_log_probs.h"
#include "trainer/update/updates.h"

#if defined(WEIGHTCAST_CUDA)
#include <c10/cuda/CUDACachingAllocator.h>
#endif

extern "C" __attribute__((weak)) void openblas_set_num_threads(int);

namespace weightcast {
namespace {

using Clock = std::chrono::steady_clock;
using bench::median;
using bench::seconds_since;

// Of the whole process: callbacks and allocators of LibTorch have no other place.
std::atomic<std::int64_t> live_bytes = 0, peak_bytes = 0;
std::atomic<double> gemm_seconds = 0, gemm_flop = 0;

/// Counts what the allocator below it gives out.
struct CountingAllocator final : c10::Allocator {
  explicit CountingAllocator(c10::Allocator& of) : below(of) {}
  struct Block {
    c10::DataPtr data;
    std::int64_t bytes;
  };
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(std::size_t bytes) override { return count(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { default_copy_data(to, from, bytes); }
#else
  c10::DataPtr allocate(std::size_t bytes) const override { return count(bytes); }
#endif
  c10::DataPtr count(std::size_t bytes) const {
    auto block = std::make_unique<Block>(Block{below.allocate(bytes), static_cast<std::int64_t>(bytes)});
    const std::int64_t now = live_bytes += block->bytes;
    if (now > peak_bytes) peak_bytes = now;
    void* const memory = block->data.get();
    return {memory, block.release(), &release, c10::Device(c10::kCPU)};
  }
  static void release(void* context) {
    const std::unique_ptr<Block> block(static_cast<Block*>(context));
    live_bytes -= block->bytes;
  }
  c10::Allocator& below;
};

struct GemmContext : at::ObserverContext {
  Clock::time_point begin = Clock::now();
  double flop = 0;
};

bool is_gemm(const at::RecordFunction& function) {
  static const std::array<std::string_view, 5> kNames{"aten::mm", "aten::addmm", "aten::addmm_", "aten::bmm",
                                                      "aten::baddbmm"};
  return std::find(kNames.begin(), kNames.end(), function.name()) != kNames.end();
}

std::unique_ptr<at::ObserverContext> begin_gemm(const at::RecordFunction& function) {
  if (!is_gemm(function)) return nullptr;
  auto context = std::make_unique<GemmContext>();
  // The last two tensors are the factors: [..., m, k] and [..., k, n].
  std::vector<at::Tensor> tensors;
  for (const auto& input : function.inputs()) {
    if (input.isTensor()) tensors.push_back(input.toTensor());
  }
  if (tensors.size() >= 2) {
    const at::Tensor& left = tensors[tensors.size() - 2];
    const at::Tensor& right = tensors.back();
    context->flop = 2.0 * static_cast<double>(left.numel()) * static_cast<double>(right.size(-1));
  }
  return context;
}

void end_gemm(const at::RecordFunction&, at::ObserverContext* context) {
  if (context == nullptr) return;
  const auto* gemm = static_cast<GemmContext*>(context);
  gemm_seconds = gemm_seconds + seconds_since(gemm->begin);
  gemm_flop = gemm_flop + gemm->flop;
}

struct Options {
  std::uint64_t sequences = 8, tokens = 256, repeat = 5;
  std::vector<Setting> settings{{"output_dir", "unused"},
                                {"init_hidden_size", "256"},
                                {"init_intermediate_size", "1024"},
                                {"init_num_hidden_layers", "10"},
                                {"micro_batch_tokens", "100000000"}};
};

Result<Options> parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    WC_ASSIGN(Setting setting, parse_setting(argv[i]));
    std::uint64_t* const own = setting.name == "sequences" ? &options.sequences
                               : setting.name == "tokens"  ? &options.tokens
                               : setting.name == "repeat"  ? &options.repeat
                                                           : nullptr;
    if (own == nullptr) {
      options.settings.push_back(std::move(setting));
      continue;
    }
    const std::string& text = setting.value;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *own);
    if (error != std::errc() || end != text.data() + text.size() || *own == 0 || *own > 1'000'000) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("{} is '{}'; it is a whole number, 1 to 1000000", setting.name, text));
    }
  }
  return options;
}

std::vector<Sample> samples_of(const Options& options, std::int64_t vocabulary) {
  std::vector<Sample> samples;
  Random random(1);
  for (std::uint64_t i = 0; i < options.sequences; ++i) {
    Sample& sample = samples.emplace_back();
    for (std::uint64_t t = 0; t < options.tokens; ++t) {
      sample.tokens.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
    }
    sample.loss_mask.assign(options.tokens, 1);
    sample.weights.assign(options.tokens, 1);
    sample.token_rewards.assign(options.tokens, 0);
  }
  return samples;
}

/// Tensors that the forward pass keeps for the backward pass, and those beside them: weights, gradients, a chunk of
/// logits with its gradient, and the largest pair of a layer's tensors that the backward pass makes at a time.
double expected_bytes(const ModelConfig& m, const DecoderOptions& options, double parameters, double tokens) {
  const auto d = static_cast<double>(m.hidden_size), q = static_cast<double>(m.query_size()),
             kv = static_cast<double>(m.key_value_size()), ff = static_cast<double>(m.intermediate_size);
  const auto cell = static_cast<double>(c10::elementSize(options.dtype));
  // Input, its norm; queries, keys before their norms; rotated ones and values; what attention gives; the sum and its
  // norm; gate, up and their product.
  const double layer = 2 * d + (q + kv) + (q + 2 * kv) + q + 2 * d + 3 * ff;
  const auto layers = static_cast<double>(m.num_hidden_layers);
  const double kept = options.activation_checkpointing ? layers * d + layer : layers * layer;
  const double gradients = (cell == 4 ? 4.0 : 4.0 + cell) * parameters;
  const double logits = 2 * std::min(static_cast<double>(kLogitBytes), tokens * static_cast<double>(m.vocab_size) * 4);
  const double transient = std::max(logits, tokens * 2 * ff * cell);
  return cell * parameters + gradients + tokens * (kept + 2 * d) * cell + transient;
}

/// Waits for what a GPU is still computing.
void wait_for(const torch::Tensor& tensor) { (void)tensor.detach().view({-1})[0].to(at::kFloat).item<float>(); }

/// The most bytes of tensors since the last reset, where the tensors are.
void reset_peak([[maybe_unused]] torch::Device device) {
#if defined(WEIGHTCAST_CUDA)
  if (device.is_cuda()) c10::cuda::CUDACachingAllocator::resetPeakStats(device.index());
#endif
  peak_bytes = live_bytes.load();
}

double peak_of([[maybe_unused]] torch::Device device) {
#if defined(WEIGHTCAST_CUDA)
  // The first of its figures is the sum of all.
  if (device.is_cuda()) {
    return static_cast<double>(c10::cuda::CUDACachingAllocator::getDeviceStats(device.index()).allocated_bytes[0].peak);
  }
#endif
  return static_cast<double>(peak_bytes.load());
}

/// FLOP per second of the products of a layer's matrices with `tokens` tokens.
double machine_rate(const ModelConfig& m, const DecoderOptions& where, std::int64_t tokens) {
  const at::NoGradGuard no_grad;
  const torch::Tensor x = at::randn({tokens, m.hidden_size}).to(where.device, where.dtype),
                      w = at::randn({m.intermediate_size, m.hidden_size}).to(where.device, where.dtype);
  wait_for(x);
  const double flop = 2.0 * static_cast<double>(tokens * m.hidden_size * m.intermediate_size);
  const auto begin = Clock::now();
  int products = 0;
  double seconds = 0;
  do {
    for (int i = 0; i < (where.device.is_cpu() ? 1 : 50); ++i) {
      const torch::Tensor product = at::mm(x, w.t());
      ++products;
      if (where.device.is_cpu() || i == 49) wait_for(product);
    }
    seconds = seconds_since(begin);
  } while (seconds < 0.3);
  return flop * products / seconds;
}

Result<nlohmann::json> run(const Options& options) {
  WC_ASSIGN(const LearnerConfig config, make_config(options.settings));
  at::set_num_threads(static_cast<int>(config.threads));
  if (openblas_set_num_threads != nullptr) openblas_set_num_threads(static_cast<int>(config.threads));
  static CountingAllocator counting(*c10::GetCPUAllocator());
  c10::SetCPUAllocator(&counting, 100);

  PosixFileSystem files;
  WC_ASSIGN(InitialModel model, make_initial_model(files, config));
  WC_ASSIGN(Policy policy, Policy::make(std::move(model.decoder), config));
  const ModelConfig& sizes = policy.decoder().config();
  double parameters = 0;
  for (const Parameter& parameter : policy.decoder().parameters())
    parameters += static_cast<double>(parameter.tensor.numel());
  const std::vector<Sample> samples = samples_of(options, sizes.vocab_size);
  LossColumns columns;
  columns.samples = samples;
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    all.push_back(i);
    columns.advantages.emplace_back(samples[i].tokens.size(), i % 2 == 0 ? 1.0F : -1.0F);
  }
  UpdateOptions update;
  WC_ASSIGN(update.loss, loss_options(config));
  update.learning_rate = config.learning_rate;
  update.micro_batch_tokens = config.micro_batch_tokens;

  at::addGlobalCallback(at::RecordFunctionCallback(&begin_gemm, &end_gemm)
                            .needsInputs(true)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
  std::vector<double> whole, cpu, gemm, optimiser, rate, machine, changes, changed;
  const torch::Device device = policy.decoder().options().device;
  const std::vector<PublishedTensor> published = policy.published();
  double peak = 0;
  for (std::uint64_t i = 0; i <= options.repeat; ++i) {
    gemm_seconds = gemm_flop = 0;
    reset_peak(device);
    const auto begin = Clock::now();
    const double cpu_begin = bench::process_cpu_s();
    WC_ASSIGN(const Metrics metrics, update_once(policy, columns, all, update));
    wait_for(policy.decoder().parameters().back().tensor);
    const double cpu_seconds = bench::process_cpu_s() - cpu_begin;
    const double seconds = seconds_since(begin), in_gemm = gemm_seconds, flop = gemm_flop;
    peak = peak_of(device);
    const auto third = Clock::now();
    std::uint64_t cells = 0;
    for (std::size_t t = 0; t < published.size(); ++t) cells += policy.take_changes(t).indices.size();
    const double in_changes = seconds_since(third);
    // The optimiser alone, with gradients of ones: it does the same work whatever they are.
    torch::Tensor sum = at::zeros({});
    for (const Parameter& parameter : policy.decoder().trained_parameters())
      sum = sum + parameter.tensor.sum().to(at::kFloat);
    policy.backward(sum, true);
    const auto second = Clock::now();
    if (const auto updated = policy.update(0); !updated.has_value()) return updated.error();
    wait_for(policy.decoder().parameters().back().tensor);
    const double in_optimiser = seconds_since(second);
    const double of_machine =
        machine_rate(sizes, policy.decoder().options(), static_cast<std::int64_t>(options.sequences * options.tokens));
    for (std::size_t t = 0; t < published.size(); ++t) (void)policy.take_changes(t);
    if (i == 0) continue;  // memory is touched for the first time
    whole.push_back(seconds);
    changes.push_back(in_changes);
    changed.push_back(static_cast<double>(cells) / parameters);
    cpu.push_back(cpu_seconds);
    gemm.push_back(in_gemm / seconds);
    optimiser.push_back(in_optimiser / seconds);
    rate.push_back(flop / in_gemm / of_machine);
    machine.push_back(of_machine);
  }
  const auto tokens = static_cast<double>(options.sequences * options.tokens);
  const double expected = expected_bytes(sizes, policy.decoder().options(), parameters, tokens);
  nlohmann::json result{{"parameters", parameters},
                        {"tokens", tokens},
                        {"threads", config.threads},
                        {"dtype", std::string(to_string(config.dtype))},
                        {"update_s", median(whole)},
                        {"update_cpu_s", median(cpu)},
                        {"device", device.str()},
                        {"changes_s", median(changes)},
                        {"changed_share", median(changed)},
                        {"changes_s_per_gb", median(changes) / (static_cast<double>(policy.published_bytes()) / 1e9)},
                        {"flop_s", 3 * static_cast<double>(model_size(sizes).flop_per_token) * tokens / median(whole)},
                        {"gemm_share", median(gemm)},
                        {"optimiser_share", median(optimiser)},
                        {"rest_share", 1 - median(gemm) - median(optimiser)},
                        {"gemm_rate_to_machine", median(rate)},
                        {"machine_gflop_s", median(machine) / 1e9},
                        {"step_rate_to_machine", median(gemm) * median(rate)},
                        {"peak_tensor_bytes", peak},
                        {"expected_tensor_bytes", expected},
                        {"peak_to_expected", peak / expected}};
  if (!device.is_cpu()) {
    // Products on a GPU are only begun while these are measured.
    for (const char* name : {"gemm_share", "rest_share", "gemm_rate_to_machine", "step_rate_to_machine"})
      result.erase(name);
    result["flop_to_machine"] = result["flop_s"].get<double>() / median(machine);
  }
  return result;
}

}  // namespace
}  // namespace weightcast

int main(int argc, char** argv) {
  using namespace weightcast;
  const Result<Options> options = parse(argc, argv);
  if (!options.has_value()) {
    std::fprintf(stderr, "%s\n", options.error().message().c_str());
    return 2;
  }
  const Result<nlohmann::json> result = run(*options);
  if (!result.has_value()) {
    std::fprintf(stderr, "%s\n", result.error().message().c_str());
    return 1;
  }
  std::printf("%s\n", result->dump(2).c_str());
  return 0;
}
