// What makes versions in memory survive a power cut: their patches in the log, and from time to time a new anchor.
#include <algorithm>
#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/anchor.h"
#include "transport/io/store/in_place.h"
#include "transport/io/store/store.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

// An origin makes the patch to a version after the version.
constexpr Duration kAnchorGrace = std::chrono::seconds(5);
constexpr Duration kRetry = std::chrono::seconds(10);

}  // namespace

/// One patch after the other: each goes on from what the log holds.
void Store::advance_log() {
  if (!layout_.in_memory() || logging_) return;
  for (const auto& [payload, patch] : patches_) {
    if (!log_.goes_on_with(payload) || unloggable_.contains(payload)) continue;
    // Such a version is not made of the one before where it lies.
    if (patch->stored.manifest.files != log_files_) continue;
    return start_logging(payload, patch);
  }
  mark_logged();
  consider_anchor();
}

void Store::start_logging(PayloadId payload, const PatchRef& patch) {
  logging_ = true;
  ++patch->reads_under_way;
  const Manifest& manifest = patch->stored.manifest;
  VersionRecord record{manifest, ChunkDigests(manifest, patch->stored.chunk_digests)};
  syncing_.run([layout = layout_, record = std::move(record),
                files = patch->files] { return log_patch(layout, record, *files); },
               [this, payload, patch](const Status& logged) {
                 logging_ = false;
                 --patch->reads_under_way;
                 if (!logged.has_value()) {
                   log_error("store: {} cannot be made safe from a power cut: {}; the whole version will be",
                             to_string(payload), logged.error().message());
                   unloggable_.insert(payload);
                 } else if (log_.goes_on_with(payload)) {
                   log_.handle_logged(payload, patch->stored.manifest.payload_bytes);
                 }
                 advance_log();
               });
}

void Store::mark_logged() {
  for (const auto& [version, complete] : complete_) {
    if (complete->stored.durable || complete->syncing || complete->lost || !log_.holds(version)) continue;
    complete->syncing = true;
    serial_.run(
        [layout = layout_, version = version, has_journal = complete->journal_base != kNoVersion] {
          const Status marked = append_durable_mark(layout.files(), layout.record(version));
          // A start hashes what has no mark, and finds the same.
          if (!marked.has_value()) log_warning("store: {}", marked.error().message());
          return has_journal ? end_in_place(layout, version) : Status();
        },
        [this, complete = complete](const Status& ended) {
          complete->syncing = false;
          if (is_forgotten(complete)) return;
          if (!ended.has_value()) {
            // The next step must not begin before it is gone: a start would put back what it holds.
            log_warning("store: {}; trying again in {:.3g} s", ended.error().message(), to_seconds(kRetry));
            return sync_timer_.arm(loop_.now() + kRetry);
          }
          complete->stored.durable = true;
          complete->journal_base = kNoVersion;
          forget_old();
        });
  }
}

Store::CompleteRef Store::anchor_due() const {
  const auto found = complete_.find(newest().payload.version);
  if (found == complete_.end()) return nullptr;
  const bool is_safe = log_.holds(found->first) && !log_.is_long(found->second->stored.manifest.snapshot_bytes());
  return is_safe ? nullptr : found->second;
}

void Store::consider_anchor() {
  if (anchoring_ || anchor_timer_.armed()) return;
  const CompleteRef due = anchor_due();
  if (due == nullptr) return;
  const bool waits = log_.anchor() != kNoVersion && !log_.holds(due->stored.manifest.version);
  anchor_timer_.arm(loop_.now() + (waits ? kAnchorGrace : Duration::zero()));
}

void Store::start_anchor() {
  const CompleteRef complete = anchor_due();
  if (complete == nullptr) return;
  ++complete->users;
  anchoring_ = Anchoring{complete, nullptr};
  VersionRecord record = record_of(*complete);
  record.durable = true;
  anchor_work_.run([layout = layout_, record = std::move(record),
                    files = complete->files] { return AnchorCopy::begin(layout, record, files); },
                   [this](const Result<std::shared_ptr<AnchorCopy>>& copy) {
                     if (!copy.has_value()) return end_anchor(copy.error());
                     anchoring_->copy = *copy;
                     go_on_with_anchor();
                   });
}

void Store::go_on_with_anchor() {
  struct Piece {
    Status status;
    bool ended = false;
    Duration took{};
  };
  anchor_work_.run(
      [&loop = loop_, copy = anchoring_->copy] {
        const Instant began_at = loop.now();
        Piece piece;
        piece.ended = copy->complete();
        piece.status = piece.ended ? copy->finish() : copy->copy_piece();
        if (!piece.status.has_value()) copy->discard();
        piece.took = loop.now() - began_at;
        return piece;
      },
      [this](const Piece& piece) {
        if (!piece.status.has_value() || piece.ended) return end_anchor(piece.status);
        // Who waits for the only copy, waits for this.
        const bool rests = waiting_for_place_.empty();
        const double rest_s = rests ? to_seconds(piece.took) * (1 / options_.anchor_disk_share - 1) : 0;
        anchor_timer_.arm(loop_.now() + from_seconds(rest_s));
      });
}

void Store::end_anchor(const Status& status) {
  const CompleteRef complete = std::exchange(anchoring_, std::nullopt)->complete;
  const Version version = complete->stored.manifest.version;
  --complete->users;
  if (!status.has_value()) {
    log_error("store: version {} cannot be made safe from a power cut: {}", version.value, status.error().message());
    if (status.error().code == Errc::kCorrupt) return give_up_lost(complete, status.error());
    return anchor_timer_.arm(loop_.now() + kRetry);
  }
  log_.handle_anchor(version);
  log_files_ = complete->stored.manifest.files;
  unloggable_.clear();
  run_unawaited(syncing_, [layout = layout_, version] { return drop_log(layout, version); });
  forget_old();
  advance_log();
}

}  // namespace weightcast
