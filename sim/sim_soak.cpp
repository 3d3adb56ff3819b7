// sim_soak: random schedules of cores, or with --whole of whole nodes. sim/soak.h has its other flags; --bug plants a
// mistake, to see how long it takes to be found.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/process.h"
#include "sim/schedule.h"
#include "sim/soak.h"
#include "sim/whole/world.h"
#include "transport/io/log.h"

namespace weightcast::sim {
namespace {

SoakOutcome run_cores(SimOptions options, bool verbose) {
  if (verbose) {
    options.log = [](Duration at, NodeIndex node, const action::Log& log) {
      fmt::print("{:.6f} {}: {}\n", to_seconds(at), node, log.text);
    };
  }
  const SimResult result = simulate(options);
  double slowdown = 0;
  for (const PublicationResult& publication : result.publications) {
    const auto took = publication.reached(1.0);
    if (took) slowdown = std::max(slowdown, to_seconds(*took) / (1 + to_seconds(publication.bound)));
  }
  return {result.violation,
          result.hash,
          {result.events, result.chunks_delivered, result.chunks_delivered_twice, result.patches_installed,
           result.packed_installed, result.patches_unfit, result.patches_withdrawn, result.full_payloads_made,
           result.versions_refused, result.liars_proven, result.liars_named, result.liars_unnamed,
           result.honest_displaced, static_cast<std::uint64_t>(1e3 * to_seconds(result.settled))},
          slowdown};
}

SoakOutcome run_world(const WorldOptions& options) {
  const WorldResult result = simulate(options);
  const WorldResult::Counts& counts = result.counts;
  return {result.violation,
          counts.hash,
          {counts.events, counts.starts, counts.readers, counts.published, counts.sparse, counts.refused, counts.full,
           counts.packed, counts.patches}};
}

Soak soak_of_cores(bool hostile) {
  Soak soak;
  soak.command = hostile ? "./run soak --hostile" : "./run soak";
  soak.schedules = hostile ? "schedules of cores with hostile members" : "schedules of cores";
  soak.seeds_file = hostile ? "tests/sim/hostile_seeds.txt" : "tests/sim/seeds.txt";
  soak.counts = {"events",
                 "chunks",
                 "chunks that came twice",
                 "patches installed",
                 "packed payloads installed",
                 "patches unfit",
                 "patches withdrawn",
                 "full payloads made of versions that patches brought",
                 "versions refused",
                 "liars proven",
                 "liars named",
                 "liars not named",
                 "honest members that lost their place",
                 "ms until settled"};
  soak.run = [hostile](std::uint64_t seed, bool verbose) {
    return run_cores(hostile ? hostile_schedule(seed) : random_schedule(seed), verbose);
  };
  return soak;
}

Soak soak_of_whole_nodes(const PlantedBug& bug) {
  Soak soak;
  soak.command = "./run soak --whole";
  soak.schedules = "schedules of whole nodes";
  soak.seeds_file = "tests/sim/whole_seeds.txt";
  soak.counts = {"events",  "starts",          "readers", "published", "sparse",
                 "refused", "installed whole", "packed",  "by patch"};
  soak.begin = [](bool verbose) { set_up_log(verbose ? "info" : "off", {LogFormat::kText, "sim_soak"}); };
  soak.run = [&bug](std::uint64_t seed, bool) {
    WorldOptions world = random_world(seed);
    world.bug = bug;
    return run_world(world);
  };
  return soak;
}

}  // namespace
}  // namespace weightcast::sim

int main(int argc, char** argv) {
  using namespace weightcast::sim;
  weightcast::set_up_process();
  // Known before the flags are read, as they decide what the program says of itself.
  const auto is_given = [&](std::string_view flag) {
    return std::any_of(argv + 1, argv + argc, [flag](const char* arg) { return std::string_view(arg) == flag; });
  };
  bool hostile = is_given("--hostile"), whole = is_given("--whole");
  PlantedBug bug = PlantedBug::kNothing;
  Soak soak = whole ? soak_of_whole_nodes(bug) : soak_of_cores(hostile);
  soak.about = "Random fault schedules against the transport's core, or against whole nodes";
  soak.add_flags = [&](CLI::App& app) {
    CLI::Option* const nodes = app.add_flag("--whole", whole, "Whole nodes, instead of cores alone");
    app.add_flag("--hostile", hostile, "With hostile members")->excludes(nodes);
    const auto& bugs = weightcast::kWords<PlantedBug>;
    const auto plant = [&](const std::string& word) { bug = *weightcast::find_word<PlantedBug>(word); };
    app.add_option_function<std::string>("--bug", plant, "Plant this mistake")
        ->check(CLI::IsMember(std::vector<std::string>(bugs.begin() + 1, bugs.end())))
        ->needs(nodes);
  };
  return run_soak(soak, argc, argv);
}
