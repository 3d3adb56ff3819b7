#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/settings/operator_settings.h"
#include "tools/observe/operator_port.h"

namespace weightcast {

/// The port that `settings` ask for; absent if they name none. `keys`, `revocation_directories` and `warn` as in
/// OperatorPortOptions. Errors: kInvalidArgument (a token without a port); those of OperatorPort::check().
[[nodiscard]] Result<std::optional<OperatorPortOptions>> operator_options(
    const OperatorSettings& settings, const std::string& keys, std::vector<std::string> revocation_directories,
    std::function<void(const std::string&)> warn);

/// Writes where `port` listens to http_address in `directory`. Errors: those of the disk.
[[nodiscard]] Status write_http_address(const OperatorPort& port, const std::string& directory);

}  // namespace weightcast
