#pragma once

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/e2e/fleet/process.h"
#include "tests/patch/temp_dir.h"
#include "tests/transport/security/cluster_keys.h"

namespace weightcast {

/// A fleet of real daemons on loopback, each with a state directory below one temporary directory, and with what they
/// have in memory below another. All of them end with this object.
class Cluster {
 public:
  using Flags = std::vector<std::string>;

  /// From now on daemons get the keys of their names from here, unless their flags say --keys or --insecure.
  void use_keys(const ClusterKeys& keys) { keys_ = &keys; }

  /// The daemon of that name is started by these words before its own.
  void put_on_host(const std::string& name, Flags words) { hosts_[name] = std::move(words); }

  /// Starts a daemon and waits until it answers. Its flags are kept for restart(). An origin whose flags say neither
  /// --pack nor --uplink packs nothing.
  void start_origin(const Flags& flags = {});
  void start_worker(const std::string& name, const Flags& flags = {});
  /// An origin, and workers without flags.
  void start_fleet(const std::vector<std::string>& workers, const Flags& of_origin = {});
  /// Starts one without waiting for it, under any flags.
  void launch(const std::string& name, const Flags& flags);

  /// `number` is sent to the daemon; returns its exit status, or nothing if it lives on after `limit`.
  std::optional<int> end(const std::string& name, int number,
                         std::chrono::milliseconds limit = std::chrono::seconds(30));
  /// Starts an ended daemon again, on the same address.
  void restart(const std::string& name);

  [[nodiscard]] Process& process(const std::string& name) { return daemons_.at(name).process.value(); }
  [[nodiscard]] std::string state(const std::string& name) const { return temp_.file(name); }
  [[nodiscard]] std::string address(const std::string& name) const { return daemons_.at(name).address; }
  [[nodiscard]] std::string log(const std::string& name) const { return read_file(temp_.file(name + ".log")); }
  [[nodiscard]] const TempDir& temp() const { return temp_; }
  /// What the daemons are told as --memory-dir.
  [[nodiscard]] const std::string& memory() const { return memory_.path(); }

  /// Runs the command line.
  [[nodiscard]] Ran run(const Flags& arguments, std::chrono::milliseconds limit = std::chrono::minutes(4)) const;
  /// Publishes from the origin with --json; `flags` may say more.
  [[nodiscard]] Ran publish(const std::string& path, std::uint64_t version, const Flags& flags = {"--wait", "1"}) const;
  /// The same with a snapshot of so many bytes, which is written for it; they depend on the version. Returns its path.
  std::string publish_bytes(std::uint64_t version, std::uint64_t bytes, const Flags& flags = {"--wait", "1"}) const;
  /// `status --json` of one daemon; null if it does not answer.
  [[nodiscard]] nlohmann::json status(const std::string& name) const;
  /// A node's entry in its own status.
  [[nodiscard]] nlohmann::json self(const std::string& name) const;
  /// One that `name` knows of another; null if it does not know it.
  [[nodiscard]] nlohmann::json node(const std::string& name, const std::string& other) const;
  [[nodiscard]] std::uint64_t version(const std::string& name) const;
  /// Where the time of a publication went at a worker, as the origin's `status --version` has it; null if it has not.
  [[nodiscard]] nlohmann::json phases(const std::string& worker, std::uint64_t version) const;

  /// Whether it has that version, and keeps it through a power cut.
  [[nodiscard]] bool is_durable(const std::string& name, std::uint64_t version) const;
  /// Whether `current` of that node holds exactly the files of `snapshot` (a file or a directory).
  [[nodiscard]] testing::AssertionResult holds(const std::string& name, const std::string& snapshot) const;

  /// Whether that node comes to have `version`, and then holds exactly `snapshot`.
  [[nodiscard]] testing::AssertionResult gets(const std::string& name, std::uint64_t version,
                                              const std::string& snapshot) const;

  /// Waits for it. The limit is for what never comes, not for a host that is slow.
  template <typename Condition>
  [[nodiscard]] static bool eventually(Condition condition,
                                       std::chrono::milliseconds limit = std::chrono::seconds(60)) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!condition()) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      pause();
    }
    return true;
  }

 private:
  struct Daemon {
    Flags flags;
    std::string address;
    std::optional<Process> process;
  };

  static void pause();
  void start(const std::string& name, Flags flags);
  void wait_until_up(const std::string& name);

  /// How its connections are made: --keys, or --insecure.
  [[nodiscard]] Flags trust(const std::string& name, const Flags& flags) const;

  TempDir temp_;
  TempDir memory_{TempDir::in_memory()};
  const ClusterKeys* keys_ = nullptr;
  std::map<std::string, Flags> hosts_;
  std::map<std::string, Daemon> daemons_;
};

/// A test with a fleet that encrypts.
struct KeyedFleet : testing::Test {
  KeyedFleet() { cluster.use_keys(keys); }

  ClusterKeys keys;
  Cluster cluster;
};

/// Writes a safetensors file with one U8 tensor of `bytes` bytes that depend on `seed`.
std::string write_snapshot(const std::string& path, std::uint64_t bytes, unsigned seed);
/// The same in a directory, in `shards` files with their index.
std::string write_sharded_snapshot(const std::string& directory, std::uint64_t bytes, unsigned shards, unsigned seed);

}  // namespace weightcast
