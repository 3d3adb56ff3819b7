// whole_soak: random worlds of whole nodes. sim/soak.h has its flags; --bug plants a mistake, to see how long it takes
// to be found.
#include <map>
#include <string>

#include "sim/soak.h"
#include "sim/whole/world.h"
#include "transport/io/log.h"

int main(int argc, char** argv) {
  using namespace weightcast;
  sim::PlantedBug bug = sim::PlantedBug::kNothing;
  sim::Soak soak;
  soak.about = "Random fault schedules against whole nodes";
  soak.command = "./run soak --whole";
  soak.schedules = "schedules of whole nodes";
  soak.seeds_file = "tests/sim/whole_seeds.txt";
  soak.counts = {"events",  "starts",          "readers", "published", "sparse",
                 "refused", "installed whole", "packed",  "by patch"};
  soak.add_flags = [&bug](CLI::App& app) {
    const std::map<std::string, sim::PlantedBug> bugs{
        {"forgotten-directory-sync", sim::PlantedBug::kForgottenDirectorySync},
        {"believed-record", sim::PlantedBug::kBelievedRecord},
        {"ignored-pause", sim::PlantedBug::kIgnoredPause},
        {"ignored-readers", sim::PlantedBug::kIgnoredReaders},
        {"forgotten-base", sim::PlantedBug::kForgottenBase}};
    app.add_option("--bug", bug, "Plant this mistake")->transform(CLI::CheckedTransformer(bugs));
  };
  soak.begin = [](bool verbose) { set_up_log(verbose ? "info" : "off", {LogFormat::kText, "whole_soak"}); };
  soak.run = [&bug](std::uint64_t seed, bool) {
    sim::WorldOptions world = sim::random_world(seed);
    world.bug = bug;
    const sim::WorldResult result = sim::simulate(world);
    const sim::WorldResult::Counts& counts = result.counts;
    return sim::SoakOutcome{result.violation,
                            counts.hash,
                            {counts.events, counts.starts, counts.readers, counts.published, counts.sparse,
                             counts.refused, counts.full, counts.packed, counts.patches}};
  };
  return sim::run_soak(soak, argc, argv);
}
