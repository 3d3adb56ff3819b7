#include "tools/status_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "base/units.h"
#include "tools/text_table.h"
#include "transport/security/node_keys.h"

namespace weightcast {
namespace {

using nlohmann::json;

std::string text_of(const json& node, const char* key) { return node.at(key).get<std::string>(); }
double number_of(const json& node, const char* key) { return node.at(key).get<double>(); }
std::uint64_t count_of(const json& node, const char* key) { return node.at(key).get<std::uint64_t>(); }

/// Whether it was told at all.
std::string seconds_of(const json& object, const char* key) {
  const json& value = object.at(key);
  return value.is_null() ? std::string("-") : fmt::format("{:.2f}", value.get<double>());
}

// ---- status

std::string progress_of(const json& n) {
  const double total = number_of(n, "chunks_total");
  const std::uint64_t version = count_of(n, "receiving_version");
  if (total <= 0 || version == 0) return "";
  std::string text = fmt::format("{:.0f} % of {}", 100.0 * number_of(n, "chunks_verified") / total, version);
  const double rate = number_of(n, "receive_bytes_per_s");
  if (rate > 0) text += fmt::format(" at {}", format_rate(Rate{rate}));
  return text;
}

/// `protocol_newest`: that any of the nodes speaks.
std::string remarks_of(const json& n, std::int64_t now_unix_s, std::uint64_t protocol_newest) {
  std::vector<std::string> remarks;
  if (const std::uint64_t lost_ms = n.value("lost_unix_ms", std::uint64_t{0}); lost_ms > 0) {
    const auto lost_s = static_cast<std::int64_t>(lost_ms / 1000);
    remarks.push_back(fmt::format("! {} since {}, for {} s", text_of(n, "state"), date_of(lost_s),
                                  std::max<std::int64_t>(0, now_unix_s - lost_s)));
  }
  if (n.at("earlier_run").get<bool>()) remarks.push_back("its version is of the run before");
  const std::uint64_t protocol = count_of(n, "protocol");
  if (protocol != 0 && protocol < protocol_newest) {
    remarks.push_back(fmt::format("it speaks protocol {}, others {}", protocol, protocol_newest));
  }
  const auto expires = static_cast<std::int64_t>(count_of(n, "keys_expire_unix_s"));
  if (expires != 0 && expires - now_unix_s <= kExpiryWarning_s) {
    remarks.push_back("! its keys expire on " + date_of(expires));
  }
  if (const std::string offence = text_of(n, "offence"); !offence.empty())
    remarks.push_back("!! " + printable(offence));
  const auto complaints = count_of(n, "complaints"), complains = count_of(n, "complains");
  if (complaints > 0) remarks.push_back(fmt::format("! {} complain{} of it", complaints, complaints == 1 ? "s" : ""));
  if (complains > 0) remarks.push_back(fmt::format("! it complains of {}", complains));
  if (const std::string error = text_of(n, "last_error"); !error.empty()) remarks.push_back("! " + printable(error));
  return fmt::format("{}", fmt::join(remarks, "  "));
}

/// The plan as a tree, each node below its parent. What belongs to no tree (its parent is unknown, or by two reports of
/// different moments they are each other's) stands at the end.
class Tree {
 public:
  Tree(const json& nodes, std::int64_t now_unix_s) : nodes_(nodes), now_unix_s_(now_unix_s), printed_(nodes.size()) {
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      index_of_.emplace(text_of(nodes[i], "name"), i);
      protocol_newest_ = std::max(protocol_newest_, count_of(nodes[i], "protocol"));
    }
  }

  std::string render() {
    std::set<std::string> children;
    for (const json& n : nodes_) {
      for (const json& child : n.at("children")) children.insert(child.get<std::string>());
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!children.contains(text_of(nodes_[i], "name"))) append(i);
    }
    for (std::size_t i = 0; i < nodes_.size(); ++i) append(i);
    return table_.text();
  }

 private:
  /// A node and all below it. Not by recursion: a chain may have thousands.
  void append(std::size_t root) {
    std::vector<std::pair<std::size_t, int>> waiting = {{root, 0}};  // node, depth
    while (!waiting.empty()) {
      const auto [index, depth] = waiting.back();
      waiting.pop_back();
      if (printed_[index]) continue;
      printed_[index] = true;
      add_row(nodes_[index], depth);
      const json& children = nodes_[index].at("children");
      for (auto name = children.rbegin(); name != children.rend(); ++name) {
        const auto child = index_of_.find(name->get<std::string>());
        if (child != index_of_.end()) waiting.emplace_back(child->second, depth + 1);
      }
    }
  }

  void add_row(const json& n, int depth) {
    const std::string label = std::string(std::size_t(2 * std::min(depth, 12)), ' ') + (depth > 0 ? "> " : "") +
                              printable(text_of(n, "name"));
    const std::string payload = text_of(n, "payload");
    const double score = number_of(n, "score");
    const bool is_scored = text_of(n, "role") == "worker" && score > 0;
    table_.add({label, text_of(n, "role"), printable(text_of(n, "address")), std::to_string(count_of(n, "version")),
                text_of(n, "state"), progress_of(n),
                payload.empty() ? payload : fmt::format("{} {}", payload, format_bytes(count_of(n, "payload_bytes"))),
                is_scored ? fmt::format("{:.2f}", score) : std::string(), text_of(n, "standing")},
               remarks_of(n, now_unix_s_, protocol_newest_));
  }

  const json& nodes_;
  const std::int64_t now_unix_s_;
  std::uint64_t protocol_newest_ = 0;
  std::unordered_map<std::string, std::size_t> index_of_;
  std::vector<bool> printed_;
  TextTable table_{{{"NODE"},
                    {"ROLE"},
                    {"ADDRESS"},
                    {"VERSION", true},
                    {"STATE"},
                    {"RECEIVING"},
                    {"CAME BY"},
                    {"SCORE", true},
                    {"STANDING"}}};
};

/// What the node that was asked has from an archive: it alone tells.
std::string archive_text(const json& nodes) {
  std::string out;
  for (const json& node : nodes) {
    const std::uint64_t bytes = node.value("archive_bytes", std::uint64_t{0});
    const std::string trouble = node.value("archive_trouble", "");
    if (bytes == 0 && trouble.empty()) continue;
    out += fmt::format("{}: {} came from the archive{}\n", printable(text_of(node, "name")), format_bytes(bytes),
                       trouble.empty() ? "" : "; " + printable(trouble));
  }
  return out;
}

/// A line for each node that others cannot dial, with all of those: one port that is blocked is one thing to mend.
std::string unreached_text(const json& nodes) {
  constexpr std::size_t kNamedMax = 3;
  std::map<std::array<std::string, 3>, std::vector<std::string>> by_target;  // name, address, why
  for (const json& node : nodes) {
    for (const json& other : node.at("cannot_reach")) {
      by_target[{text_of(other, "name"), text_of(other, "address"), text_of(other, "why")}].push_back(
          printable(text_of(node, "name")));
    }
  }
  std::string out;
  for (const auto& [target, by] : by_target) {
    std::string who = fmt::format("{}", fmt::join(by.begin(), by.begin() + std::min(by.size(), kNamedMax), ", "));
    if (by.size() > kNamedMax) who += fmt::format(" and {} more", by.size() - kNamedMax);
    out += fmt::format("! {} cannot reach {} at {}: {}\n", who, printable(target[0]), printable(target[1]),
                       printable(target[2]));
  }
  return out;
}

// ---- publications

/// "60.0 MiB", "1.2 MiB patch".
std::string payload_of(const json& entry) {
  const std::string bytes = format_bytes(count_of(entry, "payload_bytes"));
  const std::string kind = text_of(entry, "kind");
  return kind == "full" ? bytes : bytes + " " + kind;
}

std::string slowest_of(const json& entry) {
  const std::string slowest = printable(text_of(entry, "slowest")), why = printable(text_of(entry, "why"));
  return slowest.empty() ? why : why.empty() ? slowest : slowest + ": " + why;
}

/// Where the versions of the node lie that was asked, and what it has written: it alone tells.
std::string disk_text(const json& nodes) {
  for (const json& node : nodes) {
    const std::string where = node.value("versions_in", "");
    if (where.empty()) continue;
    return fmt::format("; versions here are {} ({}), {} written to disks",
                       where == "memory" ? "in memory"
                       : where == "disk" ? "on the disk"
                                         : "nowhere yet",
                       printable(text_of(node, "versions_in_why")),
                       format_bytes(node.at("disk_bytes_written").get<std::uint64_t>()));
  }
  return "";
}

std::string predicted_of(const json& entry) {
  const double predicted = number_of(entry, "predicted_s");
  return predicted > 0 ? fmt::format("{:.2f}", predicted) : std::string("-");
}

/// Of a large fleet those are left out that would come after the last one shown.
std::string left_out(const json& history) {
  const std::uint64_t total = count_of(history, "workers_total");
  const std::size_t shown = history.at("workers").size();
  if (total <= shown) return "";
  const bool have_it = shown > 0 && !history.at("workers").back().at("installed_s").is_null();
  return fmt::format("and {} others{}\n", total - shown, have_it ? ", which had it earlier" : "");
}

}  // namespace

std::string status_text(const json& status, std::int64_t now_unix_s) {
  std::string out = fmt::format("latest version {}", count_of(status, "latest_version"));
  if (const std::string run = text_of(status, "run"); !run.empty()) out += fmt::format(", run {}", run);
  if (const std::string topology = text_of(status, "topology"); !topology.empty()) {
    out += fmt::format(", {} (predicted {:.2f} s)", topology, number_of(status, "predicted_s"));
  }
  return out + disk_text(status.at("nodes")) + '\n' + Tree(status.at("nodes"), now_unix_s).render() +
         unreached_text(status.at("nodes")) + archive_text(status.at("nodes"));
}

std::string publication_text(const json& history) {
  const json& entry = history.at("publications").at(0);
  std::string out = fmt::format(
      "version {}: {}, at {} of {} workers; T_bcast {} s, predicted {} s\n{} whole, {} to most workers, {} sent by the "
      "origin; taken over in {:.2f} s, encoded in {:.2f} s, packed in {:.2f} s\n",
      count_of(entry, "version"), text_of(entry, "state"), count_of(entry, "installed"), count_of(entry, "workers"),
      seconds_of(entry, "t100_s"), predicted_of(entry), format_bytes(count_of(entry, "snapshot_bytes")),
      payload_of(entry), format_bytes(count_of(entry, "sent_bytes")), number_of(entry, "take_over_s"),
      number_of(entry, "encode_s"), number_of(entry, "pack_s"));
  if (const std::string slowest = slowest_of(entry); !slowest.empty()) out += "slowest: " + slowest + '\n';
  TextTable table({{"WORKER"},
                   {"BY"},
                   {"TOLD", true},
                   {"WAITED", true},
                   {"ASKED", true},
                   {"RECEIVED", true},
                   {"STORED", true},
                   {"APPLIED", true},
                   {"SWITCHED", true},
                   {"ENGINE", true},
                   {"INSTALLED", true},
                   {"BYTES", true},
                   {"FED BY"}});
  for (const json& worker : history.at("workers")) {
    const json& phases = worker.at("phases");
    std::vector<std::string> remarks;
    if (!worker.at("joined_s").is_null())
      remarks.push_back(fmt::format("joined at {} s", seconds_of(worker, "joined_s")));
    if (const std::string failure = text_of(worker, "failure"); !failure.empty())
      remarks.push_back("! " + printable(failure));
    if (phases.is_null()) {
      table.add({printable(text_of(worker, "name")), text_of(worker, "payload"), seconds_of(worker, "told_s"), "", "",
                 "", "", "", "", "", seconds_of(worker, "installed_s"), "", ""},
                fmt::format("{}", fmt::join(remarks, "  ")));
      continue;
    }
    if (const double lost = number_of(phases, "given_up_s"); lost > 0) {
      remarks.push_back(fmt::format("{:.2f} s on a payload that it gave up", lost));
    }
    if (const double lost = number_of(phases, "interrupted_s"); lost > 0) {
      remarks.push_back(
          fmt::format("left {} parents, {:.2f} s without chunks", count_of(phases, "parents_left"), lost));
    }
    if (const double behind = number_of(phases, "disk_behind_s"); behind > 0) {
      remarks.push_back(fmt::format("{:.2f} s behind its disk", behind));
    }
    table.add({printable(text_of(worker, "name")), text_of(worker, "payload"), seconds_of(worker, "told_s"),
               seconds_of(phases, "waiting_s"), seconds_of(phases, "asking_s"), seconds_of(phases, "receiving_s"),
               seconds_of(phases, "storing_s"), seconds_of(phases, "applying_s"), seconds_of(phases, "switching_s"),
               seconds_of(phases, "engine_s"), seconds_of(worker, "installed_s"),
               format_bytes(count_of(phases, "bytes")), printable(text_of(phases, "fed_by"))},
              fmt::format("{}", fmt::join(remarks, "  ")));
  }
  return out + table.text() + left_out(history);
}

std::string history_text(const json& history) {
  TextTable table({{"VERSION", true},
                   {"STATE"},
                   {"WHOLE", true},
                   {"PAYLOAD", true},
                   {"SENT", true},
                   {"WORKERS", true},
                   {"T_BCAST", true},
                   {"PREDICTED", true},
                   {"SLOWEST AND WHY"}});
  for (const json& entry : history.at("publications")) {
    table.add({std::to_string(count_of(entry, "version")), text_of(entry, "state"),
               format_bytes(count_of(entry, "snapshot_bytes")), payload_of(entry),
               format_bytes(count_of(entry, "sent_bytes")),
               fmt::format("{}/{}", count_of(entry, "installed"), count_of(entry, "workers")),
               seconds_of(entry, "t100_s"), predicted_of(entry), slowest_of(entry)});
  }
  return table.text();
}

std::string versions_text(const json& reply) {
  if (reply.at("versions").empty()) return "no version is here yet\n";
  TextTable table({{""}, {"VERSION", true}, {"CAME BY"}, {"BYTES", true}, {"DIGEST"}, {"DIRECTORY"}});
  for (const json& v : reply.at("versions")) {
    table.add({v.at("current").get<bool>() ? "*" : "", std::to_string(count_of(v, "version")), text_of(v, "kind"),
               format_bytes(count_of(v, "snapshot_bytes")), text_of(v, "digest"), printable(text_of(v, "path"))},
              v.at("durable").get<bool>() ? "" : "(not synced)");
  }
  return table.text();
}

std::string status_words() {
  return R"(Roles
  origin        publishes
  worker        receives, forwards and installs
States
  idle          has the latest version
  receiving     a version arrives; RECEIVING says how much of which is there
  stale         has an older version, and receives none now
  failed        could not install the latest version; the remark says why
  foreign       has a version of another run, which stays in use until this run has one
  standby       waits until another worker is lost, or until it is activated
  lost          is not connected; the remark says since when
  awaited       is not yet back since its origin was started
  dialling      (a worker of itself) looks for its origin
Came by: what brought the installed version
  full          the whole version, as it is
  packed        the whole version, coded
  direct        the patch from the version before
  folded        one patch over several versions
  chain         several patches in turn
  patch         (a worker of itself) one of these three
Standings: where plans place a worker
  seed          anywhere
  tail          at the end of a chain, after faults
  rollout-only  feeds nobody, after more faults
  leaf          feeds nobody: --leaf-only
  unreachable   feeds nobody: nobody could dial it
SCORE is how well a worker forwards, 1 at its line rate. A remark with ! may need somebody, one with !! names an offence.)";
}

std::string history_words() {
  return R"(States
  under way     some workers do not have it yet
  complete      every worker that counts had it, or has gone
  superseded    a newer version came first; T_BCAST still appears if all have it before the eighth newer one comes
  given up      the origin withdrew it
A publication, as it was when it ended
  WHOLE         the version's bytes
  PAYLOAD       what most workers got of it, and how: as it is, packed, or as a patch
  SENT          bytes that the origin sent
  WORKERS       those that have it, of those that count: connected, and not on standby
  T_BCAST       seconds until all of these had it
  PREDICTED     the same by the plan
Causes: what kept the slowest worker
  link            the link from whoever fed it
  parent          whoever fed it was as late, and has a cause of its own
  origin          the origin took the version over, encoded or packed it, or told the worker late
  version before  it finished that first
  gave up         it gave up another payload of the version, or that was withdrawn
  disk            its disk wrote more slowly than chunks came, or read slowly what was there already
  applying        checking, decoding, switching
  lost parents    it left parents, and was without chunks until others fed it
  unreachable     it could not dial whom it was to receive from
  stalled         it stood still, and those that it fed left it
  joined late     it joined when the publication had begun
  reconnected     its process or its connection was gone meanwhile
  failed before   it could not install the version at first
  left            it was lost or released before it had the version, later than the others had it
  unknown         it does not say where its time went: an older release, or phases that cannot be
A worker
  BY            the payload that it was told of last: full, packed, patch
  TOLD          when the origin told it of the version first, in seconds from the publication's beginning
  INSTALLED     when the origin heard that it has the version, counted in the same way
  BYTES         that came to it
  FED BY        the node that sent most of them
Phases of a worker, in seconds, one after another
  WAITED        told of the version, and the payload that it installed not begun
  ASKED         begun, and no chunk had come
  RECEIVED      from the first chunk until the last one was verified
  STORED        from there until all were on its disk
  APPLIED       from there: checking, and what was left of decoding
  SWITCHED      making it the version in use
  ENGINE        from there until an engine on its host took the version; -: none has
Phases, BYTES and FED BY are the worker's own word. The origin remembers the last 1,000 publications, and
at most 32,768 workers of these in all: of 200 workers those of the last 163 publications. It knows those that had ended
after a restart, too, from DIR/history (16 MiB at most).)";
}

}  // namespace weightcast
