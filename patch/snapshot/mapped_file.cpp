#include "patch/snapshot/mapped_file.h"

#include <fmt/format.h>

#include <utility>

namespace weightcast {

Status read_source_file(File& file, std::uint64_t offset_bytes, MutableBytes out, const std::string& path,
                        std::uint64_t size_bytes) {
  while (!out.empty()) {
    WC_ASSIGN(const std::size_t got, file.read_at(offset_bytes, out));
    if (got == 0) {
      return fail(
          Errc::kCorrupt, Op::kRead,
          fmt::format("{}: ends at byte {} of the {} that it had when it was opened; publish files that nothing "
                      "writes to any more",
                      path, offset_bytes, size_bytes));
    }
    offset_bytes += got;
    out = out.subspan(got);
  }
  return {};
}

Status check_same_file(const FileInfo& found, const FileInfo& now, const std::string& path) {
  if (now.same_file(found) && now.size_bytes == found.size_bytes && now.modified_ns == found.modified_ns) return {};
  return fail(Errc::kCorrupt, Op::kRead,
              fmt::format("{}: changed while it was being read; publish files that nothing writes to any more", path));
}

Result<MappedFile> MappedFile::open(FileSystem& files, const std::string& path) {
  MappedFile opened;
  opened.path_ = path;
  WC_ASSIGN(opened.file_, files.open(path, {}));
  WC_ASSIGN(opened.found_, opened.file_->info());
  WC_ASSIGN(opened.mapping_, opened.file_->map());
  return opened;
}

Status MappedFile::check_unchanged() const {
  WC_ASSIGN(const FileInfo now, file_->info());
  return check_same_file(found_, now, path_);
}

}  // namespace weightcast
