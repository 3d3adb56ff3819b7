#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/decoder.h"

namespace weightcast {

struct CompletionRequest {
  std::vector<std::int32_t> prompt;  ///< not empty, of ids that the model has
  std::uint64_t seed = 0;            ///< of its samples, whatever else is in the batch
};

struct CompletionOptions {
  double temperature = 1;
  double top_p = 1;
  std::uint64_t tokens_max = 16;
  std::int32_t end_token = 0;
  std::uint64_t cache_bytes_max = std::uint64_t{4} << 30;  ///< of keys and values; one row may exceed it
};

struct Completion {
  std::vector<std::int32_t> tokens;  ///< with the end token, if it came
  std::vector<float> log_probs;      ///< of each token, of the distribution that it was sampled from
};

/// How many rows of `positions` positions take at most `bytes_max` of keys and values; 1 at least.
[[nodiscard]] std::size_t cache_rows_max(const ModelConfig& config, const DecoderOptions& options,
                                         std::uint64_t positions, std::uint64_t bytes_max);

/// Samples an answer to each request, with a KV cache, as many rows together as cache_bytes_max allows. Equal prompts
/// that follow each other are computed once. May throw what LibTorch throws. The result depends on the weights, the
/// requests and the machine alone.
[[nodiscard]] std::vector<Completion> complete(const Decoder& decoder, std::span<const CompletionRequest> requests,
                                               const CompletionOptions& options);

}  // namespace weightcast
