#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/process.h"
#include "tools/command.h"
#include "tools/daemon_settings.h"
#include "tools/observe/daemon_view.h"
#include "tools/observe/operator_port.h"
#include "tools/observe/otlp_exporter.h"
#include "tools/shell/configured_command.h"
#include "tools/shell/operator_options.h"
#include "tools/web/fleet_page.h"
#include "transport/archive/archived_payloads.h"
#include "transport/io/log.h"

namespace weightcast {
namespace {

/// What a daemon tells over HTTP, and to whom. The port goes first.
struct DaemonHttp {
  DaemonHttp(const std::string& state, const OtlpExporter* exporter) : view(state, WEIGHTCAST_VERSION, exporter) {}
  DaemonView view;
  std::unique_ptr<FleetPage> page;
  std::unique_ptr<OperatorPort> port;
};

/// Listens, and writes where to DIR/http_address. `exporter`: null, or one that outlives it.
Result<std::unique_ptr<DaemonHttp>> serve_http(const OperatorPortOptions& options, const FleetPageOptions& page,
                                               const std::string& state, const OtlpExporter* exporter) {
  auto http = std::make_unique<DaemonHttp>(state, exporter);
  WC_ASSIGN(http->page, FleetPage::make(page));
  WC_ASSIGN(http->port, OperatorPort::start(options, [http = http.get()](HttpRequest request, HttpResponder to) {
              if (FleetPage::has(request.path)) {
                http->page->handle(std::move(request), std::move(to));
              } else {
                http->view.handle(std::move(request), std::move(to));
              }
            }));
  // The log says it, too: a full disk does not keep a node from starting.
  const Status written = write_http_address(*http->port, state);
  if (!written.has_value() && written.error().code != Errc::kNoSpace) return written.error();
  if (!written.has_value()) log_warning("{}", written.error().message());
  log_info("operators look at {}", http->port->url());
  return http;
}

DaemonConfig node_of(const DaemonSettings& settings) {
  DaemonConfig config = settings.node;
  if (config.name.empty() && config.keys.empty()) config.name = config.role == Role::kOrigin ? "origin" : host_name();
  return config;
}

/// What may change while a daemon runs.
constexpr std::array<std::string_view, 7> kReloaded = {
    "uplink", "downlink", "snapshot-max", "allow-address", "version-age-max", "archive-rate", "archive-below"};

/// What `read` has in place of `settings`, which it becomes once the daemon has taken it.
Result<ReadAgain> changes_of(DaemonSettings& settings, DaemonSettings read) {
  ReadAgain again;
  std::string fixed;
  const std::vector<SettingField> before = daemon_fields(settings), after = daemon_fields(read);
  for (std::size_t i = 0; i < before.size(); ++i) {
    const std::string from = before[i].value(), to = after[i].value();
    if (from == to) continue;
    const auto text = [](const std::string& value) { return value.empty() ? std::string("not given") : value; };
    std::string change = fmt::format("{}: {} -> {}", before[i].name(), text(from), text(to));
    if (std::ranges::find(kReloaded, before[i].name()) == kReloaded.end()) {
      fixed += fmt::format("{}{}", fixed.empty() ? "" : "; ", change);
    } else {
      again.changes.push_back(std::move(change));
    }
  }
  if (!fixed.empty()) {
    return fail(Errc::kNotAllowed, Op::kConfigure,
                fmt::format("{}: this changes with a restart alone; take it back, or restart the daemon", fixed));
  }
  again.config = node_of(read);
  again.taken = [&settings, read = std::move(read)] { settings = read; };
  return again;
}

/// The collector that the settings name; null if they name none.
Result<std::unique_ptr<OtlpCollector>> collector_of(const DaemonSettings& settings) {
  if (settings.otlp_endpoint.empty()) return std::unique_ptr<OtlpCollector>();
  if (settings.role != Role::kOrigin) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--otlp-endpoint: for the origin, which knows publications");
  }
  auto collector = OtlpCollector::make(settings.otlp_endpoint, WEIGHTCAST_VERSION);
  if (!collector.has_value()) return about("--otlp-endpoint", collector.error());
  return collector;
}

Status run(const DaemonSettings& given, const ReadSettingsAgain<DaemonSettings>& read_settings) {
  DaemonSettings settings = given;  // what counts
  DaemonConfig config = node_of(settings);
  set_up_log(settings.log_level, {settings.operators.log_format, std::string(to_string<Role>(config.role))});
  watch_signals(AtHangup::kReloads, [](const std::string& line) { log_warning("{}", line); });
  for (const std::string& name : settings.of_other_role) {
    const bool is_origin = config.role == Role::kOrigin;
    log_warning("--{}: it is for {}, and means nothing to this {}; leave it out", name,
                is_origin ? "workers" : "the origin", is_origin ? "origin" : "worker");
  }
  WC_ASSIGN(std::unique_ptr<OtlpCollector> collector, collector_of(settings));
  WC_ASSIGN(const auto http, operator_options(settings.operators, config.keys, {config.state},
                                              [](const std::string& why) { log_warning("{}", why); }));
  if (!http && settings.learner) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--learner: for the page that --http HOST:PORT serves");
  }
  FleetPageOptions page;
  page.learner_trust = {.keys = config.keys, .revocation_directories = {config.state}};
  page.learner = settings.learner;
  if (page.learner) WC_TRY(check_trust(page.learner_trust, *page.learner));
  std::unique_ptr<OtlpExporter> exporter;
  std::unique_ptr<DaemonHttp> serving;
  const auto when_open = [&, state = config.state]() -> Status {
    if (collector) {
      exporter = std::make_unique<OtlpExporter>(state, std::move(collector),
                                                [](const std::string& why) { log_warning("OTLP: {}", why); });
    }
    if (http) {
      WC_ASSIGN(serving, serve_http(*http, page, state, exporter.get()));
    }
    return {};
  };
  const auto read = [&]() -> Result<ReadAgain> {
    WC_ASSIGN(DaemonSettings now, read_settings());
    WC_ASSIGN(ReadAgain again, changes_of(settings, std::move(now)));
    again.taken = [&serving, taken = std::move(again.taken)] {
      taken();
      if (serving) serving->port->read_keys_again();
    };
    return again;
  };
  return run_daemon(std::move(config), open_archived_payloads, when_open, read);
}

}  // namespace

void add_daemon_command(const Commands& commands) {
  add_configured_command<DaemonSettings>(
      commands, {"daemon", "Run a node: the origin on the trainer's host, a worker on each inference host",
                 "docs/SETTINGS.md", daemon_fields, make_daemon_settings, run});
}

}  // namespace weightcast
