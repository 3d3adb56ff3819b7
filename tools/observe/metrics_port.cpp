#include "tools/observe/metrics_port.h"

#include <string>
#include <utility>

namespace weightcast {

HttpResponse metrics_response(MetricsText& text) {
  add_process_metrics(text);
  return {.content_type = std::string(MetricsText::kContentType), .body = text.take()};
}

Result<std::unique_ptr<OperatorPort>> start_metrics_port(const OperatorPortOptions& options, HttpHandler metrics) {
  return OperatorPort::start(options, [metrics = std::move(metrics)](HttpRequest request, HttpResponder responder) {
    if (request.path == "/metrics") return metrics(std::move(request), std::move(responder));
    responder.send(http_error(404, "there is nothing at this path; /metrics is"));
  });
}

}  // namespace weightcast
