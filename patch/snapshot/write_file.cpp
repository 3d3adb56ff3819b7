#include "patch/snapshot/write_file.h"

#include <fmt/format.h>

#include <utility>

namespace weightcast {
namespace fs = std::filesystem;

Status write_new_file(FileSystem& files, const fs::path& path, const std::function<Status(FileWriter& out)>& write) {
  const std::string temporary = path.string() + ".tmp";
  const auto make = [&]() -> Status {
    WC_ASSIGN(const std::unique_ptr<File> file, files.open(temporary, {.write = true, .create = Create::kEmpty}));
    FileWriter out(*file, temporary);
    WC_TRY(write(out));
    WC_TRY(file->sync_data());
    return files.rename(temporary, path);
  };
  const Status made = make();
  if (!made.has_value()) {
    static_cast<void>(remove_if_there(files, temporary));
    return made;
  }
  return sync_directory(files, path.parent_path());
}

NewDirectory::NewDirectory(FileSystem& files, fs::path path)
    : files_(files), path_(std::move(path)), temporary_(path_.string() + ".tmp") {}

NewDirectory::~NewDirectory() {
  if (created_) static_cast<void>(remove_all(files_, temporary_));
}

Status NewDirectory::create() {
  WC_TRY(make_directories(files_, path_.parent_path()));
  if (exists(files_, path_)) {
    return fail(Errc::kAlreadyExists, Op::kOpen,
                fmt::format("{}: it exists; delete it, or name another", path_.string()));
  }
  const Status made = files_.make_directory(temporary_);
  created_ = made.has_value();
  if (created_ || made.error().code != Errc::kAlreadyExists) return made;
  return fail(Errc::kAlreadyExists, Op::kOpen,
              fmt::format("{}: it was left half-made; delete it, and do this again", temporary_.string()));
}

Status NewDirectory::publish() {
  WC_TRY(sync_directory(files_, temporary_));
  WC_TRY(files_.rename(temporary_, path_));
  created_ = false;
  return sync_directory(files_, path_.parent_path());
}

}  // namespace weightcast
