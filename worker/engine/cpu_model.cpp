#include "worker/engine/cpu_model.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "trainer/model/layers/rope_frequencies.h"
#include "worker/engine/thread_team.h"

namespace weightcast {
namespace {

// Logits are made for so many rows at a time, which bounds their memory.
constexpr std::size_t kLogitRows = 32;
// A thread takes so many shares of a product's outputs, in whole blocks of the kernels.
constexpr std::size_t kSharesPerThread = 4;
constexpr std::size_t kOutputsBlock = 64;
// Below so many multiplications another thread costs more than it saves.
constexpr std::size_t kSharedWorkMin = 1 << 16;
// Queries of one sequence and one key-value head that are computed together.
constexpr std::size_t kQueryRows = 16;

/// Memory that takes no pages before it is used.
class ReservedMemory {
 public:
  static Result<ReservedMemory> make(std::uint64_t bytes) {
    ReservedMemory result;
    void* const memory =
        ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
      return fail(Errc::kTooLarge, Op::kOpen, fmt::format("the KV cache: the system has no {} bytes for it", bytes));
    }
    static_cast<void>(::madvise(memory, bytes, MADV_HUGEPAGE));  // advice
    result.memory_ = static_cast<std::byte*>(memory);
    result.bytes_ = bytes;
    return result;
  }
  ReservedMemory() = default;
  ReservedMemory(ReservedMemory&& other) noexcept
      : memory_(std::exchange(other.memory_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  ReservedMemory& operator=(ReservedMemory&& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ReservedMemory() {
    if (memory_ != nullptr) ::munmap(memory_, bytes_);
  }
  [[nodiscard]] std::byte* data() const { return memory_; }

 private:
  std::byte* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
};

/// Where a new token lies.
struct Place {
  std::size_t sequence = 0;
  std::size_t position = 0;
};

class CpuModel final : public EngineModel {
 public:
  CpuModel(std::shared_ptr<const EngineWeights> weights, const CpuModelOptions& options, ReservedMemory cache)
      : options_(options),
        weights_(std::move(weights)),
        cache_(std::move(cache)),
        frequencies_(rope_frequencies(config().rope, config().head_dim)),
        team_(options.threads) {}

  const ModelConfig& config() const override { return weights_->config(); }
  std::uint64_t block_bytes() const override { return cache_block_bytes(config(), options_.bfloat16_cache); }
  std::uint32_t blocks() const override { return options_.blocks; }
  std::uint64_t weight_bytes() const override { return weights_->bytes(); }
  void copy_block(BlockId from, BlockId to, std::size_t positions) override;
  void forward(std::span<const SequenceStep> steps, const LogitsSink& sink) override;
  Status set_weights(std::shared_ptr<const EngineWeights> weights) override {
    WC_TRY(check_same_model(config(), weights->config()));
    weights_ = std::move(weights);
    return {};
  }

 private:
  [[nodiscard]] std::size_t element_bytes() const { return options_.bfloat16_cache ? 2 : 4; }
  [[nodiscard]] std::size_t head_dim() const { return static_cast<std::size_t>(config().head_dim); }
  [[nodiscard]] std::size_t key_value_heads() const { return static_cast<std::size_t>(config().num_key_value_heads); }
  /// The first position that the token at `position` sees.
  [[nodiscard]] std::size_t window_begin(std::size_t position) const {
    const auto window = static_cast<std::size_t>(config().sliding_window);
    return window == 0 || position < window ? 0 : position + 1 - window;
  }
  /// Positions of one head's keys (or values) of a layer lie one after the other, and so do those of a block's heads.
  [[nodiscard]] std::byte* cells(std::size_t layer, bool values, BlockId block, std::size_t head) {
    const std::size_t head_bytes = kBlockPositions * head_dim() * element_bytes();
    const std::size_t plane = 2 * layer + (values ? 1 : 0);
    return cache_.data() + ((plane * options_.blocks + block) * key_value_heads() + head) * head_bytes;
  }

  void embed(std::span<const SequenceStep> steps);
  /// Rows of `y` follow each other.
  void linear(const WeightLinear& weight, const float* x, std::size_t x_stride, std::size_t rows, float* y);
  void multiply(const WeightMatrix& matrix, const std::vector<float>& bias, const float* x, std::size_t x_stride,
                std::size_t rows, float* y);
  void norm_rows(const std::vector<float>& weight, const float* x, std::size_t rows, float* out);
  void turn(float* heads, std::size_t count, std::size_t token);
  void store_cells(std::span<const SequenceStep> steps, std::size_t layer);
  void attend(std::span<const SequenceStep> steps, std::size_t layer);
  void attend_rows(const SequenceStep& step, std::size_t first_row, std::size_t first, std::size_t count,
                   std::size_t layer, std::size_t head);
  void feed_forward(const WeightFeedForward& block, const float* x, std::size_t rows, float* out);
  void mix_experts(const WeightLayer& layer);
  void hand_out_logits(std::span<const SequenceStep> steps, const LogitsSink& sink);

  const CpuModelOptions options_;
  const kernels::Kernels& kernels_ = *options_.kernels;
  std::shared_ptr<const EngineWeights> weights_;
  ReservedMemory cache_;
  const std::vector<float> frequencies_;
  ThreadTeam team_;

  // Of the tokens of a step, one after the other.
  std::vector<Place> places_;
  std::vector<float> cosines_, sines_;
  std::vector<float> x_, normal_, query_, key_, value_, attended_, result_, gate_, up_, logits_;
  // Of a mixture of experts.
  std::vector<float> router_, expert_in_, expert_out_, expert_results_;
  // Of an adapter.
  std::vector<float> low_rank_, adapted_;
};

void CpuModel::copy_block(BlockId from, BlockId to, std::size_t positions) {
  const std::size_t bytes = positions * head_dim() * element_bytes();
  for (std::size_t layer = 0; layer < weights_->layers().size(); ++layer) {
    for (std::size_t head = 0; head < key_value_heads(); ++head) {
      for (const bool values : {false, true}) {
        std::memcpy(cells(layer, values, to, head), cells(layer, values, from, head), bytes);
      }
    }
  }
}

void CpuModel::linear(const WeightLinear& weight, const float* x, std::size_t x_stride, std::size_t rows, float* y) {
  multiply(weight.matrix, weight.bias, x, x_stride, rows, y);
  if (weight.adapter_a.data == nullptr) return;
  const auto rank = static_cast<std::size_t>(weight.adapter_a.outputs);
  const auto outputs = static_cast<std::size_t>(weight.matrix.outputs);
  low_rank_.resize(rows * rank);
  adapted_.resize(rows * outputs);
  multiply(weight.adapter_a, {}, x, x_stride, rows, low_rank_.data());
  multiply(weight.adapter_b, {}, low_rank_.data(), rank, rows, adapted_.data());
  for (std::size_t i = 0; i < rows * outputs; ++i) y[i] += weight.adapter_scale * adapted_[i];
}

void CpuModel::multiply(const WeightMatrix& matrix, const std::vector<float>& bias, const float* x,
                        std::size_t x_stride, std::size_t rows, float* y) {
  const auto outputs = static_cast<std::size_t>(matrix.outputs);
  const auto inputs = static_cast<std::size_t>(matrix.inputs);
  kernels::LinearTask task;
  task.x = x;
  task.rows = rows;
  task.x_stride = x_stride;
  task.weight = matrix.data;
  task.weight_stride = inputs;
  task.size = inputs;
  task.bias = bias.empty() ? nullptr : bias.data();
  task.y = y;
  task.y_stride = outputs;
  const auto compute = matrix.is_bfloat16 ? kernels_.linear_bfloat16 : kernels_.linear_float;
  if (team_.threads() == 1 || rows * outputs * inputs < kSharedWorkMin) {
    task.output_end = outputs;
    return compute(task);
  }
  const std::size_t blocks = (outputs + kOutputsBlock - 1) / kOutputsBlock;
  const std::size_t shares = kSharesPerThread * team_.threads();
  const std::size_t size = (blocks + shares - 1) / shares * kOutputsBlock;
  team_.run((outputs + size - 1) / size, [&](std::size_t share) {
    kernels::LinearTask part = task;
    part.output_begin = share * size;
    part.output_end = std::min(outputs, part.output_begin + size);
    compute(part);
  });
}

void CpuModel::norm_rows(const std::vector<float>& weight, const float* x, std::size_t rows, float* out) {
  const std::size_t size = weight.size();
  for (std::size_t row = 0; row < rows; ++row) {
    kernels_.rms_norm(out + row * size, x + row * size, weight.data(), size, static_cast<float>(config().rms_norm_eps));
  }
}

void CpuModel::embed(std::span<const SequenceStep> steps) {
  const WeightMatrix& embedding = weights_->embedding();
  const auto hidden = static_cast<std::size_t>(embedding.inputs);
  places_.clear();
  for (std::size_t sequence = 0; sequence < steps.size(); ++sequence) {
    for (std::size_t i = 0; i < steps[sequence].ids.size(); ++i) {
      places_.push_back({sequence, steps[sequence].first_position + i});
    }
  }
  x_.resize(places_.size() * hidden);
  const std::size_t half = frequencies_.size();
  cosines_.resize(places_.size() * half);
  sines_.resize(places_.size() * half);
  const auto factor = static_cast<float>(config().rope.attention_factor);
  for (std::size_t token = 0; token < places_.size(); ++token) {
    const Place& place = places_[token];
    const SequenceStep& step = steps[place.sequence];
    const auto id = static_cast<std::size_t>(step.ids[place.position - step.first_position]);
    if (embedding.is_bfloat16) {
      kernels_.from_bfloat16(x_.data() + token * hidden,
                             static_cast<const std::uint16_t*>(embedding.data) + id * hidden, hidden);
    } else {
      std::memcpy(x_.data() + token * hidden, static_cast<const float*>(embedding.data) + id * hidden, 4 * hidden);
    }
    for (std::size_t i = 0; i < half; ++i) {
      const float angle = static_cast<float>(place.position) * frequencies_[i];
      cosines_[token * half + i] = std::cos(angle) * factor;
      sines_[token * half + i] = std::sin(angle) * factor;
    }
  }
}

/// Rotates the `count` heads of a token by its position.
void CpuModel::turn(float* heads, std::size_t count, std::size_t token) {
  const std::size_t half = frequencies_.size();
  const float* const cosine = cosines_.data() + token * half;
  const float* const sine = sines_.data() + token * half;
  for (std::size_t head = 0; head < count; ++head) {
    float* const first = heads + head * 2 * half;
    float* const second = first + half;
    for (std::size_t i = 0; i < half; ++i) {
      const float a = first[i];
      const float b = second[i];
      first[i] = a * cosine[i] - b * sine[i];
      second[i] = b * cosine[i] + a * sine[i];
    }
  }
}

void CpuModel::store_cells(std::span<const SequenceStep> steps, std::size_t layer) {
  const std::size_t size = head_dim();
  for (std::size_t token = 0; token < places_.size(); ++token) {
    const Place& place = places_[token];
    const BlockId block = steps[place.sequence].blocks[place.position / kBlockPositions];
    const std::size_t row = place.position % kBlockPositions;
    for (std::size_t head = 0; head < key_value_heads(); ++head) {
      for (const bool values : {false, true}) {
        const float* const from = (values ? value_ : key_).data() + (token * key_value_heads() + head) * size;
        std::byte* const to = cells(layer, values, block, head) + row * size * element_bytes();
        if (options_.bfloat16_cache) {
          kernels_.to_bfloat16(reinterpret_cast<std::uint16_t*>(to), from, size);
        } else {
          std::memcpy(to, from, 4 * size);
        }
      }
    }
  }
}

/// Attention of `count` tokens of a sequence, from its new token `first` on, with the keys of one head. `first_row` is
/// the row of its first new token.
void CpuModel::attend_rows(const SequenceStep& step, std::size_t first_row, std::size_t first, std::size_t count,
                           std::size_t layer, std::size_t head) {
  const std::size_t size = head_dim();
  const auto heads = static_cast<std::size_t>(config().num_attention_heads);
  const std::size_t group = heads / key_value_heads();
  const std::size_t end = step.first_position + first + count;  // of the positions that the last token sees
  const std::size_t blocks_end = (end + kBlockPositions - 1) / kBlockPositions;
  // Blocks before every token's window stay as they are, and are not read.
  const std::size_t first_block = window_begin(step.first_position + first) / kBlockPositions;
  const std::size_t first_cell = first_block * kBlockPositions;
  const std::size_t stride = blocks_end * kBlockPositions - first_cell;
  thread_local std::vector<float> queries;
  thread_local std::vector<float> scores;
  // Rows are the queries that share these keys: of each token a group of heads.
  queries.resize(count * group * size);
  scores.resize(count * group * stride);
  for (std::size_t i = 0; i < count; ++i) {
    std::memcpy(queries.data() + i * group * size,
                query_.data() + ((first_row + first + i) * heads + head * group) * size, 4 * group * size);
  }
  kernels::LinearTask task;
  task.x = queries.data();
  task.rows = count * group;
  task.x_stride = size;
  task.weight_stride = size;
  task.size = size;
  task.output_end = kBlockPositions;
  task.y_stride = stride;
  const auto compute = options_.bfloat16_cache ? kernels_.scores_bfloat16 : kernels_.linear_float;
  for (std::size_t block = first_block; block < blocks_end; ++block) {
    task.weight = cells(layer, false, step.blocks[block], head);
    task.y = scores.data() + block * kBlockPositions - first_cell;
    task.output_end = std::min(kBlockPositions, end - block * kBlockPositions);
    compute(task);
  }
  const float scale = 1 / std::sqrt(static_cast<float>(size));
  const auto add = options_.bfloat16_cache ? kernels_.add_weighted_bfloat16 : kernels_.add_weighted_float;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t position = step.first_position + first + i;
    const std::size_t begin = window_begin(position);
    const std::size_t seen = position + 1 - begin;
    for (std::size_t member = 0; member < group; ++member) {
      float* const weights = scores.data() + (i * group + member) * stride + begin - first_cell;
      float* const out = attended_.data() + ((first_row + first + i) * heads + head * group + member) * size;
      const float sum = kernels_.exponentials(weights, seen, kernels_.greatest(weights, seen), scale);
      std::fill_n(out, size, 0.0F);
      for (std::size_t from = begin; from <= position;) {
        const std::size_t row = from % kBlockPositions;
        const std::size_t rows = std::min(kBlockPositions - row, position + 1 - from);
        add(out, weights + from - begin,
            cells(layer, true, step.blocks[from / kBlockPositions], head) + row * size * element_bytes(), rows, size);
        from += rows;
      }
      const float inverse = 1 / sum;
      for (std::size_t k = 0; k < size; ++k) out[k] *= inverse;
    }
  }
}

void CpuModel::attend(std::span<const SequenceStep> steps, std::size_t layer) {
  struct Share {
    std::size_t sequence, first_row, first, count, head;
  };
  std::vector<Share> shares;
  std::size_t work = 0;  // positions that all tokens see
  std::size_t row = 0;
  for (std::size_t sequence = 0; sequence < steps.size(); ++sequence) {
    const std::size_t tokens = steps[sequence].ids.size();
    for (std::size_t first = 0; first < tokens; first += kQueryRows) {
      for (std::size_t head = 0; head < key_value_heads(); ++head) {
        shares.push_back({sequence, row, first, std::min(kQueryRows, tokens - first), head});
      }
    }
    row += tokens;
    work += tokens * (steps[sequence].first_position + tokens);
  }
  const auto compute = [&](std::size_t i) {
    const Share& share = shares[i];
    attend_rows(steps[share.sequence], share.first_row, share.first, share.count, layer, share.head);
  };
  if (work * static_cast<std::size_t>(config().query_size()) >= kSharedWorkMin) {
    team_.run(shares.size(), compute);
  } else {
    for (std::size_t i = 0; i < shares.size(); ++i) compute(i);
  }
}

void CpuModel::feed_forward(const WeightFeedForward& block, const float* x, std::size_t rows, float* out) {
  const auto size = static_cast<std::size_t>(block.gate.matrix.outputs);
  const auto inputs = static_cast<std::size_t>(block.gate.matrix.inputs);
  gate_.resize(rows * size);
  up_.resize(rows * size);
  linear(block.gate, x, inputs, rows, gate_.data());
  linear(block.up, x, inputs, rows, up_.data());
  // By row: vectors begin where the row does, whatever the number of rows.
  for (std::size_t row = 0; row < rows; ++row)
    kernels_.swiglu(gate_.data() + row * size, up_.data() + row * size, size);
  linear(block.down, gate_.data(), size, rows, out);
}

/// Adds to x_ what the experts make of normal_.
void CpuModel::mix_experts(const WeightLayer& layer) {
  const ExpertsConfig& experts = *config().experts;
  const auto count = static_cast<std::size_t>(experts.experts);
  const auto chosen_max = static_cast<std::size_t>(experts.experts_per_token);
  const auto hidden = static_cast<std::size_t>(config().hidden_size);
  const std::size_t rows = places_.size();
  router_.resize(rows * count);
  linear(layer.router, normal_.data(), hidden, rows, router_.data());

  struct Choice {
    std::size_t row, rank;
  };
  std::vector<std::vector<Choice>> by_expert(count);
  std::vector<float> shares(rows * chosen_max);
  std::vector<std::size_t> order(count);
  for (std::size_t row = 0; row < rows; ++row) {
    float* const probabilities = router_.data() + row * count;
    const float sum = kernels_.exponentials(probabilities, count, kernels_.greatest(probabilities, count), 1);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(chosen_max), order.end(),
                      [&](std::size_t a, std::size_t b) {
                        return probabilities[a] != probabilities[b] ? probabilities[a] > probabilities[b] : a < b;
                      });
    float scale = sum;
    if (experts.norm_topk_prob) {
      scale = 0;
      for (std::size_t rank = 0; rank < chosen_max; ++rank) scale += probabilities[order[rank]];
    }
    for (std::size_t rank = 0; rank < chosen_max; ++rank) {
      shares[row * chosen_max + rank] = probabilities[order[rank]] / scale;
      by_expert[order[rank]].push_back({row, rank});
    }
  }
  expert_results_.resize(rows * chosen_max * hidden);
  for (std::size_t expert = 0; expert < count; ++expert) {
    const std::vector<Choice>& choices = by_expert[expert];
    if (choices.empty()) continue;
    expert_in_.resize(choices.size() * hidden);
    expert_out_.resize(choices.size() * hidden);
    for (std::size_t i = 0; i < choices.size(); ++i) {
      std::memcpy(expert_in_.data() + i * hidden, normal_.data() + choices[i].row * hidden, 4 * hidden);
    }
    feed_forward(layer.experts[expert], expert_in_.data(), choices.size(), expert_out_.data());
    for (std::size_t i = 0; i < choices.size(); ++i) {
      std::memcpy(expert_results_.data() + (choices[i].row * chosen_max + choices[i].rank) * hidden,
                  expert_out_.data() + i * hidden, 4 * hidden);
    }
  }
  for (std::size_t i = 0; i < rows * chosen_max; ++i) {
    kernels_.add_scaled(x_.data() + i / chosen_max * hidden, expert_results_.data() + i * hidden, hidden, shares[i]);
  }
}

void CpuModel::hand_out_logits(std::span<const SequenceStep> steps, const LogitsSink& sink) {
  const auto hidden = static_cast<std::size_t>(config().hidden_size);
  const auto vocabulary = static_cast<std::size_t>(config().vocab_size);
  struct Wanted {
    std::size_t row, sequence, token;
  };
  std::vector<Wanted> wanted;
  std::size_t row = 0;
  for (std::size_t sequence = 0; sequence < steps.size(); ++sequence) {
    const SequenceStep& step = steps[sequence];
    for (std::size_t token = 0; token < step.ids.size(); ++token, ++row) {
      const bool last = token + 1 == step.ids.size();
      if (step.logits == SequenceStep::Logits::kAll || (step.logits == SequenceStep::Logits::kLast && last)) {
        wanted.push_back({row, sequence, token});
      }
    }
  }
  const WeightLinear head{weights_->head(), {}};
  normal_.resize(kLogitRows * hidden);
  for (std::size_t first = 0; first < wanted.size(); first += kLogitRows) {
    const std::size_t count = std::min(kLogitRows, wanted.size() - first);
    for (std::size_t i = 0; i < count; ++i) {
      norm_rows(weights_->norm(), x_.data() + wanted[first + i].row * hidden, 1, normal_.data() + i * hidden);
    }
    logits_.resize(count * vocabulary);
    linear(head, normal_.data(), hidden, count, logits_.data());
    for (std::size_t i = 0; i < count; ++i) {
      sink(wanted[first + i].sequence, wanted[first + i].token, {logits_.data() + i * vocabulary, vocabulary});
    }
  }
}

void CpuModel::forward(std::span<const SequenceStep> steps, const LogitsSink& sink) {
  embed(steps);
  const std::size_t rows = places_.size();
  const auto hidden = static_cast<std::size_t>(config().hidden_size);
  const auto heads = static_cast<std::size_t>(config().num_attention_heads);
  const std::size_t size = head_dim();
  query_.resize(rows * heads * size);
  attended_.resize(rows * heads * size);
  key_.resize(rows * key_value_heads() * size);
  value_.resize(rows * key_value_heads() * size);
  result_.resize(rows * hidden);
  for (std::size_t i = 0; i < weights_->layers().size(); ++i) {
    const WeightLayer& layer = weights_->layers()[i];
    normal_.resize(rows * hidden);
    norm_rows(layer.input_norm, x_.data(), rows, normal_.data());
    linear(layer.query, normal_.data(), hidden, rows, query_.data());
    linear(layer.key, normal_.data(), hidden, rows, key_.data());
    linear(layer.value, normal_.data(), hidden, rows, value_.data());
    if (!layer.query_norm.empty()) {
      norm_rows(layer.query_norm, query_.data(), rows * heads, query_.data());
      norm_rows(layer.key_norm, key_.data(), rows * key_value_heads(), key_.data());
    }
    for (std::size_t token = 0; token < rows; ++token) {
      turn(query_.data() + token * heads * size, heads, token);
      turn(key_.data() + token * key_value_heads() * size, key_value_heads(), token);
    }
    store_cells(steps, i);
    attend(steps, i);
    linear(layer.output, attended_.data(), heads * size, rows, result_.data());
    for (std::size_t row = 0; row < rows; ++row) {
      kernels_.add_scaled(x_.data() + row * hidden, result_.data() + row * hidden, hidden, 1);
    }
    norm_rows(layer.feed_forward_norm, x_.data(), rows, normal_.data());
    if (!layer.experts.empty()) {
      mix_experts(layer);
      continue;
    }
    feed_forward(layer.dense, normal_.data(), rows, result_.data());
    for (std::size_t row = 0; row < rows; ++row) {
      kernels_.add_scaled(x_.data() + row * hidden, result_.data() + row * hidden, hidden, 1);
    }
  }
  hand_out_logits(steps, sink);
}

}  // namespace

Result<std::unique_ptr<EngineModel>> make_cpu_model(std::shared_ptr<const EngineWeights> weights,
                                                    const CpuModelOptions& options) {
  WC_ASSIGN(ReservedMemory cache,
            ReservedMemory::make(options.blocks * cache_block_bytes(weights->config(), options.bfloat16_cache)));
  return std::unique_ptr<EngineModel>(std::make_unique<CpuModel>(std::move(weights), options, std::move(cache)));
}

std::uint64_t cache_block_bytes(const ModelConfig& config, bool bfloat16_cache) {
  return kBlockPositions * static_cast<std::uint64_t>(model_size(config).cache_elements_per_position) *
         (bfloat16_cache ? 2 : 4);
}

}  // namespace weightcast
