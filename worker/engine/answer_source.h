#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/settings/words.h"
#include "trainer/model/tokenizer/byte_pair_encoder.h"
#include "worker/engine/sampling/sampler.h"

namespace weightcast {

/// A request to one source; never given twice.
using RequestId = StrongId<struct RequestIdTag, std::uint64_t>;

struct EngineRequest {
  std::vector<TokenId> prompt;
  SamplingOptions sampling;
  /// Of its samples: token i takes the i-th number of Random(seed), whatever else the engine does.
  std::uint64_t seed = 0;
  /// Tokens of the answer. It is cut earlier where the context ends.
  std::size_t tokens_max = 16;
  std::vector<TokenId> stop_tokens;
  std::vector<std::string> stop_strings;
  bool ignore_end = false;
  bool prompt_log_probs = false;
  /// So many of the most probable tokens, beside each token that has a log-probability.
  std::size_t top = 0;
  /// Whose it is. Clients run as many requests at once as each other, as far as they have them; "" is one of them.
  std::string client;
  /// The caller's own; comes back with each event.
  std::uint64_t tag = 0;
};

inline constexpr std::size_t kStopTokensMax = 64;
inline constexpr std::size_t kStopStringsMax = 16;
inline constexpr std::size_t kStopStringBytesMax = 1024;
inline constexpr std::size_t kTopMax = 64;

enum class FinishReason : std::uint8_t {
  kStopToken,   ///< an end token or a stop token came; it is the last token of the answer
  kStopString,  ///< EngineEvent::stop says which one
  kLength,      ///< tokens_max, or the context's end
  kAborted,     ///< abort()
  kFailed,      ///< EngineEvent::failure says why
};
constexpr Words<5> words_of(FinishReason) { return {"stop_token", "stop_string", "length", "aborted", "failed"}; }

/// A token of an answer.
struct EngineToken {
  TokenId token = 0;
  float log_prob = 0;  ///< SampledToken
  Version version{};   ///< of the weights that it was sampled with
  std::vector<TokenLogProb> top;
};

/// A token of a prompt, given those before it. In softmax(logits), without what SamplingOptions say. The first token of
/// a prompt has no log-probability, and 0 stands for it.
struct PromptToken {
  TokenId token = 0;
  float log_prob = 0;
  std::vector<TokenLogProb> top;
};

struct StopStringFound {
  std::size_t string = 0;      ///< which one of the request's
  std::size_t text_bytes = 0;  ///< of the answer's text that come before it
};

/// What a step did for one request. Events of one request come in order, the last one with `finished`.
struct EngineEvent {
  RequestId id{};
  std::uint64_t tag = 0;
  /// The tokens of all events before are void: InFlight::kRestart.
  bool restarted = false;
  /// Once, with the first token, if asked for.
  std::vector<PromptToken> prompt;
  std::vector<EngineToken> tokens;
  std::optional<FinishReason> finished;
  std::optional<StopStringFound> stop;
  std::string failure;
};

/// Samples answers to requests, for who takes them step by step: our Engine, or another program's behind HTTP. One
/// thread.
class AnswerSource {
 public:
  virtual ~AnswerSource() = default;

  /// Errors: kInvalidArgument and kTooLarge, which name what is wrong with the request; kBusy (too many wait).
  [[nodiscard]] virtual Result<RequestId> add(EngineRequest request) = 0;
  /// The request's last event comes with the next step. Errors: kNotFound (it has ended, or never was).
  [[nodiscard]] virtual Status abort(RequestId id) = 0;
  /// What happened since; does what there is to do, or waits for it a few milliseconds.
  [[nodiscard]] virtual std::vector<EngineEvent> step() = 0;
  /// Whether step() has something to do, or to wait for.
  [[nodiscard]] virtual bool busy() const = 0;
};

}  // namespace weightcast
