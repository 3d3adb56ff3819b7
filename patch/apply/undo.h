#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/file_system.h"
#include "base/result.h"

namespace weightcast {

/// A write-ahead journal of old bytes, which makes an apply in place revertible, also after the process was killed or
/// the machine lost power. The order that makes it so:
///   1. record(): the old bytes are appended; so for any number of ranges;
///   2. sync(): they are on the disk before it returns;
///   3. the caller overwrites those ranges, perhaps goes on with 1, and in the end puts the data on the disk;
///   4. the caller removes the journal's file.
/// While the journal exists the data is a mixture, and recover() makes it the old version again. It writes back whole
/// records only. A record that is cut short was not synced, so nobody has overwritten the bytes that it holds. Nobody has
/// overwritten anything where the journal's own first bytes are cut short or zero.
/// Writing back is idempotent, so that recovery itself may be interrupted.
/// Invariant: every byte that differs from the old version stands in a whole record.
class UndoJournal {
 public:
  /// Starts a journal for one apply. `tag` names what it is about (a version, say) and comes back from recover(), at
  /// most 256 bytes. Errors: kAlreadyExists where there is one, which must be recovered first; kNoSpace and kIo.
  static Result<UndoJournal> create(FileSystem& files, const std::string& path, std::string_view tag);

  UndoJournal(UndoJournal&&) noexcept;
  UndoJournal& operator=(UndoJournal&&) noexcept;
  /// Leaves the file, so that recovery is possible.
  ~UndoJournal();

  /// Records the bytes of `before`, which stand at `offset`, wherever `after` has others.
  /// Errors: kNoSpace, kIo: nothing may be overwritten then.
  Status record(std::uint64_t offset, Bytes before, Bytes after);

  /// Waits for the disk. Until then what was recorded survives the death of the process only. Errors: kIo.
  Status sync();

 private:
  struct Opened;
  explicit UndoJournal(std::unique_ptr<Opened> opened);

  std::unique_ptr<Opened> opened_;
};

struct Recovered {
  std::string tag;
  std::size_t records = 0;
};

/// Puts back what a journal recorded, the latest record first: `write` is called for each run of old bytes, `sync` once
/// after the last, and must put the data on the disk; then the journal is removed. To revert an apply that failed,
/// destroy its journal and call this. Errors: kNotFound (no journal: nothing to do), kCorrupt (its first bytes are not
/// a journal's; it is left in place), and those of the callbacks (it is left in place, too).
Result<Recovered> recover(FileSystem& files, const std::string& path,
                          const std::function<Status(std::uint64_t offset, Bytes old)>& write,
                          const std::function<Status()>& sync);

}  // namespace weightcast
