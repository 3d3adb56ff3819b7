#include "worker/engine/version_follower.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <set>
#include <thread>

#include "tests/eventually.h"
#include "tests/worker/engine/scripted_versions.h"
#include "tests/worker/engine/written_models.h"
#include "worker/engine/engine.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class VersionFollowerIn : public testing::TestWithParam<WeightPlace> {
 protected:
  void SetUp() override {
    WrittenModel made;
    for (const std::uint64_t version : {1, 2, 3}) {
      made.changed_share = 0.05;
      made.changed_seed = version;
      write_model(directory_ / std::to_string(version), made);
    }
    const ModelConfig config = ModelFiles::open(files_, directory_ / "1").value().config;
    follower_ = VersionFollower::start(files_, std::make_unique<ScriptedSource>(script_), config, GetParam(),
                                       [this](const std::string& line) { said_.push_back(line); });
  }

  InstalledVersion take() {
    std::optional<InstalledVersion> taken;
    EXPECT_TRUE(eventually([&] { return (taken = follower_->take()).has_value(); })) << follower_->status().last_error;
    return std::move(*taken);
  }
  void install(std::uint64_t version) { script_.install(version, directory_ / std::to_string(version)); }

  /// The log-probabilities of an answer.
  static std::vector<float> answer(Engine& engine) {
    EngineRequest request;
    request.prompt = {5, 6, 7};
    EXPECT_TRUE(engine.add(request).has_value());
    std::vector<float> result;
    while (engine.busy()) {
      for (const EngineEvent& event : engine.step()) {
        for (const EngineToken& token : event.tokens) result.push_back(token.log_prob);
      }
    }
    return result;
  }
  std::vector<float> expected(std::uint64_t version) {
    const auto weights =
        EngineWeights::open(ModelFiles::open(files_, directory_ / std::to_string(version)).value()).value();
    return answer(*Engine::make(weights, Version{version}, {}).value());
  }

  TestDirectory directory_;
  PosixFileSystem files_;
  ScriptedVersions script_;
  std::vector<std::string> said_;  // by the follower's thread; read when that has ended
  std::unique_ptr<VersionFollower> follower_;
};

TEST_P(VersionFollowerIn, TheEngineGeneratesUnderEachVersionThatArrives) {
  install(1);
  InstalledVersion first = take();
  EXPECT_EQ(first.name.version, Version{1});
  const auto engine = Engine::make(std::move(first.weights), first.name.version, {}).value();
  EXPECT_EQ(answer(*engine), expected(1));
  for (const std::uint64_t version : {2, 3}) {
    install(version);
    InstalledVersion next = take();
    EXPECT_EQ(next.name.version, Version{version});
    EXPECT_GT(next.prepare_s, 0);
    EXPECT_EQ(next.changed_cells > 0, GetParam() == WeightPlace::kResident);
    ASSERT_TRUE(engine->set_weights(next.name.version, std::move(next.weights)).has_value());
    EXPECT_EQ(answer(*engine), expected(version));
  }
  EXPECT_FALSE(follower_->take().has_value());
  EXPECT_EQ(follower_->status().prepared, 3u);
  // Mapped files stay pinned while they are used, and no longer. What is resident needs none.
  const std::multiset<std::uint64_t> used =
      GetParam() == WeightPlace::kMapped ? std::multiset<std::uint64_t>{3} : std::multiset<std::uint64_t>{};
  EXPECT_TRUE(eventually([&] { return script_.pinned() == used; }));
}

/// A list of all cells in which two versions on disk differ.
VersionList list_between(FileSystem& files, const std::filesystem::path& from, const std::filesystem::path& to) {
  struct Arrays {
    std::vector<std::uint32_t> indices;
    std::vector<std::byte> values;
    std::string name, dtype;
  };
  const MappedModel before = map_model(ModelFiles::open(files, from).value()).value();
  const MappedModel after = map_model(ModelFiles::open(files, to).value()).value();
  auto owner = std::make_shared<std::deque<Arrays>>();
  VersionList list{{}, owner};
  for (std::size_t i = 0; i < before.tensors.size(); ++i) {
    const NamedTensor &old_tensor = before.tensors[i], &new_tensor = after.tensors[i];
    EXPECT_EQ(old_tensor.name, new_tensor.name);
    const std::size_t width = old_tensor.dtype == "F32" ? 4 : 2;
    Arrays& arrays = owner->emplace_back();
    arrays.name = old_tensor.name;
    arrays.dtype = old_tensor.dtype;
    for (std::size_t at = 0; at < old_tensor.bytes.size(); at += width) {
      const Bytes value = new_tensor.bytes.subspan(at, width);
      if (std::ranges::equal(old_tensor.bytes.subspan(at, width), value)) continue;
      arrays.indices.push_back(std::uint32_t(at / width));
      arrays.values.insert(arrays.values.end(), value.begin(), value.end());
    }
    list.tensors.push_back({arrays.name, arrays.dtype, std::as_bytes(std::span(arrays.indices)), 4, arrays.values});
  }
  return list;
}

TEST_P(VersionFollowerIn, AListOfChangesTakesThePlaceOfTheFilesWhereItFits) {
  const auto path = [&](std::uint64_t version) { return directory_ / std::to_string(version); };
  script_.lists[{1, 2}] = list_between(files_, path(1), path(2));
  // Beyond its tensor: the files tell then.
  static constexpr std::array<std::uint32_t, 1> kBeyond{4'000'000'000};
  script_.lists[{2, 3}] = list_between(files_, path(2), path(3));
  ListedTensor& wrong = script_.lists[{2, 3}].tensors.front();
  wrong.indices = std::as_bytes(std::span(kBeyond));
  wrong.values = Bytes(std::as_bytes(std::span(kBeyond))).first(wrong.dtype == "F32" ? 4 : 2);
  install(1);
  InstalledVersion first = take();
  const auto engine = Engine::make(std::move(first.weights), first.name.version, {}).value();
  for (const std::uint64_t version : {2, 3}) {
    install(version);
    InstalledVersion next = take();
    ASSERT_TRUE(engine->set_weights(next.name.version, std::move(next.weights)).has_value());
    EXPECT_EQ(answer(*engine), expected(version));
    EXPECT_EQ(follower_->status().prepared_by_list, GetParam() == WeightPlace::kResident ? 1u : 0u);
  }
  // What a list leads from is what the memory has, and no other version.
  script_.lists[{1, 2}].tensors.clear();
  script_.lists[{3, 2}] = list_between(files_, path(3), path(2));
  script_.install(2, path(2), 2);
  InstalledVersion back = take();
  ASSERT_TRUE(engine->set_weights(back.name.version, std::move(back.weights)).has_value());
  EXPECT_EQ(answer(*engine), expected(2));
}

TEST_P(VersionFollowerIn, WhatIsDamagedOrOfAnotherModelLeavesTheOldOneInUse) {
  install(1);
  const InstalledVersion first = take();
  const auto engine = Engine::make(first.weights, first.name.version, {}).value();
  WrittenModel bad;
  bad.with_nan = true;
  write_model(directory_ / "nan", bad);
  bad.with_nan = false;
  bad.layers = 3;
  write_model(directory_ / "deep", bad);
  std::filesystem::create_directory(directory_ / "empty");
  std::uint64_t version = 10;
  for (const auto& [name, words] : {std::pair{"nan", "NaN or infinite"},
                                    {"deep", "num_hidden_layers is 3"},
                                    {"empty", "empty"},
                                    {"gone", "gone"}}) {
    const std::uint64_t refused = follower_->status().refused;
    script_.install(++version, directory_ / name);
    ASSERT_TRUE(eventually([&] { return follower_->status().refused == refused + 1; })) << name;
    EXPECT_THAT(follower_->status().last_error, HasSubstr(words));
    EXPECT_THAT(follower_->status().last_error, HasSubstr("version " + std::to_string(version)));
    EXPECT_FALSE(follower_->take().has_value());
    EXPECT_EQ(answer(*engine), expected(1));
  }
  // The next good one is taken.
  script_.install(++version, directory_ / "2");
  InstalledVersion next = take();
  ASSERT_TRUE(engine->set_weights(next.name.version, std::move(next.weights)).has_value());
  EXPECT_EQ(answer(*engine), expected(2));
  follower_.reset();
  EXPECT_EQ(said_.size(), 4u);
}

TEST_P(VersionFollowerIn, VersionsMayComeWithoutTheirConfiguration) {
  std::filesystem::remove(directory_ / "2" / "config.json");
  install(2);
  EXPECT_EQ(take().name.version, Version{2});
}

TEST_P(VersionFollowerIn, TheNewestCountsWhenNobodyTakesThem) {
  install(1);
  ASSERT_TRUE(eventually([&] { return follower_->status().prepared == 1; }));
  install(2);
  install(3);
  InstalledVersion taken = take();
  // A resident one is against the one before, which has to be taken first.
  const auto engine = Engine::make(std::move(taken.weights), taken.name.version, {}).value();
  while (taken.name.version != Version{3}) {
    taken = take();
    ASSERT_TRUE(engine->set_weights(taken.name.version, std::move(taken.weights)).has_value());
  }
  EXPECT_EQ(answer(*engine), expected(3));
}

TEST_P(VersionFollowerIn, WhatMayPassIsTriedAgain) {
  {
    const std::lock_guard lock(script_.mutex);
    script_.busy_pins = 2;
    script_.events.emplace_back(fail(Errc::kIo, Op::kInstall, "the daemon is gone"));
  }
  script_.say(VersionEvent::Kind::kDisconnected);
  install(2);
  EXPECT_EQ(take().name.version, Version{2});
  EXPECT_EQ(follower_->status().disconnections, 1u);
  EXPECT_EQ(follower_->status().refused, 0u);
}

TEST_P(VersionFollowerIn, ItEndsWhileAVersionWaitsToBeTaken) {
  install(1);
  ASSERT_TRUE(eventually([&] { return follower_->status().prepared == 1; }));
  install(2);
  std::this_thread::sleep_for(5ms);
  follower_.reset();
}

INSTANTIATE_TEST_SUITE_P(Both, VersionFollowerIn, testing::Values(WeightPlace::kMapped, WeightPlace::kResident),
                         [](const auto& place) { return std::string(to_string(place.param)); });

TEST(VersionFollower, SaysThatASingleCopyCannotBeMapped) {
  PosixFileSystem files;
  ScriptedVersions script;
  const auto follower =
      VersionFollower::start(files, std::make_unique<ScriptedSource>(script), {}, WeightPlace::kMapped, {});
  script.say(VersionEvent::Kind::kPreparing);
  ASSERT_TRUE(eventually([&] { return !follower->status().last_error.empty(); }));
  EXPECT_THAT(follower->status().last_error, HasSubstr("--single-copy"));
}

}  // namespace
}  // namespace weightcast
