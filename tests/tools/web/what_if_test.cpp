#include "tools/web/what_if.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tools/web/page.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

HttpRequest ask(std::string query) { return {.method = "GET", .path = "/plan", .query = std::move(query)}; }

TEST(WhatIf, ReadsAQuestion) {
  const auto question = parse_what_if(
      ask("workers=12&size_bytes=1000&uplink_bps=3e8&peer_bps=1e8&peer_uplink_bps=2e7&delay_ms=5&sweep=1%2C12"));
  ASSERT_TRUE(question.has_value()) << question.error().message();
  EXPECT_EQ(question->workers, 12u);
  EXPECT_EQ(question->payload_bytes, 1000u);
  EXPECT_DOUBLE_EQ(question->uplink.bits_per_s(), 3e8);
  EXPECT_DOUBLE_EQ(question->peer.bits_per_s(), 1e8);
  EXPECT_DOUBLE_EQ(question->peer_uplink.bits_per_s(), 2e7);
  EXPECT_EQ(question->delay, std::chrono::milliseconds(5));
  EXPECT_EQ(question->sweep, (std::vector<std::uint32_t>{1, 12}));
}

TEST(WhatIf, NamesWhatCannotBe) {
  const std::string rest = "&size_bytes=1000&uplink_bps=3e8&peer_bps=1e8";
  for (const auto& [query, why] : std::vector<std::pair<std::string, std::string>>{
           {rest, "workers is missing; it has to be a whole number from 1 to 10000"},
           {"workers=1e3" + rest, "workers is '1e3'; it has to be a whole number"},
           {"workers=3&delay_ms=x" + rest, "delay_ms is 'x'; it has to be a number from 0 to 60000"},
           {"workers=4294967297" + rest, "workers is '4294967297'"},
           {"workers=3&delay_ms=nan" + rest, "delay_ms is 'nan'"},
           {"workers=3&sweep=1,x" + rest, "sweep has to be at most 20 numbers from 1 to 10000"},
           {"workers=3&sweep=" + std::string(1000, ',') + rest, "sweep has to be"}}) {
    const auto question = parse_what_if(ask(query));
    ASSERT_FALSE(question.has_value()) << query;
    EXPECT_THAT(question.error().detail, HasSubstr(why));
  }
}

TEST(WhatIf, CountsWhatTheOriginSendsAndHowFarVersionsGo) {
  const WhatIf question{.workers = 7,
                        .sweep = {7},
                        .payload_bytes = 64 * kMiB,
                        .uplink = Rate::bits(3e8),
                        .peer = Rate::bits(1e8),
                        .peer_uplink = Rate::bits(1e8),
                        .delay = std::chrono::microseconds(500)};
  const nlohmann::json told = what_if_json(question);
  ASSERT_EQ(told.at("cases").size(), 4u);
  for (const nlohmann::json& one : told.at("cases")) {
    const std::string topology = one.at("topology");
    const auto copies = one.at("origin_egress_bytes").get<double>() / double(question.payload_bytes);
    const auto depth = one.at("depth").get<int>();
    if (topology == "star") {
      EXPECT_DOUBLE_EQ(copies, 7);
      EXPECT_EQ(depth, 1);
    } else if (topology == "chain") {
      EXPECT_DOUBLE_EQ(copies, 3);  // 300 Mbit/s fill three links of 100
      EXPECT_EQ(depth, 3);          // the longest of three chains of seven
    } else {
      EXPECT_GE(copies, 1) << topology;
      EXPECT_LE(depth, 7) << topology;
    }
    EXPECT_GE(one.at("t100_s").get<double>(), one.at("bound_s").get<double>() * 0.999) << topology;
    EXPECT_GE(one.at("t100_s").get<double>(), one.at("t50_s").get<double>()) << topology;
  }
}

// A chain of so many is walked, not recursed into.
TEST(WhatIf, AnswersForTheLargestFleet) {
  const nlohmann::json told = what_if_json({.workers = WhatIf::kWorkersMax,
                                            .sweep = {},
                                            .payload_bytes = kGiB,
                                            .uplink = Rate::bits(1e8),
                                            .peer = Rate::bits(1e8),
                                            .peer_uplink = Rate::bits(1e8),
                                            .delay = std::chrono::microseconds(500)});
  EXPECT_EQ(told.at("cases").at(1).at("depth"), WhatIf::kWorkersMax);
}

TEST(Page, IsOneDocumentWhosePolicyItSays) {
  EXPECT_TRUE(page_html().starts_with("<!DOCTYPE html>"));
  EXPECT_NE(page_html().find(page_policy()), std::string_view::npos);
  EXPECT_EQ(page_html().find("@SCRIPT@"), std::string_view::npos);
  EXPECT_LT(page_html().size(), kMiB);
}

}  // namespace
}  // namespace weightcast
