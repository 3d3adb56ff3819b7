#pragma once

#include <cstddef>

#include "base/result.h"
#include "trainer/model/config.h"
#include "worker/engine/engine.h"

namespace weightcast {

/// Whether an engine can run with these options. Errors: kInvalidArgument, which names the option.
[[nodiscard]] Status check_options(const EngineOptions& options, const ModelConfig& config);

/// Whether an engine with those options and a context of `context_max` positions can answer the request.
/// Errors: kInvalidArgument, which names what is wrong with it; kTooLarge (the prompt leaves no room for a token).
[[nodiscard]] Status check_request(const EngineRequest& request, const EngineOptions& options,
                                   const ModelConfig& config, std::size_t context_max);

}  // namespace weightcast
