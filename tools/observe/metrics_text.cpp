#include "tools/observe/metrics_text.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "base/settings/log_writer.h"

namespace weightcast {
namespace {

std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || (quotes && c == '"')) out += '\\';
    c == '\n' ? out += "\\n" : out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

}  // namespace

void MetricsText::family(std::string_view name, Type type, std::string_view help) {
  name_ = fmt::format("{}{}", name.starts_with("process_") ? "" : "weightcast_", name);
  text_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name_, escaped(help, false), to_string(type));
}

void MetricsText::line(std::string_view suffix, Labels labels, std::string_view more, std::string_view value) {
  text_ += name_;
  text_ += suffix;
  std::string inside;
  for (const auto& [name, of] : labels) {
    inside += fmt::format("{}{}=\"{}\"", inside.empty() ? "" : ",", name, escaped(of, true));
  }
  if (!more.empty()) inside += fmt::format("{}{}", inside.empty() ? "" : ",", more);
  if (!inside.empty()) text_ += fmt::format("{{{}}}", inside);
  text_ += fmt::format(" {}\n", value);
}

void MetricsText::sample(Labels labels, double value) { line("", labels, "", number(value)); }
void MetricsText::sample(Labels labels, std::uint64_t value) { line("", labels, "", fmt::format("{}", value)); }

void MetricsText::histogram(Labels labels, std::span<const Bucket> buckets, std::uint64_t count, double sum) {
  std::uint64_t so_far = 0;
  for (const Bucket& bucket : buckets) {
    so_far += bucket.count;
    line("_bucket", labels, fmt::format("le=\"{}\"", number(bucket.at_most)), fmt::format("{}", so_far));
  }
  line("_bucket", labels, "le=\"+Inf\"", fmt::format("{}", count));
  line("_sum", labels, "", number(sum));
  line("_count", labels, "", fmt::format("{}", count));
}

void add_build_info(MetricsText& text, std::string_view release, std::string_view role) {
  text.family("build_info", MetricsText::Type::kGauge, "1, with this program's release and what it runs as.");
  text.sample({{"version", release}, {"role", role}}, std::uint64_t{1});
}

namespace {

/// By the kernel, in seconds since 1970; 0 if it does not say.
double process_start_s() {
  std::ifstream stat("/proc/self/stat");
  std::string line;
  std::getline(stat, line);
  // The second field, the program's name, may have anything in it but is in brackets. The time is the 22nd.
  std::istringstream fields(line.substr(std::min(line.rfind(')') + 1, line.size())));
  std::string skipped;
  for (int i = 3; i < 22; ++i) fields >> skipped;
  double ticks = 0;
  if (!(fields >> ticks)) return 0;
  timespec up{}, now{};
  ::clock_gettime(CLOCK_BOOTTIME, &up);
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto seconds = [](const timespec& time) { return double(time.tv_sec) + double(time.tv_nsec) / 1e9; };
  return seconds(now) - seconds(up) + ticks / double(::sysconf(_SC_CLK_TCK));
}

}  // namespace

void add_process_metrics(MetricsText& text) {
  using enum MetricsText::Type;
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  text.add("process_cpu_seconds_total", kCounter, "Processor time that this process has used.",
           double(used.tv_sec) + double(used.tv_nsec) / 1e9);
  static const double started_s = process_start_s();
  if (started_s > 0) {
    text.add("process_start_time_seconds", kGauge, "When this process began, in seconds since 1970.", started_s);
  }
  std::uint64_t pages = 0, resident = 0;
  if (std::ifstream statm("/proc/self/statm"); statm >> pages >> resident) {
    text.add("process_resident_memory_bytes", kGauge, "Memory that this process has, what it maps included.",
             resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
  }
  std::error_code error;
  std::uint64_t descriptors = 0;
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end; at.increment(error)) {
    ++descriptors;
  }
  if (descriptors > 0) text.add("process_open_fds", kGauge, "Open descriptors.", descriptors - 1);  // but for this one
  text.add("log_lines_dropped_total", kCounter, "Lines of this program's log that nobody read in time.",
           log_lines_dropped());
  if (rlimit limit{}; ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text.add("process_max_fds", kGauge, "Descriptors that this process may open.", std::uint64_t{limit.rlim_cur});
  }
}

}  // namespace weightcast
