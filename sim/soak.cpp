#include "sim/soak.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <new>
#include <utility>

#include "base/result.h"
#include "sim/schedule.h"

namespace weightcast::sim {
namespace {

constexpr unsigned kJobsMax = 64;
// What led to a violation may be a page; after so many the first line has to do.
constexpr unsigned kToldInFull = 5;

/// What a child says of one seed; small enough to be written to a pipe in one piece.
struct Report {
  std::uint64_t seed = 0;
  std::uint64_t violated = 0;  ///< 1 if it was: as wide as the others, so that no byte is left unset
  std::uint64_t hash = 0;
  std::array<std::uint64_t, SoakOutcome::kCountsMax> counts{};
  double slowdown = 0;
};

/// What the processes share.
struct Shared {
  std::array<std::uint64_t, kJobsMax> at{};  ///< the index of the seed that a child is at, should it not come back
  std::atomic<unsigned> told{0};             ///< violations
};

/// Of all children that have ended: what a schedule costs, whoever else uses the machine.
double processor_seconds() {
  rusage usage{};
  WC_CHECK(::getrusage(RUSAGE_CHILDREN, &usage) == 0);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

std::vector<std::uint64_t> read_seeds(const std::string& path) {
  std::vector<std::uint64_t> seeds;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    line = line.substr(0, line.find('#'));
    if (line.find_first_of("0123456789") != std::string::npos) seeds.push_back(std::stoull(line));
  }
  return seeds;
}

/// The processes of one run of the program.
class Run {
 public:
  Run(const Soak& soak, std::vector<std::uint64_t> seeds, unsigned jobs, bool verbose)
      : soak_(soak), seeds_(std::move(seeds)), jobs_(jobs), verbose_(verbose) {
    void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    WC_CHECK(memory != MAP_FAILED);
    shared_ = new (memory) Shared;
    // The writing end stays open here, so that a child may be replaced.
    WC_CHECK(::pipe(reports_.data()) == 0);
    WC_CHECK(::fcntl(reports_[0], F_SETFL, O_NONBLOCK) == 0);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  /// Until all seeds have run, or so many were violated; 0 is no limit.
  void run(std::uint64_t failures_max) {
    for (unsigned job = 0; job < jobs_; ++job) spawn(job, job);
    while (!children_.empty() && (failures_max == 0 || failed_.size() < failures_max)) {
      int status = 0;
      const pid_t ended = ::waitpid(-1, &status, WNOHANG);
      read_reports();
      if (ended > 0) {
        handle_ended(ended, status);
      } else {
        ::usleep(20'000);
      }
    }
    for (const auto& [child, job] : children_) {
      ::kill(child, SIGKILL);
      ::waitpid(child, nullptr, 0);
    }
    read_reports();
  }

  [[nodiscard]] const std::vector<std::uint64_t>& failed() const { return failed_; }
  [[nodiscard]] std::uint64_t done() const { return done_; }
  [[nodiscard]] const Report& total() const { return total_; }
  /// T_bcast(1.0) over its lower bound and a second, over all schedules; "" if no schedule tells.
  [[nodiscard]] std::string slowdowns() const {
    if (slowdowns_.empty()) return "";
    std::vector<double> sorted = slowdowns_;
    std::ranges::sort(sorted);
    const auto at = [&](double share) { return sorted[static_cast<std::size_t>(share * double(sorted.size() - 1))]; };
    return fmt::format("T_bcast(1.0) over its lower bound and a second, of each schedule's slowest publication: median {:.2f}, "
                       "90 % {:.2f}, 99 % {:.1f}, greatest {:.1f}\n",
                       at(0.5), at(0.9), at(0.99), sorted.back());
  }

 private:
  void spawn(unsigned job, std::uint64_t from) {
    if (from >= seeds_.size()) return;
    const pid_t child = ::fork();
    WC_CHECK(child >= 0);
    if (child == 0) {
      run_seeds(job, from);
      std::fflush(stdout);
      std::_Exit(0);
    }
    children_[child] = job;
  }

  /// In a child: every `jobs_`-th seed.
  void run_seeds(unsigned job, std::uint64_t from) {
    for (std::uint64_t i = from; i < seeds_.size(); i += jobs_) {
      shared_->at[job] = i;
      const SoakOutcome outcome = soak_.run(seeds_[i], verbose_);
      if (outcome.violation) tell(*outcome.violation);
      const Report report{seeds_[i], outcome.violation ? 1u : 0u, outcome.hash, outcome.counts, outcome.slowdown};
      if (::write(reports_[1], &report, sizeof report) != sizeof report) std::_Exit(3);
    }
  }

  void tell(const std::string& violation) {
    const bool in_full = shared_->told++ < kToldInFull;
    fmt::print("VIOLATION, {}\n", in_full ? violation : violation.substr(0, violation.find('\n')));
    std::fflush(stdout);
  }

  void handle_ended(pid_t child, int status) {
    const unsigned job = children_.at(child);
    children_.erase(child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    const std::uint64_t at = shared_->at[job];
    tell(fmt::format("seed {}: ended the process ({} {})", seeds_[at], WIFSIGNALED(status) ? "signal" : "status",
                     WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status)));
    take({seeds_[at], 1, 0, {}, 0});
    spawn(job, at + jobs_);
  }

  void read_reports() {
    for (Report report; ::read(reports_[0], &report, sizeof report) == sizeof report;) take(report);
  }

  void take(const Report& report) {
    ++done_;
    if (report.violated != 0) failed_.push_back(report.seed);
    if (report.slowdown > 0) slowdowns_.push_back(report.slowdown);
    total_.hash += report.hash;  // a sum, so that the order of processes does not matter
    for (std::size_t i = 0; i < report.counts.size(); ++i) total_.counts[i] += report.counts[i];
  }

  const Soak& soak_;
  const std::vector<std::uint64_t> seeds_;
  const unsigned jobs_;
  const bool verbose_;
  Shared* shared_ = nullptr;
  std::array<int, 2> reports_{};
  std::map<pid_t, unsigned> children_;
  std::vector<std::uint64_t> failed_;
  std::vector<double> slowdowns_;
  std::uint64_t done_ = 0;
  Report total_;
};

}  // namespace

int run_soak(const Soak& soak, int argc, char** argv) {
  CLI::App app{soak.about};
  std::uint64_t schedules = 200;
  std::uint64_t first = fresh_seed(std::chrono::system_clock::now().time_since_epoch());
  std::string seeds_path;
  unsigned jobs = 2;
  std::uint64_t failures_max = 0;
  bool verbose = false;
  app.add_option("--schedules", schedules, "How many");
  app.add_option("--seed", first, "The first seed; the others follow it. Without it, one that no soak has used before");
  app.add_option("--seeds", seeds_path, "Run the seeds of this file instead")->check(CLI::ExistingFile);
  app.add_option("--jobs", jobs, "Processes")->check(CLI::Range(1u, kJobsMax));
  app.add_option("--failures", failures_max, "Stop after so many violations; 0: never");
  app.add_flag("--verbose", verbose, "Print what the nodes log");
  soak.add_flags(app);
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
    fmt::print("the same again: {} --schedules {} --seed {}\n", soak.command, schedules, first);
  }
  std::fflush(stdout);
  soak.begin(verbose);

  const auto began = std::chrono::steady_clock::now();
  Run run(soak, std::move(seeds), jobs, verbose);
  run.run(failures_max);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();

  if (!run.failed().empty()) {
    fmt::print("violated by seeds {}\n", fmt::join(run.failed(), " "));
    fmt::print("one again, with what the nodes log: {} --jobs 1 --schedules 1 --seed {} --verbose\n", soak.command,
               run.failed().front());
    fmt::print("each of them belongs into {}, with the fix\n", soak.seeds_file);
  }
  fmt::print("{}", run.slowdowns());
  std::string counts;
  for (std::size_t i = 0; i < soak.counts.size(); ++i) {
    counts += fmt::format(", {} {}", run.total().counts[i], soak.counts[i]);
  }
  fmt::print("{} {} in {:.0f} s ({:.0f} s of processor), {} violations{}, hash {:016x}\n", run.done(), soak.schedules,
             seconds, processor_seconds(), run.failed().size(), counts, run.total().hash);
  return run.failed().empty() ? 0 : 1;
}

}  // namespace weightcast::sim
