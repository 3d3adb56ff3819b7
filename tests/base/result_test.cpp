#include "base/result.h"

#include <gtest/gtest.h>

namespace weightcast {
namespace {

TEST(Error, SaysOnceWhatItIsAbout) {
  const Error bare = fail(Errc::kIo, Op::kVerify, "it is not signed");
  const Error once = about("version 1", bare);
  EXPECT_EQ(once.message(), "cannot verify: version 1: it is not signed");
  EXPECT_EQ(about("version 1", once).detail, once.detail);
  EXPECT_EQ(about("version 11", once).detail, "version 11: version 1: it is not signed");
  EXPECT_EQ(about("version", once).detail, "version: version 1: it is not signed");
  EXPECT_EQ(about("version 1", fail(Errc::kIo, Op::kVerify, "version 1")).detail, "version 1: version 1");
}

}  // namespace
}  // namespace weightcast
