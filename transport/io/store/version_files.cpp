#include "transport/io/store/version_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace weightcast {

namespace fs = std::filesystem;

Result<FileTable> payload_files(const Manifest& manifest) {
  if (manifest.kind == PayloadKind::kPatch) {
    return FileTable::make({{kPatchFileName, manifest.open ? manifest.snapshot_bytes() : manifest.payload_bytes}});
  }
  return FileTable::make(manifest.files);
}

Result<std::shared_ptr<VersionFiles>> VersionFiles::create(const fs::path& path, FileTable table, Size size) {
  const auto make = [&]() -> Result<std::shared_ptr<VersionFiles>> {
    if (::mkdir(path.c_str(), 0755) != 0) return fail_errno(errno, Op::kOpen, path.native());
    WC_ASSIGN(File directory, open_file(path, O_RDONLY | O_DIRECTORY));
    for (const SnapshotFile& entry : table.files()) {
      const std::string what = (path / entry.name).native();
      WC_ASSIGN(const File file, open_file_at(directory, entry.name, O_RDWR | O_CREAT | O_EXCL));
      if (size == Size::kFull) WC_TRY(preallocate(file, entry.size_bytes, what));
    }
    return std::shared_ptr<VersionFiles>(new VersionFiles(std::move(directory), std::move(table)));
  };
  Result<std::shared_ptr<VersionFiles>> made = make();
  if (!made.has_value()) {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  return made;
}

Status check_unused(const fs::path& path, const FileTable& table) {
  for (const SnapshotFile& entry : table.files()) {
    WC_ASSIGN(const File file, open_file(path / entry.name, O_RDWR | O_NOFOLLOW));
    struct stat info {};
    if (::fstat(file.fd(), &info) != 0) return fail_errno(errno, Op::kOpen, entry.name);
    if (info.st_nlink != 1) return fail(Errc::kBusy, Op::kOpen, entry.name + ": has another name somewhere");
    if (::fcntl(file.fd(), F_SETLEASE, F_WRLCK) != 0) {
      const bool open_elsewhere = errno == EAGAIN || errno == EACCES;
      return fail(open_elsewhere ? Errc::kBusy : Errc::kUnsupported, Op::kOpen, entry.name + ": may be open elsewhere");
    }
    ::fcntl(file.fd(), F_SETLEASE, F_UNLCK);
  }
  return {};
}

Result<std::shared_ptr<VersionFiles>> VersionFiles::reuse(const fs::path& spare, const fs::path& path,
                                                          FileTable table) {
  if (!open(spare, table).has_value()) {
    return fail(Errc::kInvalidArgument, Op::kOpen, spare.native() + ": holds other files than are wanted");
  }
  if (::mkdir(path.c_str(), 0755) != 0) return fail_errno(errno, Op::kOpen, path.native());
  // One by one, into a directory of their own: who holds the old one open finds nothing there, and not these.
  for (const SnapshotFile& entry : table.files()) WC_TRY(rename_path(spare / entry.name, path / entry.name));
  // From here on nobody can open them by a name that he knows. Who has them open already is found.
  WC_TRY(check_unused(path, table));
  return open(path, std::move(table));
}

Result<std::shared_ptr<VersionFiles>> VersionFiles::open(const fs::path& path, FileTable table) {
  WC_ASSIGN(File directory, open_file(path, O_RDONLY | O_DIRECTORY));
  for (const SnapshotFile& entry : table.files()) {
    struct stat info {};
    const bool same = ::fstatat(directory.fd(), entry.name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                      S_ISREG(info.st_mode) && static_cast<std::uint64_t>(info.st_size) == entry.size_bytes;
    if (!same) {
      return fail(Errc::kCorrupt, Op::kOpen,
                  fmt::format("{}: missing, or not of {} bytes", (path / entry.name).native(), entry.size_bytes));
    }
  }
  std::error_code error;
  const auto count = std::distance(fs::directory_iterator(path, error), fs::directory_iterator());
  if (error || static_cast<std::size_t>(count) != table.files().size()) {
    return fail(Errc::kCorrupt, Op::kOpen, path.native() + ": holds a file that is not of its version");
  }
  return std::shared_ptr<VersionFiles>(new VersionFiles(std::move(directory), std::move(table)));
}

Result<FileRef> VersionFiles::file(std::size_t index) {
  const std::lock_guard lock(mutex_);
  if (const auto found = open_.find(index); found != open_.end()) {
    recent_.splice(recent_.end(), recent_, found->second.place);
    return found->second.file;
  }
  WC_ASSIGN(File opened, open_file_at(directory_, table_.files()[index].name, O_RDWR));
  // Reads are of whole chunks and leaves. Read-ahead would only fill the page cache with zeros from where nothing has
  // been written yet, just before it is.
  ::posix_fadvise(opened.fd(), 0, 0, POSIX_FADV_RANDOM);
  if (open_.size() == kOpenMax) {
    open_.erase(recent_.front());
    recent_.pop_front();
  }
  auto file = std::make_shared<const File>(std::move(opened));
  open_[index] = {file, recent_.insert(recent_.end(), index)};
  return FileRef(file);
}

void VersionFiles::close_all() {
  const std::lock_guard lock(mutex_);
  open_.clear();
  recent_.clear();
}

Status VersionFiles::sync_names() const {
  if (::fsync(directory_.fd()) != 0) return fail_errno(errno, Op::kSync, "a version's directory");
  return {};
}

Status read_stream(VersionFiles& files, std::uint64_t offset, MutableBytes into) {
  for (const FilePiece& piece : files.table().pieces(offset, into.size())) {
    WC_ASSIGN(const FileRef file, files.file(piece.file));
    WC_TRY(read_fully(*file, piece.offset_bytes, into.first(piece.size_bytes), files.table().files()[piece.file].name));
    into = into.subspan(piece.size_bytes);
  }
  return {};
}

Status write_stream(VersionFiles& files, std::uint64_t offset, Bytes from) {
  for (const FilePiece& piece : files.table().pieces(offset, from.size())) {
    WC_ASSIGN(const FileRef file, files.file(piece.file));
    WC_TRY(
        write_fully(*file, piece.offset_bytes, from.first(piece.size_bytes), files.table().files()[piece.file].name));
    from = from.subspan(piece.size_bytes);
  }
  return {};
}

}  // namespace weightcast
