#include "transport/http/trust.h"

#include "tests/result_matchers.h"
#include "tests/transport/http/server_fixture.h"
#include "tests/transport/security/cluster_keys.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

/// The origin's server, and clients with keys.
class TrustTest : public ServerTest {
 protected:
  TrustTest() { start({.trust = {.keys = keys_.origin_file()}}); }

  [[nodiscard]] std::unique_ptr<HttpClient> client_with(const std::string& keys, Role server = Role::kOrigin) const {
    auto made = HttpClient::make({.server = server_->endpoint(), .trust = {.keys = keys}, .server_role = server});
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return std::move(*made);
  }

  ClusterKeys keys_;
};

TEST_F(TrustTest, AHandlerLearnsWhoAsks) {
  const std::string file = keys_.issue("gpu-1");
  const auto http = client_with(file);
  std::thread answers([this] {
    Held held = take();
    ASSERT_TRUE(held.request.peer.has_value());
    EXPECT_EQ(held.request.peer->name, "gpu-1");
    EXPECT_EQ(held.request.peer->role, Role::kWorker);
    EXPECT_EQ(held.request.peer->key, keys_.read(keys_.file_of("gpu-1")).info.key);
    held.responder.send({.body = std::string(3'000'000, 'y')});
  });
  const auto response =
      http->call({.method = "POST", .target = "/who", .body = std::string(2'000'000, 'x')}, kCallLimit);
  answers.join();
  ASSERT_TRUE(response.has_value()) << response.error().message();
  EXPECT_EQ(response->body.size(), 3'000'000u);
}

TEST_F(TrustTest, BodiesOfOnePeerLeaveRoomForOthers) {
  start({.trust = {.keys = keys_.origin_file()},
         .limits = {.bodies_bytes_max = 10'000, .bodies_bytes_per_peer_max = 2'000}});
  const auto greedy = client_with(keys_.issue("greedy")), again = client_with(keys_.file_of("greedy"));
  const auto honest = client_with(keys_.issue("honest"));
  const HttpCall call{.method = "POST", .target = "/later", .body = std::string(1500, 'x')};
  const auto status_of = [&](HttpClient& http) {
    const auto response = http.call(call, kCallLimit);
    return response.has_value() ? response->status : 0;
  };
  unsigned first = 0, second = 0;
  std::thread posts([&] { first = status_of(*greedy); });
  Held held = take();
  EXPECT_EQ(status_of(*again), 503u);
  std::thread others([&] { second = status_of(*honest); });
  take().responder.send({.body = "done"});
  others.join();
  EXPECT_EQ(second, 200u);
  held.responder.send({.body = "done"});
  posts.join();
  EXPECT_EQ(first, 200u);
  std::thread answers([&] { take().responder.send({.body = "done"}); });
  EXPECT_EQ(status_of(*again), 200u) << "its share is free again";
  answers.join();
}

TEST_F(TrustTest, RefusesKeysOfAnotherCluster) {
  const ClusterKeys others;
  const auto http = client_with(others.issue("gpu-1"));
  EXPECT_THAT(http->call({.target = "/hello"}, kCallLimit), FailsWith(Errc::kNotAllowed));
  EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(TrustTest, RefusesPlainClients) {
  RawClient plain = ask("/hello");
  EXPECT_THAT(plain.hear_all(), testing::Not(HasSubstr("HTTP")));
  EXPECT_TRUE(eventually([&] { return server_->stats().refused_peers == 1; }));
}

TEST_F(TrustTest, RefusesARevokedKeyOnAnOpenConnection) {
  const auto http = client_with(keys_.issue("gpu-1"));
  ASSERT_TRUE(http->call({.target = "/hello"}, kCallLimit).has_value());
  keys_.revoke("gpu-1");
  // The client's own list says so, too, but nothing of ours refuses oneself.
  EXPECT_TRUE(eventually([&] {
    const auto response = http->call({.target = "/hello"}, kCallLimit);
    return !response.has_value() || response->status == 403;
  }));
  EXPECT_THAT(client_with(keys_.file_of("gpu-1"))->call({.target = "/hello"}, kCallLimit),
              FailsWith(Errc::kNotAllowed));
}

TEST_F(TrustTest, AClientTakesOnlyTheRoleThatItExpects) {
  const auto http = client_with(keys_.issue("gpu-1"), Role::kWorker);
  EXPECT_THAT(http->call({.target = "/hello"}, kCallLimit), FailsWith(Errc::kNotAllowed, "must be a worker"));
}

TEST_F(TrustTest, NewConnectionsGetTheKeysThatAreInTheFileByThen) {
  const std::string file = keys_.temp().file("server.pem");
  const auto write = [&](const std::string& from) {
    const auto text = read_owner_only(from);
    ASSERT_TRUE(text.has_value() && write_owner_only(file, text->text()).has_value());
  };
  write(keys_.origin_file());
  start({.trust = {.keys = file}});
  const auto open = client_with(keys_.issue("gpu-1"));
  ASSERT_TRUE(open->call({.target = "/hello"}, kCallLimit).has_value());
  write(keys_.issue("gpu-2"));
  server_->read_keys_again();
  EXPECT_TRUE(eventually([&] {
    return client_with(keys_.file_of("gpu-1"), Role::kWorker)->call({.target = "/hello"}, kCallLimit).has_value();
  }));
  EXPECT_TRUE(open->call({.target = "/hello"}, kCallLimit).has_value()) << "it goes on under the keys before";
}

TEST(HttpTrust, AllowsPlainConnectionsOnLoopbackAlone) {
  EXPECT_TRUE(check_trust({}, {"127.0.0.1", 1}).has_value());
  EXPECT_FALSE(check_trust({}, {"0.0.0.0", 1}).has_value());
  EXPECT_TRUE(check_trust({.insecure = true}, {"0.0.0.0", 1}).has_value());
  EXPECT_TRUE(check_trust({.keys = "k"}, {"0.0.0.0", 1}).has_value());
  EXPECT_FALSE(check_trust({.keys = "k", .insecure = true}, {"127.0.0.1", 1}).has_value());
}

}  // namespace
}  // namespace weightcast
