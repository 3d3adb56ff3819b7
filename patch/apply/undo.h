#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// A write-ahead journal of old bytes. It makes an in-place update revertible, even after a kill or a power cut. The
/// caller keeps this order:
///   1. record() appends the old cells of a range, for any number of ranges.
///   2. sync() returns when the records are on the disk.
///   3. The caller overwrites those cells. It may go on with step 1. In the end it syncs the data.
///   4. The caller removes the journal's file.
/// While the journal exists, the data is a mixture, and recover() restores the old version. It writes back only whole
/// records. A record that is cut short was not synced, so the caller had not yet overwritten its bytes. The same holds
/// for a journal whose header is cut short or zero. Writing back is idempotent, so recovery may be interrupted and
/// repeated. Invariant: every byte that differs from the old version stands in a whole record.
class UndoJournal {
 public:
  /// Starts a journal for one update. Errors: kAlreadyExists (recover the existing journal first), kNoSpace, kIo.
  static Result<UndoJournal> create(FileSystem& files, const std::string& path);

  UndoJournal(UndoJournal&&) noexcept;
  UndoJournal& operator=(UndoJournal&&) noexcept;
  /// Leaves the file in place for recover().
  ~UndoJournal();

  /// Records the old values of cells of `cell_bytes`, which stand at these indices of a range that begins at `offset`,
  /// ascending; a range of one segment at most. Any thread. Errors: kNoSpace, kIo; the caller then overwrites nothing.
  Status record(std::uint64_t offset, unsigned cell_bytes, std::span<const std::uint32_t> cells, Bytes old_values);

  /// Waits until the records are on the disk. Before that they survive a kill, but no power cut. Errors: kIo.
  Status sync();

 private:
  struct Opened;
  explicit UndoJournal(std::unique_ptr<Opened> opened);

  std::unique_ptr<Opened> opened_;
};

/// Restores the bytes that a journal recorded, the latest record first. Calls `write` for each run of old bytes, then
/// `sync`, which must put the data on the disk, then removes the journal. To revert a failed update, destroy its
/// UndoJournal and call this. Returns the number of records. Errors: kNotFound (no journal, nothing to do), kCorrupt
/// (the file is not a journal), and those of the callbacks. After an error the journal stays.
Result<std::size_t> recover(FileSystem& files, const std::string& path,
                            const std::function<Status(std::uint64_t offset, Bytes old)>& write,
                            const std::function<Status()>& sync);

}  // namespace weightcast
