#include "bench/paper/paper_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <limits>

#include "base/files/file_system.h"
#include "base/files/posix_file_system.h"
#include "base/json_of.h"
#include "base/json_text.h"
#include "base/settings/nearest_name.h"
#include "base/text.h"
#include "bench/paper/kept_json.h"
#ifdef WEIGHTCAST_TORCH
#include "bench/paper/poker/poker_runs.h"
#include "bench/paper/run_statistics.h"
#include "bench/paper/training_runs.h"
#endif

namespace weightcast::bench {
namespace {

constexpr std::uint64_t kResultBytesMax = std::uint64_t{16} << 20;

std::vector<PaperItem> all_items() {
  std::vector<PaperItem> items;
  for (const auto make : {echo2_items, flash_items, staleness_items, poker_items, echo_items, flash_training_items}) {
    for (PaperItem& item : make()) items.push_back(std::move(item));
  }
  return items;
}

nlohmann::json json_of(const RolloutWorldOptions& o) {
  const SchedulerOptions& s = o.scheduler;
  return merged(
      WC_JSON_OF(o.gpus, o.slots_per_gpu, o.workers, o.train_share, o.token_s, o.token_slowdown, o.tokens_mean,
                 o.tokens_sd, o.tokens_max, o.turns, o.environment_s_mean, o.environment_s_sd, o.slow_environment_share,
                 o.slow_group_share, o.slow_environment_s, o.rollout_batch_size, o.train_gpu_s_per_rollout, o.t_bcast_s,
                 o.pauses_for_broadcast, o.publish_interval, o.max_additional_running_prompts, o.num_env_groups,
                 o.no_signal_share, o.steps, o.warm_up_steps, s.group_size, s.group_size_redundancy, s.max_staleness,
                 s.async_generation_ratio, s.filter_equal_rewards),
      {{"queue_scheduling", o.scheduling != Scheduling::kBatch},
       {"prompt_replication", o.scheduling == Scheduling::kQueue || o.scheduling == Scheduling::kLockStep},
       {"environment_async", o.scheduling != Scheduling::kLockStep}});
}

Figure figure_of(const PaperItem& item, const StepTimes& times) {
  Figure figure = rollout_figure(times.runs()[0]);
  figure.title = fmt::format("{}: {}", item.of, item.suite.title);
  figure.caption = fmt::format("simulated time, mean of {} seeds; fitted: {}", times.runs().size(),
                               item.fitted.empty() ? "nothing" : item.fitted);
  figure.panels[0].series = times.series();
  return figure;
}

#ifdef WEIGHTCAST_TORCH
Result<PaperResult> play_poker(const PaperItem& item, const std::filesystem::path& directory) {
  WC_ASSIGN(const PokerOutcome outcome, run_poker_suite(*item.poker, directory / item.name, [](const PokerCell& cell) {
              fmt::print("{}, seed {}, against {}: {:.2f} ({:.2f} to {:.2f}) chips a hand, {:.1f} % refused\n",
                         cell.policy, cell.seed, cell.opponent, cell.mean, cell.low, cell.high,
                         100 * cell.refused_share);
              std::fflush(stdout);
            }));
  PaperResult result;
  result.runs = nlohmann::json::array();
  for (const TrainingRun& run : outcome.runs) result.runs.push_back(to_json(run));
  item.evaluate_poker(*item.poker, outcome, result);
  return result;
}
#endif

/// Trains an item and evaluates its runs.
Result<PaperResult> train(const PaperItem& item, const PaperPlaces& places) {
#ifdef WEIGHTCAST_TORCH
  if (item.poker) return play_poker(item, places.directory);
  WC_ASSIGN(
      const std::vector<TrainingRun> runs,
      run_training_suite(*item.training, places.directory / item.name, places.programs, [](const TrainingRun& run) {
        const std::vector<double>& rewards = run.columns.at("reward");
        fmt::print("{}, seed {}: {} steps, reward {:.3f} in the last ten{}\n", run.name, run.seed, rewards.size(),
                   last_mean(rewards, 10), run.has_diverged ? ", diverged" : "");
        std::fflush(stdout);
      }));
  PaperResult result;
  result.runs = nlohmann::json::array();
  for (const TrainingRun& run : runs) result.runs.push_back(to_json(run));
  item.evaluate_runs(runs, result);
  return result;
#else
  return fail(Errc::kUnsupported, Op::kConfigure,
              fmt::format("{} under {}: this build has no LibTorch, and so no learner; install libtorch-dev and build "
                          "again",
                          item.name, printable(places.directory.string())));
#endif
}

}  // namespace

double StepTimes::at(std::string_view name, double x) const {
  double sum = 0;
  std::uint64_t count = 0;
  for (const RolloutSuite& run : runs_) {
    for (const RolloutCase& c : run.cases) {
      if (c.name != name || c.x != x) continue;
      sum += c.result.step_s;
      ++count;
    }
  }
  return count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

std::vector<Figure::Series> StepTimes::series() const {
  Figure::Panel panel;
  for (const RolloutCase& c : runs_.at(0).cases) panel.series_of(c.name).points.push_back({c.x, at(c.name, c.x)});
  return panel.series;
}

std::vector<std::string_view> paper_item_names() {
  std::vector<std::string_view> names;
  for (const PaperItem& item : all_items()) names.push_back(item.name);
  return names;
}

std::vector<std::string_view> simulated_item_names() {
  std::vector<std::string_view> names;
  for (const PaperItem& item : all_items()) {
    if (!item.trains()) names.push_back(item.name);
  }
  return names;
}

Result<PaperItem> paper_item(std::string_view name) {
  for (PaperItem& item : all_items()) {
    if (item.name == name) return std::move(item);
  }
  return fail(Errc::kInvalidArgument, Op::kParse, unknown_name("figure or table", name, paper_item_names()));
}

void make_quick(PaperItem& item) {
  item.seeds = 1;
  const std::initializer_list<Setting> tiny{{"init_hidden_size", "16"},
                                            {"init_intermediate_size", "16"},
                                            {"init_num_hidden_layers", "1"},
                                            {"init_num_attention_heads", "2"},
                                            {"init_num_key_value_heads", "1"},
                                            {"rollout_batch_size", "16"},
                                            {"group_size", "4"},
                                            {"eval_interval", "1"},
                                            {"eval_prompts", "4"}};
  if (item.training) {
    item.training->seeds.resize(1);
    item.training->steps = 3;
    item.training->warm_up_steps = std::min<std::uint64_t>(item.training->warm_up_steps, 2);
    item.training->settings.insert(item.training->settings.end(), tiny);
    const std::vector<Setting>& quick = item.training->quick_settings;
    item.training->settings.insert(item.training->settings.end(), quick.begin(), quick.end());
  }
  if (item.poker) {
    item.poker->seeds.resize(1);
    item.poker->steps = 3;
    for (PokerWarmUp* warm_up : {&item.poker->base, &item.poker->opponent}) {
      warm_up->tables = 2;
      warm_up->updates = 2;
    }
    item.poker->deals = 4;
    for (std::vector<Setting>* settings : {&item.poker->settings, &item.poker->training}) {
      settings->insert(settings->end(), tiny);
      settings->push_back({"eval_interval", "0"});
    }
  }
  shrink(item.suite, 16);
  for (RolloutCase& c : item.suite.cases) {
    c.options.steps = c.options.publish_interval;
    c.options.warm_up_steps = 0;
  }
}

nlohmann::json config_of(const PaperItem& item) {
  nlohmann::json cases = nlohmann::json::array();
  for (const RolloutCase& c : item.suite.cases) {
    cases.push_back({{"name", c.name}, {"x", c.x}, {"options", json_of(c.options)}});
  }
  nlohmann::json config{{"name", item.name},
                        {"inputs", item.inputs},
                        {"fitted", item.fitted},
                        {"seeds", item.seeds},
                        {"cases", std::move(cases)}};
  if (item.training) {
    config["seeds"] = item.training->seeds;
    config["training"] = to_json(*item.training);
  }
  if (item.poker) {
    config["seeds"] = item.poker->seeds;
    config["poker"] = to_json(*item.poker);
  }
  return config;
}

std::string config_digest(const PaperItem& item) { return digest_of(config_of(item)); }

Result<PaperResult> run_paper_item(const PaperItem& item, const PaperPlaces& places) {
  if (item.trains()) return train(item, places);
  std::vector<RolloutSuite> runs;
  for (std::uint64_t seed = 1; seed <= item.seeds; ++seed) {
    RolloutSuite suite = item.suite;
    for (RolloutCase& c : suite.cases) c.options.seed = seed;
    WC_TRY(run_rollout_suite(suite, [](const RolloutCase&) {}));
    runs.push_back(std::move(suite));
  }
  const StepTimes times(runs);
  PaperResult result;
  if (!item.suite.cases.empty()) result.figure = figure_of(item, times);
  WC_TRY(item.evaluate(times, result));
  return result;
}

nlohmann::json to_json(const PaperItem& item, const PaperResult& result) {
  nlohmann::json rows = nlohmann::json::array(), claims = nlohmann::json::array();
  for (const PaperRow& row : result.rows) {
    rows.push_back({{"what", row.what},
                    {"paper", json_or_null(row.paper)},
                    {"source", row.paper ? nlohmann::json(std::string(1, row.source)) : nlohmann::json()},
                    {"ours", row.ours},
                    {"half_width", json_or_null(row.half_width)}});
  }
  for (const PaperClaim& claim : result.claims) claims.push_back({{"what", claim.what}, {"holds", claim.holds}});
  nlohmann::json series = nlohmann::json::array();
  for (const Figure::Panel& panel : result.figure.panels) {
    for (const Figure::Series& each : panel.series) {
      nlohmann::json points = nlohmann::json::array();
      for (const Figure::Point& point : each.points) points.push_back({point.x, point.y});
      series.push_back({{"panel", panel.title}, {"name", each.name}, {"points", std::move(points)}});
    }
  }
  return {{"name", item.name},           {"of", item.of},
          {"fitted", item.fitted},       {"config_digest", config_digest(item)},
          {"config", config_of(item)},   {"rows", std::move(rows)},
          {"claims", std::move(claims)}, {"x", result.figure.x.label},
          {"y", result.figure.y.label},  {"series", std::move(series)},
          {"runs", result.runs}};
}

std::string paper_text(const PaperItem& item, const PaperResult& result) {
  std::string text =
      fmt::format("{} ({}), fitted: {}\n", item.of, item.name, item.fitted.empty() ? "nothing" : item.fitted);
  for (const PaperRow& row : result.rows) {
    const std::string paper = row.paper ? fmt::format("{:.4g} ({})", *row.paper, row.source) : "-";
    const std::string width = row.half_width ? fmt::format(" +- {:.2g}", *row.half_width) : "";
    text += fmt::format("  {:<64} {:>14} {:>10.4g}{}\n", row.what, paper, row.ours, width);
  }
  for (const PaperClaim& claim : result.claims) {
    text += fmt::format("  {:<64} {:>25}\n", claim.what, claim.holds ? "holds" : "does NOT hold");
  }
  return text;
}

Status write_paper_items(const std::vector<PaperItem>& items, const PaperPlaces& places) {
  PosixFileSystem files;
  WC_TRY(make_directories(files, places.directory));
  for (const PaperItem& item : items) {
    const std::filesystem::path path = places.directory / fmt::format("{}.json", item.name);
    if (kept_json(files, path, "config_digest", config_digest(item), kResultBytesMax)) {
      fmt::print("{} ({}): kept, {} has it\n", item.of, item.name, printable(path.string()));
      continue;
    }
    WC_ASSIGN(const PaperResult result, run_paper_item(item, places));
    fmt::print("{}", paper_text(item, result));
    std::fflush(stdout);
    std::filesystem::path drawing = path;
    drawing.replace_extension(".svg");
    WC_TRY(replace_file(files, drawing, to_svg(result.figure), Synced::kNothing));
    // Last: with it the item is done.
    WC_TRY(replace_file(files, path, json_text(to_json(item, result), 2) + "\n", Synced::kBytes));
  }
  return {};
}

}  // namespace weightcast::bench
