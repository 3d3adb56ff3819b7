#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/local_message.h"
#include "tests/patch/temp_dir.h"
#include "tests/transport/io/io_fixture.h"
#include "transport/io/net/dial.h"
#include "transport/io/net/socket_network.h"
#include "transport/node/local_api.h"

namespace weightcast {

/// A node that says what the test wants.
struct FakeService final : LocalService {
  local::StatusReply nodes;
  local::VersionsReply kept;
  local::ReadyReply ready;
  std::optional<local::VersionInstalled> in_use;
  std::optional<local::VersionPreparing> letting_go;
  std::vector<Version> complete;
  std::vector<Version> pinned;
  Result<Version> next = Version{1};
  std::vector<std::pair<std::string, bool>> serving;
  std::vector<std::string> forgotten;
  bool provisioned = false;
  std::vector<std::pair<PublishOrder, std::function<void(Result<TakenOver>)>>> publications;
  std::optional<local::PublishResult> result;
  struct Listing {
    Version from{}, to{};
    std::string from_digest;
    FileRef into;
    std::function<void(Result<ListedChanges>)> told;
    bool old_values = false;
  };
  std::vector<Listing> listings;

  local::StatusReply status() override { return nodes; }
  local::VersionsReply versions() override { return kept; }
  Result<local::HistoryReply> history(Version version) override {
    if (version.value > 7) return fail(Errc::kNotFound, Op::kPlan, "not that one");
    return local::HistoryReply{.publications = {{.version = 7}}};
  }
  local::ReadyReply readiness() override { return ready; }
  std::optional<local::VersionInstalled> installed() override { return in_use; }
  std::optional<local::VersionInstalled> installed_version(Version version) override {
    if (std::ranges::find(complete, version) == complete.end()) return std::nullopt;
    return local::VersionInstalled{.version = version.value};
  }
  void pin(std::vector<Version> versions) override { pinned = std::move(versions); }
  void changes(Version from, std::string from_digest, Version to, bool old_values, FileRef into,
               std::function<void(Result<ListedChanges>)> told) override {
    listings.push_back({from, to, std::move(from_digest), std::move(into), std::move(told), old_values});
  }
  std::optional<local::VersionPreparing> preparing() override { return letting_go; }
  Result<Version> next_version() override { return next; }
  Status set_serving(std::string_view name, bool serves) override {
    if (name == "nobody") return fail(Errc::kNotFound, Op::kPlan, "nobody");
    serving.emplace_back(name, serves);
    return {};
  }
  Status forget(std::string_view name) override {
    if (name == "nobody") return fail(Errc::kNotFound, Op::kPlan, "nobody");
    forgotten.emplace_back(name);
    return {};
  }
  Status set_provisioned(bool is) override {
    provisioned = is;
    return {};
  }
  void publish(PublishOrder order, std::function<void(Result<TakenOver>)> taken) override {
    publications.emplace_back(std::move(order), std::move(taken));
  }
  std::optional<local::PublishResult> publish_result(Version, double) override { return result; }
  local::PublishProgress publish_progress(Version) override { return {}; }
};

/// A program at the other end of the socket.
struct Program : End {
  std::optional<DialLocal> dial;

  Program(Net& net, const std::string& path) {
    dial.emplace(net.context(), path, [this](Result<std::unique_ptr<FrameConnection>> made) {
      ASSERT_TRUE(made.has_value()) << made.error().message();
      adopt(std::move(*made));
    });
    EXPECT_TRUE(net.run_until([&] { return connection != nullptr; }));
  }
  void ask(std::uint64_t id, local::Message::Kind request) {
    connection->send_control(local::encode({.kind = std::move(request), .request_id = id}));
  }
  [[nodiscard]] local::Message answer(std::size_t i) const {
    Result<local::Message> message = local::decode(controls.at(i));
    EXPECT_TRUE(message.has_value()) << message.error().message();
    return *std::move(message);
  }
};

inline local::PublishRequest publish_request(std::uint64_t version, const std::string& path) {
  return {.version = version, .path = path};
}
inline local::WaitRequest wait_request(std::uint64_t version, double timeout_s = 60) {
  return {.version = version, .fraction = 1, .timeout_s = timeout_s};
}
inline std::uint32_t number(Errc code) { return static_cast<std::uint32_t>(code); }

struct LocalApiTest : testing::Test {
  TempDir temp;
  std::filesystem::path directory = temp.path();
  std::string path = (directory / "api.sock").string();
  Net net;
  SocketNetwork network{net.loop, Rate{}, Rate{}, SocketOptions{}};
  FakeService service;
  std::unique_ptr<LocalApi> api = [this] {
    auto opened = LocalApi::open(net.loop, network, path, service);
    EXPECT_TRUE(opened.has_value());
    return std::move(*opened);
  }();

  [[nodiscard]] testing::AssertionResult answered(const Program& program, std::size_t count) {
    return net.run_until([&] { return program.controls.size() >= count || program.closed; });
  }
};

}  // namespace weightcast
