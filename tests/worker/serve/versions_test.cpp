#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/eventually.h"
#include "tests/transport/http/raw_client.h"
#include "tests/worker/engine/scripted_versions.h"
#include "tests/worker/engine/written_models.h"
#include "transport/http/client.h"
#include "worker/serve/surface.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using Json = nlohmann::json;

constexpr Duration kPatience = 30s;

/// A surface that begins with the weights of version 1 and follows a script.
class ServedVersions : public testing::Test {
 protected:
  ServedVersions() {
    for (const std::uint64_t version : {1u, 2u, 3u}) {
      write_model(directory_ / std::to_string(version), {.seed = version, .layers = version == 3 ? 1 : 2});
    }
  }

  /// `followed`: whose configuration versions must have, which is the engine's unless a test says otherwise.
  void start(Duration wait_max, const std::string& followed = "1") {
    const auto weights = EngineWeights::open(ModelFiles::open(files_, directory_ / "1").value()).value();
    const auto other = EngineWeights::open(ModelFiles::open(files_, directory_ / followed).value()).value();
    auto versions = VersionFollower::start(files_, std::make_unique<ScriptedSource>(script_), other->config(),
                                           WeightPlace::kMapped, {});
    EngineOptions options;
    options.cache_bytes_max = 16 << 20;
    auto engine = Engine::make(weights, Version{1}, options).value();
    surface_ = Surface::start(std::move(engine), std::move(versions), nullptr,
                              {.http = {},
                               .model_name = "tiny",
                               .wait_max = wait_max,
                               .say = [this](const std::string& line) { said_.set_value(line); }})
                   .value();
  }
  void install(std::uint64_t version) { script_.install(version, directory_ / std::to_string(version)); }

  [[nodiscard]] HttpResponse call(const std::string& method, const std::string& target, const std::string& body) const {
    const auto client = HttpClient::make({.server = surface_->endpoint()}).value();
    return client->call({.method = method, .target = target, .body = body}, kPatience).value();
  }
  [[nodiscard]] HttpResponse trajectories(const std::string& version) const {
    return call("POST", "/v1/rl/trajectories",
                R"({"prompts": [[1, 2]], "max_tokens": 2, "param_version": )" + version + "}");
  }
  [[nodiscard]] Json state() const { return Json::parse(call("GET", "/get_weight_version", "").body); }
  [[nodiscard]] bool says(const std::string& metric) const {
    return call("GET", "/metrics", "").body.find("\nweightcast_worker_" + metric + "\n") != std::string::npos;
  }

  TestDirectory directory_;
  PosixFileSystem files_;
  ScriptedVersions script_;
  std::promise<std::string> said_;
  std::unique_ptr<Surface> surface_;
};

TEST_F(ServedVersions, AreWaitedForByTheirNumber) {
  start(kPatience);
  auto answer = std::async(std::launch::async, [this] { return trajectories("2"); });
  EXPECT_TRUE(eventually([this] { return says("waiting_to_begin 1"); }));
  EXPECT_EQ(trajectories("1").status, 200u) << "others go on meanwhile";
  install(2);
  const HttpResponse response = answer.get();
  ASSERT_EQ(response.status, 200u) << response.body;
  const Json json = Json::parse(response.body);
  EXPECT_EQ(json["param_version"], 2);
  EXPECT_EQ(json["trajectories"][0]["version_runs"], Json({{2, 2}}));
}

TEST_F(ServedVersions, AreWaitedForByTheirDigest) {
  start(kPatience);
  const std::string digest = scripted_digest(2);
  auto answer = std::async(std::launch::async, [&] { return trajectories("\"" + digest.substr(0, 12) + "\""); });
  EXPECT_TRUE(eventually([this] { return says("waiting_to_begin 1"); }));
  install(2);
  const HttpResponse response = answer.get();
  ASSERT_EQ(response.status, 200u) << response.body;
  EXPECT_EQ(Json::parse(response.body)["param_version"], digest);
  EXPECT_EQ(state()["digest"], digest);
  EXPECT_FALSE(says("install_seconds_total{phase=\"install\"} 0"));
}

TEST_F(ServedVersions, AreWaitedForWithinABound) {
  start(20ms);
  const HttpResponse response = trajectories("2");
  EXPECT_EQ(response.status, 503u);
  EXPECT_EQ(response.header("Retry-After"), "1");
  EXPECT_THAT(response.body, HasSubstr("this worker has version 1, and 2 has not come in 0.02 s"));
}

TEST_F(ServedVersions, AreNotWaitedForWhenTheClientHasGone) {
  start(kPatience);
  {
    RawClient raw(surface_->endpoint().port);
    ASSERT_TRUE(raw.post("/v1/rl/trajectories", R"({"prompts": [[1]], "param_version": 9})"));
    EXPECT_TRUE(eventually([this] { return says("waiting_to_begin 1"); }));
  }
  EXPECT_TRUE(eventually([this] { return says("waiting_to_begin 0"); }));
}

TEST_F(ServedVersions, AreAbortedByTheirIdWhileTheyAreWaitedFor) {
  start(kPatience);
  auto answer = std::async(std::launch::async, [this] { return trajectories("2"); });
  EXPECT_TRUE(eventually([this] {
    return Json::parse(call("POST", "/abort_requests", R"({"request_ids": ["traj-1"]})").body)["aborted"] == 1;
  }));
  EXPECT_EQ(answer.get().status, 503u);
}

TEST_F(ServedVersions, ThatTheFollowerRefusesAreNamed) {
  start(kPatience);
  install(3);
  EXPECT_TRUE(eventually([this] { return state()["versions_refused"] == 1; }));
  EXPECT_THAT(state()["last_version_error"].get<std::string>(), HasSubstr("version 3 is not used"));
  EXPECT_EQ(state()["weight_version"], "1");
  EXPECT_EQ(trajectories("1").status, 200u);
}

TEST_F(ServedVersions, ThatTheEngineRefusesAreNamed) {
  start(kPatience, "3");
  install(3);
  EXPECT_THAT(said_.get_future().get(), HasSubstr("version 3 is not used, and the one before stays"));
  EXPECT_TRUE(says("versions_refused_total 1"));
  EXPECT_THAT(state()["last_version_error"].get<std::string>(), HasSubstr("version 3 is not used"));
  EXPECT_EQ(state()["weight_version"], "1");
  EXPECT_EQ(state()["digest"], nullptr);
  EXPECT_EQ(trajectories("1").status, 200u);
}

}  // namespace
}  // namespace weightcast
