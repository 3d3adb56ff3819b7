#include "tools/observe/metrics_text.h"

#include <gmock/gmock.h>

#include <array>
#include <limits>

namespace weightcast {
namespace {

using enum MetricsText::Type;
using testing::HasSubstr;

TEST(MetricsText, WritesAFamilyAndItsSamples) {
  MetricsText text;
  text.family("bytes_total", kCounter, "Bytes.");
  text.sample({{"direction", "sent"}, {"kind", "full"}}, std::uint64_t{18'000'000'000'000'000'000u});
  text.sample({}, 0.25);
  EXPECT_EQ(text.take(),
            "# HELP weightcast_bytes_total Bytes.\n"
            "# TYPE weightcast_bytes_total counter\n"
            "weightcast_bytes_total{direction=\"sent\",kind=\"full\"} 18000000000000000000\n"
            "weightcast_bytes_total 0.25\n");
  EXPECT_EQ(text.take(), "");
}

TEST(MetricsText, EscapesWhatComesFromOutside) {
  MetricsText text;
  text.family("x", kGauge, "a \\ and\na line");
  text.sample({{"reason", "a \"b\" \\ c\nweightcast_x 1"}}, 1.0);
  EXPECT_EQ(text.take(),
            "# HELP weightcast_x a \\\\ and\\na line\n"
            "# TYPE weightcast_x gauge\n"
            "weightcast_x{reason=\"a \\\"b\\\" \\\\ c\\nweightcast_x 1\"} 1\n");
}

TEST(MetricsText, CountsBucketsFromTheLeastOn) {
  MetricsText text;
  text.family("phase_seconds", kHistogram, "Time.");
  const std::array buckets = {MetricsText::Bucket{0.1, 2}, MetricsText::Bucket{1, 0}, MetricsText::Bucket{10, 3}};
  text.histogram({{"phase", "take"}}, buckets, 6, 40.5);
  EXPECT_THAT(text.take(), testing::EndsWith("weightcast_phase_seconds_bucket{phase=\"take\",le=\"0.1\"} 2\n"
                                             "weightcast_phase_seconds_bucket{phase=\"take\",le=\"1\"} 2\n"
                                             "weightcast_phase_seconds_bucket{phase=\"take\",le=\"10\"} 5\n"
                                             "weightcast_phase_seconds_bucket{phase=\"take\",le=\"+Inf\"} 6\n"
                                             "weightcast_phase_seconds_sum{phase=\"take\"} 40.5\n"
                                             "weightcast_phase_seconds_count{phase=\"take\"} 6\n"));
}

TEST(MetricsText, WritesNumbersThatAreNone) {
  MetricsText text;
  text.add("a", kGauge, "A.", std::numeric_limits<double>::infinity());
  text.add("b", kGauge, "B.", std::numeric_limits<double>::quiet_NaN());
  const std::string all = text.take();
  EXPECT_THAT(all, HasSubstr("weightcast_a +Inf\n"));
  EXPECT_THAT(all, HasSubstr("weightcast_b NaN\n"));
}

TEST(MetricsText, TellsOfTheProcess) {
  MetricsText text;
  add_process_metrics(text);
  const std::string all = text.take();
  for (const char* name :
       {"process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds", "process_max_fds"}) {
    EXPECT_THAT(all, HasSubstr(std::string("\n") + name + " ")) << "under the name that all programs use";
  }
}

}  // namespace
}  // namespace weightcast
