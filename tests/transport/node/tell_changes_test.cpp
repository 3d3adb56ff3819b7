#include "transport/node/tell_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <optional>
#include <utility>

#include "patch/changes/change_file.h"
#include "patch/snapshot/snapshot.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "tests/result_matchers.h"
#include "tests/transport/io/io_fixture.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

struct TellChangesTest : testing::Test {
  static constexpr std::uint32_t kBytes = 4096;

  static Checksum digest_of(std::uint64_t version) { return checksum_of(std::as_bytes(std::span(&version, 1))); }

  /// A step that sets those bytes.
  StepRef step(std::uint64_t from, const std::vector<std::uint32_t>& cells, char value) {
    auto made = std::make_shared<StepChanges>();
    made->from = Version{from};
    made->to = Version{from + 1};
    made->from_digest = digest_of(from);
    made->plan = {{0, data_at, data_at, kBytes, CellKind::kRaw8}};
    made->segments = {CellChanges{cells, std::vector<std::byte>(cells.size(), std::byte(value))}};
    made->bytes = 5 * cells.size();
    return made;
  }
  Result<ListedChanges> tell(std::vector<StepRef> steps, std::uint64_t from = 1, std::uint64_t to = 3,
                             std::optional<std::string> from_digest = {}) {
    TellChangesRequest request;
    request.from = Version{from};
    request.to = Version{to};
    request.from_digest = from_digest.value_or(digest_of(from).hex());
    request.to_digest = digest_of(to).hex();
    request.steps = std::move(steps);
    request.old_values = old_values;
    request.directory = directory;
    request.base = base;
    request.snapshot_bytes = kBytes;
    request.into = FileRef(real_files().open(temp.file("changes"), {.write = true, .create = Create::kEmpty}).value());
    std::optional<Result<ListedChanges>> told;
    tell_changes(jobs, real_files(), std::move(request),
                 [&](Result<ListedChanges> listed) { told = std::move(listed); });
    EXPECT_TRUE(net.run_until([&] { return told.has_value(); }));
    return *told;
  }
  /// The base's file: where the version has 'z', but for `others`.
  void write_base(const std::map<std::uint32_t, char>& others) {
    base = temp.file("base");
    std::string cells(kBytes, 'z');
    for (const auto& [at, value] : others) cells[at] = value;
    std::ofstream(base, std::ios::binary) << safetensors_bytes(kHeader, cells);
  }
  /// An array of the file of changes.
  std::string listed(const std::string& name, std::uint64_t file_bytes) {
    const SnapshotSource file =
        SnapshotSource::over(real_files(), FileRef(real_files().open(temp.file("changes"), {}).value()), file_bytes,
                             "it")
            .value();
    for (const TensorInfo& tensor : file.tensors()) {
      if (tensor.name != name) continue;
      std::string bytes(tensor.size_bytes, ' ');
      EXPECT_TRUE(file.read_at(tensor.offset_bytes, std::as_writable_bytes(std::span(bytes))).has_value());
      return bytes;
    }
    return "none";
  }
  std::string why(const Result<ListedChanges>& told) {
    if (told.has_value()) return "none";
    EXPECT_EQ(told.error().code, Errc::kTooFar);
    return told.error().detail;
  }

  static constexpr const char* kHeader = R"({"w":{"dtype":"U8","shape":[4096],"data_offsets":[0,4096]}})";
  TempDir temp;
  bool old_values = false;
  std::string directory = temp.file("version"), base;
  std::uint64_t data_at = [this] {
    std::ofstream(temp.file("version"), std::ios::binary) << safetensors_bytes(kHeader, std::string(kBytes, 'z'));
    return SnapshotSource::open(real_files(), temp.file("version")).value().tensors().front().offset_bytes;
  }();
  Net net;
  Jobs jobs{net.loop};
};

TEST_F(TellChangesTest, ListsWhatSeveralStepsChangedOnce) {
  const auto told = tell({step(1, {3, 8, 4000}, 'a'), step(2, {8, 9}, 'b')});
  ASSERT_TRUE(told.has_value()) << told.error().message();
  EXPECT_EQ(told->elements, 4u);
  const SnapshotSource version = SnapshotSource::open(real_files(), temp.file("version")).value();
  const auto list = ChangeFile::open(FileRef(real_files().open(temp.file("changes"), {}).value()), told->bytes, "it",
                                     version.tensors());
  ASSERT_TRUE(list.has_value()) << list.error().message();
  CellChanges changes;
  ASSERT_TRUE(list->read(data_at, kBytes, 1, false, changes).has_value());
  EXPECT_EQ(changes.cells, (std::vector<std::uint32_t>{3, 8, 9, 4000}));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(changes.values.data()), 4), "abba");
}

TEST_F(TellChangesTest, ToItselfAVersionHasNoChangesAndNeedsNoBaseForOldValues) {
  for (const bool with_old : {false, true}) {
    old_values = with_old;
    const auto told = tell({}, 3, 3);
    ASSERT_TRUE(told.has_value()) << told.error().message();
    EXPECT_EQ(told->elements, 0u);
  }
}

TEST_F(TellChangesTest, SaysWhyTheWholeIsToBeLoaded) {
  EXPECT_THAT(why(tell({})),
              HasSubstr("from version 1 to 3: the changes of some step between them are not known here"));
  StepChanges moved = *step(2, {1}, 'b');
  moved.plan.front().result_offset += 8;
  EXPECT_THAT(why(tell({step(1, {1}, 'a'), std::make_shared<StepChanges>(moved)})), HasSubstr("places have changed"));
  StepChanges dense = *step(2, {1}, 'b');
  dense.segments.front().reset();
  EXPECT_THAT(why(tell({step(1, {1}, 'a'), std::make_shared<StepChanges>(dense)})),
              HasSubstr("version 3 changed most"));
  const std::string other = digest_of(77).hex();
  EXPECT_THAT(why(tell({step(1, {1}, 'a')}, 1, 2, other)), HasSubstr("from another version of that number"));
  EXPECT_THAT(why(tell({}, 3, 3, other)), HasSubstr("from another version of that number"));
  std::vector<std::uint32_t> many(500);
  for (std::uint32_t i = 0; i < 500; ++i) many[i] = i;
  EXPECT_THAT(why(tell({step(1, many, 'a')}, 1, 2)), HasSubstr("the changes take 61 % of it; load version 2 whole"));
}

TEST_F(TellChangesTest, ReadsOldValuesFromTheBase) {
  write_base({{3, 'm'}, {8, 'n'}, {4000, 'o'}});
  old_values = true;
  const auto told = tell({step(1, {3, 8, 4000}, 'a'), step(2, {8, 9}, 'b')});
  ASSERT_TRUE(told.has_value()) << told.error().message();
  EXPECT_EQ(listed("values/w", told->bytes), "abba");
  EXPECT_EQ(listed("old/w", told->bytes), "mnzo");
  old_values = false;
  const auto without = tell({step(1, {3, 8, 4000}, 'a'), step(2, {8, 9}, 'b')});
  ASSERT_TRUE(without.has_value()) << without.error().message();
  EXPECT_EQ(listed("old/w", without->bytes), "none");
}

TEST_F(TellChangesTest, ComparesTheFilesWhereNoStepLeadsThere) {
  write_base({{3, 'm'}, {8, 'n'}, {4000, 'o'}});
  // After a restart; from a newer version; steps from another version of that number.
  for (const auto& [from, steps] : {std::pair(1, std::vector<StepRef>()), std::pair(7, std::vector<StepRef>()),
                                    std::pair(1, std::vector{step(4, {1}, 'a')})}) {
    for (const bool with_old : {false, true}) {
      old_values = with_old;
      const auto told = tell(steps, std::uint64_t(from));
      ASSERT_TRUE(told.has_value()) << told.error().message();
      EXPECT_EQ(told->elements, 3u);
      EXPECT_EQ(listed("values/w", told->bytes), "zzz");
      EXPECT_EQ(listed("old/w", told->bytes), with_old ? "mno" : "none");
    }
  }
}

TEST_F(TellChangesTest, ComparesNoMoreThanIsWorthIt) {
  std::map<std::uint32_t, char> many;
  for (std::uint32_t at = 0; at < 500; ++at) many[at * 3] = 'q';
  write_base(many);
  EXPECT_THAT(why(tell({})), HasSubstr("from version 1 to 3: the changes take too large a part of it; load version 3"));
}

TEST_F(TellChangesTest, SaysWhatIsMissingWithoutTheBase) {
  EXPECT_THAT(why(tell({})), HasSubstr("are not known here, and version 1 is not here to compare with; load"));
  old_values = true;
  EXPECT_THAT(
      why(tell({step(1, {3}, 'a'), step(2, {8}, 'b')})),
      HasSubstr("old values are read from version 1, which is not here any more; without them the changes are"));
}

TEST_F(TellChangesTest, AVersionThatWasWithdrawnIsNotFound) {
  directory.clear();
  EXPECT_THAT(tell({step(1, {3}, 'a'), step(2, {8}, 'b')}),
              FailsWith(Errc::kNotFound, "version 3: it is not here any more"));
}

TEST_F(TellChangesTest, AnUnreadableBaseIsNoReasonToSayThatAllIsFarAway) {
  base = temp.file("nowhere");
  EXPECT_THAT(tell({}), FailsWith(Errc::kNotFound));
}

TEST_F(TellChangesTest, EndsWhenTheNodeDoes) {
  jobs.cancel();
  for (const bool compares : {false, true}) {
    if (compares) write_base({{3, 'm'}});
    EXPECT_THAT(tell(compares ? std::vector<StepRef>() : std::vector{step(1, {3}, 'a'), step(2, {8}, 'b')}),
                FailsWith(Errc::kClosed));
  }
}

}  // namespace
}  // namespace weightcast
