#include "transport/node/members/peer_records.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

namespace weightcast {
namespace {

struct PeerRecordsTest : testing::Test {
  TempDir temp;
  PeerRecordsFile file{real_files(), temp.path()};

  void put(const std::string& text) const { std::ofstream(temp.file("peers.json"), std::ios::trunc) << text; }
};

TEST_F(PeerRecordsTest, ReadsWhatItWrote) {
  EXPECT_TRUE(file.read().empty());
  PeerRecord a{.name = "a", .score = {}, .standing = {}, .offence = "tried to join as b", .complaints = {}};
  a.score.rates = {Rate{5e6}};
  a.score.ok = 7;
  a.standing.strikes = 1;
  a.uplink = Rate{3e6};
  a.downlink = Rate{12e6};
  a.complaints = {{"b", PeerFault::kCorrupt, 3, false}, {"c", PeerFault::kSlow, 0, true}};
  a.voice = 1;
  a.since_regained = 4;
  ASSERT_TRUE(file.write({a, PeerRecord{.name = "b", .score = {}, .standing = {}, .offence = {}, .complaints = {}}})
                  .has_value());
  const std::vector<PeerRecord> read = file.read();
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].name, "a");
  EXPECT_EQ(read[0].score.ok, 7u);
  EXPECT_EQ(read[0].standing, a.standing);
  EXPECT_EQ(read[0].offence, a.offence);
  EXPECT_EQ(read[0].complaints, a.complaints);
  EXPECT_EQ(read[0].uplink, Rate{3e6});
  EXPECT_EQ(read[0].downlink, Rate{12e6});
  EXPECT_FALSE(read[1].uplink.limited());
  EXPECT_EQ(read[0].voice, 1u);
  EXPECT_EQ(read[0].since_regained, 4u);
  EXPECT_EQ(read[1].voice, Complaints::kVoiceMax);
  EXPECT_TRUE(read[1].complaints.empty());
}

TEST_F(PeerRecordsTest, ReadsWhatEarlierReleasesWrote) {
  put(R"([{"age_s": 1.5, "clean_in_a_row": 2, "corrupt": 0, "demotions": 1, "failed": 3, "failed_in_a_row": 0,
           "name": "a", "ok": 9, "ok_in_a_row": 9, "rates_bytes_per_s": [1000.0], "standing": 1, "strikes": 0}])");
  const std::vector<PeerRecord> read = file.read();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].standing.standing, Standing::kTail);
  EXPECT_EQ(read[0].voice, Complaints::kVoiceMax);
  EXPECT_EQ(read[0].offence, "");
}

TEST_F(PeerRecordsTest, ADamagedFileIsNoHistory) {
  for (const char* text : {"", "[", "{}", "[{}]", "[1]", R"([{"name": "a", "uplink_bytes_per_s": "fast"}])",
                           R"([{"name": "a", "complaints": 5}])"}) {
    put(text);
    EXPECT_TRUE(file.read().empty()) << text;
  }
}

}  // namespace
}  // namespace weightcast
