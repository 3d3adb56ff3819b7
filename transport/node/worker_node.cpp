#include "transport/node/worker_node.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "proto/limits.h"
#include "transport/io/log.h"
#include "transport/node/members/accepted_file.h"

namespace weightcast {
namespace {

// Names of children that status tells, so that a node fits a message.
constexpr std::size_t kChildrenMax = 1000;

}  // namespace

WorkerNode::~WorkerNode() { close(); }

Status WorkerNode::start() {
  WorkerConfig config;
  static_cast<NodeConfig&>(config) = config_;
  static_cast<WorkerOptions&>(config) = config_;
  if (config.single_copy) config.versions_kept = 1;
  config.run = store_->run().id;
  config.incarnation = environment_.entropy();
  config.origin_host = config_.origin->host;
  config.origin_port = config_.origin->port;
  config.listen_host = config_.listen.host;
  config.listen_port = endpoint().port;
  config.unpack_bytes_per_s = config_.packing_speed.unpack_bytes_per_s * loop().threads_per_job_max();
  config.trust = environment_.trust;
  std::unique_ptr<PayloadArchive> archive;
  if (!config_.archive.empty() && environment_.open_archive) {
    Result<std::unique_ptr<PayloadArchive>> opened = environment_.open_archive(environment_.files, config_.archive);
    if (!opened.has_value()) return about("--archive", opened.error());
    archive = std::move(*opened);
    config.archive = config_.archive_limits;
  }
  WC_ASSIGN(config.accepted, AcceptedFile(environment_.files, config_.state).read());
  accepted_written_ = config.accepted;
  core_ = std::make_unique<WorkerCore>(std::move(config));
  restore();
  WC_TRY(serve());
  driver_->receive_for(*core_);
  if (archive) driver_->read_archive(std::move(archive), config_.archive_limits.ranges_at_once);
  driver_->on_follow_run([this](action::FollowRun follow) { follow_run(follow); });
  driver_->on_change([this] { handle_change(); });
  if (unproven_) leave_unproven();
  if (const StoredVersion* earlier = store_->earlier()) {
    log_info("version {} of the run before is in use until the first version of run {} is installed",
             earlier->manifest.version.value, to_string(store_->run().id));
  }
  return {};
}

void WorkerNode::look_for_unproven() {
  if (!environment_.trust) return;
  const auto check = [&](const Manifest& manifest) {
    const Status proven = environment_.trust->check_stored(manifest);
    if (!proven.has_value()) unproven_ = proven.error();
  };
  for (const StoredVersion& stored : store_->versions()) check(stored.manifest);
  for (const StoredPatch& stored : store_->patches()) check(stored.manifest);
}

void WorkerNode::restore() {
  look_for_unproven();
  if (unproven_) return;
  for (const StoredVersion& stored : store_->versions()) {
    core_->restore(std::make_shared<const Manifest>(stored.manifest), stored.chunk_digests);
  }
  for (const StoredPatch& stored : store_->patches()) {
    core_->restore_patch(std::make_shared<const Manifest>(stored.manifest), stored.chunk_digests);
  }
}

// As when another run begins: recovery knows how to keep what is in use, and to make nothing of it.
void WorkerNode::leave_unproven() {
  log_warning("{}; nothing is made of what is here, and it stays in use until the origin has sent a version",
              unproven_->detail);
  store_->follow_run(store_->run().id, true, [this](const Status& written) {
    if (!written.has_value()) return log_warning("it stays for now: {}", written.error().message());
    if (environment_.reopen) environment_.reopen();
  });
}

void WorkerNode::pin(std::vector<Version> versions) {
  const Intake& intake = core_->intake();
  const bool taken = std::ranges::find(versions, intake.installed_version()) != versions.end();
  Node::pin(std::move(versions));
  if (!taken || !core_->handle_taken(loop().now(), intake.installed_version())) return;
  meters_.note(NodeMeters::Phase::kEngine, *intake.taken_after());
  driver_->pump();
}

void WorkerNode::tell_limits() {
  core_->set_limits(config_.uplink, config_.downlink, config_.snapshot_bytes_max, config_.archive_limits);
}

void WorkerNode::tell_core(const Revocations& revoked) {
  core_->handle_revocations(loop().now(), revoked.number());
  driver_->pump();
  if (unproven_) return;
  look_for_unproven();
  if (unproven_) leave_unproven();
}

void WorkerNode::note_phases() {
  const Intake& intake = core_->intake();
  const StoredVersion* const installed = store_->find(intake.installed_version());
  // One that was here before this process says nothing.
  if (installed == nullptr || intake.finish_s() <= 0 || installed->manifest.version == metered_) return;
  metered_ = installed->manifest.version;
  meters_.note(NodeMeters::Phase::kTransfer, from_seconds(intake.transfer_s()));
  meters_.note(NodeMeters::Phase::kApply, from_seconds(std::max(0.0, intake.finish_s() - installed->switch_s)));
  meters_.note(NodeMeters::Phase::kSwitch, from_seconds(installed->switch_s));
}

/// Older versions than this are replays from now on. With versions in memory, an origin that loses those has none but
/// the one that it keeps on its disk, and goes on from there.
void WorkerNode::note_accepted(Manifest newest) {
  if (store_->lies_in_memory()) {
    const std::uint64_t behind = 2 * std::uint64_t{config_.keep_durable_every};
    if (behind == 0 || newest.version.value <= behind) return;
    newest.version.value -= behind;
  }
  core_->note_durable(newest);
}

void WorkerNode::handle_change() {
  note_phases();
  api_->handle_change();
  if (const StoredVersion* newest = store_->find(store_->current());
      newest != nullptr && (newest->durable || store_->lies_in_memory()) &&
      newest->manifest.version != accepted_noted_ && !unproven_) {
    accepted_noted_ = newest->manifest.version;
    note_accepted(newest->manifest);
    // It may have been whole, and not yet installed, when its key was revoked.
    look_for_unproven();
    if (unproven_) return leave_unproven();
  }
  const std::vector<AcceptedVersion>& accepted = core_->intake().acceptance().accepted();
  if (writing_accepted_ || accepted == accepted_written_) return;
  writing_accepted_ = true;
  accepted_written_ = accepted;
  jobs_.run(
      [file = AcceptedFile(environment_.files, config_.state), accepted] {
        if (Status s = file.write(accepted); !s.has_value()) log_warning("accepted versions: {}", s.error().message());
      },
      [this] { writing_accepted_ = false; });
}

void WorkerNode::follow_run(action::FollowRun follow) {
  store_->follow_run(follow.run, follow.anew, [this, follow](const Status& written) {
    if (!written.has_value()) {
      core_->handle_run_not_followed(loop().now(), written.error());
      return driver_->pump();
    }
    if (follow.anew && environment_.reopen) environment_.reopen();
  });
}

local::StatusReply WorkerNode::status() {
  local::StatusReply reply;
  const StoredVersion* const stored = in_use();
  const Version version = stored == nullptr ? kNoVersion : stored->manifest.version;
  reply.latest_version = version.value;
  reply.model_id = config_.model_id;
  reply.run_id = to_string(core_->run());
  local::NodeStatus& self = reply.nodes.emplace_back();
  self.peer_id = core_->id().value;
  self.name = config_.name;
  self.role = "worker";
  self.version = version.value;
  self.earlier_run = stored != nullptr && stored == store_->earlier();
  self.address = endpoint().to_string();
  self.parent = core_->intake().parent_name();
  for (const std::string& child : core_->children()) {
    if (self.children.size() == kChildrenMax) break;
    self.children.push_back(child);
  }
  const bool receiving = core_->receiving() != PayloadId{};
  self.state = !core_->joined() ? "dialling" : receiving ? "receiving" : "idle";
  self.receiving_version = core_->receiving().version.value;
  self.chunks_verified = core_->intake().chunks_verified();
  self.chunks_total = core_->intake().chunks_total();
  self.receive_bytes_per_s = core_->intake().receive_bytes_per_s();
  self.uplink_bytes_per_s = config_.uplink.bytes_per_s;
  self.downlink_bytes_per_s = config_.downlink.bytes_per_s;
  self.bytes_received = core_->bytes_received();
  self.bytes_sent = driver_->chunk_bytes_sent();
  const std::string& trouble = core_->last_error().empty() ? core_->dials().undialled() : core_->last_error();
  self.last_error = cut_text(trouble, kReasonBytesMax);
  if (core_->joined()) self.protocol = core_->protocol();
  describe_self(self);
  self.keys_expire_unix_s = static_cast<std::uint64_t>(config_.keys_expire_unix_s);
  for (const auto& [id, unreached] : core_->dials().unreached()) {
    local::UnreachedNode& other = self.cannot_reach.emplace_back();
    other.name = unreached.peer.name;
    other.address = Endpoint{unreached.peer.host, unreached.peer.port}.to_string();
    other.why = unreached.why;
  }
  self.manifests_refused = core_->intake().refused_manifests();
  self.archive_bytes = core_->intake().archive_bytes();
  self.archive_trouble = cut_text(core_->intake().archive_trouble(), kReasonBytesMax);
  self.transfer_s = core_->intake().transfer_s();
  self.finish_s = core_->intake().finish_s();
  if (stored != nullptr) {
    self.switch_s = stored->switch_s;
    self.payload = kind_of(stored->manifest.id());
    self.payload_bytes = stored->manifest.payload_bytes;
  }
  return reply;
}

std::string WorkerNode::why_not_ready() const {
  if (core_->joined()) return "";
  return fmt::format("worker {} has not joined its origin {}: {}", config_.name, config_.origin->to_string(),
                     core_->last_error().empty() ? "it is dialling" : cut_text(core_->last_error(), kReasonBytesMax));
}

Result<Version> WorkerNode::next_version() {
  return fail(Errc::kNotAllowed, Op::kPublish,
              fmt::format("this node is a worker; publish on the origin, {}", config_.origin->to_string()));
}

Result<local::HistoryReply> WorkerNode::history(Version) {
  return fail(Errc::kNotAllowed, Op::kRead,
              fmt::format("this node is a worker; the origin remembers publications, {}", config_.origin->to_string()));
}

Status WorkerNode::set_serving(std::string_view, bool) {
  return fail(
      Errc::kNotAllowed, Op::kPlan,
      fmt::format("this node is a worker; activate and release on the origin, {}", config_.origin->to_string()));
}

Status WorkerNode::forget(std::string_view) {
  return fail(Errc::kNotAllowed, Op::kPlan,
              fmt::format("this node is a worker; the origin forgets workers, {}", config_.origin->to_string()));
}

Status WorkerNode::set_provisioned(bool) { return set_serving("", false); }

void WorkerNode::publish(PublishOrder, std::function<void(Result<TakenOver>)> taken) {
  jobs_.post([taken = std::move(taken), refused = next_version().error()] { taken(refused); });
}

std::optional<local::PublishResult> WorkerNode::publish_result(Version, double) { return std::nullopt; }
local::PublishProgress WorkerNode::publish_progress(Version) { return {}; }

}  // namespace weightcast
