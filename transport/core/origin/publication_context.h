#pragma once

#include <string>

#include "transport/core/action.h"
#include "transport/core/edge/holdings.h"
#include "transport/core/edge/uploads.h"
#include "transport/core/origin/history/publication_history.h"
#include "transport/core/origin/members/forecast_watch.h"
#include "transport/core/origin/members/membership.h"
#include "transport/core/origin/members/rate_probes.h"
#include "transport/core/origin/origin_config.h"
#include "transport/core/origin/relays/fault_attribution.h"
#include "transport/core/origin/settle_timer.h"

namespace weightcast {

/// What the publications of one origin share: the origin's parts, which outlive it, and what is theirs together.
struct PublicationContext {
  const OriginConfig& config;
  Membership& members;
  Holdings& holdings;  ///< changed by publications alone
  Uploads& uploads;
  ActionQueue& actions;
  RateProbes& rates;
  FaultAttribution& faults;
  SettleTimer settling{members};
  PublicationHistory history{};
  ForecastWatch forecasts{};
  Epoch epoch{};  ///< of the last plan

  [[nodiscard]] bool holds(PayloadId payload) const { return holdings.contains(payload); }
  [[nodiscard]] std::string name_of(PeerId node) const {
    const Member* member = members.find(node);
    return member != nullptr ? member->name : config.name;
  }
};

}  // namespace weightcast
