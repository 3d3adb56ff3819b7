// The main() of every test program. Under ctest it also writes how each TEST ended, while it runs: `./run` counts from
// that, so that a program that ends in the middle of a TEST is seen as such.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>

namespace {

/// One line per event: "planned N", then for each TEST "began NAME" and "passed", "failed" or "skipped NAME".
class ResultsWriter : public testing::EmptyTestEventListener {
 public:
  explicit ResultsWriter(std::FILE* out) : out_(out) {}
  ~ResultsWriter() override { std::fclose(out_); }
  ResultsWriter(const ResultsWriter&) = delete;
  ResultsWriter& operator=(const ResultsWriter&) = delete;

  void OnTestProgramStart(const testing::UnitTest& program) override {
    write("planned", std::to_string(program.test_to_run_count()));
  }
  void OnTestStart(const testing::TestInfo& test) override { write("began", name_of(test)); }
  void OnTestEnd(const testing::TestInfo& test) override {
    const testing::TestResult& result = *test.result();
    write(result.Failed() ? "failed" : result.Skipped() ? "skipped" : "passed", name_of(test));
  }

 private:
  static std::string name_of(const testing::TestInfo& test) {
    return std::string(test.test_suite_name()) + "." + test.name();
  }
  void write(const char* what, const std::string& of) {
    if (std::fprintf(out_, "%s %s\n", what, of.c_str()) < 0 || std::fflush(out_) != 0) {
      std::perror("how a test ended could not be written; it will count as failed");
    }
  }

  std::FILE* out_;
};

/// Ends the program by SIGALRM when one TEST takes longer than `limit_s`.
class TestLimit : public testing::EmptyTestEventListener {
 public:
  explicit TestLimit(unsigned limit_s) : limit_s_(limit_s) {}
  void OnTestStart(const testing::TestInfo& /*test*/) override { ::alarm(limit_s_); }
  void OnTestEnd(const testing::TestInfo& /*test*/) override { ::alarm(0); }

 private:
  unsigned limit_s_;
};

/// A death test starts its own program again: that one's results are not the program's.
bool runs_a_death_test(int argc, char** argv) {
  for (const std::string_view argument : std::span(argv, static_cast<std::size_t>(argc))) {
    if (argument.starts_with("--gtest_internal_run_death_test")) return true;
  }
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  const bool counts = !runs_a_death_test(argc, argv);
  testing::InitGoogleMock(&argc, argv);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  if (const char* path = std::getenv("WEIGHTCAST_TEST_RESULTS"); path != nullptr && counts) {
    std::FILE* out = std::fopen(path, "w");
    if (out == nullptr) {
      std::perror(path);
      return 1;
    }
    listeners.Append(new ResultsWriter(out));  // the listeners are GoogleTest's to delete
  }
  if (const char* limit_s = std::getenv("WEIGHTCAST_TEST_LIMIT_S")) {
    listeners.Append(new TestLimit(static_cast<unsigned>(std::strtoul(limit_s, nullptr, 10))));
  }
  return RUN_ALL_TESTS();
}
