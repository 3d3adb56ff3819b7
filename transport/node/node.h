#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "transport/io/jobs.h"
#include "transport/node/daemon.h"
#include "transport/node/driver.h"
#include "transport/node/local_api.h"
#include "transport/node/node_environment.h"
#include "transport/node/node_meters.h"
#include "transport/security/revocations.h"

namespace weightcast {

/// "full", "packed" or "patch": what programs are told.
[[nodiscard]] std::string_view kind_of(PayloadId payload);

/// What origin and worker have in common: the store, the listeners. Members are in the order in which they may be
/// destroyed from the last to the first; jobs end before anything that they use.
class Node : public LocalService {
 public:
  /// How long peers have to take our goodbye.
  static constexpr Duration kGoodbye = std::chrono::milliseconds(1200);

  explicit Node(NodeEnvironment environment) : environment_(std::move(environment)) {}

  /// Takes the state directory and the port; nothing is promised to anyone yet.
  /// Errors: kBusy (another daemon has the directory), and those of Store::open() and Listener::tcp().
  [[nodiscard]] Status open_base(const DaemonConfig& config);
  /// Serves from the loop's next turn on.
  virtual Status start() = 0;
  /// Takes nothing new, calls off what is under way and says goodbye; kGoodbye later, when it has been heard, the node
  /// may be destroyed. That waits for jobs to reach the end of the piece at hand, and for the disk.
  void stop(std::string_view reason);

  /// From now on the rates and limits of `config` count, those that may change while the node runs, and the end of its
  /// keys.
  void apply(const DaemonConfig& config);
  /// From now on `revoked` counts: closes the connections of those on it. An origin tells its workers of it.
  void apply(const Revocations& revoked);
  [[nodiscard]] Audit& audit() { return driver_->audit(); }
  /// As Driver::on_revocations().
  void on_revocations(std::function<void(const std::string& list)> take) { driver_->on_revocations(std::move(take)); }

  [[nodiscard]] const Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] const Store& store() const { return *store_; }
  [[nodiscard]] const Driver& driver() const { return *driver_; }
  [[nodiscard]] virtual const Core& core() const = 0;

  local::VersionsReply versions() override;
  Result<std::vector<std::string>> reload() override;
  local::ReadyReply readiness() override;
  std::optional<local::VersionInstalled> installed() override;
  std::optional<local::VersionInstalled> installed_version(Version version) override;
  void pin(std::vector<Version> versions) override;
  void changes(Version from, std::string from_digest, Version to, bool old_values, FileRef into,
               std::function<void(Result<ListedChanges>)> told) override;
  std::optional<local::VersionPreparing> preparing() override;

 protected:
  /// One that is complete here, of this run or what `current` names of the one before; else null.
  [[nodiscard]] const StoredVersion* stored_version(Version version) const;
  /// What status tells of this node alone: the peers that it has turned away, its disk, what it has sent and received,
  /// and how long phases took.
  void describe_self(local::NodeStatus& self) const;
  [[nodiscard]] virtual Core& mutable_core() = 0;
  virtual void tell_core(const Revocations& revoked) = 0;
  /// config_ has other rates and limits.
  virtual void tell_limits() = 0;
  /// Why it does not do what it is there for, yet or now; "" if it does.
  [[nodiscard]] virtual std::string why_not_ready() const { return ""; }
  [[nodiscard]] EventLoop& loop() const { return environment_.loop; }
  /// Whether somebody has deleted the directory in memory that versions lie in.
  [[nodiscard]] bool memory_is_gone() const;
  /// What `current` names; null if it names nothing.
  [[nodiscard]] const StoredVersion* in_use() const;
  /// Starts to accept nodes and local clients.
  [[nodiscard]] Status serve();
  /// Ends jobs, then all that calls back into the core: to be called first by the destructor of whoever owns the core.
  void close();

  NodeEnvironment environment_;
  DaemonConfig config_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Listener> listener_;  // until stop()
  Endpoint endpoint_;
  std::unique_ptr<LocalApi> api_;
  NodeMeters meters_;
  Jobs jobs_{environment_.loop};
};

/// Errors: what kept the node from being made. See Node::open_base().
[[nodiscard]] Result<std::unique_ptr<Node>> open_node(const DaemonConfig& config, NodeEnvironment environment);

}  // namespace weightcast
