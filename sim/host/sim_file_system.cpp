#include "sim/host/sim_file_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "sim/host/sim_file_system_inode.h"

namespace weightcast::sim {

SimFileSystem::SimFileSystem(std::uint64_t seed, Options options)
    : FileSystem(options.files_kept_open), options_(options), random_(seed) {
  root_ = make_inode(FileInfo::Kind::kDirectory);
  root_->links = 1;
  if (!options.has_memory) return;
  const InodeRef memory = make_inode(FileInfo::Kind::kDirectory);
  memory->links = 1;
  root_->entries[Path(kMemory).filename()] = root_->durable_entries[Path(kMemory).filename()] = memory;
}

SimFileSystem::~SimFileSystem() {
  // Whoever still has a file open finds that its process is dead.
  ++process_;
}

Status SimFileSystem::call(Op op, const std::string& what) {
  ++calls_;
  if (killed_) return fail(Errc::kIo, op, what + ": the process is dead");
  if (fail_at_ && fail_at_->first == calls_) return fail_errno(fail_at_->second, op, what);
  if (faults_.error > 0 && random_.chance(faults_.error)) return fail_errno(EIO, op, what);
  return {};
}

Status SimFileSystem::change(Op op, const std::string& what) {
  if (!killed_ && kill_at_ && changes_ + 1 == *kill_at_) kill();
  WC_TRY(call(op, what));
  ++changes_;
  ++now_ns_;
  return {};
}

Status SimFileSystem::take_space(Op op, const std::string& what) {
  WC_TRY(change(op, what));
  if (faults_.no_space > 0 && random_.chance(faults_.no_space)) return fail_errno(ENOSPC, op, what);
  return {};
}

bool SimFileSystem::has_room(std::size_t pages) const {
  return options_.capacity_bytes == kUnlimited || (used_pages_ + pages) * kPageBytes <= options_.capacity_bytes;
}

std::size_t SimFileSystem::shortened(std::size_t bytes) {
  if (bytes < 2 || faults_.short_io == 0 || !random_.chance(faults_.short_io)) return bytes;
  return 1 + random_.below(bytes - 1);
}

Result<std::size_t> SimFileSystem::write(Inode& inode, std::uint64_t offset, Bytes from, const std::string& what) {
  const bool dies = !killed_ && kill_at_ && changes_ + 1 == *kill_at_;
  std::size_t bytes = from.size();
  if (dies) {
    // The process may die when the kernel has taken some of it, by whole pages.
    bytes = random_.below(pages_of(bytes, kPageBytes) + 1) * kPageBytes;
    bytes = std::min(bytes, from.size());
  } else {
    WC_TRY(take_space(Op::kWrite, what));
    bytes = shortened(bytes);
  }
  // As much as there is room for.
  inode.allocated.resize(std::max(inode.allocated.size(), pages_of(offset + bytes, kPageBytes)));
  inode.written.resize(std::max(inode.written.size(), inode.allocated.size()));
  std::size_t fits = 0;
  while (fits < bytes) {
    const std::size_t page = (offset + fits) / kPageBytes;
    if (!inode.allocated[page]) {
      if (!has_room(1)) break;
      inode.allocated[page] = true;
      ++inode.pages;
      ++used_pages_;
    }
    inode.written[page] = true;
    fits = std::min<std::uint64_t>(bytes, (page + 1) * kPageBytes - offset);
  }
  const Bytes taken = from.first(fits);
  if (!taken.empty()) {
    if (offset + fits > inode.data->size() && inode.data.use_count() > 1) {
      inode.data = std::make_shared<std::vector<std::byte>>(*inode.data);
    }
    put(*inode.data, offset, taken);
    inode.changes.push_back({Change::Kind::kWrite, offset, {taken.begin(), taken.end()}});
    inode.modified_ns = now_ns_;
  }
  if (dies) return change(Op::kWrite, what).error();
  if (fits == 0 && !from.empty()) return fail_errno(ENOSPC, Op::kWrite, what);
  return fits;
}

void SimFileSystem::resize(Inode& inode, std::uint64_t size_bytes) {
  inode.data = std::make_shared<std::vector<std::byte>>(*inode.data);
  inode.data->resize(size_bytes);
  const std::size_t pages = pages_of(size_bytes, kPageBytes);
  if (pages < inode.allocated.size()) {
    const auto gone =
        std::count(inode.allocated.begin() + static_cast<std::ptrdiff_t>(pages), inode.allocated.end(), true);
    inode.pages -= static_cast<std::size_t>(gone);
    used_pages_ -= static_cast<std::size_t>(gone);
  }
  inode.allocated.resize(pages);
  inode.written.resize(pages);
  inode.changes.push_back({Change::Kind::kResize, size_bytes, {}});
  inode.modified_ns = now_ns_;
}

SimFileSystem::InodeRef SimFileSystem::make_inode(FileInfo::Kind kind) {
  auto inode = std::make_shared<Inode>();
  inode->kind = kind;
  inode->number = next_inode_++;
  inode->modified_ns = now_ns_;
  return inode;
}

void SimFileSystem::release(Inode& inode) {
  if (inode.links > 0 || inode.opens > 0 || inode.opens_elsewhere > 0) return;
  used_pages_ -= std::exchange(inode.pages, 0);
}

FileInfo SimFileSystem::info_of(const Inode& inode) {
  FileInfo info;
  info.kind = inode.kind;
  info.size_bytes = inode.size_bytes();
  info.modified_ns = inode.modified_ns;
  info.links = inode.links;
  info.device = 1;
  info.number = inode.number;
  info.executable = inode.executable;
  return info;
}

Result<SimFileSystem::Place> SimFileSystem::find(const Path& path, bool follow, Op op, unsigned links_left) {
  Place place{root_, "", root_};
  Path walked;
  for (const Path& part : path) {
    const std::string& name = part.native();
    if (name == "/" || name.empty() || name == ".") continue;
    if (!place.inode) return fail_errno(ENOENT, op, path.native());
    if (place.inode->kind == FileInfo::Kind::kLink) {
      // In the middle of a path a link is always followed.
      if (links_left == 0) return fail_errno(ELOOP, op, path.native());
      WC_ASSIGN(place, find(walked.parent_path() / place.inode->target, true, op, links_left - 1));
      if (!place.inode) return fail_errno(ENOENT, op, path.native());
    }
    if (place.inode->kind != FileInfo::Kind::kDirectory) return fail_errno(ENOTDIR, op, path.native());
    const auto found = place.inode->entries.find(name);
    InodeRef next = found == place.inode->entries.end() ? nullptr : found->second;
    place = {place.inode, name, std::move(next)};
    walked /= part;
  }
  if (follow && place.inode && place.inode->kind == FileInfo::Kind::kLink) {
    if (links_left == 0) return fail_errno(ELOOP, op, path.native());
    return find(walked.parent_path() / place.inode->target, true, op, links_left - 1);
  }
  return place;
}

Result<SimFileSystem::InodeRef> SimFileSystem::find_existing(const Path& path, bool follow, Op op) {
  WC_ASSIGN(const Place place, find(path, follow, op));
  if (!place.inode) return fail_errno(ENOENT, op, path.native());
  return place.inode;
}

Result<SimFileSystem::InodeRef> SimFileSystem::find_directory(const Path& path, Op op) {
  WC_ASSIGN(InodeRef inode, find_existing(path, true, op));
  if (inode->kind != FileInfo::Kind::kDirectory) return fail_errno(ENOTDIR, op, path.native());
  return inode;
}

void SimFileSystem::set_name(const Place& place, InodeRef inode) {
  NameChange change;
  set_name(change, place.directory, place.name, std::move(inode));
  unsynced_names_.push_back(std::move(change));
}

void SimFileSystem::set_name(NameChange& change, const InodeRef& directory, const std::string& name, InodeRef inode) {
  const auto found = directory->entries.find(name);
  InodeRef before = found == directory->entries.end() ? nullptr : found->second;
  change.slots.push_back({directory, name, before, inode});
  if (inode) {
    ++inode->links;
    directory->entries[name] = inode;
  } else {
    directory->entries.erase(name);
  }
  directory->modified_ns = now_ns_;
  if (before) {
    --before->links;
    release(*before);
  }
}

Result<std::unique_ptr<File>> SimFileSystem::open_at(const Place& place, const OpenOptions& options,
                                                     const std::string& what) {
  InodeRef inode = place.inode;
  if (inode && inode->kind == FileInfo::Kind::kLink) {
    return fail_errno(ELOOP, Op::kOpen, what);  // the caller has followed it if that was wanted
  }
  const bool makes = !inode && options.create != Create::kNever;
  const bool empties = inode && options.create == Create::kEmpty && inode->kind == FileInfo::Kind::kFile;
  WC_TRY(makes ? take_space(Op::kOpen, what) : empties ? change(Op::kOpen, what) : call(Op::kOpen, what));
  if (inode && options.create == Create::kNew) return fail_errno(EEXIST, Op::kOpen, what);
  if (!inode && !makes) return fail_errno(ENOENT, Op::kOpen, what);
  if (inode && inode->kind == FileInfo::Kind::kDirectory && options.write) {
    return fail_errno(EISDIR, Op::kOpen, what);
  }
  if (makes) {
    if (place.directory->links == 0) return fail_errno(ENOENT, Op::kOpen, what);
    inode = make_inode(FileInfo::Kind::kFile);
    inode->executable = (options.permissions & 0100) != 0;
    set_name(place, inode);
  }
  if (empties && !inode->data->empty()) resize(*inode, 0);
  return handle_of(std::move(inode), options, what);
}

Result<std::unique_ptr<File>> SimFileSystem::open(const Path& path, const OpenOptions& options) {
  WC_ASSIGN(const Place place, find(path, options.follow_links && options.create != Create::kNew, Op::kOpen));
  return open_at(place, options, path.native());
}

Result<std::unique_ptr<Directory>> SimFileSystem::open_directory(const Path& path) {
  WC_TRY(call(Op::kOpen, path.native()));
  WC_ASSIGN(InodeRef inode, find_directory(path, Op::kOpen));
  return directory_handle_of(std::move(inode), path.native());
}

Result<std::vector<std::string>> SimFileSystem::list(const Path& path) {
  WC_TRY(call(Op::kRead, path.native()));
  WC_ASSIGN(const InodeRef inode, find_directory(path, Op::kRead));
  std::vector<std::string> names;
  for (const auto& [name, _] : inode->entries) names.push_back(name);
  return names;
}

Result<FileInfo> SimFileSystem::info(const Path& path) {
  WC_TRY(call(Op::kOpen, path.native()));
  WC_ASSIGN(const InodeRef inode, find_existing(path, true, Op::kOpen));
  return info_of(*inode);
}

Result<FileInfo> SimFileSystem::link_info(const Path& path) {
  WC_TRY(call(Op::kOpen, path.native()));
  WC_ASSIGN(const InodeRef inode, find_existing(path, false, Op::kOpen));
  return info_of(*inode);
}

Result<SimFileSystem::InodeRef> SimFileSystem::make(const Path& path, FileInfo::Kind kind, Op op) {
  WC_TRY(take_space(op, path.native()));
  WC_ASSIGN(const Place place, find(path, false, op));
  if (place.inode) return fail_errno(EEXIST, op, path.native());
  if (place.directory->links == 0) return fail_errno(ENOENT, op, path.native());
  InodeRef made = make_inode(kind);
  set_name(place, made);
  return made;
}

Status SimFileSystem::make_directory(const Path& path) {
  WC_TRY(make(path, FileInfo::Kind::kDirectory, Op::kOpen));
  return {};
}

Status SimFileSystem::rename(const Path& from, const Path& to) {
  const std::string what = fmt::format("{} to {}", from.native(), to.native());
  WC_TRY(change(Op::kRename, what));
  const auto in_memory = [](const Path& path) { return path.native().starts_with(std::string(kMemory) + "/"); };
  if (in_memory(from) != in_memory(to)) return fail_errno(EXDEV, Op::kRename, what);
  WC_ASSIGN(const Place source, find(from, false, Op::kRename));
  WC_ASSIGN(const Place target, find(to, false, Op::kRename));
  if (!source.inode || target.directory->links == 0) return fail_errno(ENOENT, Op::kRename, what);
  if (source.inode == target.inode) return {};
  if (target.inode) {
    const bool moves_directory = source.inode->kind == FileInfo::Kind::kDirectory;
    const bool onto_directory = target.inode->kind == FileInfo::Kind::kDirectory;
    if (moves_directory && !onto_directory) return fail_errno(ENOTDIR, Op::kRename, what);
    if (!moves_directory && onto_directory) return fail_errno(EISDIR, Op::kRename, what);
    if (onto_directory && !target.inode->entries.empty()) return fail_errno(ENOTEMPTY, Op::kRename, what);
  }
  NameChange moved;
  set_name(moved, target.directory, target.name, source.inode);
  set_name(moved, source.directory, source.name, nullptr);
  unsynced_names_.push_back(std::move(moved));
  return {};
}

Status SimFileSystem::make_link(const Path& target, const Path& path) {
  WC_ASSIGN(const InodeRef made, make(path, FileInfo::Kind::kLink, Op::kWrite));
  made->target = target;
  return {};
}

Result<FileSystem::Path> SimFileSystem::read_link(const Path& path) {
  WC_TRY(call(Op::kRead, path.native()));
  WC_ASSIGN(const InodeRef inode, find_existing(path, false, Op::kRead));
  if (inode->kind != FileInfo::Kind::kLink) return fail_errno(EINVAL, Op::kRead, path.native());
  return inode->target;
}

Status SimFileSystem::remove(const Path& path) {
  WC_TRY(change(Op::kWrite, path.native()));
  WC_ASSIGN(const Place place, find(path, false, Op::kWrite));
  if (!place.inode) return fail_errno(ENOENT, Op::kWrite, path.native());
  if (place.inode->kind == FileInfo::Kind::kDirectory) return fail_errno(EISDIR, Op::kWrite, path.native());
  set_name(place, nullptr);
  return {};
}

Status SimFileSystem::remove_directory(const Path& path) {
  WC_TRY(change(Op::kWrite, path.native()));
  WC_ASSIGN(const Place place, find(path, false, Op::kWrite));
  if (!place.inode) return fail_errno(ENOENT, Op::kWrite, path.native());
  if (place.inode->kind != FileInfo::Kind::kDirectory) return fail_errno(ENOTDIR, Op::kWrite, path.native());
  if (!place.inode->entries.empty()) return fail_errno(ENOTEMPTY, Op::kWrite, path.native());
  set_name(place, nullptr);
  return {};
}

Result<std::uint64_t> SimFileSystem::free_bytes(const Path& path) {
  WC_TRY(call(Op::kOpen, path.native()));
  if (options_.capacity_bytes == kUnlimited) return kUnlimited;
  return options_.capacity_bytes - std::min(options_.capacity_bytes, used_bytes());
}

Status SimFileSystem::check_writable(const Path& path) {
  WC_TRY(call(Op::kOpen, path.native()));
  WC_TRY(find_directory(path, Op::kOpen));
  return {};
}

std::string SimFileSystem::users_of(const std::vector<Path>& paths) {
  for (const Path& path : paths) {
    const Result<InodeRef> inode = find_existing(path, true, Op::kOpen);
    if (inode.has_value() && (*inode)->opens_elsewhere > 0) return "reader (process 0)";
  }
  return "";
}

}  // namespace weightcast::sim
