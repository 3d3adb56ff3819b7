#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/settings/words.h"
#include "base/time.h"
#include "trainer/tasks/task.h"

namespace weightcast {

struct EpisodeLimits {
  std::uint32_t turns_max = 100;
  std::uint64_t tokens_max = 32768;  ///< that the policy may sample in all turns together
  Duration time_max = std::chrono::minutes(10);
};

enum class EpisodeEnd {
  kRunning,
  kDone,        ///< the environment said so
  kTurnLimit,   ///< the rewards so far count
  kTokenLimit,  ///< as above
  kTimeLimit,   ///< as above
  kFailed,      ///< the environment failed; nothing of the episode counts
};

constexpr Words<6> words_of(EpisodeEnd) {
  return {"running", "done", "turn_limit", "token_limit", "time_limit", "failed"};
}

/// One place in which episodes run one after the other, within limits. It replaces an environment that fails. Pure:
/// its caller passes the time. Invariant: turn_rewards() has one value per turn that the environment has answered.
class Episode {
 public:
  using MakeEnvironment = std::function<std::unique_ptr<Environment>()>;

  Episode(MakeEnvironment make, EpisodeLimits limits);

  /// Begins the episode of `seed`. If the environment fails to, a new one tries once more. Errors: those of the second.
  [[nodiscard]] Result<Prompt> begin(Instant now, std::uint64_t seed);
  /// The policy said `action`, in `tokens` sampled tokens. Returns the next observation; empty if end() says that the
  /// episode is over. The turn that goes beyond a limit still counts, as its tokens have been sampled. Of an
  /// environment that fails, end() tells and failure() has the words. Errors: kInvalidArgument if no episode is
  /// running.
  [[nodiscard]] Result<std::string> step(Instant now, std::string_view action, std::uint64_t tokens);
  /// Ends an episode whose policy takes too long. Call it at deadline(), too.
  void handle_time(Instant now);

  [[nodiscard]] EpisodeEnd end() const { return end_; }
  [[nodiscard]] Instant deadline() const { return deadline_; }
  [[nodiscard]] const std::vector<double>& turn_rewards() const { return turn_rewards_; }
  /// Whether the environment said so in its last answer.
  [[nodiscard]] bool success() const { return success_; }
  /// Why the episode failed.
  [[nodiscard]] const std::string& failure() const { return failure_; }
  /// How many environments have failed and were replaced.
  [[nodiscard]] std::uint64_t replaced() const { return replaced_; }

 private:
  void replace(const Error& error);

  MakeEnvironment make_;
  EpisodeLimits limits_;
  std::unique_ptr<Environment> environment_;
  EpisodeEnd end_ = EpisodeEnd::kDone;
  Instant deadline_{};
  std::uint64_t tokens_ = 0;
  std::vector<double> turn_rewards_;
  bool success_ = false;
  std::string failure_;
  std::uint64_t replaced_ = 0;
};

}  // namespace weightcast
