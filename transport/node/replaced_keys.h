#pragma once

#include <optional>
#include <string>
#include <vector>

#include "transport/node/daemon.h"
#include "transport/security/node_keys.h"

namespace weightcast {

/// The keys in the file that `config` names, if they are others than `present`. Errors: those of read_node_keys() and
/// fit_to_keys().
[[nodiscard]] Result<std::optional<NodeKeys>> read_replaced_keys(const DaemonConfig& config, const NodeKeys& present);

/// What is another one, a line each: "certificate: 3f2a91bc until 2026-12-01 09:00 UTC -> 77e0c2d4 until 2027-11-22
/// 16:40 UTC". Pure.
[[nodiscard]] std::vector<std::string> changes_between(const NodeKeys& before, const NodeKeys& after);

}  // namespace weightcast
