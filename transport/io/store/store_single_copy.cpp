#include <fmt/format.h>

#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/store_incoming.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

// A reader that lets go is noticed after this.
constexpr Duration kAskAgain = std::chrono::milliseconds(50);
// A disk that refused may not do so later.
constexpr Duration kRestoreRetry = std::chrono::seconds(5);

}  // namespace

void Store::set_pending_in_place_update(Version version) {
  if (std::exchange(pending_in_place_update_, version) != version && on_pending_in_place_update_)
    on_pending_in_place_update_();
}

void Store::finish_in_place(const IncomingRef& incoming, InstallDone done) {
  // Whatever comes of it, nobody has to let go any more when he hears of it.
  take_place(incoming, [this, incoming, done = std::move(done)](Result<StoredVersion> result) {
    set_pending_in_place_update(kNoVersion);
    // Nothing was overwritten, so nobody waits for the journal to go. The store may have thrown the payload away by
    // now, and the worker has to hear so at once.
    if (std::exchange(incoming->changes, std::nullopt)) {
      run_unawaited(serial_, [layout = layout_, id = incoming->id()] { return abandon_in_place(layout, id); });
    }
    done(std::move(result));
  });
}

/// The journal still has all of it: only the disk refused.
void Store::restore_later(PayloadId payload) {
  unrestored_ = payload;
  restore_timer_.arm(loop_.now() + kRestoreRetry);
}

void Store::restore_base() {
  const PayloadId payload = *unrestored_;
  const bool is_newest = complete_.empty() || complete_.rbegin()->first < payload.base;
  serial_.run([layout = layout_, base = payload.base, is_newest,
               threads = loop_.threads_per_job_max()] { return put_back(layout, base, is_newest, threads); },
              [this, payload](Result<std::optional<RecoveredVersion>> restored) {
                if (!restored.has_value()) {
                  log_error("store: version {} cannot be put back: {}; trying again in {:.3g} s", payload.base.value,
                            restored.error().message(), to_seconds(kRestoreRetry));
                  return restore_timer_.arm(loop_.now() + kRestoreRetry);
                }
                unrestored_.reset();
                if (!*restored) return;
                add_complete(std::move((*restored)->record), (*restored)->files);
                current_ = std::max(current_, payload.base);
                forget_old();
              });
}

/// Of a version that is deleted before it was durable.
void Store::drop_journal(Version version) {
  run_unawaited(serial_, [layout = layout_, version] { return end_in_place(layout, version); });
}

InPlaceWork Store::work_of(const Incoming& incoming) const {
  const Complete& base = *incoming.base;
  return {base.files,         incoming.files,
          incoming.record,    base.stored.manifest.snapshot_digest,
          base.stored.leaves, loop_.threads_per_job_max()};
}

/// While others still read the base.
void Store::prepare_place(const IncomingRef& incoming, InstallDone done) {
  serial_.run([layout = layout_, work = work_of(*incoming),
               wanted = wanted_] { return prepare_in_place(layout, work, *wanted); },
              [this, incoming, done = std::move(done)](Result<InPlaceChanges> changes) mutable {
                if (!changes.has_value()) return give_up(incoming, changes.error(), done);
                incoming->changes = std::move(changes).value();
                incoming->waits_since.reset();
                take_place(incoming, std::move(done));
              });
}

void Store::wait_for_place(const IncomingRef& incoming, const std::string& why, InstallDone done) {
  if (!incoming->waits_since) {
    log_info("store: version {} waits until nobody has the files of version {} open, mapped or linked",
             incoming->manifest().version.value, incoming->manifest().base_version.value);
    incoming->waits_since = loop_.now();
  }
  if (loop_.now() - *incoming->waits_since >= options_.single_copy_wait) {
    return give_up_waiting(incoming, why, std::move(done));
  }
  waiting_for_place_.push_back(
      [this, incoming, done = std::move(done)]() mutable { take_place(incoming, std::move(done)); });
  if (!place_timer_.armed()) place_timer_.arm(loop_.now() + kAskAgain);
}

void Store::give_up_waiting(const IncomingRef& incoming, const std::string& why, InstallDone done) {
  incoming->waits_since.reset();
  const CompleteRef base = incoming->base;
  const Version version = base->stored.manifest.version;
  serial_.run(
      [layout = layout_, version, base] {
        base->files->close_editors();  // else they would be named as those of a user
        std::vector<std::filesystem::path> paths;
        for (const SnapshotFile& file : base->files->table().files())
          paths.push_back(layout.complete(version) / file.name);
        return layout.files().users_of(paths);
      },
      [this, incoming, version, why, done = std::move(done)](const std::string& users) {
        give_up(incoming,
                fail(Errc::kTimedOut, Op::kInstall,
                     fmt::format("waited {:.3g} s for version {}, which stays: {}{}{}",
                                 to_seconds(options_.single_copy_wait), version.value, why,
                                 users.empty() ? "" : "; in use by ", users)),
                done);
      });
}

/// What this store itself, or who has pinned it, does with the only copy; "" if nothing. Reads and syncing have its
/// files open, and what is not durable yet may have a journal of its own. An anchor is of one version from end to end.
std::string Store::why_in_use(const Complete& base) const {
  if (is_being_anchored(base)) return "it is being written to the disk whole, as every --anchor-interval versions";
  if (base.users > 1) return "it is being read for other workers";
  if (is_pinned(base.stored.manifest.version)) return "a program on this host has acquired it";
  return base.stored.durable ? "" : "it is not on the disk yet";
}

/// First a look whether anybody has the files, while they are still in their place: who is late must not see `current`
/// come and go.
void Store::take_place(const IncomingRef& incoming, InstallDone done) {
  const CompleteRef base = incoming->base;
  const Version version = base->stored.manifest.version;
  if (base->lost) {
    return give_up(incoming, fail(Errc::kWrongBase, Op::kOpen, fmt::format("version {} is lost", version.value)), done);
  }
  if (base->stored.durable && !incoming->changes) return prepare_place(incoming, std::move(done));
  // Nobody has to let go while this store itself needs the files for long.
  if (incoming->changes && !is_being_anchored(*base)) set_pending_in_place_update(incoming->manifest().version);
  if (std::string why = why_in_use(*base); !why.empty()) return wait_for_place(incoming, why, std::move(done));
  serial_.run(
      [layout = layout_, version, base] { return base->files->check_unused(layout.files(), layout.complete(version)); },
      [this, incoming, base, version, done = std::move(done)](const Status& unused) mutable {
        std::string why = why_in_use(*base);
        if (unused.has_value() && why.empty()) return change_place(incoming, std::move(done));
        if (!unused.has_value() && unused.error().code == Errc::kBusy) why = unused.error().detail;
        if (!why.empty()) return wait_for_place(incoming, why, std::move(done));
        const bool cannot_tell = unused.error().code == Errc::kUnsupported;
        Error error = unused.error();
        if (cannot_tell) {
          error =
              fail(Errc::kWrongBase, Op::kOpen,
                   fmt::format("version {}: this file system cannot tell whether somebody reads it", version.value));
        }
        give_up(incoming, error, done);
      });
}

void Store::change_place(const IncomingRef& incoming, InstallDone done) {
  const CompleteRef base = incoming->base;
  const Version version = base->stored.manifest.version;
  complete_.erase(version);
  serial_.run([layout = layout_, work = work_of(*incoming),
               incoming] { return install_in_place(layout, work, *incoming->changes); },
              [this, incoming, base, version, done = std::move(done)](const InPlaceResult& result) mutable {
                const bool busy = !result.status.has_value() && result.status.error().code == Errc::kBusy;
                if (result.status.has_value()) {
                  log_info("store: version {} has taken the place of version {}; nobody could open it for {:.3f} s",
                           incoming->manifest().version.value, version.value, result.hidden_s);
                  incoming->target = base->files;
                  return handle_moved(incoming, result.switch_s, done);
                }
                if (!busy) incoming->changes.reset();
                if (result.base_lost) {
                  log_error("store: {}", result.status.error().message());
                  restore_later(incoming->id());
                } else {
                  complete_[version] = base;
                }
                if (busy) return wait_for_place(incoming, result.status.error().detail, std::move(done));
                give_up(incoming, result.status.error(), done);
              });
}

}  // namespace weightcast
