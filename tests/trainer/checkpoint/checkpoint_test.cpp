#include "trainer/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>

#include "base/files/posix_file_system.h"
#include "sim/host/sim_file_system.h"
#include "tests/patch/temp_dir.h"

namespace weightcast {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const std::filesystem::path kDirectory = "/run/checkpoints";

Checkpoint checkpoint_of(std::uint64_t step) {
  Checkpoint checkpoint;
  checkpoint.step = step;
  for (const std::string name : {"b", "a"}) {
    StoredTensor tensor{{name, "F32", {64, 32}, 0, 8192}, std::vector<std::byte>(8192, std::byte(step))};
    checkpoint.tensors["model.safetensors"].push_back(std::move(tensor));
  }
  checkpoint.texts["learner.json"] = "{\"step\": " + std::to_string(step) + "}";
  return checkpoint;
}

void expect_equal(const Checkpoint& read, std::uint64_t step) {
  const Checkpoint expected = checkpoint_of(step);
  EXPECT_EQ(read.step, step);
  EXPECT_EQ(read.texts, expected.texts);
  ASSERT_EQ(read.tensors.size(), 1u);
  const auto& tensors = read.tensors.at("model.safetensors");
  ASSERT_THAT(tensors, SizeIs(2));
  EXPECT_EQ(tensors[0].info.name, "a");  // by name, as the format lays them out
  EXPECT_EQ(tensors[0].info.shape, (std::vector<std::uint64_t>{64, 32}));
  EXPECT_EQ(tensors[0].bytes, expected.tensors.at("model.safetensors")[1].bytes);
}

struct CheckpointTest : testing::Test {
  sim::SimFileSystem disk{1};
  std::vector<std::string> warnings;

  Status write(std::uint64_t step, std::uint64_t kept = 2) {
    return write_checkpoint(disk, kDirectory, checkpoint_of(step), kept);
  }
  Result<std::optional<Checkpoint>> read() { return read_newest_checkpoint(disk, kDirectory, warnings); }
};

TEST_F(CheckpointTest, IsAbsentAtFirst) {
  const auto read_back = read();
  ASSERT_TRUE(read_back.has_value());
  EXPECT_EQ(*read_back, std::nullopt);
}

TEST_F(CheckpointTest, ComesBackAsWritten) {
  ASSERT_TRUE(write(7).has_value());
  const auto read_back = read();
  ASSERT_TRUE(read_back.has_value() && *read_back);
  expect_equal(**read_back, 7);
  EXPECT_THAT(warnings, IsEmpty());
}

TEST_F(CheckpointTest, KeepsTheNewest) {
  for (std::uint64_t step : {8, 9, 10, 11}) ASSERT_TRUE(write(step).has_value());
  EXPECT_THAT(disk.list(kDirectory).value(), ElementsAre("checkpoint-00000010", "checkpoint-00000011"));
  expect_equal(**read(), 11);
}

// A run that went on from step 7 once kept none of its own, but 8 and 9, which nobody can read.
TEST_F(CheckpointTest, DamagedOnesOfLaterStepsTakeNoPlaceOfThoseThatARunGoesOnFrom) {
  for (std::uint64_t step : {8, 9}) ASSERT_TRUE(write(step).has_value());
  disk.flip_bit(kDirectory / "checkpoint-00000008" / "model.safetensors", 1000, 3);
  disk.flip_bit(kDirectory / "checkpoint-00000009" / "model.safetensors", 1000, 3);
  for (std::uint64_t step : {5, 6, 7}) ASSERT_TRUE(write(step).has_value());
  EXPECT_THAT(disk.list(kDirectory).value(),
              ElementsAre("checkpoint-00000006", "checkpoint-00000007", "checkpoint-00000008", "checkpoint-00000009"));
  expect_equal(**read(), 7);
  ASSERT_TRUE(write(8).has_value());
  expect_equal(**read(), 8);
}

TEST_F(CheckpointTest, ReplacesOneOfTheSameStep) {
  ASSERT_TRUE(write(7).has_value());
  ASSERT_TRUE(write(7).has_value());
  expect_equal(**read(), 7);
}

TEST_F(CheckpointTest, FallsBackFromADamagedOne) {
  ASSERT_TRUE(write(7).has_value());
  ASSERT_TRUE(write(8).has_value());
  disk.flip_bit(kDirectory / "checkpoint-00000008" / "model.safetensors", 1000, 3);
  expect_equal(**read(), 7);
  EXPECT_THAT(warnings, ElementsAre(HasSubstr("step 8 is damaged")));
  disk.flip_bit(kDirectory / "checkpoint-00000007" / "learner" / "learner.json", 1, 0);
  EXPECT_THAT(read().error().message(), HasSubstr("all checkpoints are damaged"));
}

TEST_F(CheckpointTest, KeepsThePreviousOneWhenTheDiskIsFull) {
  ASSERT_TRUE(write(7).has_value());
  disk.set_capacity(disk.used_bytes() + 8192);
  EXPECT_EQ(write(8).error().code, Errc::kNoSpace);
  EXPECT_EQ(write(7, 1).error().code, Errc::kNoSpace);
  expect_equal(**read(), 7);
  EXPECT_THAT(disk.list(kDirectory).value(), ElementsAre("checkpoint-00000007"));
}

TEST_F(CheckpointTest, TurnsAnExceptionOnItsThreadIntoAnError) {
  CheckpointWriter writer(disk, kDirectory, 2);
  Checkpoint checkpoint = checkpoint_of(7);
  checkpoint.texts["\xff"] = "";  // a name that JSON cannot hold
  ASSERT_TRUE(writer.begin(std::move(checkpoint)).has_value());
  EXPECT_THAT(writer.finish().error().message(), HasSubstr("checkpoint of step 7"));
  EXPECT_EQ(writer.written_step(), std::nullopt);
}

TEST(CheckpointCrash, LeavesTheOldOrTheNewOneWhateverChangeItStopsBefore) {
  for (const auto& [step, is_power_cut] :
       {std::pair<std::uint64_t, bool>{2, false}, {2, true}, {1, false}, {1, true}}) {
    for (std::uint64_t change = 1;; ++change) {
      SCOPED_TRACE(testing::Message() << "step " << step << " change " << change << " power cut " << is_power_cut);
      sim::SimFileSystem disk(change);
      ASSERT_TRUE(write_checkpoint(disk, kDirectory, checkpoint_of(1), 1).has_value());
      disk.kill_before_change(disk.changes() + change);
      const bool done = write_checkpoint(disk, kDirectory, checkpoint_of(step), 1).has_value();
      if (is_power_cut) disk.power_cut();
      disk.restart();
      std::vector<std::string> warnings;
      auto read_back = read_newest_checkpoint(disk, kDirectory, warnings);
      ASSERT_TRUE(read_back.has_value() && *read_back);
      expect_equal(**read_back, done || step == 1 ? step : (*read_back)->step);
      if (step == 1) {
        EXPECT_THAT(warnings, IsEmpty());
        EXPECT_THAT(disk.list(kDirectory).value(), ElementsAre("checkpoint-00000001"));
      }
      // And the run goes on.
      ASSERT_TRUE(write_checkpoint(disk, kDirectory, checkpoint_of(3), 1).has_value());
      EXPECT_THAT(disk.list(kDirectory).value(), ElementsAre("checkpoint-00000003"));
      if (done) {
        EXPECT_GT(change, 10u);
        break;
      }
    }
  }
}

/// The files below `directory`, as paths from there.
std::set<std::string> files_below(const std::filesystem::path& directory) {
  std::set<std::string> found;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(directory)) {
    if (entry.is_regular_file()) found.insert(std::filesystem::relative(entry.path(), directory));
  }
  return found;
}

/// With the files that a learner writes, and with an adapter or without.
Checkpoint learners_checkpoint(bool has_adapter) {
  Checkpoint checkpoint = checkpoint_of(3);
  const auto& weights = checkpoint.tensors.at("model.safetensors");
  for (const char* name : {"optimizer.safetensors", "value_head.safetensors", "reference.safetensors"}) {
    checkpoint.tensors[name] = weights;
  }
  for (const char* name : {"config.json", "tokenizer.json", "replay.json"}) checkpoint.texts[name] = "{}";
  if (has_adapter) {
    checkpoint.tensors["adapter_model.safetensors"] = weights;
    checkpoint.texts["adapter_config.json"] = "{}";
  }
  return checkpoint;
}

struct CheckpointFiles : testing::Test {
  TempDir dir;
  PosixFileSystem files;
  std::vector<std::string> warnings;

  Status write(const Checkpoint& checkpoint, std::uint64_t kept = 1) {
    return write_checkpoint(files, dir.path(), checkpoint, kept);
  }
  Result<std::optional<Checkpoint>> read() {
    warnings.clear();
    return read_newest_checkpoint(files, dir.path(), warnings);
  }
};

// vLLM takes every *.safetensors in a model's directory for weights.
TEST_F(CheckpointFiles, OthersFindTheModelAlone) {
  ASSERT_TRUE(write(learners_checkpoint(false)).has_value());
  EXPECT_THAT(
      files_below(dir.file("checkpoint-00000003")),
      testing::UnorderedElementsAre("model.safetensors", "config.json", "tokenizer.json", "checksums.json",
                                    "learner/optimizer.safetensors", "learner/value_head.safetensors",
                                    "learner/reference.safetensors", "learner/learner.json", "learner/replay.json"));
}

TEST_F(CheckpointFiles, AnAdapterAndTheModelBeneathHaveADirectoryEach) {
  ASSERT_TRUE(write(learners_checkpoint(true)).has_value());
  const std::set<std::string> found = files_below(dir.file("checkpoint-00000003"));
  for (const char* name : {"adapter_model.safetensors", "adapter_config.json", "base/model.safetensors",
                           "base/config.json", "base/tokenizer.json", "learner/optimizer.safetensors"}) {
    EXPECT_TRUE(found.contains(name)) << name;
  }
  EXPECT_FALSE(found.contains("model.safetensors"));
  const auto read_back = read();
  ASSERT_TRUE(read_back.has_value() && *read_back) << read_back.error().message();
  EXPECT_EQ((*read_back)->texts, learners_checkpoint(true).texts);
  EXPECT_EQ((*read_back)->tensors.size(), 5u);
}

// As releases wrote it that had all files in one directory.
TEST_F(CheckpointFiles, OneWithoutDirectoriesIsReadAsWell) {
  ASSERT_TRUE(write(learners_checkpoint(false)).has_value());
  const std::filesystem::path made = dir.file("checkpoint-00000003");
  for (const auto& entry : std::filesystem::directory_iterator(made / "learner")) {
    std::filesystem::rename(entry.path(), made / entry.path().filename());
  }
  std::filesystem::remove(made / "learner");
  std::string list = read_file(files, made / "checksums.json", 1 << 20).value();
  for (std::size_t at = 0; (at = list.find("learner/")) != std::string::npos;) list.erase(at, 8);
  std::ofstream(made / "checksums.json") << list;
  const auto read_back = read();
  ASSERT_TRUE(read_back.has_value() && *read_back) << read_back.error().message();
  EXPECT_EQ((*read_back)->texts, learners_checkpoint(false).texts);
  EXPECT_EQ((*read_back)->tensors.size(), 4u);
}

TEST_F(CheckpointFiles, AListThatNamesFilesElsewhereIsDamaged) {
  for (const char* name : {"../other.json", "learner/../../other.json", "/etc/hostname", "learner/", "learner/..", "..",
                           "elsewhere/other.json"}) {
    ASSERT_TRUE(write(learners_checkpoint(false)).has_value());
    std::ofstream(dir.file("checkpoint-00000003/checksums.json")) << "{\"" << name << "\": \"00\"}";
    EXPECT_FALSE(read().has_value()) << name;
    EXPECT_THAT(warnings, ElementsAre(HasSubstr("no list of checksums"))) << name;
  }
}

TEST_F(CheckpointFiles, OneThatIsNoneOfOursIsLeftOutAndTheOneBeforeItTaken) {
  ASSERT_TRUE(write(learners_checkpoint(false), 3).has_value());
  const std::string newer = dir.file("checkpoint-00000009");
  const auto warning_of = [&](const std::function<void()>& spoil) {
    std::filesystem::remove_all(newer);
    std::filesystem::copy(dir.file("checkpoint-00000003"), newer, std::filesystem::copy_options::recursive);
    spoil();
    const auto read_back = read();
    EXPECT_TRUE(read_back.has_value() && *read_back && (*read_back)->step == 3);
    return warnings.size() == 1 ? warnings.front() : "none";
  };
  EXPECT_THAT(warning_of([&] {
                std::ofstream(newer + "/checksums.json") << std::string(100'000, '[') << std::string(100'000, ']');
              }),
              HasSubstr("no JSON object"));
  // Files that are nothing but holes.
  EXPECT_THAT(warning_of([&] { std::filesystem::resize_file(newer + "/checksums.json", 1ull << 40); }),
              HasSubstr("1.0 MiB at most"));
  EXPECT_THAT(warning_of([&] { std::filesystem::resize_file(newer + "/model.safetensors", 1ull << 43); }),
              HasSubstr("more than this machine's memory"));
  EXPECT_THAT(warning_of([&] {
                std::filesystem::remove(newer + "/config.json");
                ASSERT_EQ(::mkfifo((newer + "/config.json").c_str(), 0600), 0);
              }),
              HasSubstr("not a regular file"));
  EXPECT_THAT(warning_of([&] {
                std::filesystem::remove_all(newer);
                std::ofstream(newer) << "a file";
              }),
              HasSubstr("Not a directory"));
}

TEST_F(CheckpointFiles, AWriterWritesBesideItsCaller) {
  CheckpointWriter writer(files, dir.path(), 2);
  EXPECT_FALSE(writer.busy());
  ASSERT_TRUE(writer.begin(checkpoint_of(1)).has_value());
  ASSERT_TRUE(writer.begin(checkpoint_of(2)).has_value());
  EXPECT_EQ(writer.written_step(), 1u);
  ASSERT_TRUE(writer.finish().has_value());
  ASSERT_TRUE(writer.finish().has_value());
  EXPECT_EQ(writer.written_step(), 2u);
  expect_equal(**read(), 2);
}

TEST_F(CheckpointFiles, AWriterTellsOfAFailure) {
  CheckpointWriter writer(files, dir.write("file", "") + "/below", 2);
  ASSERT_TRUE(writer.begin(checkpoint_of(1)).has_value());
  EXPECT_FALSE(writer.finish().has_value());
  EXPECT_EQ(writer.written_step(), std::nullopt);
}

}  // namespace
}  // namespace weightcast
