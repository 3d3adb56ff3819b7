#include "transport/io/store/files/version_files.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

namespace weightcast {

namespace fs = std::filesystem;

namespace {

constexpr unsigned kExecutablePermissions = 0755;
// A file system over a network gives the files that somebody has open such names when they are removed.
constexpr std::string_view kStillOpenPrefix = ".nfs";

}  // namespace

Result<FileTable> payload_files(const Manifest& manifest) {
  if (manifest.id().is_encoded()) {
    return FileTable::make({{kPatchFileName, manifest.open ? manifest.snapshot_bytes() : manifest.payload_bytes}});
  }
  return FileTable::make(manifest.files);
}

VersionFiles::VersionFiles(FileSystem& files, std::unique_ptr<Directory> directory, FileTable table)
    : directory_(std::move(directory)),
      table_(std::move(table)),
      opened_(files.open_files()),
      editors_(table_.files().size()) {}

VersionFiles::~VersionFiles() = default;

Result<FilesRef> VersionFiles::create(FileSystem& files, const fs::path& path, FileTable table, Size size) {
  WC_TRY(files.make_directory(path));
  const auto make = [&]() -> Result<FilesRef> {
    WC_ASSIGN(std::unique_ptr<Directory> directory, files.open_directory(path));
    for (const std::string& below : table.directories()) WC_TRY(files.make_directory(path / below));
    for (const SnapshotFile& entry : table.files()) {
      WC_ASSIGN(const std::unique_ptr<File> file,
                directory->open(entry.name, {.write = true,
                                             .create = Create::kNew,
                                             .permissions = entry.executable ? kExecutablePermissions : 0644u}));
      if (size == Size::kFull) WC_TRY(preallocate(files, *file, entry.size_bytes, path / entry.name));
    }
    return FilesRef(new VersionFiles(files, std::move(directory), std::move(table)));
  };
  Result<FilesRef> made = make();
  if (!made.has_value()) static_cast<void>(remove_all(files, path));
  return made;
}

namespace {

/// Checks that nobody has the file open or mapped but through `file` itself.
Status check_only_user(File& file, const std::string& name) {
  WC_ASSIGN(const FileInfo info, file.info());
  if (info.links != 1) return fail(Errc::kBusy, Op::kOpen, name + ": has another name somewhere");
  return file.check_unshared();
}

}  // namespace

Status VersionFiles::check_unused(FileSystem& files, const fs::path& path) {
  close_all();
  const std::lock_guard lock(editors_mutex_);
  for (std::size_t i = 0; i < editors_.size(); ++i) {
    const std::string& name = table_.files()[i].name;
    if (editors_[i]) {
      WC_TRY(check_only_user(editors_[i]->file(), name));
      continue;
    }
    WC_ASSIGN(const std::unique_ptr<File> file, files.open(path / name, {.write = true, .follow_links = false}));
    WC_TRY(check_only_user(*file, name));
  }
  return {};
}

Result<FilesRef> VersionFiles::reuse(FileSystem& files, const fs::path& spare, const fs::path& path, FileTable table,
                                     VersionFiles& held) {
  if (held.table_.files() != table.files() || !open(files, spare, table).has_value()) {
    return fail(Errc::kInvalidArgument, Op::kOpen, spare.native() + ": holds other files than are wanted");
  }
  WC_TRY(files.make_directory(path));
  for (const std::string& below : table.directories()) WC_TRY(files.make_directory(path / below));
  // One by one, into a directory of their own: who holds the old one open finds nothing there, and not these.
  for (const SnapshotFile& entry : table.files()) WC_TRY(files.rename(spare / entry.name, path / entry.name));
  // From here on nobody can open them by a name that he knows. Who has them open already is found.
  WC_TRY(held.check_unused(files, path));
  WC_ASSIGN(FilesRef made, open(files, path, std::move(table)));
  const std::lock_guard lock(held.editors_mutex_);
  made->editors_.swap(held.editors_);
  return made;
}

Result<FilesRef> VersionFiles::open(FileSystem& files, const fs::path& path, FileTable table) {
  WC_ASSIGN(std::unique_ptr<Directory> directory, files.open_directory(path));
  for (const SnapshotFile& entry : table.files()) {
    const Result<FileInfo> info = directory->info(entry.name);
    const bool can_look = info.has_value() || info.error().code == Errc::kNotFound ||
                          info.error().code == Errc::kInvalidArgument;  // something else in a directory's place
    if (!can_look) return info.error();
    if (!info.has_value() || !info->is_file() || info->size_bytes != entry.size_bytes) {
      return fail(Errc::kCorrupt, Op::kOpen,
                  fmt::format("{}: missing, or not of {} bytes", (path / entry.name).native(), entry.size_bytes));
    }
  }
  return FilesRef(new VersionFiles(files, std::move(directory), std::move(table)));
}

namespace {

/// Whose files a directory of a version holds.
class ForeignNames {
 public:
  ForeignNames(FileSystem& files, const fs::path& path, const std::optional<FileTable>& table)
      : files_(files), path_(path), knows_(table.has_value()) {
    if (!table) return;
    for (const SnapshotFile& entry : table->files()) ours_.insert(entry.name);
    directories_.insert(table->directories().begin(), table->directories().end());
  }

  Result<std::vector<std::string>> run() {
    WC_TRY(look_into("", 1));
    return std::move(foreign_);
  }

 private:
  Status look_into(const std::string& parent, std::size_t depth) {
    WC_ASSIGN(const std::vector<std::string> names, files_.list(path_ / parent));
    for (const std::string& entry : names) {
      const std::string name = parent.empty() ? entry : parent + '/' + entry;
      if (ours_.contains(name)) continue;
      WC_ASSIGN(const bool ours, knows_ ? is_our_directory(name) : can_be_ours(entry, name, depth));
      if (!ours) {
        foreign_.push_back(name);
        continue;
      }
      WC_ASSIGN(const FileInfo info, files_.link_info(path_ / name));
      if (info.is_directory()) WC_TRY(look_into(name, depth + 1));
    }
    return {};
  }

  Result<bool> is_our_directory(const std::string& name) {
    if (!directories_.contains(name)) return false;
    WC_ASSIGN(const FileInfo info, files_.link_info(path_ / name));
    return info.is_directory();
  }

  /// Without a table.
  Result<bool> can_be_ours(const std::string& entry, const std::string& name, std::size_t depth) {
    if (entry.starts_with(kStillOpenPrefix) || !check_file_path(name).has_value() || depth > kFileDepthMax)
      return false;
    WC_ASSIGN(const FileInfo info, files_.link_info(path_ / name));
    if (!info.is_directory()) return info.is_file();
    // No version has an empty directory, nor one that this user may not read: lost+found.
    const Result<std::vector<std::string>> names = files_.list(path_ / name);
    return names.has_value() && !names->empty();
  }

  FileSystem& files_;
  const fs::path path_;
  const bool knows_;
  std::set<std::string_view> ours_;
  std::set<std::string_view> directories_;
  std::vector<std::string> foreign_;
};

}  // namespace

Result<std::vector<std::string>> foreign_names(FileSystem& files, const fs::path& path,
                                               const std::optional<FileTable>& table) {
  return ForeignNames(files, path, table).run();
}

Result<FileRef> VersionFiles::file(std::size_t index) {
  return opened_.get(index, [&]() -> Result<std::unique_ptr<File>> {
    WC_ASSIGN(std::unique_ptr<File> file,
              directory_->open(table_.files()[index].name, {.write = true, .follow_links = false}));
    // Reads are of whole chunks and leaves. Read-ahead would only fill the page cache with zeros from where nothing has
    // been written yet, just before it is.
    file->advise_random();
    return file;
  });
}

Result<FileEditor*> VersionFiles::editor(std::size_t index) {
  const std::lock_guard lock(editors_mutex_);
  if (!editors_[index]) {
    WC_ASSIGN(FileRef opened, file(index));
    editors_[index] = std::make_unique<FileEditor>(std::move(opened), table_.files()[index].size_bytes);
  }
  return editors_[index].get();
}

void VersionFiles::close_editors() {
  const std::lock_guard lock(editors_mutex_);
  for (std::unique_ptr<FileEditor>& editor : editors_) editor.reset();
}

void VersionFiles::close_all() { opened_.close_all(); }

Status VersionFiles::sync_names() const {
  for (const std::string& below : table_.directories()) {
    WC_ASSIGN(const std::unique_ptr<Directory> directory, directory_->open_directory(below));
    WC_TRY(directory->sync());
  }
  return directory_->sync();
}

Status read_stream(VersionFiles& files, std::uint64_t offset, MutableBytes into) {
  for (const FilePiece& piece : files.table().pieces(offset, into.size())) {
    WC_ASSIGN(const FileRef file, files.file(piece.file));
    WC_TRY(read_fully(*file, piece.offset_bytes, into.first(piece.size_bytes), file->name()));
    into = into.subspan(piece.size_bytes);
  }
  return {};
}

Status write_stream(VersionFiles& files, std::uint64_t offset, Bytes from) {
  for (const FilePiece& piece : files.table().pieces(offset, from.size())) {
    WC_ASSIGN(const FileRef file, files.file(piece.file));
    WC_TRY(write_fully(*file, piece.offset_bytes, from.first(piece.size_bytes), file->name()));
    from = from.subspan(piece.size_bytes);
  }
  return {};
}

namespace {

/// What edits a range in its place; null if it has to be copied.
Result<FileEditor*> editor_of(VersionFiles& files, const std::vector<FilePiece>& pieces) {
  // All of them stay open.
  constexpr std::size_t kEditedFilesMax = 256;
  if (pieces.size() != 1 || files.table().files().size() > kEditedFilesMax) return nullptr;
  return files.editor(pieces.front().file);
}

}  // namespace

Result<MutableBytes> edit_stream(VersionFiles& files, std::uint64_t offset, std::size_t size,
                                 std::vector<std::byte>& scratch, FileEditor::Use use) {
  const std::vector<FilePiece> pieces = files.table().pieces(offset, size);
  WC_ASSIGN(FileEditor* const editor, editor_of(files, pieces));
  if (editor != nullptr) return editor->edit(pieces.front().offset_bytes, size, scratch, use);
  scratch.resize(size);
  WC_TRY(read_stream(files, offset, scratch));
  return MutableBytes(scratch);
}

Status commit_stream(VersionFiles& files, std::uint64_t offset, Bytes bytes) {
  const std::vector<FilePiece> pieces = files.table().pieces(offset, bytes.size());
  WC_ASSIGN(FileEditor* const editor, editor_of(files, pieces));
  if (editor != nullptr) return editor->commit(pieces.front().offset_bytes, bytes);
  return write_stream(files, offset, bytes);
}

}  // namespace weightcast
