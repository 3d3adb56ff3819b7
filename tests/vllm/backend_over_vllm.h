#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/vllm/vllm_server.h"
#include "tests/worker/backend/driven_backend.h"
#include "worker/engine/cpu_model.h"
#include "worker/engine/sampling/sampler.h"

namespace weightcast {

inline constexpr Duration kStartTime = std::chrono::minutes(10);
inline constexpr Duration kWait = std::chrono::minutes(3);
inline constexpr int kPositions = 1024;
// Of a log-probability, FP32 against FP32 with other orders of summation.
inline constexpr float kDifferenceMax = 1e-5F;

/// Its tokenizer is not needed for ids in and ids out.
inline std::vector<std::string> vllm_flags() {
  return {"--dtype",
          "float32",
          "--skip-tokenizer-init",
          "--enable-scale-out",
          "--logprobs-mode",
          "processed_logprobs",
          "--served-model-name",
          "m"};
}

inline WrittenModel model_of(std::uint64_t seed, bool tied) {
  WrittenModel made;
  made.dtype = "F32";
  made.seed = seed;
  made.head_dim = 32;  // the least that its attention on a CPU takes
  made.positions = kPositions;
  made.tied = tied;
  return made;
}

/// What each token has given those before it, by our own forward pass over a version's files.
inline std::vector<float> own_log_probs(const std::filesystem::path& directory, const std::vector<TokenId>& tokens) {
  PosixFileSystem files;
  CpuModelOptions options;
  options.blocks = static_cast<std::uint32_t>((tokens.size() + kBlockPositions - 1) / kBlockPositions);
  const auto model =
      make_cpu_model(EngineWeights::open(ModelFiles::open(files, directory).value()).value(), options).value();
  std::vector<BlockId> blocks(options.blocks);
  for (BlockId i = 0; i < options.blocks; ++i) blocks[i] = i;
  std::vector<float> result(tokens.size());
  Sampler sampler;
  const SequenceStep step{tokens, 0, blocks, SequenceStep::Logits::kAll};
  model->forward({&step, 1}, [&](std::size_t, std::size_t token, std::span<float> logits) {
    if (token + 1 < tokens.size()) result[token + 1] = sampler.score(logits, tokens[token + 1])->log_prob;
  });
  return result;
}

/// A worker's backend before a real server.
class BackendOverVllm : public DrivenBackend {
 protected:
  BackendOverVllm() : DrivenBackend(kWait) {}
  ~BackendOverVllm() override { backend_.reset(); }
  BackendOptions options(const VllmServer& server, const std::filesystem::path& model) {
    BackendOptions made;
    made.kind = BackendKind::kVllm;
    made.server = server.endpoint();
    made.protocol.model = "m";
    made.model = ModelFiles::open(files_, model).value().config;
    made.protocol.vocab_size = static_cast<std::uint64_t>(made.model.vocab_size);
    made.protocol.positions_max = kPositions;
    made.needs.context_tokens = kPositions;
    made.tolerance = kDifferenceMax;
    return made;
  }
  void add(std::vector<TokenId> prompt, std::size_t tokens) {
    EngineRequest request;
    request.prompt = std::move(prompt);
    request.tokens_max = tokens;
    request.seed = tokens;
    ASSERT_TRUE(backend_->add(request).has_value());
  }
  EngineEvent next_event() {
    EngineEvent event = DrivenBackend::next_event();
    EXPECT_EQ(event.finished, FinishReason::kLength) << event.failure;
    return event;
  }
  static std::vector<TokenId> all_tokens(std::vector<TokenId> prompt, const EngineEvent& event) {
    for (const EngineToken& token : event.tokens) prompt.push_back(token.token);
    return prompt;
  }
  /// The answer's log-probabilities from token `begin` to `end` are those of this version's files.
  static void expect_ours(const std::filesystem::path& version, const std::vector<TokenId>& prompt,
                          const EngineEvent& event, std::size_t begin, std::size_t end,
                          float difference_max = kDifferenceMax) {
    const std::vector<float> own = own_log_probs(version, all_tokens(prompt, event));
    for (std::size_t i = begin; i < end; ++i) {
      ASSERT_NEAR(event.tokens[i].log_prob, own[prompt.size() + i], difference_max) << "token " << i;
    }
  }
};

}  // namespace weightcast
