#include "base/files/open_files.h"

#include "base/files/file_system.h"

namespace weightcast {

std::size_t OpenFiles::size() const {
  const std::lock_guard lock(mutex_);
  return recent_.size();
}

FileRef OpenFiles::find(std::uint64_t group, std::size_t index) {
  const auto files = groups_.find(group);
  if (files == groups_.end()) return nullptr;
  const auto place = files->second.find(index);
  if (place == files->second.end()) return nullptr;
  recent_.splice(recent_.end(), recent_, place->second);
  return place->second->file;
}

Result<FileRef> OpenFiles::get(std::uint64_t group, std::size_t index,
                               const std::function<Result<std::unique_ptr<File>>()>& open) {
  {
    const std::lock_guard lock(mutex_);
    if (FileRef kept = find(group, index)) return kept;
  }
  // Not under the lock: a disk may take its time, and others only want what is open.
  WC_ASSIGN(std::unique_ptr<File> opened, open());
  lent_->fetch_add(1);
  FileRef file(opened.release(), [lent = lent_](File* closed) {
    delete closed;
    lent->fetch_sub(1);
  });
  if (files_max_ == 0) return file;
  std::list<Kept> evicted;  // closed when the lock is free again
  const std::lock_guard lock(mutex_);
  if (FileRef kept = find(group, index)) return kept;  // another thread was faster
  if (recent_.size() == files_max_) {
    evicted.splice(evicted.end(), recent_, recent_.begin());
    const auto files = groups_.find(evicted.front().group);
    files->second.erase(evicted.front().index);
    if (files->second.empty()) groups_.erase(files);
  }
  groups_[group][index] = recent_.insert(recent_.end(), {group, index, file});
  return file;
}

void OpenFiles::close_group(std::uint64_t group) {
  std::list<Kept> closed;  // when the lock is free again
  const std::lock_guard lock(mutex_);
  const auto files = groups_.extract(group);
  if (files.empty()) return;
  for (const auto& [_, place] : files.mapped()) closed.splice(closed.end(), recent_, place);
}

}  // namespace weightcast
