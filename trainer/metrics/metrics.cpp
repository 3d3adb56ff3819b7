#include "trainer/metrics/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json_text.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kFileBytesMax = std::uint64_t{4} << 30;

}  // namespace

void set_summary(Metrics& metrics, const std::string& name, std::span<const double> values) {
  if (values.empty()) return;
  metrics[name + "/mean"] = std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  metrics[name + "/max"] = *std::max_element(values.begin(), values.end());
  metrics[name + "/min"] = *std::min_element(values.begin(), values.end());
}

double quantile_of(std::vector<double> values, double quantile) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const auto rank = static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(values.size())));
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::clamp<std::size_t>(rank, 1, values.size()) - 1);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

Result<MetricsFile> MetricsFile::open(FileSystem& files, const std::filesystem::path& path, std::uint64_t bytes_kept) {
  WC_ASSIGN(auto file, files.open(path, {.write = true, .create = Create::kIfMissing}));
  WC_ASSIGN(const FileInfo info, file->info());
  std::uint64_t size = std::min(bytes_kept, info.size_bytes);
  if (size > 0) {
    WC_ASSIGN(const std::string text, read_file(files, path, kFileBytesMax));
    size = text.substr(0, size).rfind('\n') + 1;  // npos + 1 is 0: no whole line
  }
  WC_TRY(file->truncate(size));
  return MetricsFile(std::move(file), size);
}

Status MetricsFile::append(const Metrics& metrics) {
  nlohmann::json json = nlohmann::json::object();
  for (const auto& [name, value] : metrics) json[name] = std::isfinite(value) ? nlohmann::json(value) : nullptr;
  const std::string line = json_text(json) + "\n";
  WC_TRY(write_fully(*file_, size_, std::as_bytes(std::span(line)), "metrics.jsonl"));
  size_ += line.size();
  return {};
}

Result<std::vector<Metrics>> read_metrics(FileSystem& files, const std::filesystem::path& path) {
  WC_ASSIGN(const std::string text, read_file(files, path, kFileBytesMax));
  std::vector<Metrics> steps;
  std::size_t begin = 0;
  for (std::size_t end = text.find('\n'); end != std::string::npos; begin = end + 1, end = text.find('\n', begin)) {
    const auto json = nlohmann::json::parse(text.begin() + static_cast<std::ptrdiff_t>(begin),
                                            text.begin() + static_cast<std::ptrdiff_t>(end), nullptr, false);
    if (!json.is_object()) {
      return fail(Errc::kCorrupt, Op::kParse,
                  fmt::format("{}: line {} is no JSON object", path.string(), steps.size() + 1));
    }
    Metrics& metrics = steps.emplace_back();
    for (const auto& [name, value] : json.items()) {
      metrics[name] = value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN();
    }
  }
  return steps;
}

}  // namespace weightcast
