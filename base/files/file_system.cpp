#include "base/files/file_system.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>

namespace weightcast {

namespace fs = std::filesystem;

Status read_fully(File& file, std::uint64_t offset, MutableBytes into, std::string_view what) {
  while (!into.empty()) {
    WC_ASSIGN(const std::size_t got, file.read_at(offset, into));
    if (got == 0) {
      return fail(Errc::kCorrupt, Op::kRead,
                  fmt::format("{}: ends at byte {}, {} bytes too early; it was truncated", what, offset, into.size()));
    }
    into = into.subspan(got);
    offset += got;
  }
  return {};
}

Status write_fully(File& file, std::uint64_t offset, Bytes from, std::string_view what) {
  while (!from.empty()) {
    WC_ASSIGN(const std::size_t put, file.write_at(offset, from.first(std::min(from.size(), kWriteBytes))));
    // No kernel should say this; asking again might never end.
    if (put == 0) return fail_errno(EIO, Op::kWrite, what);
    from = from.subspan(put);
    offset += put;
  }
  return {};
}

Status preallocate(FileSystem& files, File& file, std::uint64_t size_bytes, const fs::path& path) {
  if (size_bytes == 0) return {};
  const Status allocated = file.allocate(size_bytes);
  if (allocated.has_value() || allocated.error().code != Errc::kUnsupported) return allocated;
  // No blocks can be set aside here: at least do not start what cannot end well.
  const Result<std::uint64_t> free_bytes = files.free_bytes(path);
  if (free_bytes.has_value() && *free_bytes < size_bytes) return fail_errno(ENOSPC, Op::kWrite, path.native());
  return file.truncate(size_bytes);
}

Result<std::string> read_file(FileSystem& files, const fs::path& path, std::uint64_t bytes_max) {
  WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {}));
  WC_ASSIGN(const FileInfo info, file->info());
  if (info.size_bytes > bytes_max) {
    return fail(Errc::kTooLarge, Op::kRead,
                fmt::format("{}: it has {}, and such a file has {} at most; is it the right one?", path.native(),
                            format_bytes(info.size_bytes), format_bytes(bytes_max)));
  }
  std::string content(info.size_bytes, '\0');
  WC_TRY(read_fully(*file, 0, std::as_writable_bytes(std::span(content)), path.native()));
  return content;
}

bool exists(FileSystem& files, const fs::path& path) { return files.info(path).has_value(); }

Status make_directories(FileSystem& files, const fs::path& path) {
  if (path.empty()) return {};
  const Result<FileInfo> there = files.info(path);
  if (there.has_value() && there->is_directory()) return {};
  const fs::path parent = path.parent_path();
  if (!there.has_value() && parent != path) WC_TRY(make_directories(files, parent));
  Status made = files.make_directory(path);
  if (made.has_value()) return sync_directory(files, parent);
  if (made.error().code != Errc::kAlreadyExists) return made;
  const Result<FileInfo> now = files.info(path);  // another process may have been faster
  if (!now.has_value()) return now.error();
  return now->is_directory() ? Status() : made;
}

Status remove_all(FileSystem& files, const fs::path& path) {
  const Result<FileInfo> there = files.link_info(path);
  if (!there.has_value()) return there.error().code == Errc::kNotFound ? Status() : Status(there.error());
  if (!there->is_directory()) return remove_if_there(files, path);
  const auto unless_gone = [](const Error& error) { return error.code == Errc::kNotFound ? Status() : Status(error); };
  const Result<std::vector<std::string>> names = files.list(path);
  if (!names.has_value()) return unless_gone(names.error());
  Status first;
  for (const std::string& name : *names) {
    const Status removed = remove_all(files, path / name);
    if (!removed.has_value() && first.has_value()) first = removed;
  }
  WC_TRY(first);
  const Status removed = files.remove_directory(path);
  return removed.has_value() ? removed : unless_gone(removed.error());
}

Status remove_if_there(FileSystem& files, const fs::path& path) {
  Status removed = files.remove(path);
  if (!removed.has_value() && removed.error().code == Errc::kNotFound) return {};
  return removed;
}

Status replace_file(FileSystem& files, const fs::path& path, std::string_view text, Synced synced) {
  fs::path fresh = path;
  fresh += ".tmp";
  {
    // In a directory that others may write to, a link of that name would lead to a file of this user's elsewhere.
    const OpenOptions anew{.write = true, .create = Create::kEmpty, .follow_links = false};
    WC_ASSIGN(const std::unique_ptr<File> file, files.open(fresh, anew));
    WC_TRY(write_fully(*file, 0, std::as_bytes(std::span(text)), fresh.native()));
    if (synced != Synced::kNothing) WC_TRY(file->sync_data());
  }
  WC_TRY(files.rename(fresh, path));
  return synced == Synced::kBytesAndName ? sync_directory(files, path.parent_path()) : Status();
}

Status sync_directory(FileSystem& files, const fs::path& path) {
  WC_ASSIGN(const std::unique_ptr<Directory> directory, files.open_directory(path.empty() ? "." : path));
  return directory->sync();
}

}  // namespace weightcast
