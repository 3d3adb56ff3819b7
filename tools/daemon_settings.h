#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/settings/endpoint.h"
#include "base/settings/operator_settings.h"
#include "base/settings/settings.h"
#include "transport/core/words.h"
#include "transport/node/daemon.h"

namespace weightcast {

/// What `weightcast daemon` is told: of its node, and of what only its command knows.
struct DaemonSettings {
  std::optional<Role> role;  ///< has to be set; make_daemon_settings() tells the node
  DaemonConfig node;
  std::optional<Endpoint> learner;
  std::string otlp_endpoint;  ///< empty: none
  std::string log_level = "info";
  OperatorSettings operators;
  std::vector<std::string> of_other_role;  ///< what was set, and means nothing to this node
};

/// The one description of the daemon's settings (docs/SETTINGS.md).
[[nodiscard]] std::vector<SettingField> daemon_fields(DaemonSettings& settings);

/// What `settings` make; a later one wins. The state directory is at first WEIGHTCAST_STATE of the environment.
/// Errors: kInvalidArgument, which names the setting, its value and its range, or the nearest one.
[[nodiscard]] Result<DaemonSettings> make_daemon_settings(std::span<const Setting> settings);

}  // namespace weightcast
