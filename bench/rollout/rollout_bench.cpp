#include "bench/rollout/rollout_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json_of.h"
#include "base/settings/nearest_name.h"
#include "trainer/capacity/capacity_model.h"

namespace weightcast::bench {
namespace {

using Options = RolloutWorldOptions;

/// Settings of one way of scheduling, on top of a place of the axis.
struct Way {
  std::string name;
  std::function<void(Options&)> set;
};

void batch_rollout(Options& o) { o.scheduling = Scheduling::kBatch; }

Way asynchronous(double ratio, double train_share) {
  return {fmt::format("asynchronous, ratio {:g}", ratio), [=](Options& o) {
            o.train_share = train_share;
            o.scheduler.async_generation_ratio = ratio;
          }};
}

void add_cases(RolloutSuite& suite, const Options& base, const std::vector<double>& places,
               const std::function<void(Options&, double)>& set_place, const std::vector<Way>& ways) {
  for (const Way& way : ways) {
    for (const double x : places) {
      RolloutCase c{way.name, x, {}, base, {}};
      set_place(c.options, x);
      way.set(c.options);
      suite.cases.push_back(std::move(c));
    }
  }
}

/// Long responses with a long tail, 256 prompts of 16.
Options reasoning(Options o) {
  o.rollout_batch_size = 256 * 16;
  o.scheduler.group_size = 16;
  o.scheduler.max_staleness.reset();
  o.scheduler.rollout_time_max = std::chrono::hours(24);
  o.slots_per_gpu = 32;
  o.tokens_mean = 11'000;
  o.tokens_sd = 9'000;
  o.tokens_max = 30'720;
  o.train_gpu_s_per_rollout = 4;
  return o;
}

/// Episodes of several turns, 32 groups of 8.
Options agentic(Options o) {
  o.gpus = 8;
  o.slots_per_gpu = 64;
  o.rollout_batch_size = 256;
  o.scheduler.group_size = 8;
  o.num_env_groups = 32;
  o.scheduler.max_staleness.reset();
  o.tokens_mean = 200;
  o.tokens_sd = 100;
  o.tokens_max = 1024;
  o.turns = 5;
  o.environment_s_mean = 10;
  o.train_gpu_s_per_rollout = 1;
  return o;
}

/// Workers of a rollout per second each, and a learner that takes 128 in 10 s and publishes every S - 1 steps.
void fill_bubble(RolloutSuite& suite, const Options& base) {
  suite.title = "128 rollouts a step of 10 s, publication every S - 1 steps";
  suite.x_label = "workers of 1 rollout/s";
  suite.is_of_bubbles = true;
  for (const std::uint64_t staleness : {3, 6, 11}) {
    Options o = base;
    o.slots_per_gpu = 2;
    o.tokens_mean = 100;
    o.tokens_sd = 0;
    o.rollout_batch_size = 128;
    o.scheduler.group_size = 4;
    o.scheduler.max_staleness = staleness;
    o.publish_interval = staleness - 1;
    // Whole publications, so that a window has no more or fewer than its share.
    o.steps = std::max<std::uint64_t>(1, base.steps / o.publish_interval) * o.publish_interval;
    o.warm_up_steps = 4 * o.publish_interval;
    std::vector<Way> ways;
    for (const bool pauses : {true, false}) {
      ways.push_back({fmt::format("S = {}{}", staleness, pauses ? ", paused while a version arrives" : ""),
                      [pauses](Options& options) { options.pauses_for_broadcast = pauses; }});
    }
    std::vector<double> places;
    for (int workers = 8; workers <= 20; ++workers) places.push_back(workers);
    const std::size_t first = suite.cases.size();
    add_cases(
        suite, o, places,
        [](Options& options, double x) {
          options.gpus = static_cast<std::uint32_t>(x) + 1;
          options.train_share = 1.0 / options.gpus;
          options.train_gpu_s_per_rollout = 10.0 / static_cast<double>(options.rollout_batch_size);
        },
        ways);
    const LoopRates rates{10, 128, o.t_bcast_s, o.publish_interval};
    for (std::size_t i = first; i < suite.cases.size(); ++i) {
      suite.cases[i].predicted_bubble = bubble_ratio(rates, suite.cases[i].x);
    }
  }
}

/// Workers with just enough slots, or more, or that come and go, under three bounds on staleness.
void fill_staleness(RolloutSuite& suite, const Options& base) {
  suite.title = "64 groups of 8, steps of 30 s, rollouts of about 20 s, publication at each step";
  suite.x_label = "S";
  const auto fleet = [](std::uint32_t workers, double capacity) {
    return [=](Options& o) {
      o.workers = workers;
      // Slots that make 512 rollouts of 20 s in a step of 30 s, times the capacity, in whole slots for each worker.
      const double slots = capacity * 512 * 20 / 30;
      o.gpus = workers + 1;
      o.train_share = 1.0 / o.gpus;
      o.slots_per_gpu = static_cast<std::uint32_t>(std::ceil(slots / workers / 8) * 8);
    };
  };
  const auto change = [](Way way, std::string name, std::vector<WorkerChange> changes) {
    return Way{std::move(name), [way, changes](Options& o) {
                 way.set(o);
                 o.changes = changes;
               }};
  };
  using Kind = WorkerChange::Kind;
  Options o = base;
  o.rollout_batch_size = 512;
  o.scheduler.group_size = 8;
  o.token_s = 0.02;
  o.tokens_mean = 1000;
  o.tokens_sd = 400;
  o.tokens_max = 4096;
  o.train_gpu_s_per_rollout = 30.0 / 512;
  o.train_jitter = 0.05;
  o.warm_up_steps = 10;
  o.steps = std::max<std::uint64_t>(base.steps, 60);
  std::vector<Way> ways;
  for (const std::uint32_t workers : {1, 4, 40}) {
    for (const double capacity : {1.3, 2.0, 6.0}) {
      ways.push_back(
          {fmt::format("{} workers of {:g} times what is needed", workers, capacity), fleet(workers, capacity)});
    }
  }
  const Way four{"", fleet(4, 2)}, forty{"", fleet(40, 1.5)};
  const double step = 30;
  ways.push_back(change(four, "4 workers of 2 times, one dies, another joins",
                        {{20 * step, 0, Kind::kDies}, {40 * step, 3, Kind::kJoins}}));
  ways.push_back(change(forty, "40 workers of 1.5 times, 8 die, 8 join", [&] {
    std::vector<WorkerChange> changes;
    for (std::uint32_t w = 0; w < 8; ++w) {
      changes.push_back({(20 + w) * step, w, Kind::kDies});
      changes.push_back({(20 + w) * step, 39 - w, Kind::kJoins});
    }
    return changes;
  }()));
  ways.push_back(change(forty, "40 workers of 1.5 times, 8 slow down to a third", [&] {
    std::vector<WorkerChange> changes;
    for (std::uint32_t w = 0; w < 8; ++w) changes.push_back({(20 + w) * step, w, Kind::kSlows, 3});
    return changes;
  }()));
  add_cases(
      suite, o, {4, 11, 20},
      [](Options& options, double s) { options.scheduler.max_staleness = static_cast<std::uint64_t>(s); }, ways);
}

void fill(RolloutSuite& suite, const Options& base) {
  if (suite.name == "scaling") {
    suite.title = "Batches of 256 x 16 responses";
    suite.x_label = "GPUs";
    add_cases(suite, reasoning(base), {16, 32, 64, 128},
              [](Options& o, double x) { o.gpus = static_cast<std::uint32_t>(x); },
              {{"synchronous, batch rollout", batch_rollout},
               {"synchronous, queue", [](Options&) {}},
               asynchronous(1, 0.375),
               asynchronous(2, 0.375)});
  } else if (suite.name == "filtering") {
    suite.title = "8 prompts of 8 responses that differ in reward";
    suite.x_label = "additional running prompts";
    Options o = reasoning(base);
    o.gpus = 8;
    o.rollout_batch_size = 64;
    o.scheduler.group_size = 8;
    o.scheduler.filter_equal_rewards = true;
    o.no_signal_share = 0.5;
    add_cases(
        suite, o, {0, 4, 8, 16},
        [](Options& options, double x) { options.max_additional_running_prompts = static_cast<std::uint64_t>(x); },
        {{"batch rollout", batch_rollout}, {"queue", [](Options&) {}}});
  } else if (suite.name == "replication") {
    suite.title = "2048 responses on 8 GPUs, synchronous";
    suite.x_label = "responses per prompt";
    Options o = reasoning(base);
    o.gpus = 8;
    o.slots_per_gpu = 64;
    o.rollout_batch_size = 2048;
    add_cases(
        suite, o, {1, 4, 16, 64},
        [](Options& options, double x) { options.scheduler.group_size = static_cast<std::uint32_t>(x); },
        {{"a prompt's responses together", [](Options& options) { options.scheduling = Scheduling::kWholeGroup; }},
         {"prompt replication", [](Options&) {}}});
  } else if (suite.name == "ratio") {
    suite.title = "Batches of 256 x 16 responses, 40 GPUs";
    suite.x_label = "async_generation_ratio";
    Options o = reasoning(base);
    o.gpus = 40;
    std::vector<Way> ways;
    for (const int trains : {8, 16, 24}) {
      ways.push_back({fmt::format("{} train, {} generate", trains, 40 - trains),
                      [trains](Options& options) { options.train_share = trains / 40.0; }});
    }
    add_cases(
        suite, o, {0, 0.5, 1, 2, 4}, [](Options& options, double x) { options.scheduler.async_generation_ratio = x; },
        ways);
  } else if (suite.name == "environments") {
    suite.title = "32 x 8 episodes of 5 turns, environments of 10 s";
    suite.x_label = "standard deviation of an environment's latency, s";
    add_cases(suite, agentic(base), {1, 3, 5, 7, 10}, [](Options& o, double x) { o.environment_s_sd = x; },
              {{"all wait for the slowest environment", [](Options& o) { o.scheduling = Scheduling::kLockStep; }},
               {"each goes on by itself", [](Options&) {}},
               asynchronous(1, 0.5)});
  } else if (suite.name == "redundancy") {
    suite.title = "256 episodes of which some environments are slow or dead";
    suite.x_label = "environments beyond 256";
    Options o = agentic(base);
    o.environment_s_sd = 5;
    o.slow_environment_share = 0.02;
    o.dead_environment_share = 0.005;
    o.scheduler.rollout_time_max = std::chrono::seconds(600);
    add_cases(suite, o, {0, 32, 64, 128}, [](Options&, double) {},
              {{"more groups", [](Options&) {}}, {"larger groups", [](Options&) {}}});
    for (RolloutCase& c : suite.cases) {
      if (c.name == "more groups") {
        c.options.num_env_groups = 32 + static_cast<std::uint64_t>(c.x) / 8;
      } else {
        c.options.scheduler.group_size_redundancy = static_cast<std::uint32_t>(c.x) / 32;
      }
    }
  } else if (suite.name == "staleness") {
    fill_staleness(suite, base);
  } else if (suite.name == "bubble") {
    fill_bubble(suite, base);
  } else {
    suite.title = "Batches of 256 x 16 responses, 32 GPUs of which some are 3 times slower";
    suite.x_label = "share of slow GPUs";
    Options o = reasoning(base);
    o.gpus = 32;
    add_cases(suite, o, {0, 0.05, 0.1, 0.2}, [](Options& options, double x) { options.slow_gpu_share = x; },
              {{"synchronous, batch rollout", batch_rollout},
               {"synchronous, queue", [](Options&) {}},
               asynchronous(2, 0.375)});
  }
}

constexpr std::array<std::string_view, 9> kSuites{"scaling",    "filtering",  "replication", "ratio",    "environments",
                                                  "redundancy", "stragglers", "bubble",      "staleness"};

}  // namespace

std::vector<std::string_view> rollout_suite_names() { return {kSuites.begin(), kSuites.end()}; }

Result<RolloutSuite> rollout_suite(std::string_view name, const RolloutWorldOptions& base) {
  const auto known = std::find(kSuites.begin(), kSuites.end(), name);
  if (known == kSuites.end()) {
    return fail(Errc::kInvalidArgument, Op::kParse, unknown_name("suite", name, kSuites));
  }
  RolloutSuite suite;
  suite.name = *known;
  fill(suite, base);
  return suite;
}

void shrink(RolloutSuite& suite, std::uint64_t divisor) {
  for (RolloutCase& c : suite.cases) {
    const std::uint64_t groups =
        std::max<std::uint64_t>(1, c.options.rollout_batch_size / c.options.scheduler.group_size / divisor);
    c.options.rollout_batch_size = groups * c.options.scheduler.group_size;
    if (c.options.num_env_groups > 0) c.options.num_env_groups = groups;
  }
}

Status run_rollout_suite(RolloutSuite& suite, const std::function<void(const RolloutCase&)>& on_case) {
  for (RolloutCase& c : suite.cases) {
    auto result = run_rollout_world(c.options);
    if (!result.has_value())
      return about(fmt::format("{}, {} {}", c.name, suite.x_label, c.x), std::move(result).error());
    c.result = std::move(*result);
    on_case(c);
    if (c.result.bound_1_share <= 1 + 1e-6) continue;
    return fail(Errc::kCorrupt, Op::kVerify,
                fmt::format("{}, {} {}: a step took {:.6f} of what proposition 1 allows", c.name, suite.x_label, c.x,
                            c.result.bound_1_share));
  }
  return {};
}

nlohmann::json to_json(const RolloutSuite& suite) {
  nlohmann::json cases = nlohmann::json::array();
  for (const RolloutCase& c : suite.cases) {
    const RolloutWorldResult& r = c.result;
    const SchedulerStats& s = r.scheduler;
    nlohmann::json json =
        WC_JSON_OF(c.name, c.x, c.options.gpus, c.options.train_share, c.options.rollout_batch_size,
                   c.options.scheduler.group_size, c.options.seed, c.options.workers, c.predicted_bubble, r.step_s,
                   r.rollouts_per_s, r.bubble_ratio, r.busy_share, r.wasted_share, r.staleness_mean, r.staleness_floor,
                   r.staleness_max, r.staleness_target, r.dropped_share, r.group_s, r.bound_1_share, r.bound_2_s,
                   r.bound_2_violations);
    json["steps"] = r.steps.size();
    json["rollouts"] = WC_JSON_OF(s.begun, s.sent, s.forgotten, s.surplus, s.stale, s.suspended, s.failed, s.late);
    cases.push_back(std::move(json));
  }
  return {{"suite", suite.name}, {"x", suite.x_label}, {"cases", std::move(cases)}};
}

std::string rollout_heading(const RolloutSuite& suite) {
  return fmt::format(
      "{}; x: {}\n{:<48} {:>6} | {:>9} {:>10} {:>7} {:>7} {:>7} {:>7} {:>6} {:>6} {:>6} {:>4} | {:>7} {:>9} {:>5}",
      suite.title, suite.x_label, "", "x", "step s", "rollouts/s", "bubble", "busy", "wasted", "dropped", "stale",
      "floor", "target", "max", "bound 1", "bound 2 s", "over");
}

std::string rollout_line(const RolloutCase& c) {
  const RolloutWorldResult& r = c.result;
  return fmt::format(
      "{:<48} {:>6g} | {:>9.2f} {:>10.3f} {:>6.1f}% {:>6.1f}% {:>6.1f}% {:>6.1f}% {:>6.2f} {:>6.2f} {:>6.2f} {:>4} | "
      "{:>7} {:>9} {:>5}",
      c.name, c.x, r.step_s, r.rollouts_per_s, 100 * r.bubble_ratio, 100 * r.busy_share, 100 * r.wasted_share,
      100 * r.dropped_share, r.staleness_mean, r.staleness_floor, r.staleness_target, r.staleness_max,
      r.bound_1_share > 0 ? fmt::format("{:.3f}", r.bound_1_share) : "-",
      r.bound_2_s > 0 ? fmt::format("{:.2f}", r.bound_2_s) : "-",
      r.bound_2_s > 0 ? std::to_string(r.bound_2_violations) : "-");
}

Figure rollout_figure(const RolloutSuite& suite) {
  Figure figure;
  figure.title = suite.title;
  figure.x.label = suite.x_label;
  figure.y.label = suite.is_of_bubbles ? "share of time in which the learner waits" : "seconds per training step";
  figure.caption = "simulated time, the scheduler is that of workers";
  Figure::Panel& panel = figure.panels.emplace_back();
  for (const RolloutCase& c : suite.cases) {
    panel.series_of(c.name).points.push_back({c.x, suite.is_of_bubbles ? c.result.bubble_ratio : c.result.step_s});
  }
  for (const RolloutCase& c : suite.cases) {
    if (!c.predicted_bubble || c.options.pauses_for_broadcast) continue;  // a pause has the same line
    const std::string name = fmt::format("predicted, S = {}", c.options.scheduler.max_staleness.value_or(0));
    panel.series_of(name, true).points.push_back({c.x, *c.predicted_bubble});
  }
  return figure;
}

}  // namespace weightcast::bench
