#include "trainer/replay/rollout_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/patch/temp_dir.h"
#include "tests/trainer/replay/replay_fixture.h"
#include "trainer/tasks/trajectory/trajectory_json.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct RolloutFilesTest : testing::Test {
  TempDir dir;
  std::vector<std::string> refused;
  SharedReplayBuffer buffer{ReplayBuffer(replay_options(), replay_rules())};

  void SetUp() override {
    buffer->handle_step(Version{1});
    buffer->handle_published(Version{1});
  }
  static std::string line(std::uint64_t sequence, const std::string& group) {
    return write_trajectory(rollout("w", sequence, group, 1)) + "\n";
  }
  RolloutFiles open(std::vector<std::string> names) {
    for (std::string& name : names) name = dir.file(name);
    return RolloutFiles(std::move(names), [this](std::string why) { refused.push_back(std::move(why)); });
  }
  int drain(RolloutFiles& files) {
    int fills = 0;
    for (;; ++fills) {
      const auto more = files.fill(Instant{}, buffer);
      EXPECT_TRUE(more.has_value());
      if (!more.has_value() || !*more) return fills;
    }
  }
};

TEST_F(RolloutFilesTest, ReadOneFileAfterTheOther) {
  dir.write("a.jsonl", line(1, "g") + line(2, "g"));
  dir.write("b.jsonl", line(3, "h"));
  auto files = open({"a.jsonl", "b.jsonl"});
  EXPECT_EQ(drain(files), 3);
  EXPECT_EQ(buffer->stats().admitted, 3u);
  EXPECT_TRUE(refused.empty());
}

TEST_F(RolloutFilesTest, RefuseLinesByFileNumberAndReason) {
  dir.write("a.jsonl", "nonsense\n" + line(1, "g") + "{\"task\": 1}\n" + line(1, "g") + line(2, "") + "\n");
  auto files = open({"a.jsonl"});
  EXPECT_EQ(drain(files), 6);
  EXPECT_EQ(files.malformed(), 3u);
  EXPECT_EQ(buffer->stats().admitted, 1u);
  EXPECT_THAT(refused, ElementsAre(HasSubstr("a.jsonl line 1: rollout: no JSON object: nonsense"),
                                   HasSubstr("a.jsonl line 3: rollout: 'task'"), HasSubstr("line 4: its worker"),
                                   HasSubstr("line 5: no_group"), HasSubstr("line 6: rollout: no JSON")));
}

TEST_F(RolloutFilesTest, GoOnWhereTheyWere) {
  dir.write("a.jsonl", line(1, "g") + "nonsense\n" + line(2, "g"));
  auto files = open({"a.jsonl"});
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(files.fill(Instant{}, buffer).value());
  auto resumed = open({"a.jsonl"});
  ASSERT_TRUE(resumed.restore(files.save()).has_value());
  EXPECT_EQ(resumed.malformed(), 1u);
  EXPECT_EQ(drain(resumed), 1);
  EXPECT_EQ(buffer->stats().admitted, 2u);
  EXPECT_EQ(buffer->stats().duplicates, 0u);
  EXPECT_FALSE(resumed.restore("{}").has_value());
}

TEST_F(RolloutFilesTest, RefuseToGoOnInAnotherFile) {
  dir.write("a.jsonl", line(1, "g"));
  dir.write("b.jsonl", line(2, "g"));
  auto files = open({"a.jsonl", "b.jsonl"});
  EXPECT_EQ(drain(files), 2);
  for (const std::vector<std::string>& others : {std::vector<std::string>{"a.jsonl"}, {"b.jsonl", "a.jsonl"}, {}}) {
    auto resumed = open(others);
    const auto restored = resumed.restore(files.save());
    ASSERT_FALSE(restored.has_value());
    EXPECT_THAT(restored.error().message(), HasSubstr("b.jsonl"));
  }
}

TEST_F(RolloutFilesTest, ReadWhatWasAppended) {
  dir.write("a.jsonl", line(1, "g"));
  dir.write("b.jsonl", line(2, "h"));
  auto files = open({"a.jsonl"});
  EXPECT_EQ(drain(files), 1);
  EXPECT_EQ(drain(files), 0);
  dir.write("a.jsonl", line(1, "g") + line(3, "g"));
  auto resumed = open({"a.jsonl", "b.jsonl"});
  ASSERT_TRUE(resumed.restore(files.save()).has_value());
  EXPECT_EQ(drain(resumed), 2);
  EXPECT_EQ(drain(files), 1);
  EXPECT_EQ(buffer->stats().admitted, 3u);
  EXPECT_EQ(buffer->stats().refused.at("group_closed"), 1u) << "read twice";
  EXPECT_TRUE(files.malformed() == 0 && resumed.malformed() == 0);
}

TEST_F(RolloutFilesTest, NameAMissingFile) {
  auto files = open({"nowhere.jsonl"});
  EXPECT_THAT(files.fill(Instant{}, buffer).error().message(), HasSubstr("nowhere.jsonl"));
}

}  // namespace
}  // namespace weightcast
