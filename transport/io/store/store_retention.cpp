// What becomes of complete versions: they are made durable, and deleted when they are old or lost.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/store.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

// A disk that could not sync may be able to later: it was full, or a path to it was down.
constexpr Duration kSyncRetry = std::chrono::seconds(10);

}  // namespace

void Store::retain(const std::vector<PayloadId>& payloads) {
  retained_ = std::set<PayloadId>(payloads.begin(), payloads.end());
  forget_old();
}

void Store::pin(std::vector<Version> versions) {
  pinned_ = std::move(versions);
  forget_old();
}

VersionRecord Store::record_of(const Complete& complete) {
  const Manifest& manifest = complete.stored.manifest;
  if (manifest.id().is_encoded()) return {manifest, ChunkDigests(manifest)};
  return {manifest, ChunkDigests(manifest, complete.stored.chunk_digests)};
}

void Store::forget_old_patches() {
  if (!retained_) return;
  for (auto it = patches_.begin(); it != patches_.end();) {
    if (it->second->reads_under_way > 0 || retained_->contains(it->first)) {
      ++it;
      continue;
    }
    remove(it->first, layout_.patch(it->first), it->second->files->table());
    it = patches_.erase(it);
  }
}

// Of the run before. Until a version of this one is durable, a power cut would leave nothing but these. Of versions in
// memory it leaves nothing anyway.
void Store::forget_earlier() {
  const auto is_safe = [&](const auto& each) {
    return (layout_.in_memory() || each.second->stored.durable) && !each.second->lost;
  };
  if (std::ranges::none_of(complete_, is_safe)) return;
  std::erase_if(earlier_, [this](const Earlier& earlier) {
    const Version version = earlier.stored.manifest.version;
    if (is_pinned(version)) return false;
    log_info("store: version {} of the run before is forgotten", version.value);
    remove_from(layout_.of_run(earlier_run_), version, earlier.stored.path, earlier.files->table());
    return true;
  });
}

void Store::forget_old() {
  forget_old_patches();
  forget_earlier();
  const std::size_t kept = options_.single_copy ? 1 : std::max<std::size_t>(options_.versions_kept, 1);
  const auto is_lost = [](const auto& entry) { return entry.second->lost; };
  const std::size_t there = complete_.size() - static_cast<std::size_t>(std::ranges::count_if(complete_, is_lost));
  if (there <= kept) return;
  std::size_t excess = there - kept;
  Version newest_durable{};
  for (const auto& [version, complete] : complete_) {
    if (!complete->lost && complete->stored.durable) newest_durable = version;
  }
  for (auto it = complete_.begin(); excess > 0;) {
    const auto& [version, complete] = *it;
    if (complete->lost) {
      ++it;
      continue;
    }
    --excess;
    // If the power failed now, the newest one that is on the disk would be all that is left.
    if ((version == newest_durable && !layout_.in_memory()) || complete->users > 0 || is_pinned(version) ||
        (retained_ && retained_->contains(version))) {
      ++it;
      continue;
    }
    log_info("store: version {} is forgotten; the last {} are kept", version.value, kept);
    if (options_.reuse_files && !options_.single_copy) {
      keep_files_of(*complete);
    } else {
      remove(version, complete->stored.path, complete->files->table());
    }
    it = complete_.erase(it);
  }
}

void Store::keep_files_of(const Complete& complete) {
  const Version version = complete.stored.manifest.version;
  drop_spare();
  auto spare = std::make_shared<Spare>();
  spare->version = version;
  spare->files = complete.files;
  spare->path = layout_.spare() / complete.stored.path.filename();
  spare->files->note_old_version(version);
  serial_.run(
      [layout = layout_, version, table = complete.files->table()] {
        Status retired = retire(layout, version, table);
        if (!retired.has_value()) log_warning("store: {}", retired.error().message());
        layout.empty_trash();
        return retired;
      },
      [this, spare](const Status& retired) {
        if (!retired.has_value()) return;
        // A power cut leaves nothing of what is in memory.
        if (layout_.in_memory()) return handle_spare(spare);
        // Not among the other jobs: they would wait for the disk.
        syncing_.run([layout = layout_] { return sync_records(layout); },
                     [this, spare](const Status& synced) {
                       if (synced.has_value()) handle_spare(spare);
                     });
      });
}

void Store::drop_spare() {
  if (spare_) spare_->taken = true;
  spare_.reset();
}

void Store::handle_spare(const SpareRef& spare) {
  drop_spare();
  spare_ = spare;
  // On a disk the kernel would write what becomes of them, and again when the next step changes it.
  if (!layout_.in_memory()) return;
  // While nobody waits for it.
  spare_work_.run(
      [layout = layout_, spare, steps = steps_between(steps_, spare->version, newest().payload.version)] {
        bring_up_to_date(layout, *spare, steps);
      },
      [] {});
}

void Store::make_durable(const CompleteRef& complete) {
  if (layout_.in_memory()) return consider_keeping();
  if (!std::exchange(complete->syncing, true)) sync_files_from(0, complete);
}

// Once a sync has failed the kernel may take what it could not write for written: another sync says nothing of it. So
// every byte is handed over once more, and checked as it is.
void Store::sync_again(const CompleteRef& complete) {
  complete->syncing = true;
  ++complete->users;  // its files become nobody else's meanwhile
  syncing_.run([layout = layout_, files = complete->files, record = record_of(*complete),
                wanted = wanted_] { return write_again(layout, record, *files, *wanted); },
               [this, complete](const Status& written) {
                 --complete->users;
                 if (written.has_value()) {
                   complete->sync_failed = false;
                   return sync_files_from(0, complete);
                 }
                 const Version version = complete->stored.manifest.version;
                 complete->syncing = false;
                 if (is_proven_wrong(written.error())) return give_up_lost(complete, written.error());
                 log_error("store: version {} cannot be made safe from a power cut: {}", version.value,
                           written.error().message());
                 sync_timer_.arm(loop_.now() + kSyncRetry);
               });
}

StoreLayout::Named Store::newest() const {
  StoreLayout::Named newest{kNoVersion, run_.count};
  if (!earlier_.empty()) newest = {earlier_.back().stored.manifest.version, earlier_run_};
  for (const auto& [version, there] : complete_) {
    if (!there->lost) newest = {version, run_.count};
  }
  return newest;
}

// It stays among the complete ones until the disk is rid of it: the store and those who are told lose it in one moment.
void Store::give_up_lost(const CompleteRef& complete, const Error& why) {
  const Version version = complete->stored.manifest.version;
  complete->lost = true;
  complete->syncing = true;
  const Error lost =
      fail(Errc::kCorrupt, Op::kSync,
           fmt::format("version {} in {}: some of its bytes are lost ({}); check this host's memory and disk",
                       version.value, layout_.directory().native(), why.detail));
  serial_.run([layout = layout_, version, next = newest(),
               table = complete->files->table()] { return give_up_version(layout, version, next, table); },
              [this, version, lost, table = complete->files->table()](const Status& gone) mutable {
                complete_.erase(version);
                if (!gone.has_value()) {
                  log_error("store: {}", gone.error().message());
                  take_out_later(version, std::move(table));
                }
                if (version == kept_) kept_ = kNoVersion;
                current_ = complete_.empty() ? kNoVersion : complete_.rbegin()->first;
                log_error("store: {}; version {} is current now", lost.message(), current_.value);
                if (on_lost_) on_lost_(version, lost);
                consider_keeping();
              });
}

bool Store::is_forgotten(const CompleteRef& complete) const {
  const auto found = complete_.find(complete->stored.manifest.version);
  return found == complete_.end() || found->second != complete;
}

void Store::sync_files_from(std::size_t file, const CompleteRef& complete) {
  const Version version = complete->stored.manifest.version;
  const auto report = [this, version, complete](const Error& error) {
    log_error("store: version {} is installed, but not safe from a power cut: {}; trying again in {:.3g} s",
              version.value, error.message(), to_seconds(kSyncRetry));
    complete->syncing = false;
    sync_timer_.arm(loop_.now() + kSyncRetry);
  };
  if (is_forgotten(complete)) return;
  if (file < complete->files->table().files().size()) {
    const Result<FileRef> opened = complete->files->file(file);
    if (!opened.has_value()) return report(opened.error());
    disk_->sync(*opened, [this, version, file, complete, report](const Status& status) {
      if (!status.has_value()) {
        complete->sync_failed = true;
        // The first time at once: what the kernel has dropped is current. A disk that goes on so is left alone for a
        // while.
        if (std::exchange(complete->looked_after_sync, true)) return report(status.error());
        log_warning("store: version {}: {}; looking what of it is left", version.value, status.error().message());
        return sync_again(complete);
      }
      sync_files_from(file + 1, complete);
    });
    return;
  }
  serial_.run(
      [layout = layout_, version, files = complete->files] { return sync_names_and_mark(layout, version, *files); },
      [this, complete, report](const Status& synced) {
        if (is_forgotten(complete)) return;
        complete->sync_failed = !synced.has_value();  // perhaps that of the record
        if (!synced.has_value()) return report(synced.error());
        complete->stored.durable = true;
        forget_old();
      });
}

}  // namespace weightcast
