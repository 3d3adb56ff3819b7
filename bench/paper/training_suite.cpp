#include "bench/paper/training_suite.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <span>

#include "base/digest/content_digest.h"
#include "base/json_of.h"
#include "base/json_text.h"

namespace weightcast::bench {

std::vector<const TrainingRun*> runs_of(const std::vector<TrainingRun>& runs, std::string_view name) {
  std::vector<const TrainingRun*> found;
  for (const TrainingRun& run : runs) {
    if (run.name == name) found.push_back(&run);
  }
  return found;
}

nlohmann::json to_json(const TrainingRun& run) {
  nlohmann::json columns = nlohmann::json::object();
  for (const auto& [name, values] : run.columns) {
    nlohmann::json& column = columns[name] = nlohmann::json::array();
    for (const double value : values) column.push_back(std::isfinite(value) ? nlohmann::json(value) : nlohmann::json());
  }
  return merged(
      WC_JSON_OF(run.name, run.seed, run.lag_mean, run.lag_median, run.lag_p90, run.has_diverged, run.digests),
      {{"columns", std::move(columns)}});
}

std::optional<TrainingRun> training_run(const nlohmann::json& json) {
  try {
    TrainingRun run;
    run.name = json.at("name").get<std::string>();
    run.seed = json.at("seed").get<std::uint64_t>();
    run.lag_mean = json.at("lag_mean").get<double>();
    run.lag_median = json.at("lag_median").get<double>();
    run.lag_p90 = json.at("lag_p90").get<double>();
    run.has_diverged = json.at("has_diverged").get<bool>();
    for (const auto& [name, values] : json.at("columns").items()) {
      std::vector<double>& column = run.columns[name];
      for (const auto& value : values) {
        column.push_back(value.is_null() ? std::numeric_limits<double>::quiet_NaN() : value.get<double>());
      }
    }
    run.digests = json.at("digests").get<std::vector<std::string>>();
    return run;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

nlohmann::json to_json(const TrainingSuite& suite) {
  nlohmann::json runs = nlohmann::json::array();
  for (const TrainingCase& c : suite.cases) {
    for (const std::uint64_t seed : suite.seeds) runs.push_back(run_json(suite, c, seed));
  }
  return {{"warm_up", settings_json(warm_up_settings(suite))}, {"runs", std::move(runs)}};
}

nlohmann::json run_json(const TrainingSuite& suite, const TrainingCase& c, std::uint64_t seed) {
  nlohmann::json json{{"name", c.name}, {"seed", seed}, {"settings", settings_json(settings_of(suite, c, seed))}};
  if (!suite.task_program.empty()) json["task_program"] = suite.task_program;
  if (c.workers == 0) return json;
  json["workers"] = c.workers;
  json["worker_settings"] = settings_json(suite.worker_settings);
  return json;
}

std::vector<Setting> settings_of(const TrainingSuite& suite, const TrainingCase& c, std::uint64_t seed) {
  std::vector<Setting> settings = suite.settings;
  settings.push_back({"seed", fmt::format("{}", seed)});
  settings.push_back({"total_training_steps", fmt::format("{}", suite.steps)});
  settings.push_back({"publish_interval", fmt::format("{}", c.publish_interval.value_or(suite.steps))});
  settings.push_back({"max_staleness", c.max_staleness ? fmt::format("{}", *c.max_staleness) : "unlimited"});
  if (c.workers == 0) {
    settings.push_back({"generator_lag", fmt::format("{}", fmt::join(c.lags, ","))});
  } else {
    settings.push_back({"rollout_source", "http"});
    settings.push_back({"rollout_listen", "127.0.0.1:0"});
  }
  settings.insert(settings.end(), c.settings.begin(), c.settings.end());
  return settings;
}

std::vector<Setting> warm_up_settings(const TrainingSuite& suite) {
  std::vector<Setting> settings = suite.settings;
  settings.insert(settings.end(), {{"seed", fmt::format("{}", suite.seeds.at(0))},
                                   {"sft_steps", fmt::format("{}", suite.warm_up_steps)},
                                   {"total_training_steps", "0"},
                                   {"publish_interval", "1"},
                                   {"max_staleness", "unlimited"}});
  return settings;
}

nlohmann::json settings_json(const std::vector<Setting>& settings) {
  nlohmann::json json = nlohmann::json::array();
  for (const Setting& setting : settings) json.push_back({setting.name, setting.value});
  return json;
}

std::string digest_of(const nlohmann::json& json) {
  const std::string text = json_text(json);
  return content_digest_of(std::as_bytes(std::span(text))).hex();
}

}  // namespace weightcast::bench
