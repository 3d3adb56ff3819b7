#include <fmt/format.h>

#include <csignal>
#include <memory>

#include "archive/archived_payloads.h"
#include "observe/daemon_view.h"
#include "observe/operator_port.h"
#include "tools/command.h"
#include "tools/config_file.h"
#include "tools/operator_options.h"
#include "transport/io/log.h"
#include "transport/node/daemon.h"
#include "web/fleet_page.h"

namespace weightcast {
namespace {

struct DaemonFlags {
  std::string role, listen = "127.0.0.1:0", origin, uplink = "unlimited", downlink = "unlimited", topology = "auto",
                    packing = "auto", disk = "auto", versions_in = "auto", log_level = "info", log_format = "text",
                    snapshot_max, memory_max, archive_rate, archive_below, learner;
  HttpFlags http;
  double hop_delay_ms = 0.5;
  double single_copy_wait_s = 60;
  double version_age_max_s = 0;
  bool no_pace = false;
  DaemonConfig config;
};

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

Status run(DaemonFlags flags) {
  WC_ASSIGN(const LogFormat format, parse_log_format(flags.log_format));
  set_up_log(flags.log_level, {format, flags.role});
  DaemonConfig& config = flags.config;
  config.role = flags.role == "origin" ? Role::kOrigin : Role::kWorker;
  WC_ASSIGN(config.listen, Endpoint::parse(flags.listen));
  if (!flags.origin.empty()) {
    WC_ASSIGN(config.origin, Endpoint::parse(flags.origin));
  }
  WC_ASSIGN(config.uplink, parse_rate(flags.uplink));
  WC_ASSIGN(config.downlink, parse_rate(flags.downlink));
  WC_ASSIGN(config.topology, parse_topology(flags.topology));
  config.packing = flags.packing == "never"    ? Packing::kNever
                   : flags.packing == "always" ? Packing::kAlways
                                               : Packing::kAuto;
  if (!flags.snapshot_max.empty()) {
    WC_ASSIGN(config.snapshot_bytes_max, parse_bytes(flags.snapshot_max));
  }
  if (!flags.memory_max.empty()) {
    WC_ASSIGN(config.memory_bytes_max, parse_bytes(flags.memory_max));
  }
  if (!flags.archive_rate.empty()) {
    WC_ASSIGN(config.archive_limits.rate, parse_rate(flags.archive_rate));
  }
  if (!flags.archive_below.empty()) {
    WC_ASSIGN(config.archive_limits.below, parse_rate(flags.archive_below));
  }
  WC_ASSIGN(config.versions_in, parse_versions_in(flags.versions_in));
  config.hop_delay = from_seconds(flags.hop_delay_ms / 1e3);
  config.single_copy_wait = from_seconds(flags.single_copy_wait_s);
  config.version_age_max = from_seconds(flags.version_age_max_s);
  config.pace = !flags.no_pace;
  config.disk = flags.disk == "io_uring"  ? DiskBackend::kIoUring
                : flags.disk == "threads" ? DiskBackend::kThreadPool
                                          : DiskBackend::kAuto;
  if (config.name.empty() && config.keys.empty()) config.name = config.role == Role::kOrigin ? "origin" : host_name();
  if (!config.archive.empty()) std::signal(SIGPIPE, SIG_IGN);  // libcurl may write to what its other end has closed
  WC_ASSIGN(const auto http, operator_options(flags.http, config.keys, {config.state},
                                              [](const std::string& why) { log_warning("{}", why); }));
  if (!http) {
    if (flags.learner.empty()) return run_daemon(std::move(config), open_archived_payloads);
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--learner: for the page that --http HOST:PORT serves");
  }
  FleetPageOptions page;
  page.learner_trust = {.keys = config.keys, .revocation_directories = {config.state}};
  if (!flags.learner.empty()) {
    WC_ASSIGN(page.learner, Endpoint::parse(flags.learner));
    WC_TRY(check_trust(page.learner_trust, *page.learner));
  }
  std::unique_ptr<DaemonHttp> serving;
  return run_daemon(std::move(config), open_archived_payloads, [&, state = config.state]() -> Status {
    WC_ASSIGN(serving, serve_http(*http, page, state));
    return {};
  });
}

}  // namespace

void add_daemon_command(const Commands& commands) {
  auto flags = std::make_shared<DaemonFlags>();
  DaemonConfig& config = flags->config;
  CLI::App* app = commands.app.add_subcommand(
      "daemon", "Run a node: the origin on the trainer's host, a worker on each inference host");
  add_config_option(*app);
  app->add_option("--role", flags->role, "origin or worker")->required()->check(CLI::IsMember({"origin", "worker"}));
  add_state_option(*app, config.state, "Directory for versions and the local socket; one daemon each");
  app->add_option("--listen", flags->listen, "Where other nodes reach this one; port 0 takes a free one")
      ->check(endpoint_validator())
      ->capture_default_str();
  app->add_option("--origin", flags->origin, "The origin's address (workers)")->check(endpoint_validator());
  app->add_option("--name", config.name,
                  "This node's name, unique in the fleet; default: the keys' name, or the host's")
      ->check(node_name_validator());
  app->add_option("--model", config.model_id, "Model id; nodes of another model are refused");
  app->add_option("--uplink", flags->uplink,
                  "A cap on what this node sends, e.g. 300mbit; rates without one are measured")
      ->check(rate_validator())
      ->capture_default_str();
  app->add_option("--downlink", flags->downlink, "What this node may receive")
      ->check(rate_validator())
      ->capture_default_str();
  app->add_flag("--no-pace", flags->no_pace, "Rates inform the plan only; the network enforces them");
  app->add_option("--topology", flags->topology, "auto, star, chain, tree or striped (origin)")
      ->check(topology_validator())
      ->capture_default_str();
  app->add_option("--hop-delay-ms", flags->hop_delay_ms, "One-way delay between nodes, for the plan (origin)")
      ->check(CLI::Range(0.0, 10'000.0))
      ->capture_default_str();
  app->add_option(
         "--versions-in", flags->versions_in,
         "Where the versions lie that engines read: disk; memory, so that a step writes its patch alone to the "
         "disk; or auto, which is memory where all copies of the first version fit with room to spare (with "
         "--single-copy the one and what a step overwrites)")
      ->check(CLI::IsMember({"auto", "memory", "disk"}))
      ->capture_default_str();
  app->add_option("--memory-dir", config.memory_dir, "A file system in memory, for --versions-in memory and auto")
      ->capture_default_str();
  app->add_option("--memory-max", flags->memory_max,
                  "What --versions-in auto may take of memory, e.g. 100GiB; default: what there is");
  app->add_option("--keep", config.versions_kept, "Versions kept, the current one included")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_flag("!--no-patches", config.patches, "Send every version whole (origin)");
  app->add_option("--pack", flags->packing,
                  "Pack full payloads: auto, where workers have them sooner by the links' rates and measured speeds; "
                  "always; never (origin). Nothing that would not become a tenth smaller is packed")
      ->check(CLI::IsMember({"auto", "always", "never"}))
      ->capture_default_str();
  app->add_option(
         "--anchor-interval", config.anchor_interval,
         "Stored patches in a row that may catch a worker up; one further behind gets a full payload (origin). "
         "With versions in memory, also the patches after which a whole version is written to the disk again")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--congestion", config.congestion, "TCP congestion control, e.g. bbr; default: the host's");
  app->add_option("--streams", config.streams, "Parallel connections to each parent (workers)")
      ->check(CLI::Range(1, 16))
      ->capture_default_str();
  app->add_option("--disk", flags->disk, "auto, io_uring or threads")
      ->check(CLI::IsMember({"auto", "io_uring", "threads"}))
      ->capture_default_str();
  app->add_option(
         "--threads", config.threads,
         "Threads that take over, compare, pack, unpack and recover, each with at most 32 MiB; default: half of "
         "the cores, at most 8")
      ->check(CLI::Range(1, 64));
  app->add_flag(
      "--single-copy", config.single_copy,
      "Apply patches to the only copy, on the disk or in memory, as soon as nobody has its files open; --keep does not "
      "count (workers)");
  app->add_option("--single-copy-wait", flags->single_copy_wait_s,
                  "Seconds that --single-copy waits for that; then the version is reported as failed and tried again")
      ->check(CLI::Range(0.1, 86'400.0))
      ->capture_default_str();
  app->add_option("--snapshot-max", flags->snapshot_max,
                  "Refuse versions larger than this, e.g. 100GiB; default: 4 TiB (workers)");
  app->add_option("--archive", config.archive,
                  "Where 'weightcast archive' keeps versions (s3://BUCKET/PREFIX, https://HOST/PATH, a directory): "
                  "whole versions come from there, too, beside peers (workers)");
  app->add_option("--archive-rate", flags->archive_rate, "A cap on what comes from the archive, e.g. 300mbit (workers)")
      ->check(rate_validator());
  app->add_option("--archive-below", flags->archive_below,
                  "Read from the archive only while peers bring less than this, e.g. 250mbit: what an hour of this host "
                  "costs, over 3600 s and what a byte from the archive costs (workers)")
      ->check(rate_validator());
  app->add_flag("--files", config.takes_files,
                "Take directories of any files, too (weightcast publish --files): they may hold what programs execute "
                "(workers)");
  app->add_flag("--leaf-only", config.leaf_only, "Others cannot dial this worker: never plan it as a relay");
  app->add_flag("--standby", config.standby, "Wait until another worker is lost, then take its place");
  app->add_option("--keys", config.keys,
                  "File of this node's keys (weightcast keys): connections are encrypted, and both ends prove who they "
                  "are. Without it they are plain TCP, and stay on loopback");
  app->add_option(
      "--enroll", config.enroll,
      "Enrol workers that have a join token (weightcast keys token), by the files in this directory (origin)");
  app->add_option("--allow-address", config.addresses_allowed,
                  "Hosts that workers may listen on, besides the one that they come from and those of their keys; with "
                  "* for any characters (origin)");
  app->add_option("--version-age-max", flags->version_age_max_s,
                  "Refuse versions that were published more seconds ago when they are announced; 0: any (workers)")
      ->check(CLI::Range(0.0, 1e9))
      ->capture_default_str();
  app->add_option("--api-group", config.api_group,
                  "Group whose members may use the local socket as this daemon's user does: publish, subscribe, pin");
  app->add_flag("--insecure", config.insecure,
                "Plain TCP beyond loopback, too: everybody on the way can read and change it");
  add_http_options(
      *app, flags->http,
      "Where operators look at this node over HTTP: a page, /status, /events, /metrics, /healthz (docs/OPERATING.md); "
      "without it nowhere. Open to this host on loopback; elsewhere with --http-token, or with --keys, encrypted");
  app->add_option("--learner", flags->learner, "The learner's rollout_listen: the page shows its status, too (origin)")
      ->check(endpoint_validator());
  app->add_option("--log-level", flags->log_level, "info, warning or error; debug is taken for info")
      ->check(CLI::IsMember({"debug", "info", "warning", "error"}))
      ->capture_default_str();
  add_log_format_option(*app, flags->log_format);
  app->callback([flags, selected = &commands.selected] { *selected = [flags] { return run(*flags); }; });
}

}  // namespace weightcast
