#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/settings/words.h"
#include "worker/engine/answer_source.h"
#include "worker/engine/engine_model.h"
#include "worker/engine/weights.h"

namespace weightcast {

/// What becomes of requests that have begun when the weights change.
enum class InFlight : std::uint8_t {
  kKeep,       ///< they go on with the keys and values of the older weights
  kRecompute,  ///< keys and values of all their tokens are computed again; the tokens stay
  kRestart,    ///< they begin anew after the prompt, with the same seed
};
constexpr Words<3> words_of(InFlight) { return {"keep", "recompute", "restart"}; }

/// Of keys and values.
enum class CacheDtype : std::uint8_t { kFloat32, kBfloat16 };
constexpr Words<2> words_of(CacheDtype) { return {"float32", "bfloat16"}; }

struct EngineOptions {
  /// Bounds keys and values; rounded down to whole blocks.
  std::uint64_t cache_bytes_max = std::uint64_t{1} << 30;
  CacheDtype cache_dtype = CacheDtype::kFloat32;
  /// Positions of a sequence, prompt and answer together. 0: the model's max_position_embeddings.
  std::size_t context_max = 0;
  /// Sequences that a step computes together.
  std::size_t running_max = 256;
  /// Requests that wait behind them.
  std::size_t waiting_max = 65536;
  /// New tokens of a step: one for each sequence that decodes, and the rest for prompts, in parts. At least 1.
  std::size_t step_tokens_max = 512;
  InFlight in_flight = InFlight::kKeep;
  /// A request stops after one of these, unless it says ignore_end.
  std::vector<TokenId> end_tokens;
  /// The bytes of a token, for stop strings. Without it requests with stop strings are refused.
  std::function<std::string(TokenId)> token_bytes;
  unsigned threads = 1;
};

struct EngineStatus {
  std::size_t running = 0;
  std::size_t waiting = 0;
  std::uint32_t blocks = 0;
  std::uint32_t blocks_used = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t weight_bytes = 0;
  // Since the engine was made:
  std::uint64_t steps = 0;
  std::uint64_t step_sequences = 0;  ///< that took part in them, in all
  std::uint64_t step_tokens = 0;     ///< that they computed: of prompts, and one for each sequence that decoded
  std::uint64_t prompt_tokens = 0;   ///< computed; with what is computed again after a preemption
  std::uint64_t shared_tokens = 0;   ///< of prompts, not computed because another sequence had them
  std::uint64_t answer_tokens = 0;
  std::uint64_t preemptions = 0;  ///< sequences that gave their blocks to others, and are computed again
  std::uint64_t versions_set = 0;
};

/// Generates with one model, for many requests at once: continuous batching over a KV cache of blocks. Reads no clock,
/// starts no thread but those of the kernels, and does nothing between calls. One thread.
///
/// A request's tokens and log-probabilities depend on the request, the weights and the kernels alone. They do not
/// depend on other requests, on options, or on preemption, unless the weights change while it runs: all rows are
/// computed alike (make_cpu_model()), and each request draws from numbers of its own.
class Engine : public AnswerSource {
 public:
  /// Errors: kInvalidArgument (an option), kTooLarge (the cache; or not one sequence of a block fits in it).
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(std::shared_ptr<const EngineWeights> weights,
                                                            Version version, const EngineOptions& options);
  /// The same over any model, which has the cache already: `options` do not count for it.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> make(std::unique_ptr<EngineModel> model, Version version,
                                                            const EngineOptions& options);

  [[nodiscard]] virtual Version version() const = 0;
  /// Positions of a sequence at most: what options and the cache allow.
  [[nodiscard]] virtual std::size_t context_max() const = 0;

  /// Requests of one group are added one after the other; their prompt is computed once.
  /// Errors: kInvalidArgument, which names what is wrong with the request: an empty prompt, a token that the model does
  /// not have, a number out of range, a stop string without a tokenizer; kTooLarge (the prompt leaves no room for a
  /// token in the context); kBusy (waiting_max requests wait).
  [[nodiscard]] Result<RequestId> add(EngineRequest request) override = 0;

  /// One round: a token for each sequence that decodes, a part of the prompts of those that begin. Empty if there is
  /// nothing to do.
  [[nodiscard]] std::vector<EngineEvent> step() override = 0;

  /// Weights of another version, from the next step on. EngineOptions::in_flight says what becomes of requests. The
  /// cost is that of a pointer, or of computing sequences again in the next steps. On an error the old ones stay.
  /// Errors: kInvalidArgument (of another model; the text names what differs).
  [[nodiscard]] virtual Status set_weights(Version version, std::shared_ptr<const EngineWeights> weights) = 0;

  [[nodiscard]] virtual EngineStatus status() const = 0;
};

/// Makes an engine for the first weights. Errors: those of Engine::make().
using EngineMaker = std::function<Result<std::unique_ptr<Engine>>(std::shared_ptr<const EngineWeights> weights,
                                                                  Version version, const EngineOptions& options)>;

}  // namespace weightcast
