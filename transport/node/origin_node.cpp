#include "transport/node/origin_node.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "proto/limits.h"
#include "transport/io/log.h"
#include "transport/node/history_archive.h"
#include "transport/node/members/peer_records.h"
#include "transport/node/payload/hash_version.h"
#include "transport/node/payload/make_patch.h"
#include "transport/node/takeover/apply_changes.h"
#include "transport/node/takeover/published_snapshot.h"
#include "transport/node/takeover/takeover.h"

namespace weightcast {
namespace {

constexpr std::size_t kStartedMax = 8;
// Bars that a terminal may show; of more workers the sums are told.
constexpr std::size_t kProgressWorkersMax = 256;

/// Whether it may be the fault of the version that the new one was compared with: then all of the new one helps.
bool is_of_the_base(const Error& error) {
  return error.code == Errc::kCorrupt || error.code == Errc::kNotFound || error.code == Errc::kIo;
}

// A worker looks for its origin for that long at most before it tries again.
constexpr Duration kAwaitedFor = std::chrono::seconds(60);

/// Why that many of the workers will not install the version: what those say that could not. "": they still may.
std::string why_hopeless(const OriginCore& core, PublicationProgress progress, double fraction) {
  std::string why;
  for (const auto& [id, member] : core.members().all()) {
    if (!member.active() || member.installed >= progress.version) continue;
    if (member.failed != progress.version) {
      ++progress.installed;  // it may still
    } else if (why.size() < kReasonBytesMax) {
      why += fmt::format("{}{}: {}", why.empty() ? "" : "; ", member.name, member.last_error);
    }
  }
  return progress.reached(fraction) ? std::string() : why;
}

double received_by(const Member& member, Version version) {
  if (member.installed >= version) return 1;
  if (member.receiving.version != version || member.chunks_total == 0) return 0;
  return std::min(1.0, double(member.chunks_verified) / member.chunks_total);
}

}  // namespace

OriginNode::~OriginNode() { close(); }

Status OriginNode::start() {
  OriginConfig config;
  static_cast<NodeConfig&>(config) = config_;
  static_cast<OriginOptions&>(config) = config_;
  config.run = store_->run().id;
  // The encoder has as many threads as a job.
  config.pack_bytes_per_s = config_.packing_speed.pack_bytes_per_s * loop().threads_per_job_max();
  core_ = std::make_unique<OriginCore>(std::move(config));
  const std::vector<StoredVersion> versions = store_->versions();
  const bool is_proven = !versions.empty() && versions.back().manifest.tree_of_snapshot().chunk_bytes != 0;
  unproven_ = is_proven ? 0 : config_.anchor_interval;
  for (const StoredVersion& stored : store_->versions()) core_->restore(signed_again(stored), stored.chunk_digests);
  for (const StoredPatch& stored : store_->patches()) core_->restore_patch(signed_again(stored), stored.chunk_digests);
  core_->restore_peers(loop().now(), PeerRecordsFile(environment_.files, config_.state).read());
  earlier_ = HistoryArchive(environment_.files, config_.state).read();
  // Whatever an origin finds half-made was never announced.
  for (const PartialVersion& partial : store_->partial()) store_->discard(partial.manifest.id());
  WC_TRY(serve());
  driver_->on_make_payload([this](PayloadId payload) { make(payload); });
  driver_->on_change([this] { handle_change(); });
  if (!config_.enroll.empty()) {
    enrolment_desk_.emplace(jobs_, config_.enroll);
    driver_->on_enroll([this](action::Enroll asked) { enroll(std::move(asked)); });
  }
  return {};
}

ManifestAuthor OriginNode::author() const { return {store_->run().id, environment_.signer}; }

// It may have been stored under other keys, or under none.
template <typename Stored>
std::shared_ptr<const Manifest> OriginNode::signed_again(const Stored& stored) const {
  auto manifest = std::make_shared<Manifest>(stored.manifest);
  author().sign(*manifest);
  return manifest;
}

void OriginNode::handle_change() {
  if (!started_.empty()) {
    Started& newest = started_.rbegin()->second;
    if (!newest.first_sent_at && driver_->chunk_bytes_sent() > newest.egress_bytes) newest.first_sent_at = loop().now();
  }
  api_->handle_change();
  write_history();
  const std::uint64_t generation = core_->peer_records_generation();
  if (writing_peer_records_ || generation == peer_records_written_) return;
  writing_peer_records_ = true;
  peer_records_written_ = generation;
  jobs_.run(
      [file = PeerRecordsFile(environment_.files, config_.state), records = core_->peer_records(loop().now())] {
        if (Status s = file.write(records); !s.has_value()) log_warning("peer records: {}", s.error().message());
      },
      [this] { writing_peer_records_ = false; });
}

// What has ended changes seldom, so that most calls look at the newest publication alone.
void OriginNode::write_history() {
  const std::map<Version, PublicationRecord>& all = core_->history().all();
  if (writing_history_ || all.empty()) return;
  const auto state_of = [](const PublicationRecord& record) {
    return Written{record.end, record.installed, record.taken};
  };
  std::pair newest(all.rbegin()->first, state_of(all.rbegin()->second));
  // Not anew with each engine of a large fleet: with the last one, or when another version is the newest.
  if (newest.second.taken < newest.second.installed) newest.second.taken = 0;
  if (history_seen_ == newest) return;
  history_seen_ = newest;
  std::erase_if(history_written_, [&](const auto& one) { return !all.contains(one.first); });
  std::vector<std::pair<Version, std::string>> replies;
  for (const auto& [version, record] : all) {
    if (record.end == PublicationRecord::End::kUnderWay) continue;
    // One that a process before has written is only wanted again, unless its number was given to another.
    const auto before = earlier_.find(version);
    if (before != earlier_.end() && before->second.entry.state != to_string(PublicationRecord::End::kGivenUp)) continue;
    const auto [known, is_new] = history_written_.try_emplace(version, state_of(record));
    if (!is_new && known->second == state_of(record)) continue;
    known->second = state_of(record);
    const auto reply = history_reply(core_->history(), version, config_.name, loop().now());
    if (reply.has_value()) replies.emplace_back(version, local::encode_history(*reply));
  }
  if (replies.empty()) return;
  writing_history_ = true;
  jobs_.run(
      [archive = HistoryArchive(environment_.files, config_.state), replies = std::move(replies)] {
        for (const auto& [version, reply] : replies) {
          const Status written = archive.write(version, reply);
          if (!written.has_value()) return log_warning("history: {}", written.error().message());
        }
      },
      [this] {
        writing_history_ = false;
        history_seen_.reset();
      });
}

Result<Version> OriginNode::next_version() {
  const Version last = core_->publications().last_used();
  if (last < kVersionMax) return Version{last.value + 1};
  return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("version {} was the last possible one", last.value));
}

Status OriginNode::set_serving(std::string_view name, bool serves) {
  const Status set = core_->set_serving(loop().now(), name, serves);
  driver_->pump();
  return set;
}

Status OriginNode::forget(std::string_view name) {
  const Status forgotten = core_->forget_worker(loop().now(), name);
  driver_->pump();
  handle_change();  // peers.json is without it, too
  return forgotten;
}

Status OriginNode::set_provisioned(bool provisioned) {
  core_->set_provisioned(provisioned);
  return {};
}

void OriginNode::publish(PublishOrder order, std::function<void(Result<TakenOver>)> taken) {
  const Version version = order.version;
  Status ok =
      jobs_.cancelled() ? Status{Jobs::cancelled_error(Op::kPublish)} : core_->publications().check_version(version);
  if (ok.has_value() && order.changes) ok = check_base(version, order.base);
  if (ok.has_value() && environment_.may_sign) ok = environment_.may_sign(loop().unix_ms() / 1000);
  if (!ok.has_value()) {
    jobs_.post([taken = std::move(taken), error = ok.error()] { taken(error); });
    return;
  }
  Publishing publishing{version, order.base, order.allow_nonfinite, loop().now(), std::move(taken)};
  if (order.changes) {
    return publish_changes(std::move(publishing),
                           listed_changes(std::move(order.region), order.changes_bytes, !order.allow_nonfinite));
  }
  SnapshotOrder snapshot{.version = version,
                         .path = std::move(order.path),
                         .region = std::move(order.region),
                         .region_bytes = order.region_bytes,
                         .files = std::move(order.files),
                         .files_bytes = order.files_bytes,
                         .file_tree = order.file_tree,
                         .new_model = order.new_model};
  if (const StoredVersion* before = store_->find(core_->publications().latest()); before != nullptr) {
    publishing.base = snapshot.before = before->manifest.version;
    snapshot.before_path = before->path;
    snapshot.before_files = before->manifest.files;
    snapshot.before_is_tree = before->manifest.file_tree;
  }
  auto opened = std::make_shared<Result<PublishedSnapshot>>(Jobs::cancelled_error(Op::kPublish));
  jobs_.run([this, opened,
             snapshot = std::move(snapshot)] { *opened = PublishedSnapshot::open(environment_.files, snapshot); },
            [this, opened, publishing = std::move(publishing)]() mutable {
              if (!opened->has_value()) return end_publication(publishing, opened->error());
              publish_snapshot(std::move(publishing), std::make_shared<const PublishedSnapshot>(std::move(**opened)));
            });
}

// Where little has changed, it is found by one comparison and published as a list would be.
void OriginNode::publish_snapshot(Publishing publishing, std::shared_ptr<const PublishedSnapshot> snapshot) {
  if (!snapshot->notice.empty()) {
    log_warning("{}", snapshot->notice);
    publishing.taken = [notice = snapshot->notice, taken = std::move(publishing.taken)](Result<TakenOver> over) {
      if (over.has_value()) over->notice = notice;
      taken(std::move(over));
    };
  }
  if (!config_.patches || !is_worth_comparing(*snapshot)) {
    return take_over_snapshot(std::move(publishing), std::move(snapshot));
  }
  auto changes = compared_snapshot(snapshot, !publishing.allow_nonfinite);
  publish_changes(publishing, std::move(changes), [this, publishing, snapshot](const Error& why) {
    log_warning("version {} is taken over whole: {}", publishing.version.value, why.message());
    take_over_snapshot(publishing, snapshot);
  });
}

void OriginNode::take_over_snapshot(Publishing publishing, std::shared_ptr<const PublishedSnapshot> snapshot) {
  TakeoverRequest takeover;
  takeover.version = publishing.version;
  takeover.snapshot = std::move(snapshot);
  takeover.model_id = config_.model_id;
  takeover.allow_nonfinite = publishing.allow_nonfinite;
  takeover.sample_packing = compresses_weights();
  takeover.author = author();
  takeover.choose_chunk_bytes = chunk_bytes_chooser();
  PayloadObserver observer = observe(publishing.version);
  observer.begun = [this, version = publishing.version, begun = std::move(observer.begun)](
                       std::shared_ptr<const Manifest> manifest, double packed_share) {
    note_started(version);
    begun(std::move(manifest), packed_share);
  };
  observer.done = [this, publishing = std::move(publishing)](const Result<MadePayload>& made) {
    end_publication(publishing, made);
  };
  take_over(jobs_, *store_, std::move(takeover), std::move(observer));
}

bool OriginNode::compresses_weights() const {
  return config_.packing == Packing::kAlways ||
         (config_.packing == Packing::kAuto && core_->planned_uplink().limited());
}

// The one before it may have been refused since it was asked for.
Status OriginNode::check_base(Version version, Version base) const {
  const Version latest = core_->publications().latest();
  if (base == latest && store_->find(base) != nullptr) return {};
  return wrong_base(version, base, latest);
}

void OriginNode::publish_changes(Publishing publishing, std::unique_ptr<ChangeSource> source,
                                 std::function<void(const Error&)> base_lost) {
  ChangesRequest changes;
  changes.version = publishing.version;
  changes.base = publishing.base;
  changes.changes = std::move(source);
  changes.model_id = config_.model_id;
  changes.makes_patch = config_.patches;
  // The patches that lead on from a proof are kept for so long.
  changes.proves_result = environment_.signer != nullptr && unproven_ + 1 >= config_.anchor_interval;
  changes.author = author();
  changes.choose_chunk_bytes = chunk_bytes_chooser();
  note_started(publishing.version);
  PayloadObserver observer = observe(publishing.version);
  observer.done = [this, publishing = std::move(publishing),
                   base_lost = std::move(base_lost)](const Result<MadePayload>& made) {
    const bool is_lost = !made.has_value() && base_lost && is_of_the_base(made.error());
    if (!is_lost) return end_publication(publishing, made);
    core_->handle_publish_failed(loop().now(), publishing.version, made.error().detail);
    base_lost(made.error());
  };
  apply_changes(jobs_, environment_.files, *store_, std::move(changes), std::move(observer));
}

std::function<std::uint32_t(std::uint64_t)> OriginNode::chunk_bytes_chooser() {
  return [this](std::uint64_t bytes) { return core_->publications().plan_for(loop().now(), bytes).chunk_bytes; };
}

PayloadObserver OriginNode::observe(Version version) {
  PayloadObserver observer;
  observer.begun = [this](std::shared_ptr<const Manifest> manifest, double packed_share) {
    core_->handle_publish_begun(loop().now(), std::move(manifest), packed_share);
    driver_->pump();
  };
  observer.grown = [this](const MadePayload& grown) {
    core_->handle_publish_grown(loop().now(), grown);
    driver_->pump();
  };
  observer.withdrawn = [this, version](const Error& why) {
    log_info("version {} is sent whole: {}", version.value, why.detail);
    core_->handle_publish_failed(loop().now(), version, why.detail);
    driver_->pump();
  };
  return observer;
}

void OriginNode::note_started(Version version) {
  started_[version] = {loop().now(), driver_->chunk_bytes_sent(), {}};
  while (started_.size() > kStartedMax) started_.erase(started_.begin());
}

void OriginNode::end_publication(const Publishing& publishing, const Result<MadePayload>& made) {
  const Version version = publishing.version;
  if (!made.has_value()) {
    log_warning("version {} was not published: {}", version.value, made.error().message());
    started_.erase(version);
    core_->handle_publish_failed(loop().now(), version, made.error().message());
    driver_->pump();
    return publishing.taken(made.error());
  }
  meters_.note(NodeMeters::Phase::kTake, loop().now() - publishing.started_at);
  unproven_ = made->manifest->tree_of_snapshot().chunk_bytes != 0 ? 0 : unproven_ + 1;
  core_->handle_publish(loop().now(), publishing.started_at, *made);
  driver_->pump();
  publishing.taken(TakenOver{made->manifest->snapshot_bytes()});
}

void OriginNode::make(PayloadId payload) {
  const auto choose_chunk_bytes = chunk_bytes_chooser();
  PayloadObserver observer;
  observer.begun = [this](std::shared_ptr<const Manifest> manifest, bool) {
    core_->handle_payload_begun(loop().now(), std::move(manifest));
    driver_->pump();
  };
  observer.grown = [this](const MadePayload& grown) {
    core_->handle_payload_grown(loop().now(), grown);
    driver_->pump();
  };
  observer.done = [this, payload, began_at = loop().now()](Result<MadePayload> made) {
    if (payload.is_encoded()) {
      encode_s_ = to_seconds(loop().now() - began_at);
      meters_.note(NodeMeters::Phase::kEncode, loop().now() - began_at);
    }
    core_->handle_payload_made(loop().now(), payload, made);
    driver_->pump();
  };
  if (payload.is_full()) {
    return hash_version(jobs_, environment_.files, *store_, {payload.version, author(), choose_chunk_bytes},
                        std::move(observer));
  }
  MakePatchRequest request{payload, config_.model_id, choose_chunk_bytes, author(), compresses_weights()};
  make_patch(jobs_, environment_.files, *store_, std::move(request), std::move(observer));
}

void OriginNode::enroll(action::Enroll enroll) {
  wire::Enroll& asked = enroll.request;
  EnrolmentRequest request{.token_id = std::move(*asked.mutable_token_id()),
                           .token_secret = std::move(*asked.mutable_token_secret()),
                           .name = std::move(*asked.mutable_name()),
                           .host_name = std::move(*asked.mutable_host_name()),
                           .key = std::move(*asked.mutable_key())};
  enrolment_desk_->handle(std::move(request), enroll.host, [this, conn = enroll.conn](Result<Enrolled> made) {
    if (made.has_value()) {
      core_->handle_enrolled(conn, EnrolledWorker{made->name, std::move(made->certificates)});
    } else {
      core_->handle_enrolled(conn, made.error());
    }
    driver_->pump();
  });
}

std::optional<local::PublishResult> OriginNode::publish_result(Version version, double fraction) {
  const auto progress = core_->publications().progress(version);
  if (!progress) return std::nullopt;
  local::PublishResult result;
  result.version = version.value;
  if (!progress->undecided) result.kind = static_cast<std::uint32_t>(progress->kind);
  result.payload_bytes = progress->payload_bytes;
  result.workers = progress->active;
  result.installed = progress->installed;
  if (progress->t50) result.t50_s = to_seconds(*progress->t50);
  if (progress->t90) result.t90_s = to_seconds(*progress->t90);
  if (progress->t100) result.t100_s = to_seconds(*progress->t100);
  result.reached = fraction <= 0 || progress->reached(fraction);
  result.topology = to_string(progress->topology);
  result.predicted_s = to_seconds(progress->predicted);
  if (const auto started = started_.find(version); started != started_.end()) {
    result.origin_egress_bytes = driver_->chunk_bytes_sent() - started->second.egress_bytes;
  }
  result.missing = progress->missing;
  if (!result.reached) result.hopeless = why_hopeless(*core_, *progress, fraction);
  return result;
}

local::PublishProgress OriginNode::publish_progress(Version version) {
  local::PublishProgress progress;
  progress.version = version.value;
  if (const auto now = core_->publications().progress(version)) progress.payload_bytes = now->payload_bytes;
  if (const auto started = started_.find(version); started != started_.end()) {
    progress.elapsed_s = to_seconds(loop().now() - started->second.at);
  }
  const auto add = [&](const Member& member) {
    local::WorkerProgress& worker = progress.workers.emplace_back();
    worker.name = member.name;
    worker.installed = member.installed >= version;
    if (member.receiving.version == version) {
      worker.chunks_verified = member.chunks_verified;
      worker.chunks_total = member.chunks_total;
      worker.receive_bytes_per_s = member.receive_bytes_per_s;
    }
  };
  std::uint32_t workers = 0, installed = 0;
  double received = 0;
  for (const auto& [id, member] : core_->members().all()) {
    if (!member.active()) continue;
    ++workers;
    installed += member.installed >= version ? 1 : 0;
    received += received_by(member, version);
  }
  // A fleet that fits keeps its order, so that bars stay where they are.
  const bool all_fit = workers <= kProgressWorkersMax;
  for (const bool done : {false, true}) {
    for (const auto& [id, member] : core_->members().all()) {
      if (progress.workers.size() == kProgressWorkersMax) break;
      if (member.active() && (all_fit ? !done : done == (member.installed >= version))) add(member);
    }
  }
  progress.workers_total = workers;
  progress.installed = installed;
  progress.received = workers > 0 ? received / workers : 0;
  return progress;
}

void OriginNode::add_unreached(const Member& member, local::NodeStatus& self, local::NodeStatus& node) const {
  const auto add = [](local::NodeStatus& to, const Member& of, const std::string& why) {
    if (to.cannot_reach.size() >= kUnreachedMax) return;
    local::UnreachedNode& unreached = to.cannot_reach.emplace_back();
    unreached.name = of.name;
    unreached.address = Endpoint{of.host, of.port}.to_string();
    unreached.why = why;
  };
  if (member.connected() && member.unreachable && !member.cannot_dial.empty()) add(self, member, member.cannot_dial);
  for (const auto& [id, unreached] : member.cannot_reach) {
    if (const Member* other = core_->members().find(id)) add(node, *other, unreached.why);
  }
}

Result<local::HistoryReply> OriginNode::history(Version version) {
  return history_reply(core_->history(), version, config_.name, loop().now(), earlier_);
}

void OriginNode::describe_absent(PeerId id, const Member& member, local::NodeStatus& node) {
  const Duration absent = loop().now() - member.heard_at;
  if (member.protocol == 0 && absent < kAwaitedFor) node.state = "awaited";
  AbsentSince& since = absent_since_[id];
  if (since.unix_ms == 0 || since.at != member.heard_at) {
    since = {member.heard_at, loop().unix_ms() - std::chrono::duration_cast<std::chrono::milliseconds>(absent).count()};
  }
  node.lost_unix_ms = static_cast<std::uint64_t>(std::max<UnixMillis>(0, since.unix_ms));
}

local::StatusReply OriginNode::status() {
  local::StatusReply reply;
  reply.latest_version = core_->publications().latest().value;
  reply.model_id = config_.model_id;
  reply.run_id = to_string(store_->run().id);
  const Plan* plan = core_->publications().latest_plan();
  const auto name_of = [&](PeerId id) {
    const Member* member = core_->members().find(id);
    return id == kOriginId ? config_.name : member != nullptr ? member->name : std::string();
  };

  std::map<PeerId, local::NodeStatus> nodes;
  local::NodeStatus& self = nodes[kOriginId];
  self.name = config_.name;
  self.role = "origin";
  self.version = core_->publications().latest().value;
  self.address = endpoint().to_string();
  self.state = "idle";
  self.uplink_bytes_per_s = core_->planned_uplink().bytes_per_s;
  self.downlink_bytes_per_s = config_.downlink.bytes_per_s;
  self.bytes_sent = driver_->chunk_bytes_sent();
  self.encode_s = encode_s_;
  self.last_error = core_->last_error();
  self.protocol = kProtocolVersion;
  describe_self(self);
  self.keys_expire_unix_s = static_cast<std::uint64_t>(config_.keys_expire_unix_s);
  if (const auto newest = started_.rbegin(); newest != started_.rend() && newest->second.first_sent_at) {
    self.first_sent_s = to_seconds(*newest->second.first_sent_at - newest->second.at);
  }
  for (const auto& [id, member] : core_->members().all()) {
    if (member.forgotten) continue;
    local::NodeStatus& node = nodes[id];
    node.peer_id = id.value;
    node.name = member.name;
    node.role = "worker";
    node.version = member.installed.value;
    node.address = Endpoint{member.host, member.port}.to_string();
    node.state = to_string(member.state(core_->publications().latest()));
    if (!member.connected()) describe_absent(id, member, node);
    if (member.is_receiving()) {
      node.receiving_version = member.receiving.version.value;
      node.chunks_verified = member.chunks_verified;
      node.chunks_total = member.chunks_total;
      node.receive_bytes_per_s = member.receive_bytes_per_s;
    }
    node.uplink_bytes_per_s = member.planned_uplink().bytes_per_s;
    node.downlink_bytes_per_s = member.planned_downlink().bytes_per_s;
    node.bytes_received = member.bytes_received;
    node.bytes_sent = member.bytes_sent;
    node.last_error = cut_text(member.last_error, kReasonBytesMax);
    node.offence = cut_text(member.offence, kReasonBytesMax);
    if (member.connected()) node.protocol = member.protocol;
    node.complaints = static_cast<std::uint32_t>(core_->faults().complaints_of(id));
    node.complains = static_cast<std::uint32_t>(core_->faults().complaints_by(id));
    add_unreached(member, self, node);
    if (member.connected() && member.identity) {
      node.keys_expire_unix_s = static_cast<std::uint64_t>(member.identity->expires_unix_s);
    }
    node.payload = to_string(member.installed_path);
    node.payload_bytes = member.installed_bytes;
    node.score = member.score_at(loop().now());
    node.standing = member.leaf_only     ? "leaf"
                    : member.unreachable ? "unreachable"
                                         : std::string(to_string(member.standing.standing()));
  }
  if (plan != nullptr && !plan->stripes.empty()) {
    reply.topology = to_string(plan->topology);
    reply.predicted_s = to_seconds(plan->predicted_t100);
    for (std::size_t i = 0; i < plan->members.size(); ++i) {
      // A member that was lost may still be planned when it is not known any more.
      const auto node = nodes.find(plan->members[i]);
      if (node != nodes.end()) node->second.parent = name_of(plan->stripes[0].parents[i]);
    }
  }
  for (auto& [id, node] : nodes) reply.nodes.push_back(std::move(node));
  return reply;
}

}  // namespace weightcast
