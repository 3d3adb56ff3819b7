#include "bench/paper/poker/model_player.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "trainer/rollouts/completion.h"
#include "trainer/rollouts/episodes.h"
#include "trainer/update/policy.h"
#include "worker/rollout/prompt_codec.h"

namespace weightcast::bench {
namespace {

// Conversations of some hundred tables: what they have said before is not computed again.
constexpr std::uint64_t kCacheBytesMax = std::uint64_t{256} << 20;

/// The questions of one caller, and the answers that it waits for.
struct Asked {
  std::vector<CompletionRequest> requests;
  std::vector<std::string> answers;
  Status outcome;
  bool is_done = false;
};

}  // namespace

/// Whoever asks while nobody samples does so for all who wait.
class ModelPlayer::State {
 public:
  State(Decoder decoder, PromptCodec codec) : decoder_(std::move(decoder)), codec_(std::move(codec)) {}

  Status open(const LearnerConfig& config) {
    CompletionOptions options = completion_options(config, codec_, config.temperature, config.top_p);
    options.cache_bytes_max = kCacheBytesMax;
    WC_ASSIGN(Completer made, Completer::make(decoder_, std::move(options)));
    completer_.emplace(std::move(made));
    return {};
  }

  Result<std::vector<std::string>> answer(std::span<const PokerTurn> turns) {
    Asked mine;
    for (const PokerTurn& turn : turns) {
      WC_ASSIGN(ConversationIds ids, codec_.conversation_ids(turn.conversation));
      mine.requests.push_back({std::move(ids.tokens), turn.seed});
    }
    std::unique_lock lock(mutex_);
    waiting_.push_back(&mine);
    while (!mine.is_done) {
      if (is_sampling_) {
        changed_.wait(lock);
        continue;
      }
      is_sampling_ = true;
      const std::vector<Asked*> all = std::exchange(waiting_, {});
      lock.unlock();
      sample(all);
      lock.lock();
      is_sampling_ = false;
      for (Asked* asked : all) asked->is_done = true;
      changed_.notify_all();
    }
    WC_TRY(std::move(mine.outcome));
    return std::move(mine.answers);
  }

 private:
  /// One caller at a time, which has set is_sampling_.
  void sample(std::span<Asked* const> all) {
    std::vector<CompletionRequest> requests;
    for (const Asked* asked : all) requests.insert(requests.end(), asked->requests.begin(), asked->requests.end());
    std::vector<Completion> completions;
    if (outcome_.has_value()) {
      Result<std::vector<Completion>> sampled = completer_->complete(requests);
      if (sampled.has_value()) {
        completions = *std::move(sampled);
      } else {
        outcome_ = std::move(sampled).error();
      }
    }
    std::size_t next = 0;
    for (Asked* asked : all) {
      asked->outcome = outcome_;
      if (!outcome_.has_value()) continue;
      for (std::size_t i = 0; i < asked->requests.size(); ++i) {
        asked->answers.push_back(codec_.response_text(completions[next++].tokens));
      }
    }
  }

  const Decoder decoder_;
  const PromptCodec codec_;
  std::optional<Completer> completer_;  // of who samples
  Status outcome_;                      // the same
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Asked*> waiting_;  // guarded
  bool is_sampling_ = false;     // guarded
};

ModelPlayer::ModelPlayer(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelPlayer::~ModelPlayer() = default;

Result<std::shared_ptr<const ModelPlayer>> ModelPlayer::open(FileSystem& files, const LearnerConfig& config) {
  WC_ASSIGN(InitialModel model, make_initial_model(files, config));
  WC_ASSIGN(Tokenizer tokenizer, Tokenizer::parse(model.files.at("tokenizer.json")));
  WC_ASSIGN(PromptCodec codec,
            PromptCodec::make(std::move(tokenizer), {std::nullopt, false, config.max_prompt_length}));
  auto state = std::make_unique<State>(std::move(model.decoder), std::move(codec));
  WC_TRY(state->open(config));
  return std::shared_ptr<const ModelPlayer>(new ModelPlayer(std::move(state)));
}

Result<std::vector<std::string>> ModelPlayer::answers(std::span<const PokerTurn> turns) const {
  return state_->answer(turns);
}

}  // namespace weightcast::bench
