#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"

namespace weightcast {

/// What `weightcast-train check loss` does: the loss of policy_loss() in double. `input` is an object of the keys that
/// loss_check_help() lists; matrices are lists of rows, null is NaN, and what is absent is off. The result has loss,
/// per_token, grad_log_probs and metrics, with null for what is not finite.
/// Errors: kInvalidArgument: an unknown key with the nearest one, a value of the wrong type or shape, and those of
/// policy_loss(); kUnsupported: pg_variant dpo.
[[nodiscard]] Result<nlohmann::json> check_loss(const nlohmann::json& input);

/// Every pg_variant with the keys that it reads, for --help.
[[nodiscard]] std::string loss_check_help();

}  // namespace weightcast
