#include "trainer/tasks/trajectory/trajectory_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/trainer/tasks/trajectory_fixture.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

TEST(TrajectoryJson, RoundTrip) {
  const Trajectory t = valid_trajectory();
  const auto read = read_trajectory(write_trajectory(t));
  ASSERT_TRUE(read.has_value()) << read.error().message();
  EXPECT_EQ(*read, t);
}

TEST(TrajectoryJson, GoldenLine) {
  EXPECT_EQ(write_trajectory(valid_trajectory()),
            R"({"group":"arithmetic/3","logprobs":[-0.5,0.0,-2.0],"metadata":{"answer":"42"},"model_digest":"m",)"
            R"("oldest_version":5,"response_mask":[0,0,1,1,0,1],"reward":0.75,"sequence":7,"task":"arithmetic",)"
            R"("tokenizer_digest":"t","tokens":[1,2,10,11,3,12],"turns":[[2,4,-0.25],[5,6,1.0]],)"
            R"("version_runs":[[5,2],[6,1]],"worker":"w1"})");
}

/// Without it the line is as before, so that earlier readers take it.
TEST(TrajectoryJson, SaysWhetherItSucceededIfThatIsKnown) {
  Trajectory t = valid_trajectory();
  EXPECT_EQ(write_trajectory(t).find("success"), std::string::npos);
  for (const bool success : {true, false}) {
    t.success = success;
    const auto read = read_trajectory(write_trajectory(t));
    ASSERT_TRUE(read.has_value()) << read.error().message();
    EXPECT_EQ(read->success, success);
  }
  Json json = Json::parse(write_trajectory(t));
  json["success"] = nullptr;
  EXPECT_EQ(read_trajectory(json.dump())->success, std::nullopt);
  json["success"] = 1;
  EXPECT_EQ(read_trajectory(json.dump()).error().detail, "rollout: 'success' is neither true nor false");
}

TEST(TrajectoryJson, NotANumberIsNull) {
  Trajectory t = valid_trajectory();
  t.logprobs[1] = std::numeric_limits<float>::quiet_NaN();
  t.reward = std::numeric_limits<double>::infinity();
  const auto read = read_trajectory(write_trajectory(t));
  ASSERT_TRUE(read.has_value());
  EXPECT_TRUE(std::isnan(read->logprobs[1]));
  EXPECT_TRUE(std::isnan(read->reward));
}

TEST(TrajectoryJson, EachMemberMissing) {
  const Json whole = Json::parse(write_trajectory(valid_trajectory()));
  for (const auto& [member, value] : whole.items()) {
    Json cut = whole;
    cut.erase(member);
    const auto read = read_trajectory(cut.dump());
    if (member == "logprobs" || member == "turns" || member == "metadata") {
      EXPECT_TRUE(read.has_value()) << member;
      continue;
    }
    ASSERT_FALSE(read.has_value()) << member;
    EXPECT_EQ(read.error().detail, "rollout: '" + member + "' is missing");
  }
}

TEST(TrajectoryJson, EachMemberOfAnotherType) {
  const Json whole = Json::parse(write_trajectory(valid_trajectory()));
  for (const auto& [member, value] : whole.items()) {
    for (const Json& other : {Json(true), Json{{"a", Json::array()}}, Json::array({Json("x")}), Json(-1.5)}) {
      if (member == "reward" && other.is_number()) continue;
      Json changed = whole;
      changed[member] = other;
      const auto read = read_trajectory(changed.dump());
      ASSERT_FALSE(read.has_value()) << member << " = " << other;
      EXPECT_NE(read.error().detail.find("'" + member + "'"), std::string::npos) << read.error().detail;
    }
  }
}

TEST(TrajectoryJson, IntegersOutOfRange) {
  Json json = Json::parse(write_trajectory(valid_trajectory()));
  json["tokens"][0] = 2147483648;
  EXPECT_EQ(read_trajectory(json.dump()).error().detail, "rollout: 'tokens' holds 2147483648, which is out of range");
  json["tokens"][0] = -2147483649;
  EXPECT_FALSE(read_trajectory(json.dump()).has_value());
  json["tokens"][0] = -2147483648;
  EXPECT_TRUE(read_trajectory(json.dump()).has_value());
  json["response_mask"][0] = 256;
  EXPECT_FALSE(read_trajectory(json.dump()).has_value());
  json["response_mask"][0] = 0;
  json["sequence"] = -1;
  EXPECT_FALSE(read_trajectory(json.dump()).has_value());
}

TEST(TrajectoryJson, UnknownMemberNamesTheNearest) {
  Json json = Json::parse(write_trajectory(valid_trajectory()));
  json["logprob"] = 1;
  EXPECT_NE(read_trajectory(json.dump()).error().detail.find("'logprob' is no member; the nearest is 'logprobs'"),
            std::string::npos);
}

TEST(TrajectoryJson, TruncatedAtEveryLength) {
  const std::string line = write_trajectory(valid_trajectory());
  for (std::size_t n = 0; n < line.size(); ++n) {
    ASSERT_FALSE(read_trajectory(std::string_view(line).substr(0, n)).has_value()) << n;
  }
}

TEST(TrajectoryJson, RefusesAMemberThatIsGivenTwice) {
  const std::string line = write_trajectory(valid_trajectory());
  EXPECT_EQ(read_trajectory("{\"tokens\": [1], " + line.substr(1)).error().detail, "rollout: 'tokens' is given twice");
}

TEST(TrajectoryJson, RefusesWhatIsNestedDeeperThanItMayBe) {
  for (const char* open :
       {"[", "{\"tokens\": [", "{\"turns\": [[", "{\"metadata\": {\"a\": [", "{\"metadata\": {\"a\": {"}) {
    EXPECT_EQ(read_trajectory(open + std::string(1'000'000, '[')).error().code, Errc::kInvalidArgument) << open;
  }
}

TEST(TrajectoryJson, StopsAtItsLimits) {
  const TrajectoryLimits limits{.tokens_max = 6, .metadata_bytes_max = 20};
  const Json whole = Json::parse(write_trajectory(valid_trajectory()));
  EXPECT_TRUE(read_trajectory(whole.dump(), limits).has_value());
  for (const auto& [member, value] : {std::pair<std::string, Json>{"tokens", 1},
                                      {"response_mask", 0},
                                      {"logprobs", -1},
                                      {"turns", {2, 4, 0}},
                                      {"version_runs", {5, 2}}}) {
    Json changed = whole;
    changed[member] = Json::array();
    for (int i = 0; i < 7; ++i) changed[member].push_back(value);
    const auto read = read_trajectory(changed.dump(), limits);
    ASSERT_FALSE(read.has_value()) << member;
    EXPECT_EQ(read.error().code, Errc::kTooLarge);
    EXPECT_EQ(read.error().detail, "rollout: '" + member + "' has more than 6 values");
  }
  Json changed = whole;
  changed["metadata"]["more"] = "and then some";
  EXPECT_EQ(read_trajectory(changed.dump(), limits).error().detail, "rollout: 'metadata' takes more than 20 bytes");
  changed = whole;
  changed["group"] = std::string(21, 'g');
  EXPECT_EQ(read_trajectory(changed.dump(), limits).error().detail, "rollout: 'group' takes more than 20 bytes");
}

}  // namespace
}  // namespace weightcast
