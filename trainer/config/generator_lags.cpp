#include "trainer/config/generator_lags.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/draws.h"
#include "base/settings/settings.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kLagStream = 12;
constexpr std::uint64_t kLagMax = 64;
constexpr std::size_t kLagsMax = 256;

}  // namespace

GeneratorLags::GeneratorLags(std::vector<std::uint64_t> lags)
    : lags_(std::move(lags)), least_(*std::ranges::min_element(lags_)), most_(*std::ranges::max_element(lags_)) {}

Result<GeneratorLags> GeneratorLags::parse(std::string_view text) {
  std::vector<std::uint64_t> lags;
  const auto refuse = [&] {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("generator_lag is '{}'; it is a whole number, 0 to {}, or up to {} of them, separated by "
                            "commas",
                            printable(cut_text(text, 80)), kLagMax, kLagsMax));
  };
  for (const std::string& name : split_items(text)) {
    const auto lag = parse_number<std::uint64_t>(name);
    if (!lag || *lag > kLagMax) return refuse();
    lags.push_back(*lag);
  }
  if (lags.empty() || lags.size() > kLagsMax) return refuse();
  return GeneratorLags(std::move(lags));
}

std::uint64_t GeneratorLags::of_group(std::uint64_t seed, std::uint64_t group) const {
  return lags_[drawn(seed, kLagStream, group) % lags_.size()];
}

}  // namespace weightcast
