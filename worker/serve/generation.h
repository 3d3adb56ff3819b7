#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/http/server.h"
#include "transport/http/work_thread.h"
#include "worker/serve/completion_call.h"
#include "worker/serve/engine_host.h"

namespace weightcast {

/// The answer to one call for completions, while the engine makes it: once, or as a stream of server-sent events.
/// All of it but its making and rewards on the engine's thread.
class Generation : public std::enable_shared_from_this<Generation> {
 public:
  /// Waits at most `wait_max` until the call can begin. `scores` computes rewards, for as long; it outlives the host.
  Generation(EngineHost& host, WorkThread& scores, ServedModel model, CompletionCall call, HttpResponder responder,
             std::uint64_t number, Duration wait_max);

  /// Gives the engine all answers' requests, once it generates and has the version that the call wants. A refusal is
  /// the client's answer.
  void begin();
  /// The client has gone, or somebody has called it off.
  void abort();
  /// "cmpl-7".
  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] bool ended() const { return ended_; }
  [[nodiscard]] std::uint64_t answer_tokens() const { return answer_tokens_; }

 private:
  struct Choice {
    std::size_t prompt = 0;  // which one
    RequestId request{};
    std::vector<PromptToken> prompt_tokens;  // with log-probabilities, if asked for
    std::vector<EngineToken> tokens;
    std::string text;
    std::size_t streamed_bytes = 0;   // of the text
    std::size_t streamed_tokens = 0;  // whose ids and log-probabilities have left
    bool has_begun = false;           // to be streamed
    std::optional<FinishReason> finished;
    std::optional<StopStringFound> stop;
  };

  [[nodiscard]] bool is_chat() const { return call_.kind == CallKind::kChat; }
  [[nodiscard]] bool can_begin() const;
  [[nodiscard]] VersionFit version_fit() const;
  void handle_waited();
  void add_requests();
  void abort_requests();
  void handle(std::size_t index, const EngineEvent& event);
  void fail_all(unsigned status, const std::string& why);
  void finish();
  /// What can be streamed of a choice now.
  void stream(std::size_t index);
  void send_event(const std::string& data);
  [[nodiscard]] nlohmann::json head(const char* object) const;
  [[nodiscard]] nlohmann::json usage() const;
  [[nodiscard]] nlohmann::json choice_json(std::size_t index) const;
  [[nodiscard]] nlohmann::json trajectories_json() const;
  void finish_trajectories();
  [[nodiscard]] nlohmann::json log_probs_json(const Choice& choice, std::size_t from, bool with_prompt) const;
  [[nodiscard]] std::string bytes_of(TokenId token) const;
  [[nodiscard]] std::string name_of(TokenId token) const;
  [[nodiscard]] nlohmann::json finish_reason(const Choice& choice) const;

  EngineHost& host_;
  WorkThread& scores_;
  const ServedModel model_;
  const CompletionCall call_;
  std::optional<HttpResponder> responder_;
  std::optional<HttpStream> stream_;
  const std::string id_;
  const std::int64_t created_;
  const Duration wait_max_;
  std::string digest_;  // of the version under which it began
  std::vector<Choice> choices_;
  std::size_t unfinished_ = 0;
  std::uint64_t answer_tokens_ = 0;
  bool ended_ = false;
};

}  // namespace weightcast
