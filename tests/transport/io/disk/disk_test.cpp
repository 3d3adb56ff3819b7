#include "transport/io/disk/disk.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>

#include "base/files/posix_file_system.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "transport/io/disk/io_run.h"
#include "transport/io/uv_loop.h"

namespace weightcast {
namespace {

FileRef some_file(const TempDir& temp, std::string_view name) {
  return *real_files().open(temp.file(name), {.write = true, .create = Create::kNew});
}

TEST(IoRun, GoesOnWhereAShortWriteEnded) {
  const TempDir temp;
  const FileRef file = some_file(temp, "one"), other = some_file(temp, "other");
  std::string a(100, 'a');
  std::string b(50, 'b');
  IoRun run(IoRun::Kind::kWrite, file, 1000);
  int called = 0;
  const auto count = [&](const Status& status) { called += status.has_value() ? 1 : 100; };
  run.add({a.data(), a.size()}, count);
  ASSERT_TRUE(run.continues(*file, 1100));
  EXPECT_FALSE(run.continues(*file, 1101));
  EXPECT_FALSE(run.continues(*other, 1100));
  run.add({b.data(), b.size()}, count);

  run.handle_result(120);
  EXPECT_FALSE(run.ended());
  EXPECT_EQ(run.offset(), 1120u);
  ASSERT_EQ(run.pieces().size(), 1u);
  EXPECT_EQ(run.pieces()[0].iov_base, b.data() + 20);
  EXPECT_EQ(run.pieces()[0].iov_len, 30u);
  run.handle_result(-EINTR);
  EXPECT_FALSE(run.ended());
  run.handle_result(30);
  ASSERT_TRUE(run.ended());
  run.run_callbacks();
  EXPECT_EQ(called, 2);
}

TEST(IoRun, TellsEveryWriterOfAFailure) {
  const TempDir temp;
  const FileRef file = some_file(temp, "one");
  std::string a(100, 'a');
  for (const auto& [result, code] : {std::pair{-ENOSPC, Errc::kNoSpace}, {-EIO, Errc::kIo}, {0, Errc::kIo}}) {
    IoRun run(IoRun::Kind::kWrite, file, 0);
    int failed = 0;
    for (int i = 0; i < 2; ++i) {
      run.add({a.data(), a.size()}, [&, want = code](const Status& s) { failed += s.error().code == want ? 1 : 0; });
    }
    run.handle_result(150);
    run.handle_result(result);
    ASSERT_TRUE(run.ended());
    run.run_callbacks();
    EXPECT_EQ(failed, 2);
  }
}

class DiskTest : public testing::TestWithParam<DiskBackend> {
 protected:
  DiskTest() {
    Result<std::unique_ptr<Disk>> opened = Disk::open(loop_, GetParam());
    if (opened.has_value()) disk_ = std::move(*opened);
  }
  void SetUp() override {
    if (!disk_) GTEST_SKIP() << "this kernel refuses io_uring";
  }

  Disk::Done into(std::optional<Status>& result) {
    return [&result](Status status) { result = std::move(status); };
  }
  Status await(const std::optional<Status>& result) {
    const Instant limit = loop_.now() + std::chrono::seconds(20);
    while (!result && loop_.now() < limit) loop_.run_until(loop_.now() + std::chrono::milliseconds(20));
    return result.value();
  }

  TempDir temp_;
  UvLoop loop_;
  std::unique_ptr<Disk> disk_;
  FileRef file_ = some_file(temp_, "file");
};

TEST_P(DiskTest, ReadsWhatItWroteAtAnyOffset) {
  std::string out(300'000, 0);
  std::iota(out.begin(), out.end(), 0);
  std::optional<Status> wrote, read, synced;
  disk_->write(file_, 123, std::as_bytes(std::span(out)), into(wrote));
  EXPECT_FALSE(wrote);
  ASSERT_TRUE(await(wrote).has_value());
  std::string in(out.size(), 'x');
  disk_->read(file_, 123, std::as_writable_bytes(std::span(in)), into(read));
  ASSERT_TRUE(await(read).has_value());
  EXPECT_TRUE(in == out);
  disk_->sync(file_, into(synced));
  EXPECT_TRUE(await(synced).has_value());
}

TEST_P(DiskTest, CallsBackOnceForEachOfManyWrites) {
  constexpr std::size_t kCount = 2000;
  const std::string block(4096, 'b');
  std::size_t called = 0;
  std::optional<Status> last;
  for (std::size_t i = 0; i < kCount; ++i) {
    // Every second place first, so that some runs join and some do not.
    const std::size_t place = i < kCount / 2 ? 2 * i : 2 * (i - kCount / 2) + 1;
    disk_->write(file_, place * block.size(), std::as_bytes(std::span(block)), [&](const Status& status) {
      EXPECT_TRUE(status.has_value());
      if (++called == kCount) last = status;
    });
  }
  ASSERT_TRUE(await(last).has_value());
  EXPECT_EQ(called, kCount);
  EXPECT_EQ(std::filesystem::file_size(std::filesystem::path(temp_.path()) / "file"), kCount * block.size());
}

TEST_P(DiskTest, NothingToMoveCallsBackLater) {
  std::optional<Status> wrote;
  disk_->write(file_, 0, {}, into(wrote));
  EXPECT_FALSE(wrote);
  EXPECT_TRUE(await(wrote).has_value());
}

TEST_P(DiskTest, SaysWhatWentWrong) {
  std::string in(10, 'x');
  std::optional<Status> past_end, read_only, full;
  disk_->read(file_, 0, std::as_writable_bytes(std::span(in)), into(past_end));
  EXPECT_EQ(await(past_end).error().code, Errc::kCorrupt);
  disk_->write(FileRef(*real_files().open(temp_.file("file"), {})), 0, std::as_bytes(std::span(in)), into(read_only));
  EXPECT_EQ(await(read_only).error().code, Errc::kIo);
  // A device, which the file system would not open.
  const FileRef no_space(adopt_file(::open("/dev/full", O_RDWR | O_CLOEXEC), "/dev/full"));
  disk_->write(no_space, 0, std::as_bytes(std::span(in)), into(full));
  EXPECT_EQ(await(full).error().code, Errc::kNoSpace);
}

TEST_P(DiskTest, EndsWhatIsUnderWayWhenDestroyed) {
  const std::string block(1 << 20, 'b');
  bool called = false;
  for (std::size_t i = 0; i < 8; ++i) {
    disk_->write(file_, i * block.size(), std::as_bytes(std::span(block)), [&](const Status&) { called = true; });
  }
  disk_.reset();
  loop_.run_until(loop_.now() + std::chrono::milliseconds(20));
  EXPECT_FALSE(called);
}

INSTANTIATE_TEST_SUITE_P(, DiskTest, testing::Values(DiskBackend::kIoUring, DiskBackend::kThreadPool),
                         [](const auto& backend) {
                           return backend.param == DiskBackend::kIoUring ? "IoUring" : "ThreadPool";
                         });

}  // namespace
}  // namespace weightcast
