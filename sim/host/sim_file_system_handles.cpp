// Open files, directories and mappings of a simulated disk.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "sim/host/sim_file_system_inode.h"

namespace weightcast::sim {

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
    WC_TRY(call(Op::kRead));
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
    WC_TRY(call(Op::kOpen));
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
    WC_TRY(call(Op::kRead));
    const std::vector<bool>& written = inode_->written;
    const auto first = std::min<std::size_t>(offset / kPageBytes, written.size());
    const auto found = std::find(written.begin() + static_cast<std::ptrdiff_t>(first), written.end(), true);
    if (found == written.end() || offset >= inode_->data->size()) return std::optional<std::uint64_t>();
    return std::optional(std::max<std::uint64_t>(offset, std::uint64_t(found - written.begin()) * kPageBytes));
  }

  Status sync_data() override {
    WC_TRY(alive(Op::kSync));
    if (const Status begun = owner_.change(Op::kSync, name_); !begun.has_value()) {
      owner_.lose_writes(*inode_);
      return begun;
    }
    for (const Change& change : inode_->changes) {
      if (change.kind == Change::Kind::kResize) inode_->durable.resize(change.offset);
      put(inode_->durable, change.kind == Change::Kind::kResize ? 0 : change.offset, change.bytes);
    }
    inode_->changes.clear();
    return {};
  }

  Status lock() override {
    WC_TRY(call(Op::kLock));
    if (inode_->locked_by != nullptr && inode_->locked_by != this) return fail(Errc::kBusy, Op::kLock, name_);
    inode_->locked_by = this;
    return {};
  }

  Status check_unshared() override {
    WC_TRY(call(Op::kOpen));
    if (inode_->opens + inode_->opens_elsewhere == 1 || owner_.options_.ignores_readers) return {};
    return fail(Errc::kBusy, Op::kOpen, name_ + ": may be open elsewhere");
  }

  void advise_random() override {}
  [[nodiscard]] std::string_view name() const override { return name_; }

  Result<std::unique_ptr<Mapping>> map() override {
    WC_TRY(call(Op::kOpen));
    return std::unique_ptr<Mapping>(std::make_unique<OpenMapping>(owner_, inode_));
  }

 private:
  [[nodiscard]] Status alive(Op op) const {
    if (process_ == owner_.process_) return {};
    return fail(Errc::kIo, op, name_ + ": the process that opened it is dead");
  }
  [[nodiscard]] Status call(Op op) const {
    WC_TRY(alive(op));
    return owner_.call(op, name_);
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
    WC_ASSIGN(const Place place, find(name));
    return owner_.open_at(place, options, path_ + "/" + name);
  }

  Result<std::unique_ptr<Directory>> open_directory(const std::string& name) override {
    WC_TRY(alive(Op::kOpen));
    WC_TRY(owner_.call(Op::kOpen, path_ + "/" + name));
    WC_ASSIGN(Place place, find(name));
    if (!place.inode) return fail_errno(ENOENT, Op::kOpen, path_ + "/" + name);
    if (place.inode->kind != FileInfo::Kind::kDirectory) return fail_errno(ENOTDIR, Op::kOpen, path_ + "/" + name);
    return owner_.directory_handle_of(std::move(place.inode), path_ + "/" + name);
  }

  Result<FileInfo> info(const std::string& name) override {
    WC_TRY(alive(Op::kOpen));
    WC_TRY(owner_.call(Op::kOpen, path_ + "/" + name));
    WC_ASSIGN(const Place place, find(name));
    if (!place.inode) return fail_errno(ENOENT, Op::kOpen, path_ + "/" + name);
    return info_of(*place.inode);
  }

  Status sync() override {
    WC_TRY(alive(Op::kSync));
    WC_TRY(owner_.change(Op::kSync, path_));
    if (!owner_.options_.forgets_directory_syncs) owner_.sync_names(inode_);
    return {};
  }

 private:
  [[nodiscard]] Status alive(Op op) const {
    if (process_ == owner_.process_) return {};
    return fail(Errc::kIo, op, path_ + ": the process that opened it is dead");
  }

  Result<Place> find(const std::string& path) const {
    Place place{inode_, "", inode_};
    for (const Path& part : Path(path)) {
      if (!place.inode) return fail_errno(ENOENT, Op::kOpen, path_ + "/" + path);
      if (place.inode->kind != FileInfo::Kind::kDirectory) {
        return fail(Errc::kInvalidArgument, Op::kOpen, path_ + "/" + path + ": not below a directory");
      }
      const auto found = place.inode->entries.find(part.native());
      InodeRef next = found == place.inode->entries.end() ? nullptr : found->second;
      place = {place.inode, part.native(), std::move(next)};
    }
    return place;
  }

  SimFileSystem& owner_;
  const std::uint64_t process_;
  const InodeRef inode_;
  const std::string path_;  // that it had when it was opened
};

class SimFileSystem::OpenElsewhere final : public Mapping {
 public:
  OpenElsewhere(SimFileSystem& owner, InodeRef inode) : owner_(owner), inode_(std::move(inode)) {
    ++inode_->opens_elsewhere;
  }
  ~OpenElsewhere() override {
    if (inode_->opens_elsewhere == 0) return;  // the power went meanwhile
    --inode_->opens_elsewhere;
    owner_.release(*inode_);
  }
  [[nodiscard]] Bytes bytes() const override { return *inode_->data; }

 private:
  SimFileSystem& owner_;
  const InodeRef inode_;
};

std::unique_ptr<Mapping> SimFileSystem::open_elsewhere(const Path& path) {
  const Result<InodeRef> inode = find_existing(path, true, Op::kOpen);
  WC_CHECK(inode.has_value());
  return std::make_unique<OpenElsewhere>(*this, *inode);
}

std::unique_ptr<File> SimFileSystem::handle_of(InodeRef inode, const OpenOptions& options, const std::string& what) {
  return std::make_unique<OpenFile>(*this, std::move(inode), options, what);
}

std::unique_ptr<Directory> SimFileSystem::directory_handle_of(InodeRef inode, const std::string& path) {
  return std::make_unique<OpenDirectory>(*this, std::move(inode), path);
}

}  // namespace weightcast::sim
