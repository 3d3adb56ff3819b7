#include "transport/node/members/accepted_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "proto/limits.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"

namespace weightcast {
namespace {

struct AcceptedFileTest : testing::Test {
  TempDir temp;
  AcceptedFile file{real_files(), temp.path()};
  const std::vector<AcceptedVersion> two{{RunId{0xc0ffee}, Version{7}}, {RunId{~std::uint64_t{0}}, kVersionMax}};

  [[nodiscard]] std::string text() const { return read_file(real_files(), temp.file("accepted"), kMiB).value_or(""); }
  void put(const std::string& text) const { std::ofstream(temp.file("accepted"), std::ios::trunc) << text; }
};

TEST_F(AcceptedFileTest, ReadsWhatItWrote) {
  EXPECT_TRUE(file.read()->empty());
  for (const auto& accepted : {std::vector<AcceptedVersion>(), two}) {
    ASSERT_TRUE(file.write(accepted).has_value());
    EXPECT_EQ(*file.read(), accepted);
  }
  EXPECT_EQ(text(), "accepted 0000000000c0ffee 7\naccepted ffffffffffffffff 9223372036854775807\ncheck " +
                        text().substr(text().find("check ") + 6));
}

TEST_F(AcceptedFileTest, HoldsAsManyRunsAsAreRemembered) {
  const std::vector<AcceptedVersion> all(64, two.back());
  ASSERT_TRUE(file.write(all).has_value());
  EXPECT_EQ(*file.read(), all);
}

TEST_F(AcceptedFileTest, SaysSoIfItIsDamaged) {
  ASSERT_TRUE(file.write(two).has_value());
  const std::string whole = text();
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    put(whole.substr(0, cut));
    ASSERT_FALSE(file.read().has_value()) << cut;
    EXPECT_EQ(file.read().error().code, Errc::kCorrupt);
    EXPECT_THAT(file.read().error().detail, testing::HasSubstr("delete it"));
  }
  put("");
  EXPECT_FALSE(file.read().has_value());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string other = whole;
    other[at] ^= 1;
    put(other);
    EXPECT_FALSE(file.read().has_value()) << at;
  }
}

}  // namespace
}  // namespace weightcast
