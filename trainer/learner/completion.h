#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
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
  unsigned threads = 1;
  std::uint64_t cache_bytes_max = std::uint64_t{4} << 30;  ///< of keys and values
  std::function<Status()> check = {};                      ///< called between two steps; its error ends the call
};

struct Completion {
  std::vector<std::int32_t> tokens;  ///< with the end token, if it came
  std::vector<float> log_probs;      ///< of each token, of the distribution that it was sampled from
};

/// Samples an answer to each request with the workers' engine, over the decoder's weights where they are. An answer
/// depends on the weights, its request and the machine alone. Errors: those of Engine::add() (a prompt beyond the
/// model's context), those of `check`, kTooLarge (cache_bytes_max), kInvalidArgument (weights that have diverged).
[[nodiscard]] Result<std::vector<Completion>> complete(const Decoder& decoder,
                                                       std::span<const CompletionRequest> requests,
                                                       const CompletionOptions& options);

}  // namespace weightcast
