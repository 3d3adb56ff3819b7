// What has rotted, and was proven wrong, never comes back as a version: not when the disk refuses to let it go, not
// when the power fails meanwhile, and not when the look at it failed the first time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/result_matchers.h"
#include "tests/sim/store_host.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

const fs::path kSecond = kState / "versions/000000000002";
const fs::path kSecondFile = kSecond / "a.safetensors";

class StoreRot : public testing::TestWithParam<bool> {
 protected:
  /// Version 2 is there and durable, in place of version 1 or beside it, and a bit of it changes. False: perhaps after
  /// the search has gone by.
  bool make_rotten(StoreHost& host) {
    host.store_options.single_copy = GetParam();
    EXPECT_TRUE(host.start());
    EXPECT_TRUE(host.receive_durably(snapshot(1)).has_value());
    host.pass(std::chrono::seconds(1));  // so that the search in version 1 is over
    EXPECT_TRUE(host.receive(GetParam() ? patch_to(2) : snapshot(2)).has_value());
    const Instant installed_at = host.clock->now();
    EXPECT_TRUE(host.await_durable(Version{2}).has_value());
    host.files.flip_bit(kSecondFile, 20'000, 3);
    return host.clock->now() - installed_at < std::chrono::milliseconds(150);
  }

  static testing::AssertionResult is_gone(StoreHost& host) {
    if (host.store->find(Version{2}) != nullptr) return testing::AssertionFailure() << "version 2 is complete";
    if (host.store->current() == Version{2}) return testing::AssertionFailure() << "version 2 is current";
    return host.files.observe([](FileSystem& files) {
      const Result<fs::path> current = files.read_link(kState / "current");
      if (current.has_value() && current->filename() == kSecond.filename()) {
        return testing::AssertionFailure() << "current names version 2";
      }
      if (files.info(kSecond).has_value()) return testing::AssertionFailure() << kSecond << " is there";
      return testing::AssertionSuccess();
    });
  }
};

// The first call that fails is that of the search; those after it are of the removal.
TEST_P(StoreRot, IsFoundAndGoneThoughACallFails) {
  for (std::uint64_t call = 1; call < 40; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call << " fails");
    StoreHost host(call);
    if (!make_rotten(host)) continue;
    host.files.fail_call(call, EIO);
    host.pass(std::chrono::seconds(20));
    host.files.fail_no_call();
    EXPECT_TRUE(is_gone(host));
    if (HasFailure()) return;
  }
}

TEST_P(StoreRot, IsGoneAfterADiskThatRefusedForLong) {
  for (std::uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    StoreHost host(seed);
    if (!make_rotten(host)) continue;
    host.files.set_faults({.error = 0.5});
    host.pass(std::chrono::seconds(20));
    host.files.set_faults({});
    host.pass(std::chrono::seconds(20));
    EXPECT_TRUE(is_gone(host));
    if (HasFailure()) return;
  }
}

TEST_P(StoreRot, DoesNotComeBackWhenThePowerFails) {
  for (std::uint64_t run = 0; run < 60 * 6; ++run) {
    const std::uint64_t seed = run / 60, change = run % 60;
    SCOPED_TRACE(testing::Message() << "seed " << seed << ", power is cut before change " << change);
    StoreHost host(seed);
    if (!make_rotten(host)) continue;
    host.files.kill_before_change(host.files.changes() + change);
    host.pass(std::chrono::seconds(5));
    host.cut_power();
    ASSERT_TRUE(host.start()) << host.open_error->message();
    EXPECT_TRUE(is_gone(host));
    if (HasFailure()) return;
  }
}

TEST_P(StoreRot, OfAVersionThatRestsIsFoundByTheNextStart) {
  StoreHost host(1);
  host.store_options.scrub_share = 0;
  static_cast<void>(make_rotten(host));
  host.die();
  ASSERT_TRUE(host.start()) << host.open_error->message();
  EXPECT_TRUE(is_gone(host));
  EXPECT_EQ(host.store->current(), GetParam() ? kNoVersion : Version{1});
}

// The disk lets the bad one go only when a good one has taken its place: that one stays.
TEST_P(StoreRot, ItsRemovalSparesWhatHasTakenItsPlace) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    StoreHost host(seed);
    if (!make_rotten(host)) continue;
    host.files.set_faults({.error = 0.7});
    static_cast<void>(
        host.clock->run_until([&] { return host.store->find(Version{2}) == nullptr; }, std::chrono::seconds(60)));
    host.files.set_faults({});
    if (host.store->find(Version{2}) != nullptr) continue;
    ASSERT_THAT(host.receive_durably(snapshot(2)), Succeeds());
    host.pass(std::chrono::seconds(20));
    EXPECT_TRUE(host.holds(kState / "current", snapshot(2)));
    host.cut_power();
    ASSERT_TRUE(host.start()) << host.open_error->message();
    EXPECT_TRUE(host.holds(kState / "current", snapshot(2)));
    if (HasFailure()) return;
  }
}

// What came with a container's image: overlayfs moves no directory of it.
TEST(StoreImageLayer, WhatCannotBeMovedIsDeletedWhereItIs) {
  const auto throw_away = [](StoreHost& host, std::uint64_t failing_call, int error_number) {
    EXPECT_TRUE(host.start_with_first().has_value());
    const StoreLayout layout(host.files, kState);
    host.end_process();
    if (failing_call > 0) host.files.fail_call(failing_call, error_number);
    const Status thrown = layout.throw_away(layout.complete(Version{1}), *FileTable::make(kFiles));
    host.files.fail_no_call();
    EXPECT_EQ(exists(host.files, layout.complete(Version{1})), !thrown.has_value());
    return thrown;
  };
  // The last of its calls that may not fail is the rename.
  std::uint64_t rename = 0;
  for (std::uint64_t call = 1; call < 40; ++call) {
    StoreHost host(1);
    if (!throw_away(host, call, EIO).has_value()) rename = call;
  }
  ASSERT_GT(rename, 0u);
  StoreHost host(1);
  EXPECT_THAT(throw_away(host, rename, EXDEV), Succeeds());
}

INSTANTIATE_TEST_SUITE_P(, StoreRot, testing::Bool(),
                         [](const auto& single) { return single.param ? "SingleCopy" : "Beside"; });

}  // namespace
}  // namespace weightcast::sim
