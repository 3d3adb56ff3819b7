#include "trainer/learner/completion.h"

#include <algorithm>

#include "base/random.h"
#include "trainer/learner/sampler.h"

namespace weightcast {
namespace {

/// Logits [rows, vocabulary] in FP32 of the last new token of each row of `hidden`, [rows, n, hidden_size].
torch::Tensor last_logits(const Decoder& decoder, const torch::Tensor& hidden, std::span<const std::int64_t> counts) {
  std::vector<std::int64_t> last(counts.size());
  for (std::size_t i = 0; i < counts.size(); ++i) {
    last[i] = static_cast<std::int64_t>(i) * hidden.size(1) + counts[i] - 1;
  }
  const torch::Tensor rows = hidden.flatten(0, 1).index_select(0, at::tensor(last, at::kLong));
  return rows.matmul(decoder.head().t()).to(at::kFloat).contiguous();
}

/// complete() of what one cache holds.
std::vector<Completion> complete_together(const Decoder& decoder, std::span<const CompletionRequest> requests,
                                          const CompletionOptions& options) {
  std::vector<Completion> completions(requests.size());
  if (requests.empty()) return completions;
  const at::NoGradGuard no_grad;

  // One row per different prompt, and then one per request.
  std::vector<std::size_t> prompts;
  std::vector<std::int64_t> row_of;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    if (i == 0 || requests[i].prompt != requests[i - 1].prompt) prompts.push_back(i);
    row_of.push_back(static_cast<std::int64_t>(prompts.size()) - 1);
    longest = std::max(longest, requests[i].prompt.size());
  }
  torch::Tensor ids =
      at::zeros({static_cast<std::int64_t>(prompts.size()), static_cast<std::int64_t>(longest)}, at::kLong);
  std::vector<std::int64_t> counts;
  for (std::size_t row = 0; row < prompts.size(); ++row) {
    const auto& prompt = requests[prompts[row]].prompt;
    std::copy(prompt.begin(), prompt.end(), ids.data_ptr<std::int64_t>() + row * longest);
    counts.push_back(static_cast<std::int64_t>(prompt.size()));
  }
  KvCache cache(decoder.config(), static_cast<std::int64_t>(prompts.size()),
                static_cast<std::int64_t>(longest + options.tokens_max), decoder.options());
  torch::Tensor logits = last_logits(decoder, decoder.hidden_cached(ids, counts, cache), counts)
                             .index_select(0, at::tensor(row_of, at::kLong));
  cache.keep(row_of);

  Sampler sampler;
  std::vector<Random> randoms;
  std::vector<std::size_t> active(requests.size());  // the request of each row
  for (std::size_t i = 0; i < requests.size(); ++i) {
    randoms.emplace_back(requests[i].seed);
    active[i] = i;
  }
  for (;;) {
    const std::int64_t vocabulary = logits.size(1);
    std::vector<std::int64_t> kept;  // rows that go on
    std::vector<std::int64_t> next;
    for (std::size_t row = 0; row < active.size(); ++row) {
      Completion& completion = completions[active[row]];
      const float* values = logits.data_ptr<float>() + static_cast<std::int64_t>(row) * vocabulary;
      const SampledToken sampled = sampler.sample({values, static_cast<std::size_t>(vocabulary)}, options.temperature,
                                                  options.top_p, randoms[active[row]].unit());
      completion.tokens.push_back(sampled.token);
      completion.log_probs.push_back(sampled.log_prob);
      if (sampled.token == options.end_token || completion.tokens.size() == options.tokens_max) continue;
      kept.push_back(static_cast<std::int64_t>(row));
      next.push_back(sampled.token);
    }
    if (kept.empty()) return completions;
    if (kept.size() < active.size()) {
      cache.keep(kept);
      for (std::size_t i = 0; i < kept.size(); ++i) active[i] = active[static_cast<std::size_t>(kept[i])];
      active.resize(kept.size());
    }
    counts.assign(active.size(), 1);
    const torch::Tensor step = at::tensor(next, at::kLong).unsqueeze(1);
    logits = last_logits(decoder, decoder.hidden_cached(step, counts, cache), counts);
  }
}

}  // namespace

std::size_t cache_rows_max(const ModelConfig& config, const DecoderOptions& options, std::uint64_t positions,
                           std::uint64_t bytes_max) {
  const std::uint64_t elements = 2 * static_cast<std::uint64_t>(config.num_hidden_layers) *
                                 static_cast<std::uint64_t>(config.num_key_value_heads) *
                                 static_cast<std::uint64_t>(config.head_dim);
  const std::uint64_t row_bytes = std::max<std::uint64_t>(1, positions * elements * c10::elementSize(options.dtype));
  return static_cast<std::size_t>(std::max<std::uint64_t>(1, bytes_max / row_bytes));
}

std::vector<Completion> complete(const Decoder& decoder, std::span<const CompletionRequest> requests,
                                 const CompletionOptions& options) {
  std::uint64_t longest = 0;
  for (const CompletionRequest& request : requests) longest = std::max<std::uint64_t>(longest, request.prompt.size());
  const std::size_t rows =
      cache_rows_max(decoder.config(), decoder.options(), longest + options.tokens_max, options.cache_bytes_max);
  std::vector<Completion> completions;
  for (std::size_t first = 0; first < requests.size(); first += rows) {
    const auto part = requests.subspan(first, std::min(rows, requests.size() - first));
    for (Completion& completion : complete_together(decoder, part, options)) {
      completions.push_back(std::move(completion));
    }
  }
  return completions;
}

}  // namespace weightcast
