#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/files/file_system.h"
#include "base/random.h"

namespace weightcast::sim {

/// How probable it is that a call goes wrong.
struct FileFaults {
  double error = 0;     ///< the call fails with EIO and does nothing
  double no_space = 0;  ///< a call that takes space fails with ENOSPC and does nothing
  double short_io = 0;  ///< read_at(), write_at() and append() move fewer bytes than asked, at least one
  /// A sync_data() that fails loses what it should have written: the kernel takes it for clean, so that no later sync
  /// writes it. Half of the time processes see at once that it is gone.
  double lossy_sync = 0;
};

/// A disk in memory, and a process that uses it, after LevelDB's FaultInjectionTestEnv and FoundationDB's simulated
/// disk. It keeps two states: what processes see, and what is on the platter. A sync moves to the platter what
/// base/files/file_system.h promises. Nothing else is sure to get there.
///
/// | call | effect |
/// |---|---|
/// | kill(), kill_before_change() | The process ends: files close, locks go, written bytes stay. |
/// | power_cut() | The host ends. Each unsynced write is lost, kept, or torn at 512 bytes or 4 KiB. |
/// | | Unsynced names are lost or kept in any combination that a journaling file system can leave. |
/// | | A rename is whole or not at all. Changes of one name or of one file stay in order. |
/// | | Below kMemory nothing stays. |
/// | set_faults(), fail_call() | EIO, ENOSPC, short reads and writes: by chance, or at the n-th call. |
/// | flip_bit() | Bit rot at rest. |
///
/// After a kill every call of the dead process fails without effect, so a test may let its objects unwind. The new
/// process's calls begin with restart(). Seed and calls determine what happens. One thread.
class SimFileSystem final : public FileSystem {
 public:
  static constexpr std::uint64_t kUnlimited = std::numeric_limits<std::uint64_t>::max();
  static constexpr const char* kMemory = "/memory";
  struct Options {
    std::uint64_t capacity_bytes = kUnlimited;
    std::size_t files_kept_open = 16;
    bool can_allocate = true;  ///< false: the file system has no fallocate()
    bool has_memory = false;   ///< a second file system below kMemory, which a power cut empties
    // Planted bugs.
    bool forgets_directory_syncs = false;  ///< syncs of directories do nothing, and succeed
    bool ignores_readers = false;          ///< nobody else ever seems to have a file open
  };

  explicit SimFileSystem(std::uint64_t seed) : SimFileSystem(seed, Options()) {}
  SimFileSystem(std::uint64_t seed, Options options);
  ~SimFileSystem() override;

  /// Calls so far, and how many of them change something. Scripts count by either.
  [[nodiscard]] std::uint64_t calls() const { return calls_; }
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

  void set_faults(const FileFaults& faults) { faults_ = faults; }
  void set_capacity(std::uint64_t bytes) { options_.capacity_bytes = bytes; }
  [[nodiscard]] std::uint64_t used_bytes() const { return used_pages_ * kPageBytes; }
  /// The `n`-th call from now, the next being the first, fails with this errno value and does nothing.
  void fail_call(std::uint64_t n, int error_number) { fail_at_ = {calls_ + n, error_number}; }
  /// Takes that back, if it has not come to pass.
  void fail_no_call() { fail_at_.reset(); }

  /// kill -9, now. No call of the process has any effect from now on.
  void kill() { killed_ = true; }
  /// Kills the process just before change number `change`. If that is a write, some of it may have happened.
  void kill_before_change(std::uint64_t change) { kill_at_ = change; }
  [[nodiscard]] bool killed() const { return killed_; }
  /// The host loses power, now, and all processes with it.
  void power_cut();
  /// A new process begins, after a kill or a power cut. After a kill other processes still have their files open.
  void restart();

  /// Changes one bit of a file, for processes and on the platter. The file has a byte at `offset`.
  void flip_bit(const Path& path, std::uint64_t offset, unsigned bit);
  /// Calls `look(files)` on behalf of an observer outside of the host. Its calls do not fail by faults or kills, and do
  /// not count.
  template <typename Look>
  auto observe(const Look& look) {
    const Observation observation(*this);
    return look(static_cast<FileSystem&>(*this));
  }

  /// Another process on this host opens a file. It has the file open until the handle is destroyed or the power is cut,
  /// and reads the bytes that are there at the time. The file exists. This object outlives the handle.
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

  /// Suspends faults, kills and counts while it lives.
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

  /// A name in a directory; there may be nothing of that name.
  struct Place {
    InodeRef directory;
    std::string name;
    InodeRef inode;  ///< null if there is none
  };

  /// Counts a call. An error means that the call fails with it and does nothing.
  Status call(Op op, const std::string& what);
  /// As call(), for one that changes something.
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
  /// Makes an inode, for make_directory() and make_link().
  Result<InodeRef> make(const Path& path, FileInfo::Kind kind, Op op);
  /// Gives that name to `inode`, or to nothing if it is null.
  void set_name(const Place& place, InodeRef inode);
  /// The same as a part of `change`.
  void set_name(NameChange& change, const InodeRef& directory, const std::string& name, InodeRef inode);
  void sync_names(const InodeRef& directory);
  /// Puts on the platter each unsynced change i for which picked(i) holds, and those before it that a journal cannot
  /// leave out then. Asks once for each change, for the last one first.
  template <typename Picked>
  void put_names(const Picked& picked);
  void release(Inode& inode);
  /// A sync of it has failed.
  void lose_writes(Inode& inode);
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
