#include "transport/node/node.h"

#include <algorithm>

#include "base/text.h"
#include "proto/limits.h"
#include "transport/io/log.h"
#include "transport/node/origin_node.h"
#include "transport/node/role_file.h"
#include "transport/node/tell_changes.h"
#include "transport/node/worker_node.h"

namespace weightcast {
namespace {

constexpr const char* kMemoryIsGone =
    "somebody has deleted the versions in memory; what the disk has of them is being copied there, and others arrive "
    "again";

}  // namespace

std::string_view kind_of(PayloadId payload) {
  return payload.is_packed() ? "packed" : payload.is_encoded() ? "patch" : "full";
}

Status Node::open_base(const DaemonConfig& config) {
  config_ = config;
  StoreOptions options;
  options.directory = config.state;
  options.versions_kept = config.versions_kept;
  options.single_copy = config.single_copy;
  options.single_copy_wait = config.single_copy_wait;
  options.backend = config.disk;
  options.place = config.place;
  options.choose_place = environment_.choose_place;
  options.check_room = environment_.check_room;
  if (config.role == Role::kOrigin) {
    options.keep_durable_every = config.keep_durable_every;
    // Not 0, which is no run.
    options.make_run = [this] { return RunId{environment_.entropy() | 1}; };
  }
  WC_TRY(check_role(environment_.files, config.state, config.role));
  WC_ASSIGN(store_, environment_.open_store(std::move(options)));
  keep_role(environment_.files, config.state, config.role);
  // Accepted connections wait in the listener's backlog until there is a driver: none is accepted before the loop runs.
  WC_ASSIGN(listener_, environment_.network.listen(config.listen, [this](std::unique_ptr<FrameConnection> connection) {
    driver_->accept(std::move(connection));
  }));
  endpoint_ = listener_->endpoint();
  return {};
}

Status Node::serve() {
  driver_ = std::make_unique<Driver>(mutable_core(), *store_, loop(), environment_.network,
                                     DriverLimits{config_.storing_bytes_max, config_.admission});
  WC_ASSIGN(api_, LocalApi::open(loop(), environment_.network, config_.state + "/api.sock", *this));
  driver_->on_change([this] { api_->handle_change(); });
  store_->on_pending_in_place_update([this] { api_->handle_change(); });
  store_->on_lost([this](Version version, const Error& why) {
    driver_->handle_version_lost(version, why);
    api_->handle_change();
  });
  driver_->start();
  log_info("{} {} listens on {}, keeps its state in {}, {} disk", config_.role == Role::kOrigin ? "origin" : "worker",
           config_.name, endpoint().to_string(), config_.state,
           store_->backend() == DiskBackend::kIoUring ? "io_uring" : "thread-pool");
  if (const StorePlace* place = store_->place(); place == nullptr) {
    log_info("the first version decides whether versions lie in memory or on the disk");
  } else {
    log_info("versions lie {}: {}",
             place->memory_directory.empty() ? "on the disk" : "in " + place->memory_directory.native(), place->why);
  }
  return {};
}

void Node::stop(std::string_view reason) {
  listener_.reset();
  jobs_.cancel();
  mutable_core().stop(reason);
  driver_->pump();
}

void Node::close() {
  jobs_.stop();
  api_.reset();
  listener_.reset();
  driver_.reset();
  store_.reset();
}

void Node::apply(const DaemonConfig& config) {
  take_reloaded(config_, config);
  config_.keys_expire_unix_s = config.keys_expire_unix_s;
  tell_limits();
}

Result<std::vector<std::string>> Node::reload() {
  if (environment_.reload) return environment_.reload();
  return LocalService::reload();
}

void Node::apply(const Revocations& revoked) {
  tell_core(revoked);
  const std::int64_t now_unix_s = unix_now_s();
  driver_->refuse_peers([&](const PeerIdentity& peer) {
    return std::ranges::any_of(peer.serials,
                               [&](const std::string& serial) { return revoked.contains(serial, now_unix_s); });
  });
}

void Node::describe_self(local::NodeStatus& self) const {
  if (const StorePlace* place = store_->place(); place == nullptr) {
    self.versions_in = to_string(VersionsIn::kAuto);
    self.versions_in_why = "the first version decides";
  } else {
    self.versions_in = to_string(place->memory_directory.empty() ? VersionsIn::kDisk : VersionsIn::kMemory);
    self.versions_in_why = memory_is_gone() ? kMemoryIsGone : cut_text(place->why, kReasonBytesMax);
  }
  self.disk_bytes_written = disk_bytes_written();
  const auto add = [&](std::string_view reason, std::uint64_t count) {
    if (count == 0) return;
    self.refused.push_back({std::string(reason), count});
  };
  for (std::size_t i = 0; i < kRefusalNames.size(); ++i) {
    const auto reason = static_cast<Refusal>(i);
    add(to_string(reason), driver_->audit().count(reason));
  }
  add("local", api_->refused_count());
  meters_.describe(self);
  const auto add_traffic = [&](const char* direction, const Driver::PayloadBytes& bytes) {
    for (const PayloadKind kind : {PayloadKind::kFull, PayloadKind::kPacked, PayloadKind::kPatch}) {
      self.traffic.push_back({direction, std::string(kind_of({Version{}, kind})), bytes.of(kind)});
    }
  };
  add_traffic("sent", driver_->sent());
  add_traffic("received", driver_->received());
}

local::VersionsReply Node::versions() {
  local::VersionsReply reply;
  for (const StoredVersion& stored : store_->versions()) {
    local::VersionEntry& entry = reply.versions.emplace_back();
    entry.version = stored.manifest.version.value;
    entry.kind = kind_of(stored.manifest.id());
    entry.snapshot_bytes = stored.manifest.snapshot_bytes();
    entry.payload_bytes = stored.manifest.payload_bytes;
    entry.digest = stored.manifest.snapshot_digest.hex();
    entry.path = stored.path.string();
    entry.current = stored.manifest.version == store_->current();
    entry.durable = stored.durable;
    entry.published_unix_ms = stored.manifest.published_unix_ms;
  }
  return reply;
}

bool Node::memory_is_gone() const {
  return store_->lies_in_memory() && !exists(environment_.files, store_->place()->memory_directory / "versions");
}

const StoredVersion* Node::in_use() const {
  const StoredVersion* const current = store_->find(store_->current());
  return current != nullptr ? current : store_->earlier();
}

local::ReadyReply Node::readiness() {
  local::ReadyReply reply;
  reply.why = memory_is_gone() ? kMemoryIsGone : why_not_ready();
  reply.ready = reply.why.empty();
  if (const StoredVersion* stored = in_use()) reply.version = stored->manifest.version.value;
  return reply;
}

std::optional<local::VersionInstalled> Node::installed() {
  const StoredVersion* const stored = in_use();
  return stored == nullptr ? std::nullopt : installed_version(stored->manifest.version);
}

void Node::pin(std::vector<Version> versions) { store_->pin(std::move(versions)); }

void Node::changes(Version from, std::string from_digest, Version to, bool old_values, FileRef into,
                   std::function<void(Result<ListedChanges>)> told) {
  TellChangesRequest request;
  request.from = from;
  request.from_digest = std::move(from_digest);
  request.to = to;
  request.old_values = old_values;
  request.steps = store_->steps(from, to);
  request.into = std::move(into);
  if (const StoredVersion* base = stored_version(from);
      base != nullptr && base->manifest.snapshot_digest.hex() == request.from_digest) {
    request.base = base->path;
  }
  if (const StoredVersion* stored = stored_version(to); stored != nullptr) {
    request.directory = stored->path;
    request.to_digest = stored->manifest.snapshot_digest.hex();
    request.file_tree = stored->manifest.file_tree;
    request.snapshot_bytes = stored->manifest.snapshot_bytes();
  }
  tell_changes(jobs_, environment_.files, std::move(request), std::move(told));
}

const StoredVersion* Node::stored_version(Version version) const {
  if (const StoredVersion* const stored = store_->find(version); stored != nullptr) return stored;
  const StoredVersion* const earlier = store_->earlier();
  return earlier != nullptr && earlier->manifest.version == version ? earlier : nullptr;
}

std::optional<local::VersionInstalled> Node::installed_version(Version version) {
  const StoredVersion* const stored = stored_version(version);
  if (stored == nullptr) return std::nullopt;
  local::VersionInstalled installed;
  installed.run = stored->run;
  installed.version = stored->manifest.version.value;
  installed.path = stored->path.string();
  installed.digest = stored->manifest.snapshot_digest.hex();
  return installed;
}

std::optional<local::VersionPreparing> Node::preparing() {
  if (store_->pending_in_place_update() == kNoVersion) return std::nullopt;
  local::VersionPreparing preparing;
  preparing.version = store_->pending_in_place_update().value;
  return preparing;
}

Result<std::unique_ptr<Node>> open_node(const DaemonConfig& config, NodeEnvironment environment) {
  std::unique_ptr<Node> node;
  if (config.role == Role::kOrigin) {
    node = std::make_unique<OriginNode>(std::move(environment));
  } else {
    node = std::make_unique<WorkerNode>(std::move(environment));
  }
  WC_TRY(node->open_base(config));
  WC_TRY(node->start());
  return node;
}

}  // namespace weightcast
