#include <fmt/format.h>

#include <csignal>
#include <memory>

#include "archive/archived_payloads.h"
#include "observe/daemon_view.h"
#include "observe/operator_port.h"
#include "tools/command.h"
#include "tools/configured_command.h"
#include "tools/daemon_settings.h"
#include "tools/operator_options.h"
#include "transport/io/log.h"
#include "web/fleet_page.h"

namespace weightcast {
namespace {

/// What a daemon tells over HTTP, and to whom. The port goes first.
struct DaemonHttp {
  explicit DaemonHttp(const std::string& state) : view(state, WEIGHTCAST_VERSION) {}
  DaemonView view;
  std::unique_ptr<FleetPage> page;
  std::unique_ptr<OperatorPort> port;
};

/// Listens, and writes where to DIR/http_address.
Result<std::unique_ptr<DaemonHttp>> serve_http(const OperatorPortOptions& options, const FleetPageOptions& page,
                                               const std::string& state) {
  auto http = std::make_unique<DaemonHttp>(state);
  WC_ASSIGN(http->page, FleetPage::make(page));
  WC_ASSIGN(http->port, OperatorPort::start(options, [http = http.get()](HttpRequest request, HttpResponder to) {
              if (FleetPage::has(request.path)) {
                http->page->handle(std::move(request), std::move(to));
              } else {
                http->view.handle(std::move(request), std::move(to));
              }
            }));
  WC_TRY(write_http_address(*http->port, state));
  log_info("operators look at {}", http->port->url());
  return http;
}

Status run(const DaemonSettings& settings) {
  DaemonConfig config = settings.node;
  set_up_log(settings.log_level, {settings.operators.log_format, std::string(to_string<Role>(config.role))});
  if (config.name.empty() && config.keys.empty()) config.name = config.role == Role::kOrigin ? "origin" : host_name();
  if (!config.archive.empty()) std::signal(SIGPIPE, SIG_IGN);  // libcurl may write to what its other end has closed
  WC_ASSIGN(const auto http, operator_options(settings.operators, config.keys, {config.state},
                                              [](const std::string& why) { log_warning("{}", why); }));
  if (!http) {
    if (!settings.learner) return run_daemon(std::move(config), open_archived_payloads);
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--learner: for the page that --http HOST:PORT serves");
  }
  FleetPageOptions page;
  page.learner_trust = {.keys = config.keys, .revocation_directories = {config.state}};
  page.learner = settings.learner;
  if (page.learner) WC_TRY(check_trust(page.learner_trust, *page.learner));
  std::unique_ptr<DaemonHttp> serving;
  return run_daemon(std::move(config), open_archived_payloads, [&, state = config.state]() -> Status {
    WC_ASSIGN(serving, serve_http(*http, page, state));
    return {};
  });
}

}  // namespace

void add_daemon_command(const Commands& commands) {
  add_configured_command<DaemonSettings>(
      commands.app, commands.selected,
      {"daemon", "Run a node: the origin on the trainer's host, a worker on each inference host", "docs/OPERATING.md",
       daemon_fields, make_daemon_settings, run});
}

}  // namespace weightcast
