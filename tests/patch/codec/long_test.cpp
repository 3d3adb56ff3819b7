#include <gtest/gtest.h>

#include "tests/patch/cells.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

// Segments of default size, more of them than threads, at every density from none to all.
TEST(PatchLong, LeadsToTheResultAtEveryDensity) {
  for (const double density : {0.0, 1e-5, 1e-3, 0.01, 0.1, 0.5, 1.0}) {
    const auto [before, after] = test::make_versions(6'000'000, density, 11);
    const std::vector<std::byte> patch = test::make_patch(before, after, kSegmentBytesDefault, {.threads = 2});
    EXPECT_LE(double(patch.size()), 1.01 * double(after.stream.size())) << density;
    std::vector<std::byte> result(after.stream.size());
    EXPECT_THAT(test::apply_patch(patch, before.stream, result, 2), Gives(test::digest_of_file(after.stream)))
        << density;
    EXPECT_EQ(result, after.stream) << density;
  }
}

}  // namespace
}  // namespace weightcast
