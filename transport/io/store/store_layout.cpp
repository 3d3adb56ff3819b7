#include "transport/io/store/store_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "base/text.h"
#include "proto/limits.h"
#include "transport/io/log.h"
#include "transport/io/store/files/version_files.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kVersionDigits = 12;
constexpr std::string_view kPackedSuffix = "-packed";
constexpr char kRunMark = '@';
// From one of the two directories to the other.
constexpr const char* kMemoryLink = "memory";
constexpr const char* kStateLink = "state";
constexpr unsigned kNamesTried = 1'000'000;

std::string name_of(PayloadId payload, std::uint32_t run) {
  std::string name = fmt::format("{:0{}}", payload.version.value, kVersionDigits);
  if (payload.is_packed()) name += kPackedSuffix;
  if (payload.is_patch()) name += fmt::format("-{:0{}}", payload.base.value, kVersionDigits);
  return run == 1 ? name : fmt::format("{}{}{}", name, kRunMark, run);
}

std::optional<Version> parse_version(std::string_view text) {
  const auto value = parse_number<std::uint64_t>(text);
  if (!value || *value == 0 || *value > kVersionMax.value) return std::nullopt;
  return Version{*value};
}

/// Says what to do about a directory that this user may not write to.
Status with_advice(Status status) {
  if (!status.has_value() && status.error().code == Errc::kNotAllowed) {
    const bool is_read_only = status.error().detail.ends_with(std::strerror(EROFS));
    status.error().detail +=
        fmt::format("; {}, or choose another directory with --state",
                    is_read_only ? "mount it writable" : "give this user the right to write there");
  }
  return status;
}

/// Makes `link` lead to `target`. One that does stays: a full disk may have no room for another.
Status lead(FileSystem& files, const fs::path& link, const fs::path& target) {
  const Result<fs::path> there = files.read_link(link);
  if (there.has_value() && *there == target) return {};
  WC_TRY(remove_if_there(files, link));
  return files.make_link(target, link);
}

/// After `moved`: what an image's layer brought cannot be moved, so it is deleted where it is. A start takes what is
/// left of it for no version.
Status removed_if_fixed(FileSystem& files, const fs::path& path, Status moved) {
  const bool is_fixed = !moved.has_value() && moved.error().code == Errc::kUnsupported;
  return is_fixed ? remove_all(files, path) : moved;
}

/// A name in `folder` that is not taken yet.
fs::path free_name(FileSystem& files, const fs::path& folder, const std::string& stem) {
  for (unsigned i = 0; i < kNamesTried; ++i) {
    fs::path candidate = folder / fmt::format("{}.{}", stem, i);
    if (!files.link_info(candidate).has_value()) return candidate;
  }
  return folder / stem;
}

}  // namespace

StoreLayout StoreLayout::around(FileSystem& files, const fs::path& versions, std::uint32_t run) {
  const fs::path root = versions.parent_path();
  const Result<fs::path> state = files.read_link(root / kStateLink);
  return state.has_value() ? StoreLayout(files, *state, root, run) : StoreLayout(files, root, {}, run);
}

Result<fs::path> StoreLayout::versions_root_of(FileSystem& files, const fs::path& directory) {
  const Result<fs::path> memory = files.read_link(directory / kMemoryLink);
  if (memory.has_value() || memory.error().code != Errc::kNotFound) return memory;
  return directory;
}

fs::path StoreLayout::incoming(PayloadId payload) const { return incoming() / name_of(payload); }
fs::path StoreLayout::complete(Version version) const { return versions() / name_of(version); }
fs::path StoreLayout::patch(PayloadId payload) const { return patches() / name_of(payload); }
fs::path StoreLayout::record(PayloadId payload) const { return records() / name_of(payload); }

std::string StoreLayout::name_of(PayloadId payload) const { return weightcast::name_of(payload, run_); }

std::optional<StoreLayout::Named> StoreLayout::named(std::string_view name) {
  Named found;
  const std::size_t mark = name.find(kRunMark);
  if (mark != name.npos) {
    const auto run = parse_number<std::uint32_t>(name.substr(mark + 1));
    if (!run || *run < 2) return std::nullopt;
    found.run = *run;
  }
  const std::string_view stem = name.substr(0, mark);
  const std::size_t dash = stem.find('-');
  const auto version = parse_version(stem.substr(0, dash));
  if (!version) return std::nullopt;
  found.payload = PayloadId(*version);
  if (dash != stem.npos && stem.substr(dash) == kPackedSuffix) {
    found.payload = packed_of(*version);
  } else if (dash != stem.npos) {
    const auto base = parse_version(stem.substr(dash + 1));
    if (!base) return std::nullopt;
    found.payload = patch_of(*version, *base);
  }
  // The name that is not spelled so, with zeros too many, is not ours.
  return weightcast::name_of(found.payload, found.run) == name ? std::optional(found) : std::nullopt;
}

std::optional<PayloadId> StoreLayout::payload_of(std::string_view name) const {
  const std::optional<Named> found = named(name);
  return found && found->run == run_ ? std::optional(found->payload) : std::nullopt;
}

Status StoreLayout::make_folders() const {
  for (const fs::path& path :
       {directory_, versions_root(), incoming(), versions(), patches(), records(), trash(), spare(), aside()}) {
    WC_TRY(with_advice(make_directories(*files_, path)));
    WC_TRY(with_advice(files_->check_writable(path)));
  }
  return {};
}

Status StoreLayout::create() const {
  WC_TRY(make_folders());
  if (in_memory()) {
    WC_TRY(lead(*files_, directory_ / kMemoryLink, memory_));
    WC_TRY(lead(*files_, memory_ / kStateLink, fs::absolute(directory_)));
  } else {
    WC_TRY(remove_if_there(*files_, directory_ / kMemoryLink));
  }
  // What was moved aside may still be unsynced, and what it was moved out of goes next.
  WC_TRY(sync_directory(*files_, aside()));
  // An earlier start may have ended between making a directory and syncing its name. Of those above a directory that
  // this user may not read was there before.
  WC_TRY(sync_directory(*files_, directory_));
  for (fs::path path = directory_; path != path.parent_path(); path = path.parent_path()) {
    static_cast<void>(sync_directory(*files_, path.parent_path()));
  }
  return {};
}

Result<std::unique_ptr<File>> StoreLayout::acquire() const {
  WC_TRY(with_advice(make_directories(*files_, directory_)));
  // Whoever may open it can take it, and keep this user's daemon from starting.
  Result<std::unique_ptr<File>> opened =
      files_->open(lock(), {.write = true, .create = Create::kIfMissing, .permissions = 0600});
  if (!opened.has_value()) return with_advice(opened.error()).error();
  std::unique_ptr<File> file = std::move(*opened);
  if (const Status locked = file->lock(); !locked.has_value()) {
    if (locked.error().code != Errc::kBusy) return locked.error();
    std::string pid(32, '\0');
    pid.resize(file->read_at(0, std::as_writable_bytes(std::span(pid))).value_or(0));
    while (!pid.empty() && pid.back() == '\n') pid.pop_back();
    return fail(Errc::kBusy, Op::kLock,
                fmt::format("{}: in use by process {}; stop it, or choose another directory with --state",
                            directory_.native(), pid.empty() ? "(unknown)" : pid));
  }
  const std::string pid = fmt::format("{}\n", files_->process_number());
  // In the place of the number before, for which a full disk has room. And it is for a message alone.
  const Status told = write_fully(*file, 0, std::as_bytes(std::span(pid)), lock().native());
  if (!told.has_value() && told.error().code != Errc::kNoSpace) return told.error();
  WC_TRY(file->truncate(told.has_value() ? pid.size() : 0));
  return file;
}

Status StoreLayout::switch_current(Version version) const {
  const fs::path temporary = directory_ / "current.tmp";
  WC_TRY(remove_if_there(*files_, temporary));
  // Relative, so that the directory may be moved.
  const fs::path target = in_memory() ? versions() : fs::path("versions");
  WC_TRY(files_->make_link(target / name_of(version), temporary));
  return files_->rename(temporary, current());
}

Result<StoreLayout::Current> StoreLayout::read_current() const {
  const Result<FileInfo> info = files_->link_info(current());
  if (!info.has_value() && info.error().code == Errc::kNotFound) return Current{};
  if (!info.has_value()) return info.error();
  if (!info->is_link()) return Current{.foreign = true};
  WC_ASSIGN(const fs::path target, files_->read_link(current()));
  const std::optional<Named> found = named(target.filename().native());
  if (!found || found->payload.is_encoded() || target.parent_path().filename() != "versions") {
    return Current{.foreign = true};
  }
  // Of when versions were kept elsewhere.
  if (target.parent_path() != (in_memory() ? versions() : fs::path("versions"))) return Current{};
  return Current{.version = found->run == run_ ? found->payload.version : kNoVersion, .run = found->run};
}

Status StoreLayout::throw_away(const fs::path& path, const std::optional<FileTable>& table) const {
  WC_TRY(rescue_foreign(path, table));
  Status moved = files_->rename(path, free_name(*files_, trash(), path.filename()));
  if (!moved.has_value() && moved.error().code == Errc::kNotFound) return {};
  return removed_if_fixed(*files_, path, std::move(moved));
}

void StoreLayout::empty_trash() const {
  const Result<std::vector<std::string>> names = files_->list(trash());
  if (!names.has_value()) return log_warning("store: {}", names.error().message());
  for (const std::string& name : *names) {
    const Status removed = remove_all(*files_, trash() / name);
    if (!removed.has_value()) log_warning("store: {}", removed.error().message());
  }
}

Status StoreLayout::make_spare(const fs::path& path, const FileTable& table) const {
  drop_spare();
  WC_TRY(rescue_foreign(path, table));
  return removed_if_fixed(*files_, path, files_->rename(path, spare() / path.filename()));
}

void StoreLayout::drop_spare() const {
  const Result<std::vector<std::string>> names = files_->list(spare());
  if (!names.has_value()) return log_warning("store: {}", names.error().message());
  for (const std::string& name : *names) {
    const Status moved = throw_away(spare() / name);
    if (!moved.has_value()) log_warning("store: {}", moved.error().message());
  }
}

Status StoreLayout::move_aside(const fs::path& path) const {
  const fs::path to = free_name(*files_, aside(), path.filename());
  Status moved = files_->rename(path, to);
  if (moved.has_value()) {
    log_warning("store: {} is not ours; moved to {}", path.native(), to.native());
  } else {
    log_warning("store: {} is not ours and cannot be moved away: {}", path.native(), moved.error().detail);
  }
  return moved;
}

Status StoreLayout::rescue_foreign(const fs::path& path, const std::optional<FileTable>& table) const {
  const Result<std::vector<std::string>> foreign = foreign_names(*files_, path, table);
  if (!foreign.has_value()) return foreign.error().code == Errc::kNotFound ? Status() : Status(foreign.error());
  if (foreign->empty()) return {};
  std::set<fs::path> left;
  for (const std::string& name : *foreign) {
    WC_TRY(move_aside(path / name));
    left.insert((path / name).parent_path());
  }
  // Else a power cut could bring them back to where they are deleted.
  WC_TRY(sync_directory(*files_, aside()));
  for (const fs::path& directory : left) WC_TRY(sync_directory(*files_, directory));
  return {};
}

}  // namespace weightcast
