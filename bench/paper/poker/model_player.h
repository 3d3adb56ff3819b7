#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"
#include "trainer/config/config.h"
#include "trainer/tasks/poker/poker_player.h"

namespace weightcast::bench {

/// A player that is a model, whose weights do not change: it samples as the learner's generator does. Answers of
/// several threads that ask at once are sampled together; each follows from its turn alone.
class ModelPlayer final : public PokerPlayer {
 public:
  /// The model of config.model, with the lengths, temperature and threads of `config`. Errors: those of
  /// make_initial_model(), PromptCodec::make() and Completer::make().
  [[nodiscard]] static Result<std::shared_ptr<const ModelPlayer>> open(FileSystem& files, const LearnerConfig& config);
  ~ModelPlayer() override;

  /// Errors: those of PromptCodec::conversation_ids() and Completer::complete(). After one of the latter all further
  /// calls give it again.
  Result<std::vector<std::string>> answers(std::span<const PokerTurn> turns) const override;

 private:
  class State;
  explicit ModelPlayer(std::unique_ptr<State> state);

  const std::unique_ptr<State> state_;
};

}  // namespace weightcast::bench
