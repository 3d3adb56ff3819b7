#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "worker/engine/answer_source.h"
#include "worker/engine/weights.h"

namespace weightcast {

/// Whether a server computes with the weights that it was told to load: for a few prompts, what our own forward pass
/// over the same files gives each token of the vocabulary as the next one. Servers answer "loaded" all the same where a
/// tensor is missing, a head keeps its old copy, or a cache is stale. Immutable.
class InstallCheck {
 public:
  /// So many requests, each for one token.
  static constexpr std::size_t kRequests = 4;

  /// One forward pass over kRequests * 4 tokens, which follow from `version`, so that no server finds them in a cache.
  /// `sampling` is how the requests are sampled. Errors: those of make_cpu_model().
  [[nodiscard]] static Result<InstallCheck> make(std::shared_ptr<const EngineWeights> weights, Version version,
                                                 const SamplingOptions& sampling, unsigned threads);

  [[nodiscard]] const std::vector<EngineRequest>& requests() const { return requests_; }

  /// `answers` are those to requests(), one token each. Errors: kInvalidArgument, with the mean difference of
  /// log-probabilities, if that is above `tolerance`.
  [[nodiscard]] Status compare(std::span<const EngineToken> answers, double tolerance) const;

 private:
  InstallCheck() = default;

  std::vector<EngineRequest> requests_;
  std::vector<std::vector<float>> log_probs_;  // by request and token of the vocabulary
};

/// How far the mean may lie from ours for a server that computes in `dtype` ("float32", "bfloat16", ...; "" as the
/// narrowest).
[[nodiscard]] double install_tolerance(std::string_view dtype);

}  // namespace weightcast
