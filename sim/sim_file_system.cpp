#include "sim/sim_file_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

namespace weightcast::sim {

/// What happened to a file since it was last synced, in order.
struct SimFileSystem::Change {
  enum class Kind : std::uint8_t { kWrite, kResize };

  Kind kind = Kind::kWrite;
  std::uint64_t offset = 0;  ///< of a resize: the new size
  std::vector<std::byte> bytes;
};

/// A file, directory or link. A directory's entries and a file's bytes exist twice: as processes see them, and on the
/// platter.
struct SimFileSystem::Inode {
  FileInfo::Kind kind = FileInfo::Kind::kFile;
  std::uint64_t number = 0;
  std::uint64_t links = 0;
  std::int64_t modified_ns = 0;

  // Shared with mappings. A file that grows while it is mapped leaves them with what they had.
  std::shared_ptr<std::vector<std::byte>> data = std::make_shared<std::vector<std::byte>>();
  std::vector<std::byte> durable;
  std::vector<Change> changes;
  std::vector<bool> written;    ///< by page: not a hole
  std::vector<bool> allocated;  ///< by page: takes space
  std::size_t pages = 0;        ///< allocated ones

  std::map<std::string, InodeRef> entries, durable_entries;
  Path target;

  std::uint64_t opens = 0;            ///< by the process, mappings included
  std::uint64_t opens_elsewhere = 0;  ///< by others
  const void* locked_by = nullptr;

  [[nodiscard]] std::uint64_t size_bytes() const { return kind == FileInfo::Kind::kFile ? data->size() : 0; }
};

/// One atomic change of names.
struct SimFileSystem::NameChange {
  struct Slot {
    InodeRef directory;
    std::string name;
    InodeRef before, after;
  };
  std::vector<Slot> slots;

  /// Whether a file system with a journal cannot have `later` without this.
  [[nodiscard]] bool is_before(const NameChange& later) const {
    const auto touches = [](const Slot& slot, const InodeRef& inode) {
      return inode && (slot.before == inode || slot.after == inode);
    };
    for (const Slot& mine : slots) {
      for (const Slot& theirs : later.slots) {
        if (mine.directory == theirs.directory && mine.name == theirs.name) return true;
        if (touches(theirs, mine.before) || touches(theirs, mine.after)) return true;
      }
    }
    return false;
  }
};

namespace {

std::size_t pages_of(std::uint64_t bytes, std::size_t page_bytes) {
  return static_cast<std::size_t>((bytes + page_bytes - 1) / page_bytes);
}

void put(std::vector<std::byte>& data, std::uint64_t offset, Bytes bytes) {
  if (bytes.empty()) return;
  if (data.size() < offset + bytes.size()) data.resize(offset + bytes.size());
  std::ranges::copy(bytes, data.begin() + static_cast<std::ptrdiff_t>(offset));
}

}  // namespace

class SimFileSystem::OpenMapping final : public Mapping {
 public:
  OpenMapping(SimFileSystem& owner, InodeRef inode)
      : owner_(owner), process_(owner.process_), inode_(std::move(inode)), data_(inode_->data) {
    ++inode_->opens;
  }
  ~OpenMapping() override {
    if (process_ != owner_.process_) return;
    --inode_->opens;
    owner_.release(*inode_);
  }
  [[nodiscard]] Bytes bytes() const override { return *data_; }

 private:
  SimFileSystem& owner_;
  const std::uint64_t process_;
  const InodeRef inode_;
  const std::shared_ptr<std::vector<std::byte>> data_;
};

class SimFileSystem::OpenFile final : public File {
 public:
  OpenFile(SimFileSystem& owner, InodeRef inode, const OpenOptions& options, std::string name)
      : owner_(owner),
        process_(owner.process_),
        inode_(std::move(inode)),
        writes_(options.write),
        appends_(options.append),
        name_(std::move(name)) {
    ++inode_->opens;
  }
  ~OpenFile() override {
    if (process_ != owner_.process_) return;
    if (inode_->locked_by == this) inode_->locked_by = nullptr;
    --inode_->opens;
    owner_.release(*inode_);
  }

  Result<std::size_t> read_at(std::uint64_t offset, MutableBytes into) override {
    WC_TRY(alive(Op::kRead));
    WC_TRY(owner_.call(Op::kRead, name_));
    const std::vector<std::byte>& data = *inode_->data;
    if (offset >= data.size() || into.empty()) return std::size_t{0};
    const std::size_t bytes = owner_.shortened(std::min<std::uint64_t>(into.size(), data.size() - offset));
    std::copy_n(data.begin() + static_cast<std::ptrdiff_t>(offset), bytes, into.begin());
    return bytes;
  }

  Result<std::size_t> write_at(std::uint64_t offset, Bytes from) override {
    WC_TRY(alive(Op::kWrite));
    if (!writes_) return fail_errno(EBADF, Op::kWrite, name_);
    return owner_.write(*inode_, offset, from, name_);
  }

  Result<std::size_t> append(Bytes from) override {
    WC_TRY(alive(Op::kWrite));
    if (!writes_ || !appends_) return fail_errno(EBADF, Op::kWrite, name_);
    return owner_.write(*inode_, inode_->data->size(), from, name_);
  }

  Result<FileInfo> info() override {
    WC_TRY(alive(Op::kOpen));
    WC_TRY(owner_.call(Op::kOpen, name_));
    return info_of(*inode_);
  }

  Status allocate(std::uint64_t size_bytes) override {
    WC_TRY(alive(Op::kWrite));
    if (!owner_.options_.can_allocate) return fail(Errc::kUnsupported, Op::kWrite, name_);
    WC_TRY(owner_.take_space(Op::kWrite, name_));
    Inode& inode = *inode_;
    const std::size_t pages = pages_of(size_bytes, kPageBytes);
    inode.allocated.resize(std::max(inode.allocated.size(), pages));
    const auto end = inode.allocated.begin() + static_cast<std::ptrdiff_t>(pages);
    const auto more = static_cast<std::size_t>(std::count(inode.allocated.begin(), end, false));
    if (!owner_.has_room(more)) return fail_errno(ENOSPC, Op::kWrite, name_);
    std::fill(inode.allocated.begin(), end, true);
    inode.pages += more;
    owner_.used_pages_ += more;
    if (size_bytes > inode.data->size()) owner_.resize(inode, size_bytes);
    return {};
  }

  Status truncate(std::uint64_t size_bytes) override {
    WC_TRY(alive(Op::kWrite));
    if (!writes_) return fail_errno(EINVAL, Op::kWrite, name_);
    WC_TRY(owner_.change(Op::kWrite, name_));
    owner_.resize(*inode_, size_bytes);
    return {};
  }

  Result<std::optional<std::uint64_t>> next_data(std::uint64_t offset) override {
    WC_TRY(alive(Op::kRead));
    WC_TRY(owner_.call(Op::kRead, name_));
    const std::vector<bool>& written = inode_->written;
    const auto first = std::min<std::size_t>(offset / kPageBytes, written.size());
    const auto found = std::find(written.begin() + static_cast<std::ptrdiff_t>(first), written.end(), true);
    if (found == written.end() || offset >= inode_->data->size()) return std::optional<std::uint64_t>();
    return std::optional(std::max<std::uint64_t>(offset, std::uint64_t(found - written.begin()) * kPageBytes));
  }

  Status sync_data() override {
    WC_TRY(alive(Op::kSync));
    WC_TRY(owner_.change(Op::kSync, name_));
    for (const Change& change : inode_->changes) {
      if (change.kind == Change::Kind::kResize) inode_->durable.resize(change.offset);
      put(inode_->durable, change.kind == Change::Kind::kResize ? 0 : change.offset, change.bytes);
    }
    inode_->changes.clear();
    return {};
  }

  Status lock() override {
    WC_TRY(alive(Op::kLock));
    WC_TRY(owner_.call(Op::kLock, name_));
    if (inode_->locked_by != nullptr && inode_->locked_by != this) return fail(Errc::kBusy, Op::kLock, name_);
    inode_->locked_by = this;
    return {};
  }

  Status check_unshared() override {
    WC_TRY(alive(Op::kOpen));
    WC_TRY(owner_.call(Op::kOpen, name_));
    if (inode_->opens + inode_->opens_elsewhere == 1) return {};
    return fail(Errc::kBusy, Op::kOpen, name_ + ": may be open elsewhere");
  }

  void advise_random() override {}

  Result<std::unique_ptr<Mapping>> map() override {
    WC_TRY(alive(Op::kOpen));
    WC_TRY(owner_.call(Op::kOpen, name_));
    return std::unique_ptr<Mapping>(std::make_unique<OpenMapping>(owner_, inode_));
  }

 private:
  [[nodiscard]] Status alive(Op op) const {
    if (process_ == owner_.process_) return {};
    return fail(Errc::kIo, op, name_ + ": the process that opened it is dead");
  }

  SimFileSystem& owner_;
  const std::uint64_t process_;
  const InodeRef inode_;
  const bool writes_;
  const bool appends_;
  const std::string name_;
};

class SimFileSystem::OpenDirectory final : public Directory {
 public:
  OpenDirectory(SimFileSystem& owner, InodeRef inode, std::string path)
      : owner_(owner), process_(owner.process_), inode_(std::move(inode)), path_(std::move(path)) {}

  Result<std::unique_ptr<File>> open(const std::string& name, const OpenOptions& options) override {
    WC_TRY(alive(Op::kOpen));
    const auto found = inode_->entries.find(name);
    const Place place{inode_, name, found == inode_->entries.end() ? nullptr : found->second};
    return owner_.open_at(place, options, path_ + "/" + name);
  }

  Result<FileInfo> info(const std::string& name) override {
    WC_TRY(alive(Op::kOpen));
    WC_TRY(owner_.call(Op::kOpen, path_ + "/" + name));
    const auto found = inode_->entries.find(name);
    if (found == inode_->entries.end()) return fail_errno(ENOENT, Op::kOpen, path_ + "/" + name);
    return info_of(*found->second);
  }

  Status sync() override {
    WC_TRY(alive(Op::kSync));
    WC_TRY(owner_.change(Op::kSync, path_));
    owner_.sync_names(inode_);
    return {};
  }

 private:
  [[nodiscard]] Status alive(Op op) const {
    if (process_ == owner_.process_) return {};
    return fail(Errc::kIo, op, path_ + ": the process that opened it is dead");
  }

  SimFileSystem& owner_;
  const std::uint64_t process_;
  const InodeRef inode_;
  const std::string path_;  // that it had when it was opened
};

SimFileSystem::SimFileSystem(std::uint64_t seed, Options options)
    : FileSystem(options.files_kept_open), options_(options), random_(seed) {
  root_ = make_inode(FileInfo::Kind::kDirectory);
  root_->links = 1;
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
    NameChange made;
    set_name(made, place.directory, place.name, inode);
    unsynced_names_.push_back(std::move(made));
  }
  if (empties && !inode->data->empty()) resize(*inode, 0);
  return std::unique_ptr<File>(std::make_unique<OpenFile>(*this, std::move(inode), options, what));
}

Result<std::unique_ptr<File>> SimFileSystem::open(const Path& path, const OpenOptions& options) {
  WC_ASSIGN(const Place place, find(path, options.follow_links && options.create != Create::kNew, Op::kOpen));
  return open_at(place, options, path.native());
}

Result<std::unique_ptr<Directory>> SimFileSystem::open_directory(const Path& path) {
  WC_TRY(call(Op::kOpen, path.native()));
  WC_ASSIGN(InodeRef inode, find_directory(path, Op::kOpen));
  return std::unique_ptr<Directory>(std::make_unique<OpenDirectory>(*this, std::move(inode), path.native()));
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

Status SimFileSystem::make_directory(const Path& path) {
  WC_TRY(take_space(Op::kOpen, path.native()));
  WC_ASSIGN(const Place place, find(path, false, Op::kOpen));
  if (place.inode) return fail_errno(EEXIST, Op::kOpen, path.native());
  if (place.directory->links == 0) return fail_errno(ENOENT, Op::kOpen, path.native());
  NameChange made;
  set_name(made, place.directory, place.name, make_inode(FileInfo::Kind::kDirectory));
  unsynced_names_.push_back(std::move(made));
  return {};
}

Status SimFileSystem::rename(const Path& from, const Path& to) {
  const std::string what = fmt::format("{} to {}", from.native(), to.native());
  WC_TRY(change(Op::kRename, what));
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
  WC_TRY(take_space(Op::kWrite, path.native()));
  WC_ASSIGN(const Place place, find(path, false, Op::kWrite));
  if (place.inode) return fail_errno(EEXIST, Op::kWrite, path.native());
  if (place.directory->links == 0) return fail_errno(ENOENT, Op::kWrite, path.native());
  const InodeRef inode = make_inode(FileInfo::Kind::kLink);
  inode->target = target;
  NameChange made;
  set_name(made, place.directory, place.name, inode);
  unsynced_names_.push_back(std::move(made));
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
  NameChange gone;
  set_name(gone, place.directory, place.name, nullptr);
  unsynced_names_.push_back(std::move(gone));
  return {};
}

Status SimFileSystem::remove_directory(const Path& path) {
  WC_TRY(change(Op::kWrite, path.native()));
  WC_ASSIGN(const Place place, find(path, false, Op::kWrite));
  if (!place.inode) return fail_errno(ENOENT, Op::kWrite, path.native());
  if (place.inode->kind != FileInfo::Kind::kDirectory) return fail_errno(ENOTDIR, Op::kWrite, path.native());
  if (!place.inode->entries.empty()) return fail_errno(ENOTEMPTY, Op::kWrite, path.native());
  NameChange gone;
  set_name(gone, place.directory, place.name, nullptr);
  unsynced_names_.push_back(std::move(gone));
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

void SimFileSystem::flip_bit(const Path& path, std::uint64_t offset, unsigned bit) {
  const Result<InodeRef> inode = find_existing(path, true, Op::kRead);
  WC_CHECK(inode.has_value() && offset < (*inode)->data->size());
  const auto mask = std::byte{1} << (bit % 8);
  (*(*inode)->data)[offset] ^= mask;
  if (offset < (*inode)->durable.size()) (*inode)->durable[offset] ^= mask;
  for (Change& change : (*inode)->changes) {
    if (offset >= change.offset && offset - change.offset < change.bytes.size()) {
      change.bytes[offset - change.offset] ^= mask;
    }
  }
}

std::shared_ptr<void> SimFileSystem::open_elsewhere(const Path& path) {
  const Result<InodeRef> inode = find_existing(path, true, Op::kOpen);
  WC_CHECK(inode.has_value());
  ++(*inode)->opens_elsewhere;
  return {nullptr, [this, inode = *inode](void*) {
            if (inode->opens_elsewhere == 0) return;  // the power went meanwhile
            --inode->opens_elsewhere;
            release(*inode);
          }};
}

void SimFileSystem::sync_names(const InodeRef& directory) {
  // What touches the directory, and what the journal cannot have left out then.
  std::vector<NameChange> kept;
  std::vector<bool> goes(unsynced_names_.size());
  for (std::size_t i = unsynced_names_.size(); i-- > 0;) {
    const NameChange& change = unsynced_names_[i];
    goes[i] = std::ranges::any_of(change.slots, [&](const auto& slot) { return slot.directory == directory; });
    for (std::size_t later = i + 1; later < unsynced_names_.size() && !goes[i]; ++later) {
      goes[i] = goes[later] && change.is_before(unsynced_names_[later]);
    }
  }
  for (std::size_t i = 0; i < unsynced_names_.size(); ++i) {
    if (!goes[i]) {
      kept.push_back(std::move(unsynced_names_[i]));
      continue;
    }
    for (const NameChange::Slot& slot : unsynced_names_[i].slots) {
      if (slot.after) {
        slot.directory->durable_entries[slot.name] = slot.after;
      } else {
        slot.directory->durable_entries.erase(slot.name);
      }
    }
  }
  unsynced_names_ = std::move(kept);
}

template <typename Visit>
void SimFileSystem::for_each_inode(const Visit& visit) const {
  std::set<const Inode*> seen;
  std::vector<InodeRef> left{root_};
  while (!left.empty()) {
    const InodeRef inode = std::move(left.back());
    left.pop_back();
    const bool first = seen.insert(inode.get()).second;
    visit(*inode, first);
    if (!first) continue;
    for (const auto& [_, entry] : inode->entries) left.push_back(entry);
  }
}

void SimFileSystem::keep_some_names() {
  enum class Way { kNone, kAll, kFirst, kAny };
  const auto way = static_cast<Way>(random_.below(4));
  const std::size_t first = unsynced_names_.empty() ? 0 : random_.below(unsynced_names_.size() + 1);
  std::vector<bool> stays(unsynced_names_.size());
  for (std::size_t i = unsynced_names_.size(); i-- > 0;) {
    switch (way) {
      case Way::kNone: break;
      case Way::kAll: stays[i] = true; break;
      case Way::kFirst: stays[i] = i < first; break;
      case Way::kAny: stays[i] = random_.chance(0.5); break;
    }
    for (std::size_t later = i + 1; later < unsynced_names_.size() && !stays[i]; ++later) {
      stays[i] = stays[later] && unsynced_names_[i].is_before(unsynced_names_[later]);
    }
  }
  for (std::size_t i = 0; i < unsynced_names_.size(); ++i) {
    if (!stays[i]) continue;
    for (const NameChange::Slot& slot : unsynced_names_[i].slots) {
      if (slot.after) {
        slot.directory->durable_entries[slot.name] = slot.after;
      } else {
        slot.directory->durable_entries.erase(slot.name);
      }
    }
  }
  unsynced_names_.clear();
}

void SimFileSystem::keep_some_bytes(Inode& inode) {
  enum class Way { kNone, kAll, kFirst, kAny };
  const auto way = static_cast<Way>(random_.below(4));
  const std::size_t first = random_.below(inode.changes.size() + 1);
  const std::size_t sector_bytes = random_.chance(0.5) ? 512 : 4096;
  const auto tear = [&](const Change& change) {
    const std::uint64_t end = change.offset + change.bytes.size();
    // The size may be there without the bytes.
    if (random_.chance(0.5) && inode.durable.size() < end) inode.durable.resize(end);
    for (std::uint64_t at = change.offset; at < end;) {
      const std::uint64_t next = std::min<std::uint64_t>(end, (at / sector_bytes + 1) * sector_bytes);
      if (random_.chance(0.5)) put(inode.durable, at, Bytes(change.bytes).subspan(at - change.offset, next - at));
      at = next;
    }
  };
  for (std::size_t i = 0; i < inode.changes.size(); ++i) {
    const Change& change = inode.changes[i];
    const bool torn = way == Way::kAny ? random_.below(3) == 0 : way == Way::kFirst && i == first;
    const bool stays =
        way == Way::kAll || (way == Way::kFirst && i < first) || (way == Way::kAny && random_.chance(0.5));
    if (change.kind == Change::Kind::kResize) {
      if (stays) inode.durable.resize(change.offset);
    } else if (torn) {
      tear(change);
    } else if (stays) {
      put(inode.durable, change.offset, change.bytes);
    }
  }
  inode.changes.clear();
}

void SimFileSystem::power_cut() {
  keep_some_names();
  std::set<Inode*> seen;
  std::vector<InodeRef> left{root_};
  while (!left.empty()) {
    const InodeRef inode = std::move(left.back());
    left.pop_back();
    if (!seen.insert(inode.get()).second) continue;
    inode->entries = inode->durable_entries;
    inode->opens_elsewhere = 0;
    if (inode->kind == FileInfo::Kind::kFile) {
      keep_some_bytes(*inode);
      inode->data = std::make_shared<std::vector<std::byte>>(inode->durable);
      // What was set aside and not written is lost with the rest; what is a hole now may have been read as zeros.
      const std::size_t pages = pages_of(inode->durable.size(), kPageBytes);
      inode->allocated.assign(pages, true);
      inode->written.assign(pages, true);
      inode->pages = pages;
    }
    for (const auto& [_, entry] : inode->entries) left.push_back(entry);
  }
  restart();
}

void SimFileSystem::restart() {
  ++process_;
  killed_ = false;
  kill_at_.reset();
  fail_at_.reset();
  used_pages_ = 0;
  for_each_inode([&](Inode& inode, bool first) {
    if (first) {
      inode.opens = 0;
      inode.locked_by = nullptr;
      inode.links = 0;
      used_pages_ += inode.pages;
    }
    ++inode.links;
  });
}

}  // namespace weightcast::sim
