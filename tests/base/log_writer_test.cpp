#include "base/settings/log_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "base/files/unique_fd.h"

namespace weightcast {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kLong{60'000};

struct LogWriterTest : testing::Test {
  LogWriterTest() {
    std::array<int, 2> ends{};
    EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
    reader = UniqueFd(ends[0]);
    end = UniqueFd(ends[1]);
  }
  /// Reads `bytes`.
  std::string read(std::size_t bytes) {
    std::string text(bytes, '\0');
    std::size_t got = 0;
    while (got < bytes) {
      const ssize_t more = ::read(reader.get(), text.data() + got, bytes - got);
      if (more <= 0) break;
      got += std::size_t(more);
    }
    text.resize(got);
    return text;
  }

  UniqueFd reader, end;
};

TEST_F(LogWriterTest, WritesInOrder) {
  LogWriter writer(end.get(), 1000);
  writer.write("a\n");
  writer.write("b\n");
  EXPECT_TRUE(writer.flush(kLong));
  EXPECT_EQ(read(4), "a\nb\n");
  EXPECT_EQ(writer.dropped(), 0u);
}

// As a pipe that Popen() made and nobody reads, or a terminal that stands still.
TEST_F(LogWriterTest, WaitsForNobodyAndSaysWhatItDropped) {
  ::fcntl(end.get(), F_SETPIPE_SZ, 4096);
  LogWriter writer(end.get(), 10'000);
  const std::string line = std::string(99, 'x') + '\n';
  for (int i = 0; i < 1000; ++i) writer.write(line);
  EXPECT_FALSE(writer.flush(milliseconds(1)));
  // 40 in the pipe, 100 waiting; one of them is being written.
  const std::uint64_t dropped = writer.dropped();
  EXPECT_GE(dropped, 850u);
  EXPECT_LE(dropped, 900u);
  EXPECT_EQ(read((1000 - dropped) * line.size()).find_first_not_of("x\n"), std::string::npos);
  const std::string told =
      "weightcast: " + std::to_string(dropped) + " lines of this log are missing here: nobody read it\n";
  EXPECT_EQ(read(told.size()), told);
  EXPECT_TRUE(writer.flush(kLong));
  writer.write("again\n");
  EXPECT_EQ(read(6), "again\n");
  EXPECT_EQ(writer.dropped(), dropped);
}

TEST_F(LogWriterTest, TellsOfDroppedLinesInTheirOwnForm) {
  ::fcntl(end.get(), F_SETPIPE_SZ, 4096);
  LogWriter writer(end.get(), 200);
  const LogStyle style{LogFormat::kJson, "origin"};
  writer.write(std::string(300, 'y') + '\n', &style);  // longer than all that may wait
  std::string text;
  EXPECT_TRUE(writer.flush(kLong));
  while (text.find("}\n") == std::string::npos) text += read(1);
  EXPECT_THAT(text, testing::HasSubstr(R"("component":"origin","message":"1 line of this log is missing here)"));
}

TEST_F(LogWriterTest, GoesOnWithoutAReader) {
  reader.reset();
  LogWriter writer(end.get(), 1000);
  writer.write("a\n");
  EXPECT_TRUE(writer.flush(kLong));
}

// What waits in a write does not keep the program from ending.
TEST_F(LogWriterTest, EndsWhileNobodyReads) {
  ::fcntl(end.get(), F_SETPIPE_SZ, 4096);
  LogWriter writer(end.get(), 100'000);
  for (int i = 0; i < 10; ++i) writer.write(std::string(999, 'x') + '\n');
  EXPECT_FALSE(writer.flush(milliseconds(10)));
}

}  // namespace
}  // namespace weightcast
