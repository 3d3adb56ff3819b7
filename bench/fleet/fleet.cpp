#include "bench/fleet/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <thread>
#include <utility>

#include "bench/fleet/interrupt.h"
#include "transport/security/authority.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Duration kStartTimeout = std::chrono::seconds(30);
constexpr Duration kPoll = std::chrono::milliseconds(20);
constexpr Duration kStatusTimeout = std::chrono::milliseconds(300);  // some nodes are meant to be dead
constexpr Duration kSubscribing = std::chrono::milliseconds(50);
// Often enough to see a peak that lasts, seldom enough not to be one of its causes.
constexpr Duration kSampleEvery = std::chrono::milliseconds(250);

std::string rate_flag(Rate rate) { return rate.limited() ? fmt::format("{:.0f}bit", rate.bits_per_s()) : "unlimited"; }

/// Waits for installations at one worker, on a thread of its own, so that each is stamped when it happens.
class Watcher {
 public:
  Watcher(std::string state, Version version)
      : thread_([this, state = std::move(state), version] { watch(state, version); }) {}
  ~Watcher() {
    stop_ = true;
    thread_.join();
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  [[nodiscard]] bool installed() const { return installed_at_ns_ != 0; }
  /// Seconds since `start`; absent while it has not happened.
  [[nodiscard]] std::optional<double> installed_s(Clock::time_point start) const {
    if (!installed()) return std::nullopt;
    return to_seconds(Duration(installed_at_ns_) - start.time_since_epoch());
  }

 private:
  void watch(const std::string& state, Version version) {
    auto subscription = attempt([&] { return wc::Subscription(state); });
    while (subscription.has_value() && !stop_) {
      const auto next = attempt([&] { return subscription->next(std::chrono::milliseconds(200)); });
      if (!next.has_value()) return;
      if (!*next || (*next)->kind != WC_EVENT_INSTALLED || (*next)->version < version.value) continue;
      installed_at_ns_ = Duration(Clock::now().time_since_epoch()).count();
      return;
    }
  }

  std::atomic<bool> stop_{false};
  std::atomic<std::int64_t> installed_at_ns_{0};
  std::thread thread_;  // last: it uses the others
};

/// When the fraction `rho` of all workers, rounded up, had installed it; absent if they never did.
std::optional<double> time_of(double rho, const std::vector<std::optional<double>>& installed_s) {
  std::vector<double> times;
  for (const auto& t : installed_s) {
    if (t) times.push_back(*t);
  }
  std::sort(times.begin(), times.end());
  const auto needed = static_cast<std::size_t>(std::ceil(rho * double(installed_s.size())));
  if (needed == 0 || needed > times.size()) return std::nullopt;
  return times[needed - 1];
}

}  // namespace

Result<std::unique_ptr<Fleet>> Fleet::start(Network& network, std::size_t workers, const FleetOptions& options) {
  auto fleet = std::unique_ptr<Fleet>(new Fleet(network, options));
  WC_TRY(fleet->start_node(0));
  const auto deadline = Clock::now() + kStartTimeout;
  while (fleet->origin_address_.empty()) {
    WC_TRY(sleep_for(std::chrono::milliseconds(5)));
    const auto status = fleet->status();
    if (status.has_value()) {
      fleet->origin_address_ = status->at("nodes")[0].at("address");
    } else if (Clock::now() >= deadline || !fleet->process(0).running()) {
      return fail(Errc::kTimedOut, Op::kJoin, fmt::format("the origin did not start: {}", fleet->log_tail(0)));
    }
  }
  for (NodeIndex node = 1; node <= workers; ++node) WC_TRY(fleet->start_node(node));
  WC_TRY(fleet->wait_for_members());
  return Result<std::unique_ptr<Fleet>>(std::move(fleet));
}

Result<double> Fleet::add_worker(Version version) {
  const auto start = Clock::now();
  const NodeIndex node = nodes_.size();
  WC_TRY(start_node(node));
  const auto deadline = start + kStartTimeout;
  while (Clock::now() < deadline) {
    WC_TRY(check_interrupt());
    // Its socket appears a little after its process.
    auto subscription = attempt([&] { return wc::Subscription(nodes_[node].state); });
    while (subscription.has_value() && Clock::now() < deadline) {
      const auto next = attempt([&] { return subscription->next(std::chrono::milliseconds(200)); });
      if (!next.has_value()) break;
      if (!*next || (*next)->kind != WC_EVENT_INSTALLED) continue;
      if ((*next)->version >= version.value) return to_seconds(Clock::now() - start);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  return fail(Errc::kTimedOut, Op::kJoin, fmt::format("a further worker: {}", log_tail(node)));
}

Status Fleet::start_node(NodeIndex node) {
  const std::string name = node == 0 ? "origin" : fmt::format("w{:02}", node);
  const std::filesystem::path state = options_.scratch / name;
  LinkRates rates = network_.rates(node);
  const bool paced = options_.paced_share || !network_.keeps_rates();
  if (options_.paced_share && network_.keeps_rates()) {
    for (Rate* rate : {&rates.uplink, &rates.downlink}) {
      if (rate->limited()) rate->bytes_per_s *= *options_.paced_share;
    }
  }
  Endpoint listen = network_.endpoint(node);
  if (listen.port != 0) listen.port += options_.port_shift;  // else the system chooses
  ProcessSpec spec;
  spec.argv = {options_.program, "daemon",
               "--role",         node == 0 ? "origin" : "worker",
               "--state",        state,
               "--name",         name,
               "--listen",       listen.to_string(),
               "--keep",         std::to_string(options_.versions_kept),
               "--log-level",    "warning"};
  if (options_.configures_rates) {
    spec.argv.insert(spec.argv.end(), {"--uplink", rate_flag(rates.uplink), "--downlink", rate_flag(rates.downlink)});
  }
  WC_ASSIGN(const std::vector<std::string> trust, trust_flags(node, name));
  spec.argv.insert(spec.argv.end(), trust.begin(), trust.end());
  if (node == 0) {
    spec.argv.insert(spec.argv.end(), {"--topology", std::string(to_string(options_.topology))});
  } else {
    spec.argv.insert(spec.argv.end(), {"--origin", origin_address_});
  }
  if (!paced) spec.argv.push_back("--no-pace");
  // By the room that a host has at the moment nodes of one fleet would differ.
  if (std::ranges::find(options_.daemon_flags, "--versions-in") == options_.daemon_flags.end()) {
    spec.argv.insert(spec.argv.end(), {"--versions-in", "disk"});
  }
  spec.argv.insert(spec.argv.end(), options_.daemon_flags.begin(), options_.daemon_flags.end());
  if (node != 0) spec.argv.insert(spec.argv.end(), options_.worker_flags.begin(), options_.worker_flags.end());
  spec.network_fd = network_.namespace_fd(node);
  spec.log_path = options_.scratch / (name + ".log");
  WC_ASSIGN(Process process, Process::start(spec));
  nodes_.push_back({state, std::move(process)});
  return {};
}

Result<std::vector<std::string>> Fleet::trust_flags(NodeIndex node, const std::string& name) const {
  if (!options_.encrypted) return std::vector<std::string>{"--insecure"};
  const std::filesystem::path keys = options_.scratch / "keys";
  const std::int64_t now = unix_now_s();
  if (node == 0) {
    WC_TRY(Authority::init(keys, name, Authority::kDaysDefault, now));
    return std::vector<std::string>{"--keys", keys / "origin.pem"};
  }
  WC_ASSIGN(Authority authority, Authority::open(keys, now));
  WC_ASSIGN(const std::filesystem::path file, authority.issue(name, Authority::kDaysDefault, false, now));
  return std::vector<std::string>{"--keys", file};
}

Status Fleet::wait_for_members() {
  const auto deadline = Clock::now() + kStartTimeout;
  for (;;) {
    WC_ASSIGN(const nlohmann::json reply, status());
    const std::size_t there = reply.at("nodes").size();
    if (there == nodes_.size()) return {};
    for (NodeIndex node = 0; node < nodes_.size(); ++node) {
      if (nodes_[node].process.running() && Clock::now() < deadline) continue;
      return fail(Errc::kTimedOut, Op::kJoin,
                  fmt::format("{} of {} nodes are there; log of {}: {}", there, nodes_.size(),
                              nodes_[node].state.filename().string(), log_tail(node)));
    }
    WC_TRY(sleep_for(kPoll));
  }
}

std::string Fleet::log_tail(NodeIndex node) const {
  std::ifstream log(nodes_.at(node).state.string() + ".log");
  std::string last = "(its log is empty)";
  for (std::string line; std::getline(log, line);) last = line;
  return last;
}

Result<nlohmann::json> Fleet::status(NodeIndex node, Duration timeout) const {
  const auto bound = std::chrono::ceil<wc::Milliseconds>(timeout);
  return attempt([&] { return nlohmann::json::parse(wc::Client(nodes_.at(node).state, bound).status(bound)); });
}

Result<nlohmann::json> Fleet::versions(NodeIndex node) const {
  return attempt([&] { return nlohmann::json::parse(wc::Client(nodes_.at(node).state).versions()); });
}

double Fleet::cpu_s() {
  double sum = 0;
  for (Node& node : nodes_) {
    // One that has ended counts as what it was last seen to have used.
    if (const auto usage = node.process.usage()) node.last_cpu_s = usage->cpu_s;
    sum += node.last_cpu_s;
  }
  return sum;
}

std::uint64_t Fleet::rss_anon_bytes_max() {
  std::uint64_t most = 0;
  for (Node& node : nodes_) {
    const auto usage = node.process.usage();
    if (!usage) continue;
    node.last_cpu_s = usage->cpu_s;
    most = std::max(most, usage->rss_anon_bytes);
  }
  return most;
}

Result<Fleet::Counters> Fleet::read_counters() {
  Counters counters;
  counters.cpu_s = cpu_s();
  counters.stolen_s = stolen_s();
  WC_ASSIGN(const nlohmann::json reply, status());
  counters.origin_sent_bytes = reply.at("nodes")[0].at("bytes_sent");
  if (network_.keeps_rates()) {
    WC_ASSIGN(counters.origin_sent_bytes, network_.bytes_sent(0));
  }
  for (const auto& bytes : received_bytes()) counters.received_bytes.push_back(bytes.value_or(0));
  return counters;
}

std::vector<std::optional<std::uint64_t>> Fleet::received_bytes(const std::function<bool(NodeIndex)>& asked) {
  std::vector<std::optional<std::uint64_t>> received(worker_count());
  for (NodeIndex node = 1; node < nodes_.size(); ++node) {
    if (!nodes_[node].process.running() || (asked && !asked(node))) continue;
    const Result<nlohmann::json> own = status(node, kStatusTimeout);
    if (own.has_value()) received[node - 1] = own->at("nodes")[0].at("bytes_received").get<std::uint64_t>();
  }
  return received;
}

Result<Broadcast> Fleet::broadcast(Version version, const Payload& payload, const BroadcastOptions& options) {
  std::vector<std::unique_ptr<Watcher>> watchers;
  for (NodeIndex node = 1; node < nodes_.size(); ++node) {
    watchers.push_back(std::make_unique<Watcher>(nodes_[node].state.string(), version));
  }
  WC_TRY(sleep_for(kSubscribing));
  WC_ASSIGN(const Counters before, read_counters());

  std::atomic<bool> taken_over{false};
  Result<wc::Outcome> outcome = fail(Errc::kTimedOut, Op::kPublish, "it was not taken over");
  const auto start = Clock::now();
  std::jthread publisher([&] {
    const auto timeout = std::chrono::ceil<wc::Milliseconds>(options.timeout);
    wc::PublishOptions publish;
    publish.version = version.value;
    publish.new_model = true;  // payloads of any size follow one another
    // Until it is taken over: who has it is seen at the workers.
    outcome = attempt([&] {
      wc::Client client(nodes_[0].state);
      return client.wait(client.publish_path(payload.path.string(), publish, timeout), {}, timeout);
    });
    taken_over = true;
  });
  const auto everybody_has_it = [&] {
    for (NodeIndex node = 1; node < nodes_.size(); ++node) {
      if (!watchers[node - 1]->installed() && (!options.is_expected || options.is_expected(node))) return false;
    }
    return true;
  };

  Broadcast result;
  auto next_sample = start;
  while (!taken_over || !everybody_has_it()) {
    if (taken_over && !outcome.has_value()) return outcome.error();
    const double elapsed_s = to_seconds(Clock::now() - start);
    if (elapsed_s > to_seconds(options.timeout)) break;
    if (options.on_tick) WC_TRY(options.on_tick(elapsed_s));
    if (Clock::now() >= next_sample) {
      result.rss_anon_bytes_max = std::max(result.rss_anon_bytes_max, rss_anon_bytes_max());
      next_sample += kSampleEvery;
    }
    WC_TRY(sleep_for(kPoll));
  }
  publisher.join();
  if (!outcome.has_value()) return outcome.error();
  result.outcome = *outcome;
  result.rss_anon_bytes_max = std::max(result.rss_anon_bytes_max, rss_anon_bytes_max());
  for (const auto& watcher : watchers) result.installed_s.push_back(watcher->installed_s(start));
  result.take_s = outcome->take_s.value_or(0);
  result.t50_s = time_of(0.5, result.installed_s);
  result.t90_s = time_of(0.9, result.installed_s);
  result.t100_s = time_of(1.0, result.installed_s);

  WC_ASSIGN(const Counters after, read_counters());
  result.cpu_s = after.cpu_s - before.cpu_s;
  result.stolen_s = after.stolen_s - before.stolen_s;
  result.origin_egress_bytes = after.origin_sent_bytes - before.origin_sent_bytes;
  for (std::size_t worker = 0; worker < worker_count(); ++worker) {
    const std::uint64_t received = after.received_bytes[worker];
    result.received_bytes.push_back(received - std::min(received, before.received_bytes[worker]));
  }
  return result;
}

}  // namespace weightcast::bench
