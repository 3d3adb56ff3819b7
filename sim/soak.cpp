#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "sim/schedule.h"

// sim_soak: random worlds, one seed each; goes on after one that breaks an invariant, and lists those at the end.
//   sim_soak --schedules 500               as many seeds that no soak has used before, by the time of day
//   sim_soak --schedules 500 --seed 1      seeds 1 to 500
//   sim_soak --seeds tests/sim/seeds.txt   those that a file lists, one a line, `#` starts a comment
// Exit status: 0 nothing was violated, 1 something was (with what led there, the first few times), 2 usage.

namespace {

// What led to a violation is a page each; after so many the seed and the first line do.
constexpr std::size_t kToldInFull = 5;

std::vector<std::uint64_t> read_seeds(const std::string& path) {
  std::vector<std::uint64_t> seeds;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_of("0123456789") != std::string::npos) seeds.push_back(std::stoull(line));
  }
  return seeds;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace weightcast;
  CLI::App app{"Random fault schedules against the transport's core"};
  std::uint64_t schedules = 200;
  std::uint64_t first = sim::fresh_seed(std::chrono::system_clock::now().time_since_epoch());
  std::uint64_t failures_max = 0;
  std::string seeds_path;
  bool verbose = false;
  app.add_option("--schedules", schedules, "How many");
  app.add_option("--seed", first, "The first seed; the others follow it. Without it, one that no soak has used before");
  app.add_option("--seeds", seeds_path, "Run the seeds of this file instead")->check(CLI::ExistingFile);
  app.add_option("--failures", failures_max, "Stop after so many violations; 0: never");
  app.add_flag("--verbose", verbose, "Print what the nodes log");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }

  std::vector<std::uint64_t> seeds;
  if (!seeds_path.empty()) {
    seeds = read_seeds(seeds_path);
  } else {
    for (std::uint64_t i = 0; i < schedules; ++i) seeds.push_back(first + i);
    fmt::print("the same again: ./run soak --schedules {} --seed {}\n", schedules, first);
    std::fflush(stdout);
  }
  std::uint64_t done = 0, events = 0, chunks = 0, twice = 0, patches = 0, packed = 0, unfit = 0, withdrawn = 0,
                refused = 0, hash = 0;
  std::vector<std::uint64_t> failed;
  for (const std::uint64_t seed : seeds) {
    sim::SimOptions options = sim::random_schedule(seed);
    if (verbose) {
      options.log = [](Duration at, sim::NodeIndex node, const action::Log& log) {
        fmt::print("{:.6f} {}: {}\n", to_seconds(at), node, log.text);
      };
    }
    const sim::SimResult result = sim::simulate(options);
    ++done;
    events += result.events;
    chunks += result.chunks_delivered;
    twice += result.chunks_delivered_twice;
    patches += result.patches_installed;
    packed += result.packed_installed;
    unfit += result.patches_unfit;
    withdrawn += result.patches_withdrawn;
    refused += result.versions_refused;
    hash = hash * 31 + result.hash;
    if (!result.violation) continue;
    failed.push_back(seed);
    const std::string& text = *result.violation;
    fmt::print("VIOLATION, {}\n", failed.size() > kToldInFull ? text.substr(0, text.find('\n')) : text);
    std::fflush(stdout);
    if (failed.size() == failures_max) break;
  }
  if (!failed.empty()) {
    fmt::print("violated by seeds {}\n", fmt::join(failed, " "));
    fmt::print("one again, with what the nodes log: ./run soak --schedules 1 --seed {} --verbose\n", failed.front());
    fmt::print("each of them belongs into tests/sim/seeds.txt, with the fix\n");
  }
  fmt::print(
      "{} schedules, {} violations, {} events, {} chunks of which {} came twice, {} patches and {} packed payloads "
      "installed, {} unfit, {} withdrawn, {} versions refused, hash {:016x}\n",
      done, failed.size(), events, chunks, twice, patches, packed, unfit, withdrawn, refused, hash);
  return failed.empty() ? 0 : 1;
}
