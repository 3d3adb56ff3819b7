#include "tests/e2e/fleet/cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/patch/safetensors_bytes.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr auto kStartLimit = std::chrono::seconds(60);

// xorshift: fast, the same everywhere, and nothing in it compresses.
std::string noise(std::uint64_t bytes, unsigned seed) {
  std::string out(bytes + 8, '\0');
  std::uint64_t x = 88172645463325252ull ^ (std::uint64_t{seed} << 20);
  for (std::uint64_t at = 0; at < bytes; at += 8) {
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    std::memcpy(out.data() + at, &x, 8);
  }
  out.resize(bytes);
  return out;
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  ASSERT_TRUE(out.good()) << path;
}

std::string snapshot_bytes(const std::string& tensor, std::uint64_t bytes, unsigned seed) {
  return safetensors_bytes(
      fmt::format(R"({{"{}":{{"dtype":"U8","shape":[{}],"data_offsets":[0,{}]}}}})", tensor, bytes, bytes),
      noise(bytes, seed));
}

}  // namespace

std::string write_snapshot(const std::string& path, std::uint64_t bytes, unsigned seed) {
  write_file(path, snapshot_bytes("weight", bytes, seed));
  return path;
}

std::string write_sharded_snapshot(const std::string& directory, std::uint64_t bytes, unsigned shards, unsigned seed) {
  fs::create_directories(directory);
  nlohmann::json index{{"metadata", {{"total_size", bytes * shards}}}, {"weight_map", nlohmann::json::object()}};
  for (unsigned i = 0; i < shards; ++i) {
    const std::string name = fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards);
    const std::string tensor = fmt::format("layers.{}.weight", i);
    index["weight_map"][tensor] = name;
    write_file(fs::path(directory) / name, snapshot_bytes(tensor, bytes, seed + i));
  }
  write_file(fs::path(directory) / "model.safetensors.index.json", index.dump());
  return directory;
}

void Cluster::pause() { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }

void Cluster::launch(const std::string& name, const Flags& flags) {
  Daemon& daemon = daemons_[name];
  daemon.flags = flags;
  Flags arguments = hosts_[name];
  arguments.insert(arguments.end(),
                   {WEIGHTCAST_BINARY, "daemon", "--state", state(name), "--name", name, "--memory-dir", memory()});
  const Flags trusting = trust(name, flags);
  arguments.insert(arguments.end(), trusting.begin(), trusting.end());
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  daemon.process.emplace(arguments, temp_.file(name + ".log"), temp_.file(name + ".log"));
}

Cluster::Flags Cluster::trust(const std::string& name, const Flags& flags) const {
  const auto says = [&](const char* flag) { return std::ranges::find(flags, flag) != flags.end(); };
  if (says("--keys") || says("--insecure")) return {};
  if (keys_ == nullptr) return {"--insecure"};
  if (name == "origin") return {"--keys", keys_->origin_file()};
  return {"--keys", keys_->has(name) ? keys_->file_of(name) : keys_->issue(name)};
}

void Cluster::start(const std::string& name, Flags flags) {
  launch(name, flags);
  wait_until_up(name);
}

void Cluster::wait_until_up(const std::string& name) {
  nlohmann::json node;
  const auto is_up = [&] { return !(node = self(name)).is_null() || !process(name).running(); };
  ASSERT_TRUE(eventually(is_up, kStartLimit)) << name;
  ASSERT_TRUE(process(name).running()) << name << " ended: " << log(name);
  daemons_.at(name).address = node.at("address");
}

void Cluster::start_origin(const Flags& flags) {
  Flags all{"--role", "origin"};
  all.insert(all.end(), flags.begin(), flags.end());
  // Rates that are measured on loopback are those of busy processors: whether packing pays there is chance.
  const auto says = [&](const char* flag) { return std::ranges::find(flags, flag) != flags.end(); };
  if (!says("--pack") && !says("--uplink")) all.insert(all.end(), {"--pack", "never"});
  start("origin", all);
}

void Cluster::start_worker(const std::string& name, const Flags& flags) {
  Flags all{"--role", "worker", "--origin", address("origin")};
  all.insert(all.end(), flags.begin(), flags.end());
  start(name, all);
  const auto has_joined = [&] {
    const nlohmann::json node = self(name);
    return !node.is_null() && node.at("state") != "dialling";
  };
  ASSERT_TRUE(eventually(has_joined)) << log(name);
}

void Cluster::start_fleet(const std::vector<std::string>& workers, const Flags& of_origin) {
  start_origin(of_origin);
  for (const std::string& worker : workers) start_worker(worker);
}

std::optional<int> Cluster::end(const std::string& name, int number, std::chrono::milliseconds limit) {
  process(name).signal(number);
  return process(name).wait(limit);
}

void Cluster::restart(const std::string& name) {
  Daemon& daemon = daemons_.at(name);
  Flags flags = daemon.flags;
  if (std::ranges::find(flags, "--listen") == flags.end()) {
    flags.insert(flags.end(), {"--listen", daemon.address});
  }
  start(name, flags);
}

Ran Cluster::run(const Flags& arguments, std::chrono::milliseconds limit) const {
  Flags all{WEIGHTCAST_BINARY};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_program(all, temp_.path(), limit);
}

Ran Cluster::publish(const std::string& path, std::uint64_t version, const Flags& flags) const {
  Flags arguments{"publish", path, "--version", std::to_string(version), "--state", state("origin"), "--json"};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return run(arguments);
}

std::string Cluster::publish_bytes(std::uint64_t version, std::uint64_t bytes, const Flags& flags) const {
  const std::string path =
      write_snapshot(temp_.file(std::to_string(version) + ".safetensors"), bytes, static_cast<unsigned>(version));
  EXPECT_THAT(publish(path, version, flags), Exits(0)) << log("origin");
  return path;
}

nlohmann::json Cluster::status(const std::string& name) const {
  const Ran ran = run({"status", "--state", state(name), "--json"});
  return ran.status == 0 ? nlohmann::json::parse(ran.out) : nlohmann::json();
}

nlohmann::json Cluster::self(const std::string& name) const { return node(name, name); }

nlohmann::json Cluster::node(const std::string& name, const std::string& other) const {
  const nlohmann::json all = status(name);
  if (all.is_null()) return {};
  for (const nlohmann::json& node : all.at("nodes")) {
    if (node.at("name") == other) return node;
  }
  return {};
}

std::uint64_t Cluster::version(const std::string& name) const {
  const nlohmann::json node = self(name);
  return node.is_null() ? 0 : node.at("version").get<std::uint64_t>();
}

nlohmann::json Cluster::phases(const std::string& worker, std::uint64_t version) const {
  const Ran ran = run({"status", "--version", std::to_string(version), "--state", state("origin"), "--json"});
  if (ran.status != 0) return {};
  const nlohmann::json publication = nlohmann::json::parse(ran.out);
  for (const nlohmann::json& one : publication.at("workers")) {
    if (one.at("name") == worker) return one.at("phases");
  }
  return {};
}

bool Cluster::is_durable(const std::string& name, std::uint64_t version) const {
  const Ran ran = run({"versions", "--json", "--state", state(name)});
  if (ran.status != 0) return false;
  const nlohmann::json reply = nlohmann::json::parse(ran.out);
  for (const auto& entry : reply.at("versions")) {
    if (entry.at("version") == version) return entry.at("durable").get<bool>();
  }
  return false;
}

testing::AssertionResult Cluster::holds(const std::string& name, const std::string& snapshot) const {
  std::map<std::string, std::string> expected, found;
  if (fs::is_directory(snapshot)) {
    for (const auto& entry : fs::directory_iterator(snapshot)) {
      expected[entry.path().filename()] = read_file(entry.path());
    }
  } else {
    expected["model.safetensors"] = read_file(snapshot);
  }
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(state(name) + "/current/", missing)) {
    found[entry.path().filename()] = read_file(entry.path());
  }
  if (expected == found) return testing::AssertionSuccess();
  auto failure = testing::AssertionFailure() << name << " holds other files than " << snapshot << ":";
  for (const auto& [file, bytes] : found) failure << ' ' << file << " (" << bytes.size() << " bytes)";
  return failure;
}

testing::AssertionResult Cluster::gets(const std::string& name, std::uint64_t version,
                                       const std::string& snapshot) const {
  if (!eventually([&] { return this->version(name) == version; })) {
    return testing::AssertionFailure() << name << " has version " << this->version(name) << '\n' << log(name);
  }
  testing::AssertionResult held = holds(name, snapshot);
  return held ? held : held << '\n' << log(name);
}

}  // namespace weightcast
