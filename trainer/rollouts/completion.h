#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "trainer/model/decoder.h"
#include "worker/engine/engine.h"

namespace weightcast {

struct CompletionRequest {
  std::vector<std::int32_t> prompt;  ///< not empty, of ids that the model has
  std::uint64_t seed = 0;            ///< of its samples, whatever else is in the batch
};

struct CompletionOptions {
  double temperature = 1;
  double top_p = 1;
  std::uint64_t tokens_max = 16;  ///< of an answer
  std::int32_t end_token = 0;
  std::uint64_t context_max = 0;      ///< tokens of prompt and answer; 0: what the model allows
  std::uint64_t sequences_max = 256;  ///< decoded together
  unsigned threads = 1;
  std::uint64_t cache_bytes_max = std::uint64_t{4} << 30;  ///< of keys and values
  std::function<Status()> check = {};                      ///< called between two steps; its error ends the call
};

struct Completion {
  std::vector<std::int32_t> tokens;  ///< with the end token, if it came
  std::vector<float> log_probs;      ///< SampledToken::log_prob of each token
};

/// The workers' engine over a decoder's weights where they are. Keys and values of earlier calls stay, so a prompt that
/// goes on from an earlier one, such as that of an episode's next turn, costs its new tokens alone. The decoder
/// outlives it, and its weights do not change meanwhile. One thread.
class Completer {
 public:
  /// With an adapter merges it once. Errors: those of Engine::make(), above all kTooLarge (cache_bytes_max).
  [[nodiscard]] static Result<Completer> make(const Decoder& decoder, CompletionOptions options);
  Completer(Completer&&) noexcept;
  ~Completer();

  /// Samples an answer to each request. An answer depends on the weights, its request and the machine alone. Errors:
  /// those of Engine::add() (a prompt beyond the context), those of `check`, kInvalidArgument (weights that have
  /// diverged). After an error there is no further call.
  [[nodiscard]] Result<std::vector<Completion>> complete(std::span<const CompletionRequest> requests);

  [[nodiscard]] const CompletionOptions& options() const { return options_; }
  [[nodiscard]] EngineStatus status() const;

 private:
  Completer(CompletionOptions options, std::unique_ptr<Engine> engine);

  CompletionOptions options_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace weightcast
