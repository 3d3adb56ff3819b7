#include "worker/rollout/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "trainer/tasks/registry.h"

namespace weightcast {
namespace {

TEST(Prompts, AGroupIsTheSameForWhoeverMakesIt) {
  const auto task = *make_task("arithmetic", {});
  const auto other = *make_task("arithmetic", {});
  for (std::uint64_t number = 0; number < 20; ++number) {
    const Prompt here = *PromptOrder(*task, 7, 0).training(number);
    const Prompt there = *PromptOrder(*other, 7, 0).training(number);
    EXPECT_EQ(here.tag, there.tag);
    EXPECT_EQ(here.metadata, there.metadata);
  }
}

TEST(Prompts, APromptOfALaterEpochIsAnotherGroup) {
  const auto task = *make_task("gsm8k", {}, R"({"question": "1+1?", "answer": "#### 2"})");
  const PromptOrder order(*task, 1, 0);
  EXPECT_EQ(order.training(0)->tag, order.training(1)->tag);
  EXPECT_NE(group_tag(order.training(0)->tag, 0), group_tag(order.training(1)->tag, 1));
}

TEST(Prompts, AnotherAttemptHasAnotherSeed) {
  EXPECT_EQ(attempt_seed(5, 0), 5u);
  EXPECT_NE(attempt_seed(5, 1), 5u);
  EXPECT_NE(attempt_seed(5, 1), attempt_seed(5, 2));
}

TEST(Prompts, EachRolloutHasASeedOfItsOwn) {
  std::set<std::uint64_t> seeds;
  for (std::uint64_t group = 0; group < 50; ++group) {
    for (std::uint64_t member = 0; member < 16; ++member) seeds.insert(sampling_seed(3, 16, group, member));
  }
  EXPECT_EQ(seeds.size(), 800u);
  EXPECT_NE(sampling_seed(3, 16, 0, 0), sampling_seed(4, 16, 0, 0));
}

}  // namespace
}  // namespace weightcast
