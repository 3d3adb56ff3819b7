#include "observe/metrics_text.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>

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

void add_process_metrics(MetricsText& text) {
  using enum MetricsText::Type;
  timespec used{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  text.add("process_cpu_seconds_total", kCounter, "Processor time that this process has used.",
           double(used.tv_sec) + double(used.tv_nsec) / 1e9);
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
