#include "bench/paper/poker/poker_runs.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "bench/paper/kept_json.h"
#include "bench/paper/poker/model_player.h"
#include "bench/paper/poker/word_model.h"
#include "bench/paper/run_statistics.h"
#include "bench/paper/training_runs.h"
#include "trainer/metrics/metrics.h"
#include "trainer/tasks/poker/poker_task.h"

namespace weightcast::bench {
namespace {

constexpr std::uint64_t kCellBytesMax = std::uint64_t{1} << 20;

constexpr MetricColumn kPokerMetrics[] = {{"reward", "critic/score/mean"},
                                          {"loss", "actor/pg_loss"},
                                          {"kl", "rollout_corr/kl"},
                                          {"entropy", "actor/entropy"},
                                          {"tokens", "perf/total_num_tokens"}};

/// Weights that somebody plays with, and the digest of all that they follow from.
struct Model {
  std::filesystem::path path;
  std::string digest;
};

/// A player, and the same of it.
struct Opponent {
  std::string name, digest;
  std::shared_ptr<const PokerPlayer> player;
};

class PokerRuns {
 public:
  PokerRuns(const PokerSuite& suite, const std::filesystem::path& directory) : suite_(suite), directory_(directory) {}

  Status prepare() { return make_directories(files_, directory_); }

  /// Random weights after supervised updates.
  Result<Model> warm_up(const PokerWarmUp& warm_up) {
    std::vector<Setting> settings = suite_.settings;
    settings.push_back({"seed", fmt::format("{}", warm_up.seed)});
    settings.push_back({"sft_steps", fmt::format("{}", warm_up.updates)});
    settings.push_back({"total_training_steps", "0"});
    PokerLogOptions log;
    static_cast<PokerTableOptions&>(log) = suite_.table;
    log.players = warm_up.players;
    log.tables = warm_up.tables;
    log.seed = warm_up.seed;
    WC_ASSIGN(const std::string text, poker_log(log));
    const std::string digest =
        digest_of({{"settings", settings_json(settings)}, {"words", suite_.words}, {"log", text}});
    const std::filesystem::path path = directory_ / ("warm-up-" + digest.substr(0, kDigestDigits));
    std::filesystem::path log_path = path, random_weights = path;
    log_path += ".jsonl";
    random_weights += "-random";
    WC_TRY(replace_file(files_, log_path, text, Synced::kNothing));
    WC_ASSIGN(const LearnerConfig config, make_config(settings));
    WC_TRY(write_word_model(files_, random_weights, config, suite_.words));
    settings.push_back({"sft_data", log_path.string()});
    settings.push_back({"model", random_weights.string()});
    settings.push_back({"output_dir", path.string()});
    WC_TRY(learn(files_, settings, {}));
    return Model{path / "checkpoints" / "checkpoint-00000000", digest};
  }

  /// `model` after training steps against `opponent`.
  Result<Model> train(const Model& model, const Opponent& opponent, const std::vector<Setting>& of_case,
                      std::uint64_t seed, TrainingRun& run) {
    std::vector<Setting> settings = suite_.settings;
    settings.insert(settings.end(), suite_.training.begin(), suite_.training.end());
    settings.insert(settings.end(), of_case.begin(), of_case.end());
    settings.push_back({"seed", fmt::format("{}", seed)});
    settings.push_back({"total_training_steps", fmt::format("{}", suite_.steps)});
    const std::string digest = digest_of({{"settings", settings_json(settings)},
                                          {"hands", suite_.table.hands},
                                          {"model", model.digest},
                                          {"opponent", opponent.digest}});
    const std::filesystem::path path = directory_ / ("train-" + digest.substr(0, kDigestDigits));
    settings.push_back({"model", model.path.string()});
    settings.push_back({"output_dir", path.string()});
    PokerOptions options;
    static_cast<PokerTableOptions&>(options) = suite_.table;
    options.position = PokerPosition::kDrawn;  // as in a match
    options.opponent = opponent.player;
    WC_ASSIGN(std::unique_ptr<Task> task, make_poker_task(std::move(options)));
    WC_TRY(learn(files_, settings, {}, std::move(task)));
    WC_ASSIGN(const std::vector<Metrics> steps_done, read_metrics(files_, path / "metrics.jsonl"));
    run.seed = seed;
    for (const Metrics& metrics : steps_done) {
      append_metrics(run, kPokerMetrics, metrics);
      run.columns["reward"].back() /= suite_.table.hands;
    }
    return Model{path / "checkpoints" / fmt::format("checkpoint-{:08}", suite_.steps), digest};
  }

  Result<Opponent> player(std::string name, const Model& model) {
    std::vector<Setting> settings = suite_.settings;
    settings.push_back({"model", model.path.string()});
    WC_ASSIGN(const LearnerConfig config, make_config(settings));
    WC_ASSIGN(std::shared_ptr<const PokerPlayer> made, ModelPlayer::open(files_, config));
    return Opponent{std::move(name), model.digest, std::move(made)};
  }

  /// Plays `policy` against `opponent`, unless the disk has that match.
  Result<PokerCell> play(const Opponent& policy, std::uint64_t seed, const Opponent& opponent) {
    PokerMatchOptions options;
    static_cast<PokerTableOptions&>(options) = suite_.table;
    options.deals = suite_.deals;
    options.seed = suite_.match_seed;
    const std::string digest = digest_of({{"policy", policy.digest},
                                          {"name", policy.name},
                                          {"opponent", opponent.digest},
                                          {"hands", options.hands},
                                          {"deals", options.deals},
                                          {"seed", options.seed}});
    const std::filesystem::path path = directory_ / fmt::format("match-{}.json", digest.substr(0, kDigestDigits));
    if (const auto json = kept_json(files_, path, "digest", digest, kCellBytesMax)) {
      if (std::optional<PokerCell> kept = poker_cell(*json)) return std::move(*kept);
    }
    WC_ASSIGN(const PokerMatchResult match, play_match(*policy.player, *opponent.player, options));
    PokerCell cell;
    cell.policy = policy.name;
    cell.seed = seed;
    cell.opponent = opponent.name;
    const Interval interval = bootstrap_interval(match.chips_per_hand, options.seed);
    cell.mean = interval.mean;
    cell.low = interval.low;
    cell.high = interval.high;
    cell.hands = match.hands;
    cell.refused_share =
        match.answered == 0 ? 0 : static_cast<double>(match.refused) / static_cast<double>(match.answered);
    nlohmann::json json = cell;
    json["digest"] = digest;
    WC_TRY(replace_file(files_, path, json_text(json) + "\n", Synced::kBytes));
    return cell;
  }

 private:
  const PokerSuite& suite_;
  const std::filesystem::path directory_;
  PosixFileSystem files_;
};

}  // namespace

Result<PokerOutcome> run_poker_suite(const PokerSuite& suite, const std::filesystem::path& directory,
                                     const std::function<void(const PokerCell&)>& told) {
  PokerRuns runs(suite, directory);
  WC_TRY(runs.prepare());
  WC_ASSIGN(const Model base, runs.warm_up(suite.base));
  WC_ASSIGN(const Opponent warmed_up, runs.player(std::string(kWarmedUp), base));
  WC_ASSIGN(const Model frozen, runs.warm_up(suite.opponent));
  std::vector<Opponent> opponents;
  for (const PokerRule rule : {PokerRule::kTightPassive, PokerRule::kLooseAggressive, PokerRule::kPotOdds}) {
    const std::string name(to_string(rule));
    opponents.push_back({name, name, std::make_shared<RulePlayer>(rule)});
  }
  WC_ASSIGN(Opponent frozen_model, runs.player(std::string(kFrozenModel), frozen));
  opponents.push_back(std::move(frozen_model));

  PokerOutcome outcome;
  const auto play_all = [&](const Opponent& policy, std::uint64_t seed) -> Status {
    for (const Opponent& opponent : opponents) {
      WC_ASSIGN(const PokerCell cell, runs.play(policy, seed, opponent));
      told(cell);
      outcome.cells.push_back(cell);
    }
    return {};
  };
  WC_TRY(play_all(warmed_up, 0));
  for (const PokerCase& c : suite.cases) {
    for (const std::uint64_t seed : suite.seeds) {
      TrainingRun& run = outcome.runs.emplace_back();
      run.name = c.name;
      WC_ASSIGN(const Model model, runs.train(base, opponents.back(), c.settings, seed, run));
      WC_ASSIGN(const Opponent policy, runs.player(c.name, model));
      WC_TRY(play_all(policy, seed));
    }
  }
  return outcome;
}

}  // namespace weightcast::bench
