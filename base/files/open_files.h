#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "base/result.h"

namespace weightcast {

class File;
/// An open file, shared by its users. It is closed when the last user and OpenFiles have released it.
using FileRef = std::shared_ptr<File>;

/// Keeps files open between their uses, and bounds how many, whatever the number of snapshots and of files in them. It
/// closes the least recently used file first, and opens it again on demand. Any thread.
/// Invariant: size() <= files_max().
class OpenFiles {
 public:
  explicit OpenFiles(std::size_t files_max)
      : files_max_(files_max), lent_(std::make_shared<std::atomic<std::size_t>>(0)) {}
  ~OpenFiles() = default;
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  /// Files that belong together, as those of a version. Its destructor forgets them.
  class Group {
   public:
    explicit Group(OpenFiles& owner) : owner_(owner), number_(owner.next_group_++) {}
    ~Group() { close_all(); }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    /// File `index` of the group. Calls `open` if it is not open yet. Errors: those of `open`.
    [[nodiscard]] Result<FileRef> get(std::size_t index, const std::function<Result<std::unique_ptr<File>>()>& open) {
      return owner_.get(number_, index, open);
    }
    /// Closes unused files now, and each of the others after its last use.
    void close_all() { owner_.close_group(number_); }

   private:
    OpenFiles& owner_;
    const std::uint64_t number_;
  };

  [[nodiscard]] std::size_t files_max() const { return files_max_; }
  /// How many files this object keeps open.
  [[nodiscard]] std::size_t size() const;
  /// Whether used and kept files together reach twice the bound. A caller that can postpone opening a file then should.
  [[nodiscard]] bool crowded() const { return lent_->load() >= 2 * files_max_; }

 private:
  struct Kept {
    std::uint64_t group = 0;
    std::size_t index = 0;
    FileRef file;
  };
  using Place = std::list<Kept>::iterator;

  Result<FileRef> get(std::uint64_t group, std::size_t index,
                      const std::function<Result<std::unique_ptr<File>>()>& open);
  void close_group(std::uint64_t group);
  /// A kept file, moved to the most recent place; null if it is not kept. The caller holds the lock.
  FileRef find(std::uint64_t group, std::size_t index);

  const std::size_t files_max_;
  /// How many files that get() opened are not closed yet. Shared with those files, which may outlive this object.
  std::shared_ptr<std::atomic<std::size_t>> lent_;
  std::atomic<std::uint64_t> next_group_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::list<Kept> recent_;    // the least recently used first
  std::unordered_map<std::uint64_t, std::unordered_map<std::size_t, Place>> groups_;
};

}  // namespace weightcast
