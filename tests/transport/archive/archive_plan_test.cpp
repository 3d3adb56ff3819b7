#include "transport/archive/archive_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

namespace weightcast {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kFiles = "f";

LoggedPayload whole(std::uint64_t version, bool provable = true, bool may_get_patch = false) {
  return {Version{version}, kFiles, provable, may_get_patch};
}
LoggedPayload patch(std::uint64_t version, std::uint64_t base, const char* files = kFiles) {
  return {patch_of(Version{version}, Version{base}), files};
}

/// What an archive takes of a log, one after the other.
std::vector<PayloadId> taken(ArchiveIndex& index, const std::vector<LoggedPayload>& log, std::uint64_t every = 4) {
  std::vector<PayloadId> all;
  while (const auto next = next_to_archive(index, log, every)) {
    all.push_back(*next);
    const auto& found = *std::ranges::find(log, *next, &LoggedPayload::id);
    index.payloads.push_back({*next, 1, 4096, found.files});
    if (all.size() > 100) break;
  }
  return all;
}

std::vector<PayloadId> way(const ArchiveIndex& index, std::uint64_t version) {
  std::vector<PayloadId> ids;
  const auto found = way_to(index, Version{version});
  if (!found.has_value()) return ids;
  for (const ArchivedPayload& payload : *found) ids.push_back(payload.id);
  return ids;
}

PayloadId step(std::uint64_t version, std::uint64_t base) { return patch_of(Version{version}, Version{base}); }

struct ArchivePlanTest : testing::Test {
  ArchiveIndex index;
};

TEST_F(ArchivePlanTest, BeginsWithTheOldestWholeVersionAndGoesOnByPatches) {
  EXPECT_THAT(taken(index, {whole(3), patch(4, 3), whole(5), patch(5, 4), patch(6, 5)}),
              ElementsAre(Version{3}, step(4, 3), step(5, 4), step(6, 5)));
  EXPECT_EQ(newest_in(index), Version{6});
  EXPECT_THAT(way(index, 5), ElementsAre(Version{3}, step(4, 3), step(5, 4)));
}

TEST_F(ArchivePlanTest, TakesNothingWithoutAVersionThatCanBeProven) {
  EXPECT_TRUE(taken(index, {whole(3, false), patch(4, 3)}).empty());
  EXPECT_THAT(taken(index, {whole(3, false), patch(4, 3), whole(4)}), ElementsAre(Version{4}));
}

TEST_F(ArchivePlanTest, EveryNthVersionIsWholeOrTheFirstAfterItThatCanBeProven) {
  std::vector<LoggedPayload> log{whole(1)};
  std::vector<PayloadId> wholes;
  for (std::uint64_t version = 2; version <= 20; ++version) {
    log.push_back(patch(version, version - 1));
    // As an origin proves one in three.
    log.push_back(whole(version, version % 3 == 0));
    for (const PayloadId id : taken(index, log)) {
      if (id.is_full()) wholes.push_back(id);
    }
  }
  EXPECT_THAT(wholes, ElementsAre(Version{1}, Version{6}, Version{12}, Version{18}));
  EXPECT_THAT(way(index, 13), ElementsAre(Version{12}, step(13, 12))) << "the nearest whole one";
  EXPECT_THAT(way(index, 5), ElementsAre(Version{1}, step(2, 1), step(3, 2), step(4, 3), step(5, 4)));
}

TEST_F(ArchivePlanTest, VersionsMayBeNumberedWithGaps) {
  EXPECT_THAT(taken(index, {whole(100), patch(200, 100), patch(300, 200), whole(300)}, 2),
              ElementsAre(Version{100}, step(200, 100), step(300, 200), Version{300}));
}

TEST_F(ArchivePlanTest, AVersionThatNoPatchLeadsToComesWhole) {
  static_cast<void>(taken(index, {whole(1)}));
  EXPECT_TRUE(taken(index, {whole(7, true, true)}).empty()) << "its patch may come";
  EXPECT_THAT(taken(index, {whole(7, true, true), patch(7, 1)}), ElementsAre(step(7, 1)));
  EXPECT_THAT(taken(index, {whole(9), patch(10, 9)}), ElementsAre(Version{9}, step(10, 9)));
  EXPECT_TRUE(way(index, 8).empty());
}

TEST_F(ArchivePlanTest, OtherFilesBeginAnew) {
  const std::vector<LoggedPayload> log{whole(1), patch(2, 1, "other"), {Version{2}, "other", true}};
  EXPECT_THAT(taken(index, log), ElementsAre(Version{1}, Version{2}));
}

TEST_F(ArchivePlanTest, OlderVersionsAreNotTakenAnyMore) {
  static_cast<void>(taken(index, {whole(5)}));
  EXPECT_TRUE(taken(index, {whole(3), patch(4, 3), whole(5)}).empty());
}

TEST_F(ArchivePlanTest, OfTwoPatchesToAVersionTheShorterStepIsTaken) {
  EXPECT_THAT(taken(index, {whole(1), patch(2, 1), patch(3, 1), patch(3, 2)}),
              ElementsAre(Version{1}, step(2, 1), step(3, 2)));
}

TEST(ArchivePlan, SaysWhatThereIsWhereAVersionIsMissing) {
  EXPECT_THAT(way_to({}, kNoVersion).error().detail, HasSubstr("empty"));
  ArchiveIndex index;
  static_cast<void>(taken(index, {whole(5), patch(6, 5)}));
  EXPECT_THAT(way_to(index, Version{9}).error().detail, HasSubstr("2 versions, from 5 to 6"));
  EXPECT_EQ(way_to(index, kNoVersion)->back().id, step(6, 5));
}

// An index of somebody else's: patches without a base, in circles of none.
TEST_F(ArchivePlanTest, PatchesThatBeginNowhereLeadNowhere) {
  index.payloads = {{step(6, 5), 1, 4096, kFiles}, {step(7, 6), 1, 4096, kFiles}};
  EXPECT_EQ(newest_in(index), kNoVersion);
  EXPECT_FALSE(way_to(index, Version{7}).has_value());
}

}  // namespace
}  // namespace weightcast
