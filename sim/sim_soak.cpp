// sim_soak: random schedules of cores on simulated links, disks and clocks. sim/soak.h has its flags.
#include <fmt/format.h>

#include "sim/schedule.h"
#include "sim/soak.h"

int main(int argc, char** argv) {
  using namespace weightcast;
  sim::Soak soak;
  soak.about = "Random fault schedules against the transport's core";
  soak.command = "./run soak";
  soak.schedules = "schedules of cores";
  soak.seeds_file = "tests/sim/seeds.txt";
  soak.counts = {"events",
                 "chunks",
                 "chunks that came twice",
                 "patches installed",
                 "packed payloads installed",
                 "patches unfit",
                 "patches withdrawn",
                 "versions refused"};
  soak.run = [](std::uint64_t seed, bool verbose) {
    sim::SimOptions options = sim::random_schedule(seed);
    if (verbose) {
      options.log = [](Duration at, sim::NodeIndex node, const action::Log& log) {
        fmt::print("{:.6f} {}: {}\n", to_seconds(at), node, log.text);
      };
    }
    const sim::SimResult result = sim::simulate(options);
    return sim::SoakOutcome{
        result.violation,
        result.hash,
        {result.events, result.chunks_delivered, result.chunks_delivered_twice, result.patches_installed,
         result.packed_installed, result.patches_unfit, result.patches_withdrawn, result.versions_refused}};
  };
  return sim::run_soak(soak, argc, argv);
}
