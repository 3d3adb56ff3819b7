#include <fmt/format.h>

#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/store_incoming.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

// A reader that lets go is noticed after this.
constexpr Duration kAskAgain = std::chrono::milliseconds(50);

}  // namespace

void Store::set_pending_in_place_update(Version version) {
  if (std::exchange(pending_in_place_update_, version) != version && on_pending_in_place_update_)
    on_pending_in_place_update_();
}

void Store::finish_in_place(const IncomingRef& incoming, InstallDone done) {
  // Whatever comes of it, nobody has to let go any more when he hears of it.
  take_place(incoming, [this, done = std::move(done)](Result<StoredVersion> result) {
    set_pending_in_place_update(kNoVersion);
    done(std::move(result));
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

/// What this store itself, or who has pinned it, does with the only copy; "" if nothing.
std::string Store::why_in_use(const Complete& base) const {
  if (base.users > 1) return "it is being read for other workers, or written to the disk once more";
  if (is_pinned(base.stored.manifest.version)) return "a program on this host has acquired it";
  return "";
}

/// First a look whether anybody has the files, while they are still in their place: who is late must not see `current`
/// come and go.
void Store::take_place(const IncomingRef& incoming, InstallDone done) {
  const CompleteRef base = incoming->base;
  const Version version = base->stored.manifest.version;
  if (base->lost) {
    return give_up(incoming, fail(Errc::kWrongBase, Op::kOpen, fmt::format("version {} is lost", version.value)), done);
  }
  set_pending_in_place_update(incoming->manifest().version);
  if (std::string why = why_in_use(*base); !why.empty()) return wait_for_place(incoming, why, std::move(done));
  serial_.run(
      [layout = layout_, version, base] { return base->files->check_unused(layout.files(), layout.complete(version)); },
      [this, incoming, base, version, done = std::move(done)](const Status& unused) mutable {
        std::string why = why_in_use(*base);
        if (unused.has_value() && why.empty() && !base->lost) return change_place(incoming, std::move(done));
        if (base->lost) return take_place(incoming, std::move(done));
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
  serial_.run(
      [layout = layout_, manifest = incoming->manifest(), base] { return hide_base(layout, manifest, *base->files); },
      [this, incoming, base, version, done = std::move(done)](const Status& hidden) mutable {
        if (hidden.has_value()) return overwrite(incoming, std::move(done));
        if (hidden.error().code == Errc::kCorrupt) return lose_base(incoming, hidden.error(), std::move(done));
        complete_[version] = base;
        if (!layout_.in_memory()) {
          // It went away and came back, which a power cut may undo by half.
          base->stored.durable = base->syncing = false;
          make_durable(base);
        }
        if (hidden.error().code == Errc::kBusy) {
          return wait_for_place(incoming, hidden.error().detail, std::move(done));
        }
        give_up(incoming, hidden.error(), done);
      });
}

/// Nobody can open the base now.
void Store::overwrite(const IncomingRef& incoming, InstallDone done) {
  const Instant hidden_at = loop_.now();
  incoming->target = incoming->base->files;
  incoming->target->note_old_version(incoming->manifest().base_version);
  start_applying(*incoming);
  incoming->applied->finish([this, incoming, hidden_at, done = std::move(done)](const Result<Checksum>& digest) {
    const Manifest& manifest = incoming->manifest();
    if (!digest.has_value()) return lose_base(incoming, digest.error(), done);
    if (*digest != manifest.snapshot_digest) {
      return lose_base(
          incoming, fail(Errc::kCorrupt, Op::kVerify, "what the patch has made of it does not match its digest"), done);
    }
    serial_.run([layout = layout_, manifest] { return install_in_place(layout, manifest); },
                [this, incoming, hidden_at, done](const Result<double>& switch_s) {
                  if (!switch_s.has_value()) return lose_base(incoming, switch_s.error(), done);
                  log_info("store: version {} has taken the place of version {}; nobody could open it for {:.3f} s",
                           incoming->manifest().version.value, incoming->manifest().base_version.value,
                           to_seconds(loop_.now() - hidden_at));
                  incoming->finishing = false;
                  handle_moved(incoming, *switch_s, done);
                });
  });
}

/// It is neither version any more: the next one comes whole.
void Store::lose_base(const IncomingRef& incoming, const Error& why, InstallDone done) {
  const Version version = incoming->manifest().base_version;
  incoming->target = nullptr;
  const Error lost =
      fail(Errc::kCorrupt, Op::kInstall,
           fmt::format("version {} in {} was to become version {} where it is, and is lost: {}", version.value,
                       layout_.directory().native(), incoming->manifest().version.value, why.detail));
  serial_.run([layout = layout_, manifest = incoming->manifest(),
               next = newest()] { return drop_base(layout, manifest, next); },
              [this, incoming, version, lost, done = std::move(done)](const Status& dropped) {
                if (!dropped.has_value()) {
                  log_error("store: {}", dropped.error().message());
                  take_out_later(version, incoming->base->files->table());
                }
                if (version == kept_) kept_ = kNoVersion;
                current_ = complete_.empty() ? kNoVersion : complete_.rbegin()->first;
                log_error("store: {}; version {} is current now", lost.message(), current_.value);
                incoming->finishing = false;
                discard(incoming->id());
                done(fail(Errc::kWrongBase, Op::kInstall, lost.detail));
                if (on_lost_) on_lost_(version, lost);
                consider_keeping();
              });
}

}  // namespace weightcast
