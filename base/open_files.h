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
/// Shared by those who use a file at one time; closed when the last of them and OpenFiles have let go.
using FileRef = std::shared_ptr<File>;

/// The one owner of files that stay open between their uses: at most so many, whatever the number of snapshots and of
/// files in them. The one that was used longest ago is closed first, and opened again when it is wanted. Any thread.
/// Invariant: size() <= files_max().
class OpenFiles {
 public:
  explicit OpenFiles(std::size_t files_max)
      : files_max_(files_max), lent_(std::make_shared<std::atomic<std::size_t>>(0)) {}
  ~OpenFiles() = default;
  OpenFiles(const OpenFiles&) = delete;
  OpenFiles& operator=(const OpenFiles&) = delete;

  /// Files that belong together: a version's, a snapshot's. Forgets them at its end.
  class Group {
   public:
    explicit Group(OpenFiles& owner) : owner_(owner), number_(owner.next_group_++) {}
    ~Group() { close_all(); }
    Group(const Group&) = delete;
    Group& operator=(const Group&) = delete;

    /// File `index` of the group; `open` opens it where it is not open. Errors: those of `open`.
    [[nodiscard]] Result<FileRef> get(std::size_t index, const std::function<Result<std::unique_ptr<File>>()>& open) {
      return owner_.get(number_, index, open);
    }
    /// Closes what nobody uses now; what is in use closes after that.
    void close_all() { owner_.close_group(number_); }

   private:
    OpenFiles& owner_;
    const std::uint64_t number_;
  };

  [[nodiscard]] std::size_t files_max() const { return files_max_; }
  /// Files kept here.
  [[nodiscard]] std::size_t size() const;
  /// Whether those in use and those kept are twice the bound: who can wait with opening another one should.
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
  /// Where it is kept, as the one that was used last; nothing if it is not. With the lock held.
  FileRef find(std::uint64_t group, std::size_t index);

  const std::size_t files_max_;
  /// Files that get() gave out or keeps, not closed yet. Outlives this with the last of them.
  std::shared_ptr<std::atomic<std::size_t>> lent_;
  std::atomic<std::uint64_t> next_group_{0};
  mutable std::mutex mutex_;  // guards what follows
  std::list<Kept> recent_;    // the least recently used first
  std::unordered_map<std::uint64_t, std::unordered_map<std::size_t, Place>> groups_;
};

}  // namespace weightcast
