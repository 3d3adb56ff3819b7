// sim_soak: random schedules of cores on simulated links, disks and clocks. sim/soak.h has its flags.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "sim/schedule.h"
#include "sim/soak.h"

int main(int argc, char** argv) {
  using namespace weightcast;
  // Known before the flags are read, as it decides what the program says of itself.
  bool hostile =
      std::any_of(argv + 1, argv + argc, [](const char* arg) { return std::string_view(arg) == "--hostile"; });
  sim::Soak soak;
  soak.about = "Random fault schedules against the transport's core";
  soak.command = hostile ? "./run soak --hostile" : "./run soak";
  soak.schedules = hostile ? "schedules of cores with hostile members" : "schedules of cores";
  soak.seeds_file = hostile ? "tests/sim/hostile_seeds.txt" : "tests/sim/seeds.txt";
  soak.add_flags = [&hostile](CLI::App& app) { app.add_flag("--hostile", hostile, "With hostile members"); };
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
    sim::SimOptions options = hostile ? sim::hostile_schedule(seed) : sim::random_schedule(seed);
    if (verbose) {
      options.log = [](Duration at, sim::NodeIndex node, const action::Log& log) {
        fmt::print("{:.6f} {}: {}\n", to_seconds(at), node, log.text);
      };
    }
    const sim::SimResult result = sim::simulate(options);
    double slowdown = 0;
    for (const sim::PublicationResult& publication : result.publications) {
      const auto took = publication.reached(1.0);
      if (took) slowdown = std::max(slowdown, to_seconds(*took) / (1 + to_seconds(publication.bound)));
    }
    return sim::SoakOutcome{
        result.violation,
        result.hash,
        {result.events, result.chunks_delivered, result.chunks_delivered_twice, result.patches_installed,
         result.packed_installed, result.patches_unfit, result.patches_withdrawn, result.full_payloads_made,
         result.versions_refused, result.liars_proven, result.liars_named, result.liars_unnamed,
         result.honest_displaced, static_cast<std::uint64_t>(1e3 * to_seconds(result.settled))},
        slowdown};
  };
  return sim::run_soak(soak, argc, argv);
}
