// What operators read over HTTP of real daemons.
#include <gmock/gmock.h>
#include <signal.h>

#include <fstream>

#include "base/settings/endpoint.h"
#include "base/units.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/transport/http/raw_client.h"
#include "transport/http/client.h"

namespace weightcast {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

constexpr Duration kCallLimit = std::chrono::minutes(1);

Endpoint http_of(const Cluster& cluster, const std::string& name) {
  std::string text = read_file(cluster.state(name) + "/http_address");
  if (text.ends_with('\n')) text.pop_back();
  const auto endpoint = Endpoint::parse(text);
  EXPECT_TRUE(endpoint.has_value()) << text;
  return endpoint.value_or(Endpoint());
}

HttpResponse get(const Endpoint& server, const std::string& path, const HttpTrust& trust = {},
                 const std::vector<HttpHeader>& headers = {}) {
  auto client = HttpClient::make({.server = server, .trust = trust});
  EXPECT_TRUE(client.has_value()) << client.error().message();
  const auto answer = (*client)->call({.target = path, .headers = headers}, kCallLimit);
  EXPECT_TRUE(answer.has_value()) << answer.error().message();
  return answer.value_or(HttpResponse{.status = 0});
}

Json json_at(const Endpoint& server, const std::string& path) {
  const HttpResponse answer = get(server, path);
  EXPECT_EQ(answer.status, 200u) << answer.body;
  return Json::parse(answer.body, nullptr, false);
}

/// What a page does with an event, as docs/METRICS.md says.
void apply(const Json& change, Json& state) {
  const auto update = [&](const char* list, const char* gone, const auto& is_same) {
    Json& all = state[list];
    for (const Json& one : change.value(list, Json::array())) {
      const auto found = std::ranges::find_if(all, [&](const Json& other) { return is_same(one, other); });
      if (found == all.end()) {
        all.push_back(one);
      } else {
        found->update(one);
      }
    }
    for (const Json& one : change.value(gone, Json::array())) {
      const auto found = std::ranges::find_if(all, [&](const Json& other) { return is_same(one, other); });
      ASSERT_NE(found, all.end()) << one;
      all.erase(found);
    }
  };
  update("nodes", "nodes_gone",
         [](const Json& a, const Json& b) { return a["name"] == b["name"] && a["role"] == b["role"]; });
  update("publications", "publications_gone",
         [](const Json& a, const Json& b) { return (a.is_object() ? a["version"] : a) == b["version"]; });
  for (const auto& [name, value] : change.items()) {
    if (!value.is_array() || name == "versions") state[name] = value;
  }
}

class Follower {
 public:
  explicit Follower(const Endpoint& server) : client_(server.port) {
    EXPECT_TRUE(client_.say("GET /events HTTP/1.1\r\n\r\n"));
    state_ = hear("state");
  }
  /// Hears changes until `holds` does of the state.
  template <typename Condition>
  void hear_until(const Condition& holds) {
    while (!holds(state_)) {
      const Json change = hear("change");
      ASSERT_TRUE(change.is_object()) << "the stream ended";
      apply(change, state_);
    }
  }
  [[nodiscard]] const Json& state() const { return state_; }

 private:
  Json hear(const std::string& name) {
    client_.hear_until("event: " + name + "\ndata: ");
    return Json::parse(client_.hear_until("\n\n"), nullptr, false);
  }
  RawClient client_;
  Json state_;
};

/// Without what ages.
Json settled(Json state) {
  state.erase("unix_ms");
  for (Json& node : state["nodes"]) {
    node.erase("score");
    node.erase("disk_bytes_written");
  }
  return state;
}

TEST(Http, TellsWhatTheCommandLineTellsAndEventsLeadThere) {
  Cluster cluster;
  cluster.start_origin({"--http", "127.0.0.1:0"});
  const Endpoint origin = http_of(cluster, "origin");
  Follower follower(origin);
  EXPECT_EQ(follower.state()["nodes"].size(), 1u);

  cluster.start_worker("a");
  cluster.start_worker("b", {"--http", "127.0.0.1:0"});
  ASSERT_EQ(cluster.publish(write_snapshot(cluster.temp().file("1.safetensors"), kMiB, 1), 1).status, 0);
  ASSERT_EQ(cluster.publish(write_snapshot(cluster.temp().file("2.safetensors"), kMiB, 2), 2).status, 0);

  follower.hear_until([](const Json& state) {
    return state["latest_version"] == 2 && state["publications"].size() == 2 &&
           state["publications"][1]["state"] == "complete" &&
           std::ranges::all_of(state["nodes"], [](const Json& node) { return node["version"] == 2; });
  });
  // Rates are measured when links are free, and that ends.
  Json status;
  ASSERT_TRUE(Cluster::eventually([&] {
    status = json_at(origin, "/status");
    follower.hear_until(
        [&](const Json& state) { return state["unix_ms"] >= status["unix_ms"] || settled(state) == settled(status); });
    return settled(follower.state()) == settled(status);
  })) << follower.state().dump(1)
      << status.dump(1);

  Json told = cluster.status("origin");
  ASSERT_TRUE(Cluster::eventually([&] {
    told = cluster.status("origin");
    Json asked = json_at(origin, "/status");
    asked.erase("versions");
    asked.erase("publications");
    return settled(asked) == settled(told);
  }));
  EXPECT_EQ(status["versions"].size(), 2u);
  EXPECT_EQ(status["publications"][1]["workers"], 2);

  const Json publication = json_at(origin, "/publications/2");
  ASSERT_EQ(publication["workers"].size(), 2u);
  EXPECT_GT(publication["workers"][0]["phases"]["bytes"], 0);
  EXPECT_EQ(get(origin, "/publications/3").status, 404u);
  EXPECT_EQ(get(origin, "/healthz").status, 200u);

  const Endpoint worker = http_of(cluster, "b");
  EXPECT_EQ(json_at(worker, "/status")["nodes"][0]["version"], 2);
  EXPECT_EQ(get(worker, "/healthz").status, 200u);
  ASSERT_TRUE(cluster.end("origin", SIGKILL));
  EXPECT_TRUE(Cluster::eventually([&] { return get(worker, "/healthz").status == 503; }));
}

TEST(Http, BeyondLoopbackADaemonWantsATokenOrKeys) {
  const ClusterKeys keys;
  Cluster cluster;
  const auto daemon = [&](Cluster::Flags flags) {
    Cluster::Flags all{"daemon", "--role", "origin", "--state", cluster.state("refused"), "--http", "0.0.0.0:0"};
    all.insert(all.end(), flags.begin(), flags.end());
    return cluster.run(all, std::chrono::seconds(20));
  };
  EXPECT_THAT(daemon({}), Exits(2, "--http-token FILE"));
  EXPECT_EQ(daemon({"--insecure"}).status, 2) << "that is of the nodes' connections";

  const std::string token = cluster.temp().write("token", "correct horse battery staple\n");
  std::filesystem::permissions(token, std::filesystem::perms::owner_read);
  cluster.start_origin({"--http", "0.0.0.0:0", "--http-token", token});
  const Endpoint with_token{"127.0.0.1", http_of(cluster, "origin").port};
  EXPECT_EQ(get(with_token, "/status").status, 401u);
  EXPECT_EQ(get(with_token, "/status", {}, {{"Authorization", "Bearer correct horse battery staple"}}).status, 200u);

  Cluster encrypted;
  encrypted.use_keys(keys);
  encrypted.start_origin({"--http", "0.0.0.0:0"});
  const Endpoint with_keys{"127.0.0.1", http_of(encrypted, "origin").port};
  EXPECT_EQ(get(with_keys, "/status", {.keys = keys.issue("operator")}).status, 200u);
  RawClient plain(with_keys.port);
  ASSERT_TRUE(plain.say("GET /status HTTP/1.1\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(plain.hear_all(), testing::Not(HasSubstr("latest_version")));
}

TEST(Http, ATakenPortEndsTheDaemonWithAReason) {
  Cluster cluster;
  cluster.start_origin({"--http", "127.0.0.1:0"});
  const Ran second = cluster.run({"daemon", "--role", "origin", "--state", cluster.state("second"), "--http",
                                  http_of(cluster, "origin").to_string()},
                                 std::chrono::seconds(20));
  EXPECT_THAT(second, Exits(1, http_of(cluster, "origin").to_string()));
}

}  // namespace
}  // namespace weightcast
