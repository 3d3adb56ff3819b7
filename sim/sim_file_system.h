#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/file_system.h"
#include "sim/random.h"

namespace weightcast::sim {

/// What goes wrong by chance, call by call.
struct FileFaults {
  double error = 0;     ///< the call fails with EIO and does nothing
  double no_space = 0;  ///< a call that takes space fails with ENOSPC and does nothing
  double short_io = 0;  ///< read_at(), write_at() and append() move fewer bytes than asked, at least one
};

/// A disk in memory, with a process that uses it: in the spirit of LevelDB's FaultInjectionTestEnv and of
/// FoundationDB's simulated disk. It keeps two states of everything: as processes see it, and as it is on the platter.
/// What base/file_system.h promises moves from the first to the second when it is synced, and nothing else is sure to.
///
///   kill(), kill_before_change()   the process ends: files close, locks go, what was written stays
///   power_cut()                    the host ends: what was not synced is lost, kept, or kept in part. Writes are torn
///                                  at 512 bytes or 4 KiB. Of the changes of names any set may stay that a file system
///                                  with a journal can leave: a rename is whole or not at all, and what changed one
///                                  name or one file stays in order
///   faults                         EIO, ENOSPC, short reads and writes: by chance, or at the n-th call
///   flip_bit()                     bit rot, at rest
///
/// After a kill every call of the dead process fails without effect, so that a test may let its objects unwind; calls
/// are the new process's from restart() on. Deterministic: seed and calls determine what happens. One thread.
class SimFileSystem final : public FileSystem {
 public:
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  struct Options {
    std::uint64_t capacity_bytes = kUnlimited;
    std::size_t files_kept_open = 16;
    bool can_allocate = true;  ///< false: fallocate() is not to be had
  };

  explicit SimFileSystem(std::uint64_t seed) : SimFileSystem(seed, Options()) {}
  SimFileSystem(std::uint64_t seed, Options options);
  ~SimFileSystem() override;

  /// Calls so far, and those among them that change something: both are what a script counts by.
  [[nodiscard]] std::uint64_t calls() const { return calls_; }
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

  void set_faults(const FileFaults& faults) { faults_ = faults; }
  void set_capacity(std::uint64_t bytes) { options_.capacity_bytes = bytes; }
  [[nodiscard]] std::uint64_t used_bytes() const { return used_pages_ * kPageBytes; }
  /// The `n`-th call from now, the next being the first, fails with this errno value and does nothing.
  void fail_call(std::uint64_t n, int error_number) { fail_at_ = {calls_ + n, error_number}; }

  /// kill -9, now. Nothing that the process calls from now on has any effect.
  void kill() { killed_ = true; }
  /// The same just before the change that would be number `change`; a write may have happened in part.
  void kill_before_change(std::uint64_t change) { kill_at_ = change; }
  [[nodiscard]] bool killed() const { return killed_; }
  /// The host loses power, now; the process ends with it.
  void power_cut();
  /// A new process begins, after a kill or a power cut; whoever else has files open keeps them after the former.
  void restart();

  /// Changes one bit of a file, as processes see it and on the platter. The file has such a byte.
  void flip_bit(const Path& path, std::uint64_t offset, unsigned bit);
  /// Lets somebody look who is no process of this host: no call of `look(files)` fails by fault or by kill, or counts.
  template <typename Look>
  auto observe(const Look& look) {
    const Observation observation(*this);
    return look(static_cast<FileSystem&>(*this));
  }

  /// Another process on this host opens a file, and has it open until this is gone or the power is. It reads what is
  /// in the file now. This outlives what is returned.
  [[nodiscard]] std::unique_ptr<Mapping> open_elsewhere(const Path& path);

  [[nodiscard]] Result<std::unique_ptr<File>> open(const Path& path, const OpenOptions& options) override;
  [[nodiscard]] Result<std::unique_ptr<Directory>> open_directory(const Path& path) override;
  [[nodiscard]] Result<std::vector<std::string>> list(const Path& path) override;
  [[nodiscard]] Result<FileInfo> info(const Path& path) override;
  [[nodiscard]] Result<FileInfo> link_info(const Path& path) override;
  [[nodiscard]] Status make_directory(const Path& path) override;
  [[nodiscard]] Status rename(const Path& from, const Path& to) override;
  [[nodiscard]] Status make_link(const Path& target, const Path& path) override;
  [[nodiscard]] Result<Path> read_link(const Path& path) override;
  [[nodiscard]] Status remove(const Path& path) override;
  [[nodiscard]] Status remove_directory(const Path& path) override;
  [[nodiscard]] Result<std::uint64_t> free_bytes(const Path& path) override;
  [[nodiscard]] Status check_writable(const Path& path) override;
  [[nodiscard]] std::string users_of(const std::vector<Path>& paths) override;
  [[nodiscard]] std::uint64_t process_number() override { return process_; }

 private:
  static constexpr std::size_t kPageBytes = 4096;

  /// While it lives, the disk is looked at from outside.
  class Observation {
   public:
    explicit Observation(SimFileSystem& disk)
        : disk_(disk),
          faults_(std::exchange(disk.faults_, {})),
          fail_at_(std::exchange(disk.fail_at_, {})),
          kill_at_(std::exchange(disk.kill_at_, {})),
          killed_(std::exchange(disk.killed_, false)),
          capacity_bytes_(std::exchange(disk.options_.capacity_bytes, kUnlimited)),
          calls_(disk.calls_),
          changes_(disk.changes_) {}
    ~Observation() {
      disk_.faults_ = faults_;
      disk_.fail_at_ = fail_at_;
      disk_.kill_at_ = kill_at_;
      disk_.killed_ = killed_;
      disk_.options_.capacity_bytes = capacity_bytes_;
      disk_.calls_ = calls_;
      disk_.changes_ = changes_;
    }
    Observation(const Observation&) = delete;
    Observation& operator=(const Observation&) = delete;

   private:
    SimFileSystem& disk_;
    const FileFaults faults_;
    const std::optional<std::pair<std::uint64_t, int>> fail_at_;
    const std::optional<std::uint64_t> kill_at_;
    const bool killed_;
    const std::uint64_t capacity_bytes_;
    const std::uint64_t calls_, changes_;
  };

  struct Inode;
  using InodeRef = std::shared_ptr<Inode>;
  struct Change;
  struct NameChange;
  class OpenFile;
  class OpenDirectory;
  class OpenMapping;
  class OpenElsewhere;

  /// A name in a directory, which may not exist.
  struct Place {
    InodeRef directory;
    std::string name;
    InodeRef inode;  ///< null if there is none
  };

  /// Counts a call; the error that it ends with instead of doing anything, if it does.
  Status call(Op op, const std::string& what);
  Status change(Op op, const std::string& what);
  /// As change(), for one that takes space.
  Status take_space(Op op, const std::string& what);
  /// Whether so many more pages fit.
  [[nodiscard]] bool has_room(std::size_t pages) const;

  Result<Place> find(const Path& path, bool follow, Op op, unsigned links_left = 8);
  Result<InodeRef> find_existing(const Path& path, bool follow, Op op);
  Result<InodeRef> find_directory(const Path& path, Op op);
  Result<std::unique_ptr<File>> open_at(const Place& place, const OpenOptions& options, const std::string& what);
  std::unique_ptr<File> handle_of(InodeRef inode, const OpenOptions& options, const std::string& what);
  std::unique_ptr<Directory> directory_handle_of(InodeRef inode, const std::string& path);
  static FileInfo info_of(const Inode& inode);

  InodeRef make_inode(FileInfo::Kind kind);
  void set_name(NameChange& change, const InodeRef& directory, const std::string& name, InodeRef inode);
  void sync_names(const InodeRef& directory);
  void release(Inode& inode);
  void resize(Inode& inode, std::uint64_t size_bytes);
  Result<std::size_t> write(Inode& inode, std::uint64_t offset, Bytes from, const std::string& what);
  std::size_t shortened(std::size_t bytes);

  void keep_some_names();
  void keep_some_bytes(Inode& inode);
  template <typename Visit>
  void for_each_inode(const Visit& visit) const;

  Options options_;
  Random random_;
  FileFaults faults_;
  std::optional<std::pair<std::uint64_t, int>> fail_at_;
  std::optional<std::uint64_t> kill_at_;
  bool killed_ = false;
  std::uint64_t process_ = 1;  ///< counts restarts: handles of an earlier process are dead
  std::uint64_t calls_ = 0;
  std::uint64_t changes_ = 0;
  std::uint64_t next_inode_ = 1;
  std::int64_t now_ns_ = 0;  ///< of modification: counts changes
  std::size_t used_pages_ = 0;
  InodeRef root_;
  std::vector<NameChange> unsynced_names_;
};

}  // namespace weightcast::sim
