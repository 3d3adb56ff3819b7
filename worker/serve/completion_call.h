#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trainer/model/tokenizer/qwen_chat.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "trainer/tasks/task.h"
#include "worker/engine/engine.h"
#include "worker/serve/version_wanted.h"

namespace weightcast {

/// The model that a surface offers.
struct ServedModel {
  std::string name;
  std::size_t context_max = 0;
  std::optional<QwenChat> chat = QwenChat::kQwen3;  ///< nothing: it takes no conversations
  std::shared_ptr<const Tokenizer> tokenizer = {};  ///< null: prompts are ids, and answers have no text
  std::shared_ptr<const Task> task = {};            ///< scores trajectories; null: nobody does. It takes a tokenizer
};

enum class CallKind : std::uint8_t {
  kCompletion,    ///< POST /v1/completions
  kChat,          ///< POST /v1/chat/completions
  kTrajectories,  ///< POST /v1/rl/trajectories
};

/// What a client asks for.
struct CompletionCall {
  CallKind kind = CallKind::kCompletion;
  std::vector<std::vector<TokenId>> prompts;
  std::size_t n = 1;      ///< answers to each prompt
  EngineRequest request;  ///< of each answer, but for the prompt and the seed
  std::optional<std::uint64_t> seed;
  bool log_probs = false;
  bool echo = false;
  bool prompt_only = false;  ///< nothing is answered: `request` asks for one token, which is dropped
  bool stream = false;
  bool stream_usage = false;             ///< a last event with the counts of tokens
  std::optional<VersionWanted> version;  ///< of trajectories
  std::vector<Metadata> metadata;        ///< the same, of each prompt, for its reward; or empty: none is computed
};

inline constexpr std::size_t kAnswersMax = 1024;  ///< of one call

/// Reads a request's JSON. Members of OpenAI's interface that change nothing here are accepted; all others that are not
/// known, or have a value that cannot be honoured, are refused by name. Errors: kInvalidArgument, which names the
/// member; kNotFound (another model); kTooLarge (prompt and answer beyond the context).
[[nodiscard]] Result<CompletionCall> read_completion_call(const nlohmann::json& json, CallKind kind,
                                                          const ServedModel& model);

/// The tokens of {"prompt": TEXT} or {"messages": [...]}, for POST /tokenize. Errors: as above.
[[nodiscard]] Result<std::vector<TokenId>> read_text_to_tokenize(const nlohmann::json& json, const ServedModel& model);

}  // namespace weightcast
