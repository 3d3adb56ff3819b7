#include "transport/core/assignment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "proto/limits.h"
#include "proto/wire.pb.h"
#include "tests/result_matchers.h"

namespace weightcast {
namespace {

Assignment two_stripes() {
  Assignment assignment;
  assignment.epoch = Epoch{4};
  assignment.payload = patch_of(Version{7}, Version{6});
  assignment.stripes = {{{{PeerId{2}, "a", "host-a", 1002}, {kOriginId, "origin", "", 0}}, 1.5e6},
                        {{{kOriginId, "origin", "", 0}}, 0}};
  assignment.stripe_weights = {3, 1};
  return assignment;
}

TEST(Assignment, RoundTripsOverTheWire) {
  EXPECT_THAT(assignment_from_wire(assignment_to_wire(two_stripes())), Gives(two_stripes()));
}

TEST(Assignment, RefusesWhatIsOutOfItsLimits) {
  const std::pair<const char*, std::function<void(wire::Assignment&)>> cases[] = {
      {"no stripes", [](auto& m) { m.clear_stripes(); }},
      {"a weight too few", [](auto& m) { m.mutable_stripe_weights()->RemoveLast(); }},
      {"a weight of 0", [](auto& m) { m.set_stripe_weights(0, 0); }},
      {"a weight too great", [](auto& m) { m.set_stripe_weights(0, 1025); }},
      {"nobody above", [](auto& m) { m.mutable_stripes(1)->clear_ancestors(); }},
      {"too many above",
       [](auto& m) {
         for (std::size_t i = 0; i < kAncestorsMax; ++i) m.mutable_stripes(1)->add_ancestors();
       }},
      {"port 0", [](auto& m) { m.mutable_stripes(0)->mutable_ancestors(0)->mutable_address()->set_port(0); }},
      {"port 65536", [](auto& m) { m.mutable_stripes(0)->mutable_ancestors(0)->mutable_address()->set_port(65536); }},
      {"a long host",
       [](auto& m) {
         m.mutable_stripes(0)->mutable_ancestors(0)->mutable_address()->set_host(std::string(kNameBytesMax + 1, 'h'));
       }},
  };
  for (const auto& [what, change] : cases) {
    wire::Assignment message = assignment_to_wire(two_stripes());
    change(message);
    EXPECT_FALSE(assignment_from_wire(message).has_value()) << what;
  }
}

TEST(Assignment, RateThatIsNoneIsUnknown) {
  for (const double rate : {INFINITY, -INFINITY, NAN}) {
    wire::Assignment message = assignment_to_wire(two_stripes());
    message.mutable_stripes(0)->set_predicted_bytes_per_s(rate);
    EXPECT_EQ(assignment_from_wire(message)->stripes[0].predicted_bytes_per_s, 0) << rate;
  }
}

}  // namespace
}  // namespace weightcast
