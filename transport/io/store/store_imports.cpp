#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/store.h"
#include "transport/io/store/store_incoming.h"
#include "transport/io/store/store_work.h"

namespace weightcast {
namespace {

constexpr Duration kTakeOutRetry = std::chrono::seconds(1);

bool are_all_digests(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests) {
  return chunk_digests.size() == manifest.chunk_count() &&
         part_digests_of(chunk_digests, manifest.part_chunks) == manifest.part_digests;
}

}  // namespace

void Store::begin_making(PayloadId payload, const std::vector<SnapshotFile>& table,
                         std::function<void(Result<ImportTarget>)> done) {
  discard(payload);
  auto wanted = std::make_shared<bool>(true);
  preparing_[payload] = wanted;
  // A patch's file is as long as what has been written to it.
  const auto size = payload.is_encoded() ? VersionFiles::Size::kEmpty : VersionFiles::Size::kFull;
  serial_.run([layout = layout_, payload, table, size,
               spare = spare_] { return make_files(layout, payload, table, spare, size); },
              [this, payload, table, wanted, done = std::move(done)](const Result<FilesRef>& made) {
                if (!*wanted) return done(no_such(payload));
                preparing_.erase(payload);
                if (!made.has_value()) return done(made.error());
                imports_[payload] = {table, *made};
                ImportTarget target{layout_.incoming(payload), {}, imports_[payload].files};
                for (const SnapshotFile& file : table) target.paths.push_back(target.directory / file.name);
                done(std::move(target));
              });
}

void Store::begin_import(Version version, std::vector<SnapshotFile> files,
                         std::function<void(Result<ImportTarget>)> done) {
  if (refuse_new(version, done)) return;
  std::uint64_t bytes = 0;
  for (const SnapshotFile& file : files) bytes += file.size_bytes;
  const auto begin = [this, version, files, done] { begin_import(version, files, done); };
  if (!waits_for_place_choice(version, bytes, begin, done)) begin_making(version, files, std::move(done));
}

void Store::begin_patch(PayloadId patch, std::function<void(Result<std::filesystem::path>)> done) {
  if (patches_.contains(patch) || is_being_made(patch)) {
    later([patch, done = std::move(done)] {
      done(fail(Errc::kBusy, Op::kOpen, to_string(patch) + ": it is here, or being made"));
    });
    return;
  }
  const auto result = complete_.find(patch.version);
  const auto import = imports_.find(patch.version);
  if (result == complete_.end() && import == imports_.end()) {
    later([patch, done = std::move(done)] { done(no_such(patch.version)); });
    return;
  }
  const std::uint64_t bytes_max = result != complete_.end() ? result->second->stored.manifest.snapshot_bytes()
                                                            : import->second.files->table().size_bytes();
  begin_making(patch, {{kPatchFileName, bytes_max}}, [done = std::move(done)](const Result<ImportTarget>& target) {
    target.has_value() ? done(target->paths.front()) : done(target.error());
  });
}

void Store::grow_making(const Manifest& manifest) {
  const PayloadId payload = manifest.id();
  if (const auto found = imports_.find(payload); found != imports_.end()) {
    found->second.so_far = manifest;
  } else if (const auto complete = complete_.find(payload.version); complete != complete_.end() && payload.is_full()) {
    complete->second->full_so_far = manifest;
  }
}

void Store::take_out(Version version, FileTable table) {
  // One that arrives has a record of this name, too. It has not moved: that would have taken the place.
  const bool has_record = !incoming_.contains(version);
  const auto work = [layout = layout_, version, next = newest(), table, has_record]() -> Status {
    const Status unmarked = has_record ? drop_mark(layout, version) : Status();
    WC_TRY(uninstall(layout, version, next, table));
    return unmarked;
  };
  serial_.run(work, [this, version, table = std::move(table)](const Status& taken_out) mutable {
    if (taken_out.has_value()) return;
    log_warning("store: version {}, which nobody may have, is still in its place: {}; trying again in {:.3g} s",
                version.value, taken_out.error().message(), to_seconds(kTakeOutRetry));
    take_out_later(version, std::move(table));
  });
}

void Store::take_out_later(Version version, FileTable table) {
  misplaced_.insert_or_assign(version, std::move(table));
  if (!take_out_timer_.armed()) take_out_timer_.arm(loop_.now() + kTakeOutRetry);
}

void Store::take_out_again() {
  for (auto& [version, table] : std::exchange(misplaced_, {})) {
    const auto takes_place = [&](const auto& each) { return each.first.version == version && each.second->finishing; };
    // Who makes it anew takes away what is there, or discards it once more.
    if (complete_.contains(version)) continue;
    if (is_being_made(version) || std::ranges::any_of(incoming_, takes_place)) {
      take_out_later(version, table);
    } else {
      take_out(version, table);
    }
  }
}

void Store::add_full_manifest(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                              std::function<void(Status)> done) {
  const Version version = manifest.version;
  const auto refuse = [&](Errc code, std::string_view why) {
    const Error error = fail(code, Op::kPublish, fmt::format("version {}: {}", version.value, why));
    later([error, done = std::move(done)] { done(error); });
  };
  const auto found = complete_.find(version);
  if (found == complete_.end()) return refuse(Errc::kNotFound, "not in the store");
  StoredVersion& stored = found->second->stored;
  if (manifest.open || !manifest.id().is_full() || manifest.files != stored.manifest.files ||
      manifest.snapshot_digest != stored.manifest.snapshot_digest || !are_all_digests(manifest, chunk_digests)) {
    return refuse(Errc::kInvalidArgument, "the manifest disagrees with the version or the digests");
  }
  stored.manifest = manifest;
  stored.chunk_digests = chunk_digests;
  found->second->full_so_far.reset();
  auto record = std::make_shared<VersionRecord>(VersionRecord{manifest, ChunkDigests(manifest, chunk_digests)});
  serial_.run(
      [layout = layout_, version, record]() -> Status {
        const std::filesystem::path path = layout.record(version);
        // Fails for a version that was removed meanwhile, too.
        WC_ASSIGN(const VersionRecord before, read_record(layout.files(), path));
        record->durable = before.durable;
        return rewrite_record(layout.files(), path, *record);
      },
      [this, version, done = std::move(done)](const Status& written) {
        done(written.has_value() ? Status() : Status(about(version, written.error())));
      });
}

/// The record of an import that ends with `manifest`; null if it cannot: then it has been refused.
std::shared_ptr<VersionRecord> Store::close_import(PayloadId payload, const Manifest& manifest,
                                                   const std::vector<ContentDigest>& chunk_digests,
                                                   const std::function<void(Error)>& refuse) {
  const auto refuse_later = [&](const Error& error) {
    later([refuse, error] { refuse(error); });
    return nullptr;
  };
  const auto found = imports_.find(payload);
  if (found == imports_.end() || found->second.finishing) return refuse_later(no_such(payload));
  // How long a patch becomes is not known when its file is made.
  const bool same_files = payload.is_encoded() || found->second.table == manifest.files;
  // A version that a patch describes has no digests of its own.
  const bool by_patch = !payload.is_encoded() && manifest.id().is_patch() && manifest.version == payload.version;
  const bool fits = by_patch ? chunk_digests.empty() && !manifest.open
                             : manifest.id() == payload && are_all_digests(manifest, chunk_digests);
  if (!fits || !same_files) {
    return refuse_later(fail(
        Errc::kInvalidArgument, Op::kPublish,
        fmt::format("version {}: the manifest disagrees with the imported files or digests", payload.version.value)));
  }
  found->second.finishing = true;
  if (by_patch) return std::make_shared<VersionRecord>(VersionRecord{manifest, ChunkDigests(manifest)});
  return std::make_shared<VersionRecord>(VersionRecord{manifest, ChunkDigests(manifest, chunk_digests)});
}

void Store::finish_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests, InstallDone done,
                          ImportDetails details) {
  const Version version = manifest.version;
  const std::shared_ptr<VersionRecord> record = close_import(version, manifest, chunk_digests, done);
  if (!record) return;
  const FilesRef files = imports_.at(version).files;
  serial_.run(
      [layout = layout_, version, record]() -> Result<double> {
        WC_TRY(write_record(layout.files(), layout.record(version), *record));
        return install(layout, version);
      },
      [this, version, files, record, details = std::move(details),
       done = std::move(done)](const Result<double>& switch_s) mutable {
        const auto import = imports_.find(version);
        if (import == imports_.end() || import->second.files != files) return done(no_such(version));
        import->second.finishing = false;
        if (!switch_s.has_value()) return done(about(version, switch_s.error()));
        imports_.erase(import);
        keep_step(std::move(details.step));
        handle_installed(std::move(*record), files, std::move(details.leaves), *switch_s, done);
      });
}

void Store::finish_patched_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                                  InstallDone done, ImportDetails details) {
  const Version version = manifest.version;
  const PayloadId patch = manifest.id();
  const auto result = imports_.find(version);
  if (result == imports_.end() || result->second.finishing || result->second.table != manifest.files) {
    return later([version, done = std::move(done)] { done(no_such(version)); });
  }
  const std::shared_ptr<VersionRecord> record = close_import(patch, manifest, chunk_digests, done);
  if (!record) return;
  result->second.finishing = true;
  struct Installed {
    FilesRef patch;
    double switch_s = 0;
  };
  serial_.run(
      [layout = layout_, record]() -> Result<Installed> {
        const PayloadId id = record->manifest.id();
        WC_TRY(write_record(layout.files(), layout.record(id), *record));
        WC_ASSIGN(FileTable table, payload_files(record->manifest));
        // What can fail comes before readers see the version. The files go with their directory.
        WC_ASSIGN(FilesRef opened, VersionFiles::open(layout.files(), layout.incoming(id), std::move(table)));
        WC_ASSIGN(const double switch_s, install_patched(layout, record->manifest));
        return Installed{std::move(opened), switch_s};
      },
      [this, version, patch, files = result->second.files, record, details = std::move(details),
       done = std::move(done)](Result<Installed> installed) mutable {
        const auto import = imports_.find(version);
        if (import == imports_.end() || import->second.files != files) return done(no_such(version));
        const auto of_patch = imports_.extract(patch);
        if (!installed.has_value()) {
          import->second.finishing = false;
          // It may have been moved already.
          const FileTable& table = of_patch.mapped().files->table();
          remove(patch, layout_.incoming(patch), table);
          remove(patch, layout_.patch(patch), table);
          return done(about(version, installed.error()));
        }
        imports_.erase(import);
        VersionRecord of_version{record->manifest, ChunkDigests(record->manifest)};
        add_patch(std::move(*record), std::move(installed->patch));
        keep_step(std::move(details.step));
        handle_installed(std::move(of_version), files, std::move(details.leaves), installed->switch_s, done);
      });
}

void Store::finish_patch(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                         std::function<void(Status)> done) {
  const PayloadId patch = manifest.id();
  const std::shared_ptr<VersionRecord> record = close_import(patch, manifest, chunk_digests, done);
  if (!record) return;
  serial_.run([layout = layout_, record] { return keep_patch(layout, *record); },
              [this, patch, record, done = std::move(done)](const Result<FilesRef>& files) {
                const auto import = imports_.extract(patch);
                if (!import) return done(no_such(patch));
                if (!files.has_value()) {
                  remove(patch, layout_.incoming(patch), import.mapped().files->table());
                  return done(about(patch.version, files.error()));
                }
                add_patch(std::move(*record), *files);
                done({});
              });
}

}  // namespace weightcast
