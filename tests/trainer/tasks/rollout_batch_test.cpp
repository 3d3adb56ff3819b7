#include "trainer/tasks/trajectory/rollout_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

TEST(RolloutBatch, FindsEachRollout) {
  const std::string text =
      R"( { "run" : "a\"b" , "more": [{"rollouts": [1]}, "]}"], "rollouts": [ {"a": "],\\"} , 7,[[1,2],{}],"x\"]" ,null] } )";
  const RolloutBatch batch = split_json_batch(text).value();
  EXPECT_EQ(batch.run, "a\"b");
  EXPECT_THAT(batch.rollouts, ElementsAre(R"({"a": "],\\"})", "7", "[[1,2],{}]", R"("x\"]")", "null"));
  EXPECT_THAT(split_json_batch("{\"rollouts\":[]}").value().rollouts, IsEmpty());
}

/// As a parser that makes a tree sees them.
TEST(RolloutBatch, FindsWhatATreeHas) {
  const Json whole = {{"run", "r"},
                      {"rollouts", {{{"t", {1, 2}}}, Json::array(), "\\\"\\", -1.5e-3, {{"m", {{"\"]", "{"}}}}, true}},
                      {"z", {1, {{"y", "x"}}}}};
  for (const int indent : {-1, 0, 3}) {
    const std::string text = whole.dump(indent);
    const RolloutBatch batch = split_json_batch(text).value();
    ASSERT_EQ(batch.rollouts.size(), whole["rollouts"].size());
    for (std::size_t i = 0; i < batch.rollouts.size(); ++i)
      EXPECT_EQ(Json::parse(batch.rollouts[i]), whole["rollouts"][i]);
    for (std::size_t size = 0; size < text.size(); ++size) {
      EXPECT_FALSE(split_json_batch(std::string_view(text).substr(0, size)).has_value()) << size;
    }
  }
}

TEST(RolloutBatch, RefusesWithItsReason) {
  const auto refused = [](const std::string& text, Errc code, const std::string& why) {
    const auto batch = split_json_batch(text);
    ASSERT_FALSE(batch.has_value()) << text.substr(0, 80);
    EXPECT_EQ(batch.error().code, code);
    EXPECT_THAT(batch.error().detail, HasSubstr(why));
  };
  refused("", Errc::kCorrupt, "no JSON object");
  refused("[1]", Errc::kCorrupt, "no JSON object");
  refused(std::string(200, '['), Errc::kCorrupt, "no JSON object");
  refused("{\"rollouts\": " + std::string(64, '[') + std::string(64, ']') + "}", Errc::kCorrupt, "no JSON object");
  refused("{\"rollouts\": []} x", Errc::kCorrupt, "no JSON object");
  refused("{}", Errc::kCorrupt, "'rollouts' is missing");
  refused("{\"rollouts\": {}}", Errc::kCorrupt, "'rollouts' is missing, or no array");
  refused("{\"rollouts\": [], \"rollouts\": [1]}", Errc::kCorrupt, "twice");
  refused("{\"rollouts\": [], \"run\": 7}", Errc::kCorrupt, "'run'");
  refused("{\"rollouts\": [], \"run\": \"" + std::string(256, 'r') + "\"}", Errc::kCorrupt, "'run'");
  std::string many = "{\"rollouts\": [0";
  for (std::size_t i = 0; i < kBatchRolloutsMax; ++i) many += ",0";
  refused(many + "]}", Errc::kTooLarge, "more than 4096 rollouts");
  refused("{\"rollouts\": [\"" + std::string(2'000'000, 'x') + "\"]}", Errc::kTooLarge, "of 2000004 bytes");
  refused("{\"rollouts\": [" + std::string(2'000'000, '1') + "]}", Errc::kTooLarge, "of 2000002 bytes");
  refused(std::string(2'000'000, ' '), Errc::kTooLarge, "of 2000000 bytes");
  refused("{\"rollouts\": [" + std::string(2'000'000, '[') + "]}", Errc::kTooLarge, "bytes");
}

}  // namespace
}  // namespace weightcast
