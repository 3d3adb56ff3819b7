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
};

struct Completion {
  std::vector<std::int32_t> tokens;  ///< with the end token, if it came
  std::vector<float> log_probs;      ///< of each token, of the distribution that it was sampled from
};

/// Samples an answer to each request, with a KV cache, all rows of the batch together. Equal prompts that follow each
/// other are computed once. The result depends on the weights, the requests and the machine alone.
[[nodiscard]] std::vector<Completion> complete(const Decoder& decoder, std::span<const CompletionRequest> requests,
                                               const CompletionOptions& options);

}  // namespace weightcast
