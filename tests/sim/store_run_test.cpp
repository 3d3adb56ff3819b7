// A worker's state directory goes from one run to the next: at whatever moment the process or the power ends, the
// newest complete version of the newest run that has one is in use.
#include <gtest/gtest.h>

#include <cerrno>
#include <map>

#include "sim/host/run_version.h"
#include "tests/result_matchers.h"
#include "tests/sanitizers.h"
#include "tests/sim/store_host.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

/// What was published: version 6 of both runs, with other bytes.
const Publication& published(RunVersion which) {
  static const std::map<RunVersion, Publication> all{{{1, Version{5}}, tree_of(5)},
                                                     {{1, Version{6}}, tree_of(6)},
                                                     {{2, Version{1}}, tree_of(1)},
                                                     {{2, Version{6}}, publication(6, {{"a.safetensors", 31'000}})}};
  return all.at(which);
}

struct RunHost : StoreHost {
  using StoreHost::StoreHost;

  Status get(RunVersion which, bool synced) {
    WC_TRY(receive(published(which)));
    if (!synced) return {};
    WC_TRY(await_durable(which.second));
    if (const StoredVersion* stored = store->find(which.second); stored != nullptr && stored->durable) newest = which;
    return {};
  }

  RunVersion newest;  ///< that was durable
};

Status second_run(RunHost& host) {
  if (host.store->run().count == 1) {
    WC_TRY(host.follow_run(0xb, true));
    if (!host.start()) return *host.open_error;
  }
  if (host.store->current() < Version{1}) WC_TRY(host.get({2, Version{1}}, true));
  if (host.store->current() < Version{6}) WC_TRY(host.get({2, Version{6}}, true));
  return {};
}

Status both_runs(RunHost& host) {
  if (!host.start()) return *host.open_error;
  WC_TRY(host.follow_run(0xa, false));
  WC_TRY(host.get({1, Version{5}}, true));
  WC_TRY(host.get({1, Version{6}}, false));
  // Some of the next, which will never be complete.
  WC_TRY(host.begin(tree_of(7).manifest));
  return second_run(host);
}

void expect_sound(RunHost& host) {
  const RunVersion used = in_use(*host.store);
  EXPECT_GE(used, host.newest) << "run " << used.first << ", version " << used.second.value;
  const Result<fs::path> target = host.files.read_link(kState / "current");
  EXPECT_EQ(target.has_value(), used != RunVersion());
  if (used == RunVersion()) return;
  EXPECT_TRUE(host.holds(kState / "current", published(used)))
      << *target << " is not version " << used.second.value << " of run " << used.first;
  for (const StoredVersion& stored : host.store->versions()) {
    EXPECT_EQ(stored.run, host.store->run().count);
    EXPECT_TRUE(host.holds(stored.path, published({stored.run, stored.manifest.version})));
  }
}

TEST(StoreRun, FollowsAnotherRunAndKeepsTheVersionInUseUntilItHasOneOfThat) {
  RunHost host(1);
  ASSERT_TRUE(host.start());
  EXPECT_EQ(host.store->run(), StoreRun{});
  ASSERT_TRUE(host.follow_run(0xa, false).has_value());
  EXPECT_EQ(host.store->run(), (StoreRun{RunId{0xa}, 1}));
  ASSERT_TRUE(host.get({1, Version{5}}, true).has_value());
  ASSERT_TRUE(host.get({1, Version{6}}, true).has_value());
  ASSERT_TRUE(host.follow_run(0xb, true).has_value());
  EXPECT_EQ(in_use(*host.store), RunVersion(1, Version{6})) << "until it is opened again";
  ASSERT_TRUE(host.start());
  EXPECT_EQ(host.store->run(), (StoreRun{RunId{0xb}, 2}));
  EXPECT_EQ(host.store->current(), kNoVersion);
  EXPECT_TRUE(host.store->versions().empty()) << "of this run";
  EXPECT_EQ(in_use(*host.store), RunVersion(1, Version{6}));
  EXPECT_EQ(host.store->earlier()->path, kState / "versions/000000000006");
  expect_sound(host);

  ASSERT_TRUE(host.get({2, Version{6}}, false).has_value());
  EXPECT_EQ(in_use(*host.store), RunVersion(2, Version{6}));
  EXPECT_EQ(host.store->find(Version{6})->path, kState / "versions/000000000006@2");
  ASSERT_TRUE(host.await_durable(Version{6}).has_value());
  EXPECT_TRUE(host.clock->run_until([&] { return !exists(host.files, kState / "versions/000000000006"); }));
  EXPECT_EQ(*host.files.list(kState / "versions"), std::vector<std::string>{"000000000006@2"});
  EXPECT_EQ(*host.files.list(kState / "records"), std::vector<std::string>{"000000000006@2"});
  ASSERT_TRUE(host.start());
  EXPECT_EQ(in_use(*host.store), RunVersion(2, Version{6}));
  expect_sound(host);
}

TEST(StoreRun, AVersionOfTheRunBeforeStaysWhileItIsPinned) {
  RunHost host(1);
  ASSERT_TRUE(host.start());
  ASSERT_TRUE(host.get({1, Version{5}}, true).has_value());
  ASSERT_TRUE(host.follow_run(0xb, true).has_value());
  ASSERT_TRUE(host.start());
  host.store->pin({Version{5}});
  ASSERT_TRUE(host.get({2, Version{1}}, true).has_value());
  host.pass(std::chrono::seconds(1));
  EXPECT_TRUE(host.holds(kState / "versions/000000000005", published({1, Version{5}})));
  host.store->pin({});
  EXPECT_TRUE(host.clock->run_until([&] { return !exists(host.files, kState / "versions/000000000005"); }));
}

TEST(StoreRun, MakesARunOfItsOwnIfAskedToAndKeepsIt) {
  RunHost host(1);
  std::uint64_t next = 0x77;
  host.store_options.make_run = [&] { return RunId{next++}; };
  ASSERT_TRUE(host.start());
  EXPECT_EQ(host.store->run(), (StoreRun{RunId{0x77}, 1}));
  ASSERT_TRUE(host.start());
  EXPECT_EQ(host.store->run(), (StoreRun{RunId{0x77}, 1}));
  host.files.flip_bit(kState / "run", 6, 0);
  EXPECT_FALSE(host.start()) << "whose versions there are is not known";
  EXPECT_EQ(host.open_error->code, Errc::kCorrupt);
  EXPECT_NE(host.open_error->detail.find("/state/run"), std::string::npos);
}

TEST(StoreRun, ADamagedFileIsWrittenAnewAsTheVersionsAndTheirRecordsSay) {
  RunHost host(1);
  ASSERT_TRUE(host.start());
  ASSERT_TRUE(host.follow_run(0xa, false).has_value());
  ASSERT_TRUE(host.get({1, Version{5}}, true).has_value());
  ASSERT_TRUE(host.follow_run(0xb, true).has_value());
  ASSERT_TRUE(host.start());
  Publication of_second = published({2, Version{6}});
  of_second.manifest.run = RunId{0xb};
  ASSERT_TRUE(host.receive(of_second).has_value());
  for (const std::size_t bit : {0u, 6u, 40u}) {
    host.end_process();
    host.files.flip_bit(kState / "run", bit, 0);
    ASSERT_TRUE(host.start()) << host.open_error->message();
    EXPECT_EQ(host.store->run(), (StoreRun{RunId{0xb}, 2}));
    EXPECT_EQ(in_use(*host.store), RunVersion(2, Version{6}));
    ASSERT_TRUE(host.start()) << "the file is as it was";
  }
}

TEST(StoreRun, AFullFileSystemThatHasBytesSaysWhatItLacks) {
  RunHost host(1);
  ASSERT_TRUE(host.start());
  host.files.set_faults({.no_space = 1});
  EXPECT_THAT(host.begin(published({1, Version{5}}).manifest),
              FailsWith(Errc::kNoSpace, "no room for more files (df -i)"));
}

TEST(StoreRun, ACallThatFailsWhenTheNextRunBeginsLosesNothing) {
  const auto follow_next = [](RunHost& host) {
    ASSERT_TRUE(host.start());
    ASSERT_TRUE(host.get({1, Version{5}}, true).has_value());
    ASSERT_TRUE(host.get({1, Version{6}}, true).has_value());
    ASSERT_TRUE(host.follow_run(0xb, true).has_value());
    host.end_process();
  };
  std::uint64_t calls = 0;
  {
    RunHost host(1);
    follow_next(host);
    const std::uint64_t before = host.files.calls();
    ASSERT_TRUE(host.start());
    calls = host.files.calls() - before;
  }
  ASSERT_GT(calls, 20u);
  for (std::uint64_t call = 1; call <= calls; ++call) {
    SCOPED_TRACE(testing::Message() << "call " << call);
    RunHost host(1);
    follow_next(host);
    host.files.fail_call(call, EIO);
    static_cast<void>(host.start());
    host.end_process();
    host.files.fail_no_call();
    ASSERT_TRUE(host.start()) << host.open_error->message();
    EXPECT_EQ(in_use(*host.store), RunVersion(1, Version{6}));
    expect_sound(host);
    if (HasFailure()) return;
  }
}

TEST(StoreRun, IsRecoveredFromAKillAndAPowerCutBeforeAnyChange) {
  std::uint64_t changes = 0;
  {
    RunHost host(1);
    ASSERT_TRUE(both_runs(host).has_value());
    expect_sound(host);
    changes = host.files.changes();
  }
  for (std::uint64_t change = 1; change <= changes; ++change) {
    for (std::uint64_t cut = 0; cut < 5; ++cut) {  // 0: a kill
      if (test::kUnderAddressSanitizer && change % 5 != cut) continue;
      SCOPED_TRACE(testing::Message() << "change " << change << ", cut " << cut);
      RunHost host(1 + 1000 * cut);
      host.files.kill_before_change(change);
      static_cast<void>(both_runs(host));
      host.end_process();
      cut == 0 ? host.files.restart() : host.files.power_cut();
      ASSERT_TRUE(host.start()) << host.open_error->message();
      expect_sound(host);
      ASSERT_THAT(second_run(host), Succeeds());
      EXPECT_EQ(in_use(*host.store), RunVersion(2, Version{6}));
      expect_sound(host);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace weightcast::sim
