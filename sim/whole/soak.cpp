#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/schedule.h"
#include "sim/whole/world.h"
#include "transport/io/log.h"

// whole_soak: random worlds of whole nodes, one seed each; goes on after one that breaks an invariant, or that ends the
// process, and lists those at the end.
//   whole_soak --schedules 500               as many seeds that no soak has used before, by the time of day
//   whole_soak --schedules 500 --seed 1      seeds 1 to 500
//   whole_soak --seeds tests/sim/whole_seeds.txt   those that a file lists, one a line, `#` starts a comment
// Exit status: 0 nothing was violated, 1 something was, 2 usage.

namespace {

using namespace weightcast;

constexpr unsigned kJobsMax = 64;

/// What a child says of one seed; small enough to be written to a pipe in one piece.
struct Report {
  std::uint64_t seed = 0;
  bool violated = false;
  sim::WorldResult::Counts counts;
};

/// Where the children leave the index of the seed that they are at, should they not come back from it.
struct Places {
  std::array<std::uint64_t, kJobsMax> at{};
};

std::vector<std::uint64_t> read_seeds(const std::string& path) {
  std::vector<std::uint64_t> seeds;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_of("0123456789") != std::string::npos) seeds.push_back(std::stoull(line));
  }
  return seeds;
}

/// Child `job` of `jobs`: every `jobs`-th seed, from `first` on.
void run_seeds(const std::vector<std::uint64_t>& seeds, std::uint64_t first, unsigned jobs, sim::PlantedBug bug,
               int reports, std::uint64_t& place) {
  for (std::uint64_t i = first; i < seeds.size(); i += jobs) {
    place = i;
    sim::WorldOptions world = sim::random_world(seeds[i]);
    world.bug = bug;
    const sim::WorldResult result = sim::simulate(world);
    if (result.violation) {
      fmt::print("VIOLATION, {}\n", *result.violation);
      std::fflush(stdout);
    }
    const Report report{seeds[i], result.violation.has_value(), result.counts};
    if (::write(reports, &report, sizeof report) != sizeof report) std::_Exit(3);
  }
  place = seeds.size();
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Random fault schedules against whole nodes"};
  std::uint64_t schedules = 200;
  std::uint64_t first = sim::fresh_seed(std::chrono::system_clock::now().time_since_epoch());
  std::string seeds_path;
  unsigned jobs = 2;
  std::uint64_t failures_max = 0;
  bool verbose = false;
  sim::PlantedBug bug = sim::PlantedBug::kNothing;
  const std::map<std::string, sim::PlantedBug> bugs{
      {"forgotten-directory-sync", sim::PlantedBug::kForgottenDirectorySync},
      {"believed-record", sim::PlantedBug::kBelievedRecord},
      {"ignored-pause", sim::PlantedBug::kIgnoredPause},
      {"forgotten-base", sim::PlantedBug::kForgottenBase}};
  app.add_option("--schedules", schedules, "How many");
  app.add_option("--seed", first, "The first seed; the others follow it. Without it, one that no soak has used before");
  app.add_option("--seeds", seeds_path, "Run the seeds of this file instead")->check(CLI::ExistingFile);
  app.add_option("--jobs", jobs, "Processes")->check(CLI::Range(1u, kJobsMax));
  app.add_option("--failures", failures_max, "Stop after so many violations; 0: never");
  app.add_option("--bug", bug, "Plant this mistake: see how long it takes to be found")
      ->transform(CLI::CheckedTransformer(bugs));
  app.add_flag("--verbose", verbose, "Print what the nodes log");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  set_up_log(verbose ? "info" : "off");

  std::vector<std::uint64_t> seeds;
  if (!seeds_path.empty()) {
    seeds = read_seeds(seeds_path);
  } else {
    for (std::uint64_t i = 0; i < schedules; ++i) seeds.push_back(first + i);
    fmt::print("the same again: whole_soak --schedules {} --seed {}\n", schedules, first);
  }
  std::fflush(stdout);

  void* shared = ::mmap(nullptr, sizeof(Places), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  WC_CHECK(shared != MAP_FAILED);
  auto* places = new (shared) Places;
  std::array<int, 2> reports{};
  WC_CHECK(::pipe(reports.data()) == 0);
  std::map<pid_t, unsigned> children;
  const auto spawn = [&](unsigned job, std::uint64_t from) {
    if (from >= seeds.size()) return;
    const pid_t child = ::fork();
    WC_CHECK(child >= 0);
    if (child == 0) {
      run_seeds(seeds, from, jobs, bug, reports[1], places->at[job]);
      std::_Exit(0);
    }
    children[child] = job;
  };
  for (unsigned job = 0; job < jobs; ++job) spawn(job, job);

  sim::WorldResult::Counts total;
  std::uint64_t done = 0;
  std::vector<std::uint64_t> failed;
  const auto take = [&](const Report& report) {
    ++done;
    total += report.counts;
    if (report.violated) failed.push_back(report.seed);
  };
  // The pipe's writing end stays open here, so that a child may be replaced; all that was reported is read when the
  // last has ended.
  const auto read_reports = [&] {
    for (Report report; ::read(reports[0], &report, sizeof report) == sizeof report;) take(report);
  };
  WC_CHECK(::fcntl(reports[0], F_SETFL, O_NONBLOCK) == 0);
  while (!children.empty() && (failures_max == 0 || failed.size() < failures_max)) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    read_reports();
    if (ended <= 0) {
      ::usleep(20'000);
      continue;
    }
    const unsigned job = children.at(ended);
    children.erase(ended);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) continue;
    const std::uint64_t at = places->at[job];
    fmt::print("VIOLATION, seed {}: ended the process ({} {})\n", seeds[at], WIFSIGNALED(status) ? "signal" : "status",
               WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    std::fflush(stdout);
    take({seeds[at], true, {}});
    spawn(job, at + jobs);
  }
  for (const auto& [child, job] : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  read_reports();

  if (!failed.empty()) {
    fmt::print("violated by seeds {}\n", fmt::join(failed, " "));
    fmt::print("one again, with what the nodes log: whole_soak --jobs 1 --schedules 1 --seed {} --verbose\n",
               failed.front());
  }
  fmt::print(
      "{} schedules of whole nodes, {} violations, {} events, {} starts, {} versions published and {} refused, "
      "installed "
      "{} whole, {} packed, {} by patch, hash {:016x}\n",
      done, failed.size(), total.events, total.starts, total.published, total.refused, total.full, total.packed,
      total.patches, total.hash);
  return failed.empty() ? 0 : 1;
}
