#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/result.h"

namespace weightcast {

/// A write-ahead journal of old bytes, which makes an apply in place revertible, also after the process was killed or
/// the machine lost power. The order that makes it so:
///   1. record(): the old bytes are appended, and with Sync::kPower they are on the disk before it returns;
///   2. the caller overwrites them;
///   3. ... and so on for every range, then the caller puts the data on the disk;
///   4. commit(): the journal is removed, and the removal is on the disk before it returns.
/// While the journal exists the data is a mixture, and recover() makes it the old version again: it writes back whole
/// records only; a record that is cut short was not synced, and so the bytes that it is about were not yet overwritten;
/// nor was anything where the journal's own first bytes are cut short.
/// Writing back is idempotent, so that recovery itself may be interrupted.
/// Invariant: every byte that differs from the old version stands in a whole record.
class UndoJournal {
 public:
  enum class Sync {
    kProcess,  ///< survives the death of the process (kill -9): the kernel keeps what was written
    kPower,    ///< survives the loss of power too: waits for the disk at each record
  };

  /// Starts a journal for one apply. `tag` names what it is about (a version, say) and comes back from recover(), at
  /// most 4096 bytes. Errors: kAlreadyExists where there is one, which must be recovered first; kNoSpace and kIo.
  static Result<UndoJournal> create(const std::string& path, std::string_view tag, Sync sync);

  UndoJournal(UndoJournal&&) noexcept;
  UndoJournal& operator=(UndoJournal&&) noexcept;
  /// Leaves the file, so that recovery is possible.
  ~UndoJournal();

  /// Records the bytes of `before`, which stand at `offset`, wherever `after` has others. Several threads may call it.
  /// Errors: kNoSpace, kIo: nothing may be overwritten then.
  Status record(std::uint64_t offset, Bytes before, Bytes after);

  /// Ends the journal: the new version stands. Errors: kIo.
  Status commit();

 private:
  struct File;
  UndoJournal(std::unique_ptr<File> file, Sync sync);

  std::unique_ptr<File> file_;
  Sync sync_;
};

struct Recovered {
  std::string tag;
  std::size_t records = 0;
};

/// Puts back what a journal recorded, the latest record first: `write` is called for each run of old bytes, `sync` once
/// after the last, and must put the data on the disk; then the journal is removed. To revert an apply that failed,
/// destroy its journal and call this. Errors: kNotFound (no journal: nothing to do), kCorrupt (its first bytes are not
/// a journal's; it is left in place), and those of the callbacks (it is left in place, too).
Result<Recovered> recover(const std::string& path, const std::function<Status(std::uint64_t offset, Bytes old)>& write,
                          const std::function<Status()>& sync);

}  // namespace weightcast
