#include "trainer/intake/kept_answers.h"

#include <gtest/gtest.h>

#include "base/units.h"

namespace weightcast {
namespace {

HttpResponse answer_of(std::size_t bytes) { return {.body = std::string(bytes, 'x')}; }

TEST(KeptAnswers, FindsWhatWasKeptForThatWorkerAlone) {
  KeptAnswers kept(kMiB);
  const ContentDigest body = content_digest_of({});
  kept.add("a", "key", body, answer_of(7));
  ASSERT_NE(kept.find("a", "key"), nullptr);
  EXPECT_EQ(kept.find("a", "key")->answer.body.size(), 7u);
  EXPECT_EQ(kept.find("a", "key")->body, body);
  EXPECT_EQ(kept.find("b", "key"), nullptr);
  EXPECT_EQ(kept.find("a", "other"), nullptr);
}

TEST(KeptAnswers, OneWorkerDisplacesNoOther) {
  KeptAnswers kept(kMiB);
  for (int i = 0; i < 8; ++i) kept.add("honest", std::to_string(i), {}, answer_of(10'000));
  for (int i = 0; i < 1050; ++i) {
    kept.add("greedy", std::to_string(i), {}, answer_of(240 * kKiB));
    EXPECT_LE(kept.bytes(), kMiB);
  }
  for (int i = 0; i < 8; ++i) EXPECT_NE(kept.find("honest", std::to_string(i)), nullptr) << i;
  EXPECT_EQ(kept.find("greedy", "0"), nullptr);
  EXPECT_NE(kept.find("greedy", "1049"), nullptr);
}

TEST(KeptAnswers, BoundsManySmallOnesToo) {
  KeptAnswers kept(kMiB);
  for (int i = 0; i < 10'000; ++i) kept.add("w" + std::to_string(i % 3000), std::to_string(i), {}, answer_of(1));
  EXPECT_LE(kept.bytes(), kMiB);
  EXPECT_NE(kept.find("w999", "9999"), nullptr);
}

TEST(KeptAnswers, LeavesOutWhatIsLargerThanAll) {
  KeptAnswers kept(1000);
  kept.add("a", "key", {}, answer_of(2000));
  EXPECT_EQ(kept.find("a", "key"), nullptr);
  EXPECT_EQ(kept.bytes(), 0u);
}

}  // namespace
}  // namespace weightcast
