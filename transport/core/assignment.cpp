#include "transport/core/assignment.h"

#include <cmath>

#include "proto/limits.h"
#include "proto/wire.pb.h"
#include "transport/core/edge/links.h"
#include "transport/core/manifest/payload_wire.h"
#include "transport/core/plan/stripes.h"

namespace weightcast {
namespace {

Error bad(const std::string& what) { return fail(Errc::kCorrupt, Op::kPlan, "assignment: " + what); }

Result<StripeSource> source_from(const wire::StripeSource& message) {
  if (message.ancestors().empty() || std::size_t(message.ancestors_size()) > kAncestorsMax) {
    return bad("number of ancestors");
  }
  StripeSource source;
  for (const wire::NodeAddress& ancestor : message.ancestors()) {
    const PeerId id{ancestor.peer_id()};
    const std::uint32_t port = ancestor.address().port();
    if (id != kOriginId && !is_port(port)) return bad("a port outside of 1 to 65535");
    if (ancestor.name().size() > kNameBytesMax || ancestor.address().host().size() > kNameBytesMax) {
      return bad("a name that is too long");
    }
    source.ancestors.push_back({id, ancestor.name(), ancestor.address().host(), static_cast<std::uint16_t>(port)});
  }
  const double predicted = message.predicted_bytes_per_s();
  source.predicted_bytes_per_s = std::isfinite(predicted) ? predicted : 0;
  return source;
}

}  // namespace

Result<Assignment> assignment_from_wire(const wire::Assignment& message) {
  Assignment assignment;
  assignment.epoch = Epoch{message.epoch()};
  assignment.payload = payload_of(message);
  assignment.stripe_weights.assign(message.stripe_weights().begin(), message.stripe_weights().end());
  if (assignment.stripe_weights.empty()) assignment.stripe_weights.push_back(1);
  const bool weights_ok = assignment.stripe_weights.size() == std::size_t(message.stripes_size()) &&
                          are_stripe_weights(assignment.stripe_weights);
  if (!weights_ok) return bad("stripes out of their limits");
  for (const wire::StripeSource& stripe : message.stripes()) {
    WC_ASSIGN(StripeSource source, source_from(stripe));
    assignment.stripes.push_back(std::move(source));
  }
  return assignment;
}

wire::Assignment assignment_to_wire(const Assignment& assignment) {
  wire::Assignment message;
  message.set_epoch(assignment.epoch.value);
  set_payload(message, assignment.payload);
  for (const StripeSource& source : assignment.stripes) {
    wire::StripeSource* stripe = message.add_stripes();
    stripe->set_predicted_bytes_per_s(source.predicted_bytes_per_s);
    for (const NodeAddress& ancestor : source.ancestors) {
      wire::NodeAddress* address = stripe->add_ancestors();
      address->set_peer_id(ancestor.id.value);
      address->set_name(ancestor.name);
      address->mutable_address()->set_host(ancestor.host);
      address->mutable_address()->set_port(ancestor.port);
    }
  }
  message.mutable_stripe_weights()->Assign(assignment.stripe_weights.begin(), assignment.stripe_weights.end());
  return message;
}

}  // namespace weightcast
