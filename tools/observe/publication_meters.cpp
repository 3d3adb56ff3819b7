#include "tools/observe/publication_meters.h"

#include <algorithm>
#include <optional>

namespace weightcast {
namespace {

constexpr std::array<double, 14> kBounds_s = {0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000};

}  // namespace

void PublicationMeters::Times::add(double seconds) {
  ++count;
  sum_s += seconds;
  const auto bound = std::ranges::lower_bound(kBounds_s, seconds);
  if (bound != kBounds_s.end()) ++buckets[static_cast<std::size_t>(bound - kBounds_s.begin())];
}

void PublicationMeters::handle(std::span<const local::PublicationEntry> publications) {
  std::set<std::pair<std::uint64_t, std::int64_t>> remembered;
  for (const local::PublicationEntry& entry : publications) {
    const std::pair<std::uint64_t, std::int64_t> key{entry.version, entry.published_unix_ms};
    if (entry.state == "under way" || entry.published_unix_ms < began_unix_ms_) continue;
    remembered.insert(key);
    if (counted_.contains(key)) continue;
    ++ended_[entry.state];
    const auto add = [](Times& times, const std::optional<double>& seconds) {
      if (seconds) times.add(*seconds);
    };
    add(t50_, entry.t50_s), add(t90_, entry.t90_s), add(t100_, entry.t100_s);
  }
  counted_ = std::move(remembered);
}

void PublicationMeters::add_to(MetricsText& text) const {
  text.family("publications_total", MetricsText::Type::kCounter,
              "Publications that have ended since this process began, by how.");
  for (const char* state : {"complete", "superseded", "given up"}) {
    const auto found = ended_.find(state);
    text.sample({{"state", state}}, found == ended_.end() ? std::uint64_t{0} : found->second);
  }
  text.family("publication_seconds", MetricsText::Type::kHistogram,
              "T_bcast of each publication that has ended: until that fraction of the workers had installed it.");
  const auto add = [&](std::string_view fraction, const Times& times) {
    std::vector<MetricsText::Bucket> buckets;
    for (std::size_t i = 0; i < kBounds_s.size(); ++i) buckets.push_back({kBounds_s[i], times.buckets[i]});
    text.histogram({{"fraction", fraction}}, buckets, times.count, times.sum_s);
  };
  add("0.5", t50_), add("0.9", t90_), add("1", t100_);
}

}  // namespace weightcast
