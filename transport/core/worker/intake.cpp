#include "transport/core/worker/intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/units.h"
#include "transport/core/deadline.h"
#include "transport/core/manifest/payload_wire.h"

namespace weightcast {
namespace {

// A worker whose own disk failed tries the same version again after this.
constexpr Duration kRetryAfter = std::chrono::seconds(10);
// After a payload was given up that is announced again, of other bytes: until what the disk still writes of the first
// one is done.
constexpr Duration kReplaceAfter = std::chrono::seconds(1);
constexpr std::string_view kNotKept = "the origin keeps it no longer";

}  // namespace

void Intake::stop() {
  if (incoming_) cancel_incoming();
}

void Intake::cancel_incoming() {
  incoming_->download->cancel();
  if (!incoming_->archive) return;
  incoming_->archive->cancel();
  archive_trouble_ = incoming_->archive->trouble();
}

void Intake::ask_archive(Instant now) {
  if (incoming_ && incoming_->archive && incoming_->phase == Phase::kReceiving && !incoming_->holding->open()) {
    incoming_->archive->handle_ready(now);
  }
}

// ---- what the origin says

void Intake::handle_rejoined() {
  if (incoming_) incoming_->download->handle_rejoined();
  // What is to come next is said anew: this origin may have another plan for it by now, or not have it at all.
  announced_.reset();
  retry_at_.reset();
  last_error_.clear();
  // It may have been lost with the connection before. The joining itself says what is installed, but not how.
  if (installed_phases_ && !incoming_) send_installed();
}

void Intake::handle_not_available(Instant now, PayloadId payload) {
  if (announced_ && announced_->manifest->id() == payload) announced_.reset();
  if (!is_incoming(payload)) {
    if (!payload.is_encoded()) announced_versions_.forget(payload.version);
    return;
  }
  incoming_->download->handle_withdrawn();
  // An open version that the origin does not go on with is no version, and nobody has all of it.
  if (incoming_->holding->open() && !payload.is_encoded()) {
    announced_versions_.forget(payload.version);
    return abandon_incoming(now, "the origin withdrew it");
  }
  if (announced_) abandon_incoming(now, kNotKept);
}

void Intake::handle_revocations(Instant now) {
  if (announced_) {
    if (const Status accepted = acceptance_.check(*announced_->manifest, run_); !accepted.has_value()) {
      refuse(announced_->manifest->id(), accepted.error());
      announced_.reset();
    }
  }
  if (!incoming_ || incoming_->phase == Phase::kFinishing) return;
  const Status accepted = acceptance_.check(incoming_->holding->manifest(), run_);
  if (accepted.has_value()) return;
  ++refused_manifests_;
  const PayloadId payload = incoming_->id;
  fail_incoming(now, accepted.error(), true);
  if (!announced_ || announced_->manifest->id() != payload) return;
  announced_.reset();
  retry_at_.reset();
}

void Intake::refuse(PayloadId payload, const Error& why) {
  ++refused_manifests_;
  reports_.send_failed(payload, why);
  refuse_announced(why);
}

void Intake::handle_announce(Instant now, const wire::Announce& announce) {
  Result<Manifest> manifest = manifest_from_wire(announce.manifest());
  if (!manifest.has_value()) return refuse_announced(manifest.error());
  if (manifest->version <= installed_version()) return send_installed();
  announced_versions_.handle_announced(now, manifest->version, receiving().version);
  if (const Status accepted = acceptance_.check(*manifest, run_); !accepted.has_value()) {
    if (asks_for_full(manifest->id(), accepted.error().code)) base_unusable_ = true;
    return refuse(manifest->id(), accepted.error());
  }
  Result<Assignment> assignment = assignment_from_wire(announce.assignment());
  if (!assignment.has_value()) return refuse_announced(assignment.error());
  if (assignment->payload != manifest->id()) {
    return refuse_announced(fail(Errc::kCorrupt, Op::kPlan, "announce: an assignment of another payload"));
  }
  const bool same_id = is_incoming(manifest->id());
  if (same_id) {
    const Manifest& here = incoming_->holding->manifest();
    const bool grown = continues(here, *manifest);
    // A restarted origin makes an open patch anew, the same bytes again, and may not have come as far yet. A version
    // that it takes over anew may be another.
    if (grown || (here.id().is_encoded() && continues(*manifest, here))) {
      incoming_->download->handle_announced();
      announced_.reset();  // what is said last counts: should this one fail, it is this one that is tried again
      assign(now, std::move(*assignment));
      if (grown) grow_incoming(now, std::make_shared<const Manifest>(std::move(*manifest)));
      return;
    }
  }
  // What is said last counts: an origin that no longer has what is arriving leads this worker on from what it
  // installed.
  announced_ = Announced{std::make_shared<const Manifest>(std::move(*manifest)), std::move(*assignment)};
  const bool behind = incoming_ && incoming_->id.version > announced_->manifest->version;
  if (behind && !incoming_->download->withdrawn()) return;
  retry_at_.reset();
  if (same_id) return abandon_incoming(now, "the origin announces other bytes under its number");
  if (incoming_ && incoming_->download->withdrawn()) return abandon_incoming(now, kNotKept);
  if (incoming_ && cheaper_than_incoming(*announced_->manifest)) {
    return abandon_incoming(now, "what is announced takes fewer bytes than are missing of it");
  }
  take_up_newest(now);
}

void Intake::refuse_announced(const Error& why) {
  last_error_ = why.message();
  actions_.push(action::warning(last_error_));
}

bool Intake::fits(const Manifest& manifest) const {
  const PayloadId payload = manifest.id();
  if (!payload.is_encoded()) return true;
  return !base_unusable_ && (payload.is_packed() || payload.base == installed_version());
}

bool Intake::cheaper_than_incoming(const Manifest& manifest) const {
  if (incoming_->phase == Phase::kFinishing || !fits(manifest)) return false;
  const Holding& holding = *incoming_->holding;
  const std::uint64_t here_bytes = std::uint64_t{holding.verified().count()} * holding.manifest().chunk_bytes;
  return manifest.planned_bytes() + here_bytes < holding.manifest().planned_bytes();
}

void Intake::handle_assignment(Instant now, const wire::Assignment& message) {
  Result<Assignment> assignment = assignment_from_wire(message);
  if (!assignment.has_value()) return actions_.push(action::warning(assignment.error().message()));
  assign(now, std::move(*assignment));
}

void Intake::assign(Instant now, Assignment assignment) {
  const PayloadId payload = assignment.payload;
  if (is_incoming(payload)) {
    if (Status s = incoming_->download->assign(now, origin_.id(), assignment); !s.has_value()) {
      return actions_.push(action::warning(s.error().message()));
    }
    incoming_->assignment = std::move(assignment);
    report_faults(now);
  } else if (announced_ && announced_->manifest->id() == payload && assignment.epoch > announced_->assignment.epoch) {
    announced_->assignment = std::move(assignment);
  }
}

void Intake::handle_growth(Instant now, const wire::Growth& growth) {
  const PayloadId payload = payload_of(growth);
  const bool waits = !is_incoming(payload) && announced_ && announced_->manifest->id() == payload;
  if (!is_incoming(payload) && !waits) return;
  if (!waits && incoming_->phase == Phase::kFinishing) return;  // it is whole
  const Manifest& known = waits ? *announced_->manifest : incoming_->holding->manifest();
  Result<Manifest> grown = grown_by(known, growth);
  if (!grown.has_value()) return actions_.push(action::warning(grown.error().message()));
  const Status accepted = *grown == known ? Status() : acceptance_.check(*grown, run_);
  if (!accepted.has_value()) {
    if (waits) {
      announced_.reset();
      return refuse(payload, accepted.error());
    }
    ++refused_manifests_;
    return fail_incoming(now, accepted.error(), true);
  }
  auto manifest = std::make_shared<const Manifest>(std::move(*grown));
  if (waits) {
    announced_->manifest = std::move(manifest);
  } else {
    grow_incoming(now, std::move(manifest));
  }
}

void Intake::grow_incoming(Instant now, std::shared_ptr<const Manifest> manifest) {
  if (!is_incoming(manifest->id()) || !incoming_->holding->open()) return;
  incoming_->holding->grow(manifest);
  if (incoming_->phase != Phase::kBeginning) {
    incoming_->stored.grow(manifest->chunk_count());
    actions_.push(action::GrowPayload{std::move(manifest)});
  }
  incoming_->download->handle_grown(now);
  uploads_.handle_known(incoming_->id);
  ask_archive(now);
  report_faults(now);
  finish_if_complete(now);
}

// ---- what comes from parents

void Intake::handle_open(Instant now, ConnId conn) {
  if (incoming_) incoming_->download->handle_open(now, conn);
}

void Intake::handle_closed(Instant now, ConnId conn, bool was_made) {
  if (incoming_) incoming_->download->handle_closed(now, conn, was_made);
  report_faults(now);
}

void Intake::handle_message(Instant now, ConnId conn, const wire::Message& message) {
  using Kind = wire::Message::KindCase;
  if (!incoming_) return;
  Download& download = *incoming_->download;
  switch (message.kind_case()) {
    case Kind::kDigestPart:
      // Before the store has begun nobody was asked for any, and the store could not keep them.
      if (payload_of(message.digest_part()) != incoming_->id || incoming_->phase != Phase::kReceiving) break;
      if (Status s = download.handle_digest_part(now, conn, message.digest_part().part(),
                                                 std::as_bytes(std::span(message.digest_part().digests())));
          !s.has_value()) {
        actions_.push(action::warning(s.error().message()));
      } else {
        uploads_.handle_known(incoming_->id);  // it may have released chunks that came before it
      }
      break;
    case Kind::kUpToDate:
      if (payload_of(message.up_to_date()) == incoming_->id) {
        download.handle_up_to_date(now, conn, message.up_to_date().stripe());
      }
      break;
    case Kind::kUnsubscribed:
      if (payload_of(message.unsubscribed()) == incoming_->id) {
        download.handle_unsubscribed(now, conn, message.unsubscribed().stripe());
      }
      break;
    case Kind::kNotAvailable:
      if (payload_of(message.not_available()) != incoming_->id) break;
      download.handle_not_available(now, conn);
      if (download.withdrawn() && announced_) return abandon_incoming(now, kNotKept);
      break;
    default: break;
  }
  report_faults(now);
}

void Intake::handle_chunk(Instant now, ConnId conn, const ChunkArrival& chunk) {
  if (!is_incoming(chunk.payload) || incoming_->phase != Phase::kReceiving) return;
  bytes_received_ += chunk.size_bytes;
  if (incoming_->download->handle_chunk(now, conn, chunk)) uploads_.handle_verified(chunk.payload, chunk.chunk);
  if (!incoming_->verified_at && incoming_->holding->complete()) incoming_->verified_at = now;
  report_faults(now);
}

// ---- what comes from the archive

void Intake::handle_archive_found(Instant now, PayloadId payload, std::uint32_t request,
                                  Result<std::vector<ContentDigest>> digests) {
  if (!is_incoming(payload) || !incoming_->archive || incoming_->phase != Phase::kReceiving) return;
  if (incoming_->archive->handle_found(now, request, std::move(digests))) uploads_.handle_known(payload);
}

void Intake::handle_archive_chunk(Instant now, std::uint32_t request, const ChunkArrival& chunk) {
  if (!is_incoming(chunk.payload) || !incoming_->archive || incoming_->phase != Phase::kReceiving) return;
  bytes_received_ += chunk.size_bytes;
  if (incoming_->archive->handle_chunk(now, request, chunk)) {
    archive_bytes_ += chunk.size_bytes;
    uploads_.handle_verified(chunk.payload, chunk.chunk);
  }
  if (!incoming_->verified_at && incoming_->holding->complete()) incoming_->verified_at = now;
}

void Intake::handle_archive_ended(Instant now, PayloadId payload, std::uint32_t request, const Status& status) {
  if (is_incoming(payload) && incoming_->archive) incoming_->archive->handle_ended(now, request, status);
}

// ---- one version, from announced to installed

void Intake::take_up_newest(Instant now) {
  if (incoming_ || !announced_ || retry_at_) return;
  if (announced_->manifest->id() == abandoned_ && now < abandoned_at_ + kReplaceAfter) {
    retry_at_ = abandoned_at_ + kReplaceAfter;
    return;
  }
  Announced next = *std::exchange(announced_, std::nullopt);
  if (next.manifest->version <= installed_version()) return;
  // A patch on another version than is installed by now: the origin hears what is, and assigns what fits.
  if (!fits(*next.manifest)) {
    if (installed_version() != kNoVersion) send_installed();
    return;
  }
  const PayloadId payload = next.manifest->id();
  incoming_ = Incoming{};
  incoming_->id = payload;
  incoming_->holding = &held_.begin(next.manifest);
  incoming_->assignment = next.assignment;
  incoming_->download =
      std::make_unique<Download>(config_.timeouts, config_.streams, *incoming_->holding, links_, actions_);
  if (config_.archive && payload.is_full()) {
    incoming_->archive = std::make_unique<ArchiveDownload>(config_, *incoming_->download, *incoming_->holding, actions_,
                                                           archive_requests_);
    incoming_->archive->handle_disk_behind(now, disk_is_behind_);
  }
  incoming_->begun_open = next.manifest->open;
  incoming_->begun_at = now;
  if (disk_is_behind_) incoming_->disk_behind_since = now;
  actions_.push(action::BeginPayload{next.manifest});
  if (Status s = incoming_->download->assign(now, origin_.id(), next.assignment); !s.has_value()) {
    return fail_incoming(now, s.error(), false);
  }
  links_.close_unless([&](ConnId conn) { return incoming_->download->uses(conn); });
  uploads_.handle_known(payload);
  // The origin plans a payload with those who receive it: it should not learn half a second late that this one does.
  if (origin_.joined()) send_heartbeat(now);
}

void Intake::handle_begun(Instant now, PayloadId payload, Result<RestoredPayload> restored) {
  if (!is_incoming(payload) || incoming_->phase != Phase::kBeginning) return;
  if (!restored.has_value()) return fail_incoming(now, restored.error(), false);
  Holding& holding = *incoming_->holding;
  holding.restore(restored->chunk_digests, restored->held);
  if (holding.verified().count() > 0) {
    actions_.push(action::info(fmt::format("version {}: {} of {} chunks were here already", payload.version.value,
                                           holding.verified().count(), holding.manifest().chunk_count())));
  }
  incoming_->stored = holding.verified();
  incoming_->phase = Phase::kReceiving;
  if (incoming_->begun_open) actions_.push(action::GrowPayload{holding.shared_manifest()});
  incoming_->download->handle_storage_ready(now);
  uploads_.handle_known(payload);
  ask_archive(now);
  finish_if_complete(now);
}

void Intake::handle_stored(Instant now, PayloadId payload, ChunkIndex chunk, const Status& status) {
  if (!is_incoming(payload) || incoming_->phase == Phase::kFinishing) return;
  if (!status.has_value()) {
    return fail_incoming(now, status.error(), asks_for_full(payload, status.error().code));
  }
  // Also of an earlier attempt at this version: what that one stored is stored.
  if (chunk.value < incoming_->stored.size()) incoming_->stored.insert(chunk);
  finish_if_complete(now);
}

void Intake::finish_if_complete(Instant now) {
  if (!incoming_ || incoming_->phase != Phase::kReceiving || !incoming_->holding->complete()) return;
  if (!incoming_->stored.complete()) return;
  incoming_->phase = Phase::kFinishing;
  incoming_->stored_at = now;
  if (incoming_->archive) incoming_->archive->cancel();
  if (config_.single_copy && incoming_->id.is_patch()) {
    held_.withdraw(incoming_->id.base, "this node updates its only copy in place");
  }
  actions_.push(action::FinishPayload{incoming_->id});
}

void Intake::handle_disk_behind(Instant now, bool is_behind) {
  disk_is_behind_ = is_behind;
  if (!incoming_) return;
  if (incoming_->archive) incoming_->archive->handle_disk_behind(now, is_behind);
  std::optional<Instant>& since = incoming_->disk_behind_since;
  if (is_behind) {
    if (!since) since = now;
  } else if (since) {
    // Once all is here, to wait for the disk is what storing is.
    const Instant until = std::min(now, incoming_->verified_at.value_or(now));
    incoming_->disk_behind += std::max(until - *std::exchange(since, std::nullopt), Duration::zero());
  }
}

InstallPhases Intake::phases_of(Instant now, const Incoming& installed, Duration switching) const {
  const Instant verified_at = std::min(installed.verified_at.value_or(installed.stored_at), installed.stored_at);
  const Instant first_at = std::min(installed.download->first_chunk_at().value_or(verified_at), verified_at);
  const FeedRecord& feed = installed.download->feed();
  const FeedRecord::Feeder most = feed.most();
  InstallPhases phases;
  const AnnouncedVersions::Wait wait =
      announced_versions_.find(installed.id.version).value_or(AnnouncedVersions::Wait{installed.begun_at, {}});
  phases.waiting = installed.begun_at - wait.since;
  phases.given_up = std::min(wait.given_up, phases.waiting);
  phases.asking = first_at - installed.begun_at;
  phases.receiving = verified_at - first_at;
  phases.storing = installed.stored_at - verified_at;
  phases.switching = std::clamp(switching, Duration::zero(), now - installed.stored_at);
  phases.applying = now - installed.stored_at - phases.switching;
  phases.disk_behind = installed.disk_behind;
  phases.interrupted = feed.interrupted();
  phases.parents_left = feed.parents_left();
  phases.bytes = feed.bytes();
  phases.fed_by = most.id;
  phases.fed_bytes = most.bytes;
  return phases;
}

void Intake::handle_finished(Instant now, PayloadId payload, const Status& status, Duration switching) {
  if (!is_incoming(payload) || incoming_->phase != Phase::kFinishing) return;
  if (!status.has_value()) {
    const Errc code = status.error().code;
    return fail_incoming(now, status.error(), code == Errc::kCorrupt || code == Errc::kWrongBase);
  }
  held_.handle_installed(payload);
  base_unusable_ = false;
  transfer_s_ = to_seconds(incoming_->stored_at - incoming_->download->first_chunk_at().value_or(incoming_->stored_at));
  finish_s_ = to_seconds(now - incoming_->stored_at);
  installed_seconds_ = to_seconds(now - incoming_->download->first_chunk_at().value_or(now));
  last_error_.clear();
  installed_phases_ = phases_of(now, *incoming_, switching);
  installed_at_ = now;
  taken_after_.reset();
  announced_versions_.handle_installed(payload.version);
  const FeedRecord& feed = incoming_->download->feed();
  std::string fed_by = feed.feeders() == 0 ? std::string("all of it was here already")
                                           : fmt::format("{} from {}", format_bytes(feed.bytes()), feed.most().name);
  if (feed.feeders() > 1) fed_by += fmt::format(" and {} others", feed.feeders() - 1);
  if (incoming_->archive && incoming_->archive->bytes() > 0) {
    const std::string archived = format_bytes(incoming_->archive->bytes()) + " from the archive";
    fed_by = feed.feeders() == 0 ? archived : fed_by + ", " + archived;
  }
  archive_trouble_ = incoming_->archive ? incoming_->archive->trouble() : "";
  incoming_.reset();
  actions_.push(
      action::milestone(fmt::format("{} is installed after {:.2f} s: {}; {}", to_string(payload),
                                    to_seconds(installed_phases_->total()), fed_by, to_string(*installed_phases_))));
  send_installed();
  take_up_newest(now);
}

bool Intake::handle_taken(Instant now, Version version) {
  if (!installed_phases_ || taken_after_ || version != held_.installed()) return false;
  taken_after_ = now - installed_at_;
  if (origin_.joined()) send_heartbeat(now);
  return true;
}

void Intake::handle_damaged(Instant now, PayloadId payload, const Error& why) {
  if (is_incoming(payload)) {
    // What finishes is read again as a whole, and judged by that.
    if (incoming_->phase != Phase::kFinishing) fail_incoming(now, why, true);
    return;
  }
  if (!held_.withdraw(payload, "what this node has of it is damaged")) return;
  last_error_ = why.message();
  actions_.push(action::warning(fmt::format("{}; this node does not serve it any more", last_error_)));
}

void Intake::handle_version_lost(Instant now, Version version, std::shared_ptr<const Manifest> newest,
                                 const Error& why) {
  const bool was_installed = version == held_.installed();
  held_.handle_version_lost(version, std::move(newest));
  if (was_installed) {
    installed_phases_.reset();
    taken_after_.reset();
  }
  last_error_ = why.message();
  if (was_installed) origin_.rejoin(now, fmt::format("version {} is lost", version.value));
}

void Intake::send_installed() { reports_.send_installed(bytes_received_, installed_seconds_, installed_phases_); }

void Intake::fail_incoming(Instant now, const Error& why, bool discard) {
  const PayloadId payload = incoming_->id;
  last_error_ = about(to_string(payload), why).message();
  actions_.push(action::warning(last_error_));
  reports_.send_failed(payload, why);
  cancel_incoming();
  if (discard || incoming_->holding->open()) actions_.push(action::DiscardPayload{payload});
  // A patch that does not fit never will: the origin sends the version whole. What was announced since takes its place;
  // else the same is tried again, later and from what is on disk.
  const bool hopeless = asks_for_full(payload, why.code);
  if (hopeless) base_unusable_ = true;
  announced_versions_.handle_given_up(payload.version, now - incoming_->begun_at);
  if (!announced_ && !hopeless) {
    announced_ = Announced{incoming_->holding->shared_manifest(), std::move(incoming_->assignment)};
    retry_at_ = now + kRetryAfter;
  }
  incoming_.reset();
  held_.withdraw(payload, "this node could not store the version");
  take_up_newest(now);
}

void Intake::abandon_incoming(Instant now, std::string_view why) {
  // The store makes it the version in use, whatever is said now; what was announced comes after that.
  if (incoming_->phase == Phase::kFinishing) return;
  const PayloadId payload = incoming_->id;
  actions_.push(action::info(
      fmt::format("version {}: {}{}", payload.version.value, why,
                  announced_ ? fmt::format("; going on with version {}", announced_->manifest->version.value) : "")));
  announced_versions_.handle_given_up(payload.version, now - incoming_->begun_at);
  abandoned_ = payload;
  abandoned_at_ = now;
  cancel_incoming();
  actions_.push(action::DiscardPayload{payload});
  incoming_.reset();
  held_.withdraw(payload, why);
  take_up_newest(now);
}

void Intake::report_faults(Instant now) {
  if (!incoming_) return;
  reports_.send_faults(incoming_->download->take_faults());
  if (incoming_->phase == Phase::kFinishing || !incoming_->download->damaged_at_origin()) return;
  fail_incoming(now, fail(Errc::kCorrupt, Op::kVerify, "the origin has sent damaged bytes several times in a row"),
                false);
}

void Intake::send_heartbeat(Instant now) {
  wire::Message message;
  wire::Heartbeat& beat = *message.mutable_heartbeat();
  beat.set_installed_version(installed_version().value);
  if (incoming_) payload_to_wire(incoming_->id, *beat.mutable_receiving());
  beat.set_chunks_verified(chunks_verified());
  beat.set_chunks_total(chunks_total());
  beat.set_bytes_received(bytes_received_);
  beat.set_bytes_sent(uploads_.bytes_sent());
  beat.set_receive_bytes_per_s(receive_bytes_per_s());
  for (const std::uint32_t missing : stripes_missing()) beat.add_stripes_missing(missing);
  if (taken_after_) {
    beat.set_taken_version(installed_version().value);
    beat.set_taken_after_s(to_seconds(*taken_after_));
  }
  origin_.send_heartbeat(now, std::move(message));
}

void Intake::describe(wire::Join& join) const {
  join.set_installed_version(installed_version().value);
  if (incoming_) payload_to_wire(incoming_->id, *join.mutable_receiving());
  if (const Manifest* manifest = held_.installed_manifest()) {
    join.set_installed_digest(std::string(bytes_of(manifest->snapshot_digest)));
  }
  // An archive has no packed payloads. One who has a version waits for patches, and these come first.
  join.set_base_unusable(base_unusable_ || (config_.archive && installed_version() == kNoVersion));
}

// ---- time

void Intake::handle_timeout(Instant now) {
  if (incoming_) incoming_->download->handle_timeout(now);
  if (incoming_ && incoming_->archive) incoming_->archive->handle_timeout(now);
  report_faults(now);
  if (retry_at_ && now >= *retry_at_) {
    retry_at_.reset();
    take_up_newest(now);
  }
}

std::optional<Instant> Intake::poll_deadline() const {
  EarliestDeadline earliest;
  earliest.consider(retry_at_);
  if (incoming_) earliest.consider(incoming_->download->poll_deadline());
  if (incoming_ && incoming_->archive) earliest.consider(incoming_->archive->poll_deadline());
  return earliest.first();
}

std::uint32_t Intake::chunks_verified() const { return incoming_ ? incoming_->holding->verified().count() : 0; }

std::vector<std::uint32_t> Intake::stripes_missing() const {
  // Before the store has said what is there, everything would seem to be missing.
  const bool known = incoming_ && incoming_->phase != Phase::kBeginning;
  return known ? incoming_->download->missing_by_stripe() : std::vector<std::uint32_t>();
}

std::uint32_t Intake::chunks_total() const { return incoming_ ? incoming_->holding->manifest().chunk_count() : 0; }

}  // namespace weightcast
