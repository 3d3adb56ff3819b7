#pragma once

#include <memory>

#include "base/result.h"
#include "tools/observe/metrics_text.h"
#include "tools/observe/operator_port.h"

namespace weightcast {

/// The answer with what `text` holds, and with what it tells of any process. Takes it all.
[[nodiscard]] HttpResponse metrics_response(MetricsText& text);

/// The port for operators of a program that is no daemon: a request for /metrics goes to `metrics`, and any other is
/// answered with 404. Errors: those of OperatorPort::start().
[[nodiscard]] Result<std::unique_ptr<OperatorPort>> start_metrics_port(const OperatorPortOptions& options,
                                                                       HttpHandler metrics);

}  // namespace weightcast
