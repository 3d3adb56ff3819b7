#pragma once

#include "transport/core/manifest/manifest.h"
#include "transport/core/manifest/payload_wire.h"
#include "transport/core/worker/worker_config.h"

namespace weightcast {

/// Of worker "w", which dials its origin at "origin", port 1.
inline WorkerConfig worker_config() {
  WorkerConfig config;
  config.name = "w";
  config.origin_host = "origin";
  config.origin_port = 1;
  config.listen_port = 2;
  return config;
}

/// The first message of a worker.
inline wire::Message join_message(const std::string& name, std::uint64_t incarnation = 1, bool leaf_only = false) {
  wire::Message message;
  message.mutable_join()->set_protocol(kProtocolVersion);
  message.mutable_join()->set_name(name);
  message.mutable_join()->set_incarnation(incarnation);
  message.mutable_join()->set_leaf_only(leaf_only);
  return message;
}

/// The first message of a child.
inline wire::Message hello_message(const std::string& name, std::uint32_t peer_id = 7) {
  wire::Message message;
  message.mutable_hello()->set_protocol(kProtocolVersion);
  message.mutable_hello()->set_name(name);
  message.mutable_hello()->set_peer_id(peer_id);
  return message;
}

/// Announces what comes from the origin; or, where `parent_host` is given, from "p" there and, behind it, the origin.
inline wire::Message announce_message(const Manifest& manifest, std::uint64_t epoch,
                                      const std::string& parent_host = "") {
  wire::Message message;
  *message.mutable_announce()->mutable_manifest() = manifest_to_wire(manifest);
  wire::Assignment* assignment = message.mutable_announce()->mutable_assignment();
  assignment->set_epoch(epoch);
  set_payload(*assignment, manifest.id());
  wire::StripeSource* stripe = assignment->add_stripes();
  if (!parent_host.empty()) {
    wire::NodeAddress* parent = stripe->add_ancestors();
    parent->set_peer_id(9);
    parent->set_name("p");
    parent->mutable_address()->set_host(parent_host);
    parent->mutable_address()->set_port(700);
  }
  stripe->add_ancestors()->set_peer_id(0);
  assignment->add_stripe_weights(1);
  return message;
}

}  // namespace weightcast
