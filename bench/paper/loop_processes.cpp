#include "bench/paper/loop_processes.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <utility>

namespace weightcast::bench {
namespace {

std::string flag_of(const Setting& setting) {
  std::string name = setting.name;
  std::ranges::replace_if(
      name, [](char c) { return c == '_' || c == '.'; }, '-');
  return fmt::format("--{}={}", name, setting.value);
}

}  // namespace

Result<std::unique_ptr<LoopProcesses>> LoopProcesses::start(const std::filesystem::path& programs,
                                                            std::uint64_t workers) {
  WC_ASSIGN(Scratch scratch, Scratch::make());
  auto loop = std::unique_ptr<LoopProcesses>(new LoopProcesses(programs, std::move(scratch)));
  loop->network_ = make_loopback_network(std::vector<LinkRates>(workers + 1));
  FleetOptions options;
  options.program = (programs / "weightcast").string();
  options.scratch = loop->scratch_.path();
  options.encrypted = true;
  WC_ASSIGN(loop->fleet_, Fleet::start(*loop->network_, workers, options));
  return Result<std::unique_ptr<LoopProcesses>>(std::move(loop));
}

std::string LoopProcesses::worker_name(std::size_t worker) const {
  return fleet_->state(worker + 1).filename().string();
}

std::string LoopProcesses::log_path(std::size_t worker) const {
  return (scratch_.path() / (worker_name(worker) + "-worker.log")).string();
}

std::vector<Setting> LoopProcesses::learner_settings() const {
  return {{"publish_state", fleet_->state(0).string()},
          {"rollout_keys", (scratch_.path() / "keys" / "origin.pem").string()}};
}

Status LoopProcesses::start_workers(const std::string& learner, std::span<const Setting> settings) {
  for (std::size_t worker = 0; worker < fleet_->worker_count(); ++worker) {
    const std::string name = worker_name(worker);
    ProcessSpec spec;
    spec.argv = {(programs_ / "weightcast-engine").string(), "run"};
    std::vector<Setting> all = {{"learner", learner},
                                {"keys", (scratch_.path() / "keys" / "workers" / (name + ".pem")).string()},
                                {"state_dir", fleet_->state(worker + 1).string()},
                                {"http_dir", (scratch_.path() / (name + "-http")).string()}};
    all.insert(all.end(), settings.begin(), settings.end());
    for (const Setting& setting : all) spec.argv.push_back(flag_of(setting));
    spec.log_path = log_path(worker);
    WC_ASSIGN(Process process, Process::start(spec));
    workers_.push_back(std::move(process));
  }
  return {};
}

std::optional<std::string> LoopProcesses::ended_worker() {
  for (std::size_t worker = 0; worker < workers_.size(); ++worker) {
    if (workers_[worker].running()) continue;
    std::ifstream log(log_path(worker));
    std::string before, last = "its log is empty";
    for (std::string line; std::getline(log, line);) before = std::exchange(last, line);
    // A refusal of a setting has a second line.
    return fmt::format("{} has ended: {} {}", worker_name(worker), before, last);
  }
  return std::nullopt;
}

}  // namespace weightcast::bench
