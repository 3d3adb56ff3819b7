#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "bench/paper/paper_item.h"
#include "bench/rollout/propositions.h"

namespace weightcast::bench {
namespace {

using Options = RolloutWorldOptions;

PaperItem item_of(std::string_view name, std::string_view of, std::string_view title, std::string_view x_label) {
  PaperItem item;
  item.name = name;
  item.of = of;
  item.suite.name = name;
  item.suite.title = title;
  item.suite.x_label = x_label;
  return item;
}

void add(PaperItem& item, std::string name, double x, const Options& options) {
  item.suite.cases.push_back({std::move(name), x, {}, options, {}});
}

Options synchronous() {
  Options o;
  o.gpus = 8;
  o.slots_per_gpu = 64;
  o.warm_up_steps = 0;
  o.scheduler.max_staleness.reset();
  o.scheduler.rollout_time_max = std::chrono::hours(24);
  return o;
}

void batch_rollout(Options& o) { o.scheduling = Scheduling::kBatch; }

/// Environments alone: what engines generate takes no time.
Options environments(std::uint32_t turns, double mean_s, double sd_s) {
  Options o = synchronous();
  o.token_s = 1e-6;
  o.tokens_mean = 1;
  o.tokens_sd = 0;
  o.turns = turns;
  o.environment_s_mean = mean_s;
  o.environment_s_sd = sd_s;
  o.scheduler.group_size = 8;
  return o;
}

/// 256 prompts of 16 responses. An engine takes all that it is given, up to 256, and its step grows by a fifth of a
/// percent with each: the time of a step is mostly that of reading the weights.
Options reasoning(double tokens_mean, double tokens_sd, double train_gpu_s) {
  Options o = synchronous();
  o.slots_per_gpu = 256;
  o.token_s = 0.01;
  o.token_slowdown = 0.002;
  o.tokens_mean = tokens_mean;
  o.tokens_sd = tokens_sd;
  o.tokens_max = 30'720;
  o.rollout_batch_size = 4096;
  o.scheduler.group_size = 16;
  o.train_gpu_s_per_rollout = train_gpu_s;
  o.warm_up_steps = 2;
  o.steps = 3;
  return o;
}

void train_on(Options& o, std::uint32_t gpus, double ratio) {
  o.train_share = static_cast<double>(gpus) / o.gpus;
  o.scheduler.async_generation_ratio = ratio;
}

PaperItem figure_1b() {
  PaperItem item = item_of("flash-fig1b", "ROLL Flash, figure 1b", "steps of 256 x 16 long responses", "GPUs");
  item.fitted = "3 s of a GPU train on a response";
  for (const std::uint32_t gpus : {16u, 32u, 64u, 128u}) {
    Options o = reasoning(11'000, 9'000, 3);
    o.gpus = gpus;
    batch_rollout(o);
    add(item, "naive synchronous", gpus, o);
    o = reasoning(11'000, 9'000, 3);
    o.gpus = gpus;
    train_on(o, gpus / 2, 2);
    add(item, "asynchronous, ratio 2", gpus, o);
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    std::vector<double> gains;
    for (const double gpus : {16, 32, 64, 128}) {
      gains.push_back(times.at("naive synchronous", gpus) / times.at("asynchronous, ratio 2", gpus));
      result.rows.push_back({fmt::format("asynchronous over naive synchronous, {} GPUs", gpus),
                             gpus == 128 ? std::optional(2.13) : std::nullopt, gains.back()});
    }
    result.rows.push_back({"asynchronous, 128 GPUs over 16", 7.6,
                           times.at("asynchronous, ratio 2", 16) / times.at("asynchronous, ratio 2", 128)});
    result.rows.push_back({"naive synchronous, 128 GPUs over 16",
                           {},
                           times.at("naive synchronous", 16) / times.at("naive synchronous", 128)});
    result.claims = {{"what asynchrony gains grows with GPUs", std::is_sorted(gains.begin(), gains.end())},
                     {"it gains with any number of GPUs", gains.front() > 1}};
    result.figure.x.scale = Figure::Scale::kLog;
    return {};
  };
  return item;
}

constexpr std::uint32_t kSplits[] = {8, 12, 16, 20, 24, 28, 32};

PaperItem figure_3() {
  PaperItem item =
      item_of("flash-fig3", "ROLL Flash, figure 3", "40 GPUs divided, 256 x 16 long responses", "GPUs that train");
  item.fitted = "1.2 s of a GPU train on a response";
  for (const std::uint32_t trains : kSplits) {
    Options o = reasoning(11'000, 9'000, 1.2);
    o.gpus = 40;
    train_on(o, trains, 2);
    add(item, "ratio 2", trains, o);
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    double best = 0;
    for (const double trains : kSplits) {
      if (best == 0 || times.at("ratio 2", trains) < times.at("ratio 2", best)) best = trains;
    }
    result.rows = {
        {"GPUs of 40 that train, best with ratio 2", 24, best},
        {"8 that train, time of a step to the best", {}, times.at("ratio 2", 8) / times.at("ratio 2", best)},
        {"32 that train, time of a step to the best", {}, times.at("ratio 2", 32) / times.at("ratio 2", best)}};
    result.claims = {{"the best split is inside, not at either end", best > kSplits[0] && best < 32},
                     {"it is 16 or 24 that train (takeaways 2 and 3)", best == 16 || best == 24}};
    return {};
  };
  return item;
}

PaperItem table_1() {
  PaperItem item = item_of("flash-table1", "ROLL Flash, table 1", "40 GPUs, 256 x 16 responses",
                           "async_generation_ratio (0: synchronous)");
  item.fitted = "1.4 s of a GPU train on a long response, 0.5 s on a short one";
  for (const double ratio : {0.0, 1.0, 2.0, 4.0}) {
    for (const std::uint32_t trains : {16u, 24u}) {
      for (const bool is_long : {true, false}) {
        Options o = is_long ? reasoning(11'000, 9'000, 1.4) : reasoning(2'000, 4'000, 0.5);
        o.gpus = 40;
        if (ratio > 0) train_on(o, trains, ratio);  // synchronous: all of them generate, and then train
        add(item, fmt::format("{} train, {} responses", trains, is_long ? "long" : "short"), ratio, o);
      }
    }
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    const auto gain = [&](std::string_view name, double ratio) { return times.at(name, 0) / times.at(name, ratio); };
    const auto further = [&](std::string_view name) { return times.at(name, 2) / times.at(name, 4); };
    const double one = gain("24 train, long responses", 1), two = gain("24 train, long responses", 2);
    result.rows = {{"24 train, 16 generate, long responses: ratio 1 over synchronous", 1.28, one},
                   {"... ratio 2 over synchronous", 1.64, two},
                   {"... short responses, a longer tail: ratio 1", {}, gain("24 train, short responses", 1)},
                   {"... ratio 2", {}, gain("24 train, short responses", 2)},
                   {"16 train, 24 generate, long responses: ratio 1", {}, gain("16 train, long responses", 1)},
                   {"... ratio 2", {}, gain("16 train, long responses", 2)},
                   {"24 train: ratio 4 over 2, long responses", {}, further("24 train, long responses")},
                   {"... short responses", {}, further("24 train, short responses")}};
    result.claims = {{"ratio 1 gains over synchronous where few GPUs generate", one > 1.1},
                     {"ratio 2 gains more than ratio 1 there", two > one},
                     {"more than 2 adds little",
                      further("24 train, long responses") < 1.1 && further("24 train, short responses") < 1.1}};
    return {};
  };
  return item;
}

PaperItem figure_7() {
  PaperItem item =
      item_of("flash-fig7", "ROLL Flash, figure 7", "8 prompts of 8 responses, prompts without signal are replaced",
              "additional running prompts");
  item.fitted =
      "11.1 ms a token, so that the batch rollout takes 125 s; two in ten prompts give no signal, as the speed-up "
      "wants it";
  Options base = synchronous();
  base.token_s = 0.0111;
  base.token_slowdown = 0.002;
  base.tokens_mean = 2'000;
  base.tokens_sd = 1'000;
  base.tokens_max = 30'720;
  base.rollout_batch_size = 64;
  base.scheduler.group_size = 8;
  base.scheduler.filter_equal_rewards = true;
  base.no_signal_share = 0.2;
  base.steps = 40;
  item.seeds = 3;
  for (const bool is_queue : {false, true}) {
    for (const std::uint64_t additional : {0, 4, 8, 16}) {
      Options o = base;
      if (!is_queue) batch_rollout(o);
      o.max_additional_running_prompts = additional;
      add(item, is_queue ? "queue" : "batch rollout", static_cast<double>(additional), o);
    }
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    const double batch_s = times.at("batch rollout", 0), queue_s = times.at("queue", 16);
    result.rows = {{"batch rollout, s", 125, batch_s},
                   {"queue, 16 additional prompts, s", 37, queue_s},
                   {"queue, none, s", {}, times.at("queue", 0)},
                   {"speed-up", 125 / 37.0, batch_s / queue_s, {}, 'D'}};
    result.claims = {{"queue scheduling is faster at each place",
                      times.at("queue", 0) < batch_s && times.at("queue", 4) < times.at("batch rollout", 4) &&
                          queue_s < times.at("batch rollout", 16)},
                     {"each additional prompt helps it", queue_s < times.at("queue", 8) &&
                                                             times.at("queue", 8) < times.at("queue", 4) &&
                                                             times.at("queue", 4) < times.at("queue", 0)}};
    return {};
  };
  return item;
}

/// A place of figure 8, which prints seconds at three of them and the speed-up alone at the last.
struct Replication {
  std::uint32_t prompts, responses;
  std::optional<double> together_s, replicated_s;
  double gain;
};
constexpr std::array<Replication, 4> kReplications{{{32, 16, 116, 89, 116.0 / 89},
                                                    {64, 16, 149, 81, 149.0 / 81},
                                                    {16, 32, 162, 83, 162.0 / 83},
                                                    {16, 64, {}, {}, 1.84}}};

PaperItem figure_8() {
  PaperItem item = item_of("flash-fig8", "ROLL Flash, figure 8", "prompts of several responses on 8 GPUs of 64 slots",
                           "place: 32 x 16, 64 x 16, 16 x 32, 16 x 64");
  item.fitted = "2.86 ms a token";
  for (std::size_t i = 0; i < kReplications.size(); ++i) {
    Options o = synchronous();
    o.token_s = 0.00286;
    o.token_slowdown = 0.002;
    o.tokens_mean = 2'000;
    o.tokens_sd = 2'000;
    o.tokens_max = 30'720;
    o.rollout_batch_size = kReplications[i].prompts * kReplications[i].responses;
    o.scheduler.group_size = kReplications[i].responses;
    o.steps = 6;
    const double place = static_cast<double>(i + 1);
    add(item, "prompt replication", place, o);
    o.scheduling = Scheduling::kWholeGroup;
    add(item, "a prompt's responses together", place, o);
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    std::vector<double> gains;
    for (std::size_t i = 0; i < kReplications.size(); ++i) {
      const Replication& paper = kReplications[i];
      const std::string place = fmt::format("{} x {}", paper.prompts, paper.responses);
      const double together = times.at("a prompt's responses together", static_cast<double>(i + 1));
      const double replicated = times.at("prompt replication", static_cast<double>(i + 1));
      gains.push_back(together / replicated);
      result.rows.push_back({place + ", together, s", paper.together_s, together});
      result.rows.push_back({place + ", replicated, s", paper.replicated_s, replicated});
      result.rows.push_back({place + ", speed-up", paper.gain, gains.back(), {}, paper.together_s ? 'D' : 'P'});
    }
    result.claims = {{"replication is faster at each place", *std::min_element(gains.begin(), gains.end()) > 1.01},
                     {"16 prompts gain more with 64 responses than with 32", gains[3] > gains[2]}};
    return {};
  };
  return item;
}

struct Latencies {
  double mean_s, sd_s, paper;
};
constexpr std::array<Latencies, 4> kLatencies{{{50, 5, 1.20}, {10, 1, 1.16}, {10, 7, 2.12}, {10, 10, 2.46}}};

PaperItem figure_9() {
  PaperItem item = item_of("flash-fig9", "ROLL Flash, figure 9", "512 episodes, environments of N(mean, sd)",
                           "(50, 5), (10, 1), (10, 7), (10, 10) s");
  item.fitted = "22 turns an episode; engines take no time";
  item.seeds = 2;
  for (std::size_t i = 0; i < kLatencies.size(); ++i) {
    Options o = environments(22, kLatencies[i].mean_s, kLatencies[i].sd_s);
    o.rollout_batch_size = 512;
    o.steps = 10;
    add(item, "each goes on by itself", static_cast<double>(i + 1), o);
    o.scheduling = Scheduling::kLockStep;
    add(item, "all wait for the slowest environment", static_cast<double>(i + 1), o);
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    const auto locked = [&](double x) { return times.at("all wait for the slowest environment", x); };
    const auto alone = [&](double x) { return times.at("each goes on by itself", x); };
    result.rows = {{"(10, 10), all wait, s", 892, locked(4)}, {"(10, 10), by itself, s", 362, alone(4)}};
    bool is_within = true;
    for (std::size_t i = 0; i < kLatencies.size(); ++i) {
      const auto x = static_cast<double>(i + 1);
      const double gain = locked(x) / alone(x);
      result.rows.push_back(
          {fmt::format("({:g}, {:g}), speed-up", kLatencies[i].mean_s, kLatencies[i].sd_s), kLatencies[i].paper, gain});
      is_within = is_within && std::abs(gain / kLatencies[i].paper - 1) < 0.1;
    }
    result.claims = {{"all four speed-ups are within 10 %", is_within},
                     {"more spread gains more",
                      result.rows[5].ours > result.rows[4].ours && result.rows[4].ours > result.rows[3].ours}};
    return {};
  };
  return item;
}

PaperItem figure_10() {
  PaperItem item = item_of("flash-fig10", "ROLL Flash, figure 10",
                           "256 episodes of 4 turns, environments of N(10, 5) s", "environments");
  item.fitted = "200 s more in 5 % of the environments, or in all of 5 % of the groups";
  item.seeds = 2;
  struct Way {
    const char* name;
    double environments, groups;
  };
  for (const Way& way :
       {Way{"5 % of environments", 0.05, 0}, Way{"5 % of groups", 0, 0.05}, Way{"Gaussian alone", 0, 0}}) {
    for (const auto& [groups, size] :
         {std::pair(32u, 8u), std::pair(32u, 9u), std::pair(36u, 8u), std::pair(36u, 9u), std::pair(36u, 11u),
          std::pair(32u, 12u), std::pair(36u, 12u), std::pair(48u, 8u)}) {
      Options o = environments(4, 10, 5);
      o.rollout_batch_size = 256;
      o.num_env_groups = groups;
      o.scheduler.group_size_redundancy = size - 8;
      o.slow_environment_share = way.environments;
      o.slow_group_share = way.groups;
      o.steps = 30;
      add(item, fmt::format("{}, {} of {}", way.name, groups, size), groups * size, o);
    }
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    const auto at = [&](const char* way, unsigned groups, unsigned size) {
      return times.at(fmt::format("{}, {} of {}", way, groups, size), groups * size);
    };
    const auto gain = [&](const char* way, unsigned groups, unsigned size) {
      return at(way, 32, 8) / at(way, groups, size);
    };
    const char *each = "5 % of environments", *whole = "5 % of groups", *none = "Gaussian alone";
    result.rows = {{"32 groups of 8, s", 243, at(each, 32, 8)},
                   {"36 groups of 12, s", 45, at(each, 36, 12)},
                   {"36 groups of 12, speed-up", 5.45, gain(each, 36, 12)},
                   {"36 groups of 11, speed-up", 5.24, gain(each, 36, 11)},
                   {"36 groups of 9, speed-up", 3.10, gain(each, 36, 9)},
                   {"environments fail alone: 36 groups of 8, speed-up", {}, gain(each, 36, 8)},
                   {"... 32 groups of 9", {}, gain(each, 32, 9)},
                   {"... 48 groups of 8", {}, gain(each, 48, 8)},
                   {"... 32 groups of 12", {}, gain(each, 32, 12)},
                   {"whole groups fail: 36 groups of 8, speed-up", {}, gain(whole, 36, 8)},
                   {"... 32 groups of 9", {}, gain(whole, 32, 9)},
                   {"... 48 groups of 8", {}, gain(whole, 48, 8)},
                   {"... 32 groups of 12", {}, gain(whole, 32, 12)},
                   {"Gaussian alone: 36 groups of 12, speed-up", {}, gain(none, 36, 12)}};
    result.claims = {{"redundancy gains in the paper's order: 9, 11, 12 of a group",
                      gain(each, 36, 9) < gain(each, 36, 11) && gain(each, 36, 11) < gain(each, 36, 12)},
                     {"groups beat group size where environments fail alone", gain(each, 48, 8) > gain(each, 32, 12)},
                     {"groups beat group size where whole groups fail", gain(whole, 48, 8) > gain(whole, 32, 12)}};
    // A point for each size of a group would be a series of its own.
    std::vector<Figure::Series> series;
    for (const char* way : {each, whole, none}) {
      series.push_back({way, false, {}});
      for (const auto& s : result.figure.panels[0].series) {
        if (s.name.starts_with(way)) series.back().points.push_back(s.points[0]);
      }
      std::sort(series.back().points.begin(), series.back().points.end(),
                [](const auto& a, const auto& b) { return a.x < b.x; });
    }
    result.figure.panels[0].series = std::move(series);
    return {};
  };
  return item;
}

/// The propositions' own assumptions: a slot's speed does not depend on its neighbours.
PaperItem propositions() {
  PaperItem item = item_of("flash-props", "ROLL Flash, propositions 1 and 2", "40 GPUs of 32 slots, 64 x 16 responses",
                           "GPUs that train");
  item.fitted = "";
  const auto options = [] {
    Options o = reasoning(11'000, 9'000, 4);
    o.gpus = 40;
    o.slots_per_gpu = 32;
    o.token_slowdown = 0;
    o.rollout_batch_size = 1024;
    o.steps = 5;
    return o;
  };
  add(item, "synchronous", 0, options());
  for (const double ratio : {0.5, 1.0, 2.0}) {
    for (std::uint32_t trains = 6; trains <= 34; trains += 4) {
      Options o = options();
      train_on(o, trains, ratio);
      add(item, fmt::format("ratio {:g}", ratio), trains, o);
    }
  }
  item.evaluate = [](const StepTimes& times, PaperResult& result) -> Status {
    const RolloutSuite& suite = times.runs()[0];
    double bound_1 = 0;
    BatchWork work;
    for (const RolloutCase& c : suite.cases) {
      bound_1 = std::max(bound_1, c.result.bound_1_share);
      if (c.name == "synchronous") work = c.result.work;
    }
    result.rows.push_back({"share of proposition 1's bound that a step took, at most", {}, bound_1});
    bool is_near = true;
    std::uint64_t beyond = 0;
    for (const double ratio : {0.5, 1.0, 2.0}) {
      const std::string name = fmt::format("ratio {:g}", ratio);
      const double predicted = work.gpus * best_train_share(work, ratio);
      std::uint64_t over = 0, all = 0;
      double best = 0, nearest = 0;
      for (const RolloutCase& c : suite.cases) {
        if (c.name != name) continue;
        over += c.result.bound_2_violations;
        all += c.result.steps.size();
        if (best == 0 || times.at(name, c.x) < times.at(name, best)) best = c.x;
        if (nearest == 0 || std::abs(c.x - predicted) < std::abs(nearest - predicted)) nearest = c.x;
      }
      const double loss = times.at(name, nearest) / times.at(name, best);
      result.rows.push_back({name + ": GPUs that train, beta* and best of the grid", predicted, best, {}, 'D'});
      result.rows.push_back({name + ": time of a step at beta* over the best", {}, loss});
      result.rows.push_back({name + ": steps beyond proposition 2's bound, %",
                             {},
                             100 * static_cast<double>(over) / static_cast<double>(all)});
      is_near = is_near && loss <= 1.1;
      beyond += over;
    }
    result.claims = {{"proposition 1 holds in every step", bound_1 <= 1 + 1e-6},
                     {"proposition 2 holds in every step", beyond == 0},
                     {"a step at beta* takes at most 10 % more than the best", is_near}};
    result.figure.panels[0].series.erase(result.figure.panels[0].series.begin());  // synchronous has no such axis
    return {};
  };
  return item;
}

}  // namespace

std::vector<PaperItem> flash_items() {
  return {figure_1b(), figure_3(), figure_7(), figure_8(), figure_9(), figure_10(), table_1(), propositions()};
}

}  // namespace weightcast::bench
