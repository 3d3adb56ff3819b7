#include "transport/io/store/files/version_log.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

PayloadId step(std::uint64_t base, std::uint64_t version) { return patch_of(Version{version}, Version{base}); }

TEST(VersionLog, HoldsTheAnchorAndWhatPatchesLeadTo) {
  VersionLog log({});
  EXPECT_FALSE(log.holds(Version{1}));
  EXPECT_FALSE(log.goes_on_with(step(1, 2)));
  log.handle_anchor(Version{1});
  EXPECT_TRUE(log.goes_on_with(step(1, 2)));
  EXPECT_FALSE(log.goes_on_with(step(2, 3)));
  EXPECT_FALSE(log.goes_on_with(Version{2})) << "a whole version is no link";
  log.handle_logged(step(1, 2), 10);
  log.handle_logged(step(2, 3), 10);
  for (const std::uint64_t version : {1, 2, 3}) EXPECT_TRUE(log.holds(Version{version})) << version;
  EXPECT_TRUE(log.needs(step(2, 3)));
  EXPECT_FALSE(log.needs(step(1, 3))) << "there is another way";
  EXPECT_FALSE(log.goes_on_with(step(1, 3)));
}

TEST(VersionLog, ForgetsWhatIsBeforeAnAnchorAndWhatNoLongerLeadsOn) {
  VersionLog log({});
  log.handle_anchor(Version{1});
  log.handle_logged(step(1, 2), 10);
  log.handle_logged(step(2, 3), 10);
  log.handle_logged(step(3, 4), 10);
  log.handle_logged(step(2, 5), 10);
  log.handle_anchor(Version{3});
  EXPECT_EQ(log.anchor(), Version{3});
  EXPECT_FALSE(log.needs(step(1, 2)));
  EXPECT_FALSE(log.needs(step(2, 3)));
  EXPECT_TRUE(log.holds(Version{4}));
  EXPECT_FALSE(log.holds(Version{5})) << "it goes on from a version before the anchor";
}

TEST(VersionLog, IsLongByPatchesOrByBytes) {
  VersionLog log({.patches_max = 2, .bytes_share_max = 0.5});
  log.handle_anchor(Version{1});
  EXPECT_FALSE(log.is_long(100));
  log.handle_logged(step(1, 2), 10);
  EXPECT_FALSE(log.is_long(100));
  EXPECT_TRUE(log.is_long(20));
  log.handle_logged(step(2, 3), 10);
  EXPECT_TRUE(log.is_long(100));
}

}  // namespace
}  // namespace weightcast
