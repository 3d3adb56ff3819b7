#include "tools/web/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/text.h"

namespace weightcast {
namespace {

constexpr double kRateMin_bps = 1e4, kRateMax_bps = 1e12;
constexpr double kDelayMax_ms = 60'000;
constexpr std::uint64_t kPayloadBytesMax = std::uint64_t{16} << 40;

template <typename Number>
Result<Number> number_of(const HttpRequest& request, std::string_view name, Number least, Number most,
                         std::optional<Number> otherwise = std::nullopt) {
  const std::optional<std::string> text = request.query_value(name);
  if (!text && otherwise) return *otherwise;
  const auto number = text ? parse_number<Number>(*text) : std::nullopt;
  // A NaN is not within.
  if (number && *number >= least && *number <= most) return *number;
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{} is {}; it has to be a {} from {} to {}", name,
                          text ? fmt::format("'{}'", printable(text->substr(0, 40))) : "missing",
                          std::is_integral_v<Number> ? "whole number" : "number", least, most));
}

Plan plan_of(const WhatIf& question, std::uint32_t workers, Topology topology) {
  PlanRequest request;
  for (std::uint32_t id = 1; id <= workers; ++id) {
    request.members.push_back({.id = PeerId{id}, .uplink = question.peer_uplink, .downlink = question.peer});
  }
  request.origin_uplink = question.uplink;
  request.payload_bytes = question.payload_bytes;
  request.topology = topology;
  request.hop_delay = question.delay;
  return make_plan(request);
}

/// What of the payload the origin sends, in payloads.
double copies_of(const Plan& plan) {
  double weights = 0, sent = 0;
  for (const StripePlan& stripe : plan.stripes) {
    weights += stripe.weight;
    sent += stripe.weight * double(std::ranges::count(stripe.parents, kOriginId));
  }
  return weights > 0 ? sent / weights : 0;
}

/// Hops from the origin to the furthest member, of the deepest stripe. Member i has the id i + 1.
std::uint32_t depth_of(const Plan& plan) {
  std::uint32_t deepest = 0;
  for (const StripePlan& stripe : plan.stripes) {
    std::vector<std::uint32_t> depth(stripe.parents.size(), 0);  // 0: not known yet
    std::vector<std::size_t> way;                                // up to a member whose depth is known, or a seed
    for (std::size_t member = 0; member < depth.size(); ++member) {
      std::uint32_t hops = 0;
      way.clear();
      for (std::size_t at = member;; at = stripe.parents[at].value - 1) {
        hops = depth[at];
        if (hops > 0) break;
        way.push_back(at);
        if (stripe.parents[at] == kOriginId) break;
      }
      for (auto one = way.rbegin(); one != way.rend(); ++one) depth[*one] = ++hops;
      deepest = std::max(deepest, depth[member]);
    }
  }
  return deepest;
}

}  // namespace

Result<WhatIf> parse_what_if(const HttpRequest& request) {
  WhatIf question;
  WC_ASSIGN(question.workers, number_of<std::uint32_t>(request, "workers", 1, WhatIf::kWorkersMax));
  WC_ASSIGN(question.payload_bytes, number_of<std::uint64_t>(request, "size_bytes", 1, kPayloadBytesMax));
  WC_ASSIGN(const double uplink, number_of<double>(request, "uplink_bps", kRateMin_bps, kRateMax_bps));
  WC_ASSIGN(const double peer, number_of<double>(request, "peer_bps", kRateMin_bps, kRateMax_bps));
  WC_ASSIGN(const double peer_uplink, number_of<double>(request, "peer_uplink_bps", kRateMin_bps, kRateMax_bps, peer));
  WC_ASSIGN(const double delay_ms, number_of<double>(request, "delay_ms", 0, kDelayMax_ms, 0.5));
  question.uplink = Rate::bits(uplink);
  question.peer = Rate::bits(peer);
  question.peer_uplink = Rate::bits(peer_uplink);
  question.delay = from_seconds(delay_ms / 1e3);
  const std::string sweep = request.query_value("sweep").value_or("");
  for (std::string_view left = sweep; !left.empty();) {
    const std::size_t end = std::min(left.find(','), left.size());
    const auto workers = parse_number<std::uint32_t>(left.substr(0, end));
    if (!workers || *workers < 1 || *workers > WhatIf::kWorkersMax || question.sweep.size() == WhatIf::kSweepMax) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("sweep has to be at most {} numbers from 1 to {} with commas between them",
                              WhatIf::kSweepMax, WhatIf::kWorkersMax));
    }
    question.sweep.push_back(*workers);
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  std::uint64_t all = question.workers;
  for (const std::uint32_t workers : question.sweep) all += workers;
  if (all > WhatIf::kWorkersInAllMax) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("workers and sweep come to {} workers together; at most {}: ask for fewer numbers at once",
                            all, WhatIf::kWorkersInAllMax));
  }
  return question;
}

nlohmann::json what_if_json(const WhatIf& question) {
  using Json = nlohmann::json;
  const auto sent = [&](const Plan& plan) { return std::llround(copies_of(plan) * double(question.payload_bytes)); };
  Json cases = Json::array(), sweep = Json::array();
  for (const Topology topology : {Topology::kStar, Topology::kChain, Topology::kTree, Topology::kStriped}) {
    const Plan plan = plan_of(question, question.workers, topology);
    cases.push_back({{"topology", std::string(to_string(plan.topology))},
                     {"t50_s", to_seconds(plan.predicted(0.5))},
                     {"t90_s", to_seconds(plan.predicted(0.9))},
                     {"t100_s", to_seconds(plan.predicted_t100)},
                     {"bound_s", to_seconds(plan.bound)},
                     {"chunk_bytes", plan.chunk_bytes},
                     {"origin_egress_bytes", sent(plan)},
                     {"depth", depth_of(plan)}});
  }
  for (const std::uint32_t workers : question.sweep) {
    const Plan best = plan_of(question, workers, Topology::kAuto);
    sweep.push_back({{"workers", workers},
                     {"topology", std::string(to_string(best.topology))},
                     {"t100_s", to_seconds(best.predicted_t100)},
                     {"origin_egress_bytes", sent(best)},
                     {"star_s", to_seconds(plan_of(question, workers, Topology::kStar).predicted_t100)}});
  }
  return {{"payload_bytes", question.payload_bytes},
          {"workers", question.workers},
          {"cases", std::move(cases)},
          {"sweep", std::move(sweep)}};
}

}  // namespace weightcast
