#include "tools/daemon_settings.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <string_view>

namespace weightcast {
namespace {

using namespace std::string_view_literals;

constexpr std::array kLogLevels{"info"sv, "warning"sv, "error"sv};
// What nodes of the other role do not read, and validate() does not refuse.
constexpr std::array kOfOrigins{"topology"sv, "hop-delay-ms"sv, "no-patches"sv, "pack"sv, "allow-address"sv};
constexpr std::array kOfWorkers{"streams"sv, "single-copy-wait"sv, "snapshot-max"sv, "leaf-only"sv, "standby"sv};

std::string state_of_environment() {
  const char* const named = std::getenv("WEIGHTCAST_STATE");
  return named != nullptr ? named : "";
}

}  // namespace

std::vector<SettingField> daemon_fields(DaemonSettings& s) {
  DaemonConfig& c = s.node;
  std::vector<SettingField> fields{
      {"role", OptionalWord<Role>{&s.role}, "What this node is; required"},
      {"state", &c.state,
       "Directory for versions and the local socket; one daemon each; default: WEIGHTCAST_STATE of the environment"},
      {"listen", &c.listen, "Where other nodes reach this one; port 0 takes a free one"},
      {"origin", &c.origin, "The origin's address (workers)"},
      {"name", &c.name,
       "This node's name, unique in the fleet; default: the keys' name, else the host's, of an origin 'origin'"},
      {"model", &c.model_id, "Model id; nodes of another model are refused"},
      {"uplink", &c.uplink, "A cap on what this node sends, e.g. 300mbit; rates without one are measured"},
      {"downlink", &c.downlink, "What this node may receive"},
      {"no-pace", Negated{&c.pace}, "Rates inform the plan only; the network enforces them"},
      {"topology", &c.topology, "How versions travel to the workers (origin)"},
      {"hop-delay-ms", DurationIn{&c.hop_delay, std::chrono::milliseconds(1)},
       "One-way delay between nodes, for the plan (origin)", 0, 10'000},
      {"versions-in", &c.versions_in,
       "Where the versions lie that engines read: disk; memory, so that a step writes nothing to the disk; or auto, "
       "which is memory where all copies of the first version fit with room to spare (with --single-copy the one and a "
       "step's patch)"},
      {"memory-dir", &c.memory_dir, "A file system in memory, for --versions-in memory and auto"},
      {"memory-max", OptionalByteCount{&c.memory_bytes_max},
       "What --versions-in auto may take of memory, e.g. 100GiB; unlimited: what there is"},
      {"keep", &c.versions_kept, "Versions kept, the current one included", 1, 1000},
      {"no-patches", Negated{&c.patches}, "Send every version whole (origin)"},
      {"pack", &c.packing,
       "Pack full payloads: auto, where workers have them sooner by the links' rates and measured speeds; always; "
       "never "
       "(origin). Nothing that would not become a tenth smaller is packed"},
      {"anchor-interval", &c.anchor_interval,
       "Stored patches in a row that may catch a worker up; one further behind gets a full payload (origin)", 1, 1000},
      {"keep-durable-every", &c.keep_durable_every,
       "With versions in memory, a whole one is written to the disk, in the background, when the newest is so many "
       "numbers further than the last that was; 0: never (origin). A worker takes what is twice as far behind for a "
       "replay",
       0, 1'000'000},
      {"congestion", &c.congestion, "TCP congestion control, e.g. bbr; default: the host's"},
      {"streams", &c.streams, "Parallel connections to each parent (workers)", 1, 16},
      {"disk", &c.disk, "How the store reads and writes"},
      {"threads", &c.threads,
       "Threads that take over, compare, pack, unpack and recover, each with at most 32 MiB; 0: half of the cores, at "
       "most 8",
       0, 64},
      {"single-copy", &c.single_copy,
       "Apply patches to the only copy, on the disk or in memory, as soon as nobody has its files open; --keep does "
       "not "
       "count (workers)"},
      {"single-copy-wait", DurationIn{&c.single_copy_wait, std::chrono::seconds(1)},
       "Seconds that --single-copy waits for that; then the version is reported as failed and tried again", 0.1,
       86'400},
      {"snapshot-max", ByteCount{&c.snapshot_bytes_max}, "Refuse versions larger than this, e.g. 100GiB (workers)"},
      {"archive", &c.archive,
       "Where 'weightcast archive' keeps versions (s3://BUCKET/PREFIX, https://HOST/PATH, a directory): whole versions "
       "come from there, too, beside peers (workers)"},
      {"archive-rate", &c.archive_limits.rate, "A cap on what comes from the archive, e.g. 300mbit (workers)"},
      {"archive-below", &c.archive_limits.below,
       "Read from the archive only while peers bring less than this, e.g. 250mbit: what an hour of this host costs, "
       "over "
       "3600 s and what a byte from the archive costs (workers)"},
      {"files", &c.takes_files,
       "Take directories of any files, too (weightcast publish --files): they may hold what programs execute "
       "(workers)"},
      {"leaf-only", &c.leaf_only, "Others cannot dial this worker: never plan it as a relay"},
      {"standby", &c.standby, "Wait until another worker is lost, then take its place"},
      {"keys", &c.keys,
       "File of this node's keys (weightcast keys): connections are encrypted, and both ends prove who they are. "
       "Without "
       "it they are plain TCP, and stay on loopback"},
      {"enroll", &c.enroll,
       "Enrol workers that have a join token (weightcast keys token), by the files in this directory (origin)"},
      {"allow-address", &c.addresses_allowed,
       "Hosts that workers may listen on, besides the one that they come from and those of their keys; with * for any "
       "characters (origin)"},
      {"version-age-max", DurationIn{&c.version_age_max, std::chrono::seconds(1)},
       "Refuse versions that were published more seconds ago when they are announced; 0: any (workers)", 0, 1e9},
      {"api-group", &c.api_group,
       "Group whose members may use the local socket as this daemon's user does: publish, subscribe, pin; and read "
       "versions"},
      {"insecure", &c.insecure, "Plain TCP beyond loopback, too: everybody on the way can read and change it"},
      {"learner", &s.learner, "The learner's rollout_listen: the page shows its status, too (origin)"},
      {"otlp-endpoint", &s.otlp_endpoint,
       "An OpenTelemetry collector that gets each publication as spans, by OTLP over HTTP: http://HOST[:4318] "
       "(origin)"},
      {"log-level", &s.log_level, "info, warning or error", kLogLevels},
  };
  add_operator_fields(
      fields, s.operators,
      "Where operators look at this node over HTTP: a page, /status, /events, /metrics, /healthz (docs/OPERATING.md); "
      "without it nowhere. Open to this host on loopback; elsewhere with --http-token, or with --keys, encrypted");
  return fields;
}

Result<DaemonSettings> make_daemon_settings(std::span<const Setting> given) {
  DaemonSettings settings;
  settings.node.state = state_of_environment();
  const std::vector<SettingField> fields = daemon_fields(settings);
  for (const Setting& setting : given) WC_TRY(apply_setting(fields, setting));
  WC_TRY(check_is_set("role", settings.role.has_value()));
  WC_TRY(check_is_set("listen", !settings.node.listen.host.empty()));
  settings.node.role = *settings.role;
  const std::span<const std::string_view> foreign =
      *settings.role == Role::kOrigin ? std::span(kOfWorkers) : std::span(kOfOrigins);
  DaemonSettings defaults;
  const std::vector<SettingField> as_default = daemon_fields(defaults);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const bool is_foreign = std::ranges::find(foreign, fields[i].name()) != foreign.end();
    if (is_foreign && fields[i].value() != as_default[i].value()) settings.of_other_role.emplace_back(fields[i].name());
  }
  return settings;
}

}  // namespace weightcast
