#pragma once

#include <memory>
#include <string>

#include "tests/transport/security/cluster_keys.h"
#include "transport/security/tls.h"

namespace weightcast {

/// One cluster for all tests of a program.
inline const ClusterKeys& test_cluster() {
  static const ClusterKeys cluster;
  return cluster;
}

/// What the connections of that cluster's node share: "origin" or a worker's name.
inline std::shared_ptr<TlsContext> tls_of(const std::string& name) {
  const ClusterKeys& cluster = test_cluster();
  if (name == "origin") return TlsContext::make(cluster.origin());
  return TlsContext::make(cluster.read(cluster.issue(name, 365, cluster.has(name))));
}

}  // namespace weightcast
