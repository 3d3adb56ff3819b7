#include "transport/core/origin/members/link_estimate.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace weightcast {
namespace {

TEST(LinkEstimate, IsMeasuredByProbesAndRaisedByTransfers) {
  LinkEstimate link;
  link.handle_reached(Rate{50});
  EXPECT_FALSE(link.known()) << "a transfer is as slow as its slowest link, which may be another";
  link.handle_measured(Rate{100});
  link.handle_reached(Rate{50});
  EXPECT_EQ(link.rate(), Rate{100});
  link.handle_reached(Rate{150});
  EXPECT_EQ(link.rate(), Rate{150});
  link.handle_measured(Rate{20});
  EXPECT_EQ(link.rate(), Rate{20});
}

TEST(LinkEstimate, IgnoresWhatIsNoRate) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  LinkEstimate link(Rate{100});
  for (const double wrong : {0.0, -1.0, kInfinity, std::numeric_limits<double>::quiet_NaN(), 1e300}) {
    link.handle_measured(Rate{wrong});
    link.handle_reached(Rate{wrong});
    EXPECT_FALSE(LinkEstimate(Rate{wrong}).known());
  }
  EXPECT_EQ(link.rate(), Rate{100});
}

TEST(LinkEstimate, IsCappedByWhatIsConfigured) {
  LinkEstimate link;
  EXPECT_EQ(planned_rate(Rate{100}, link), Rate{100});
  EXPECT_FALSE(planned_rate(Rate{}, link).limited());
  link.handle_measured(Rate{1000});
  EXPECT_EQ(planned_rate(Rate{100}, link), Rate{100});
  EXPECT_EQ(planned_rate(Rate{}, link), Rate{1000});
  // The noise of measuring does not replace what somebody said.
  link.handle_measured(Rate{80});
  EXPECT_EQ(planned_rate(Rate{100}, link), Rate{100});
  link.handle_measured(Rate{20});
  EXPECT_EQ(planned_rate(Rate{100}, link), Rate{20});
}

TEST(LinkEstimate, AlikeRatesAreEvenedOut) {
  std::vector<Rate> rates{{100}, {20}, {91}, {95}, {}, {21}, {50}};
  std::vector<Rate*> all;
  for (Rate& rate : rates) all.push_back(&rate);
  even_out(all);
  EXPECT_EQ(rates, (std::vector<Rate>{{95}, {20}, {95}, {95}, {}, {20}, {50}}));
}

}  // namespace
}  // namespace weightcast
