#pragma once

#include <map>
#include <vector>

#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store_layout.h"

namespace weightcast {

/// What restore_from_log() found and made.
struct RestoredLog {
  Version anchor{};                 ///< the newest that can be read; kNoVersion: none
  std::vector<SnapshotFile> files;  ///< its files
  Version version{};                ///< that was made in versions/, with its record; kNoVersion: none had to be
};

/// Makes the newest version that the log of a store leads to (version_log.h), where versions lie, unless one as new is
/// complete there: `newest_here`. After a power cut that is the newest durable one. Each patch is checked against its
/// record and each result against its digest; the log ends before the first that does not match, and the log of the
/// process says so. `records` are those of DIR/records. Blocks; `threads` apply a patch. Errors: kNoSpace (the version
/// does not fit where versions lie), kIo (something cannot be read or written now).
[[nodiscard]] Result<RestoredLog> restore_from_log(const StoreLayout& layout,
                                                   const std::map<PayloadId, VersionRecord>& records,
                                                   Version newest_here, unsigned threads);

/// Of a store whose versions are in memory from now on: makes the newest durable version on its disk an anchor, unless
/// one as new can be read, and deletes the others. Errors: kIo.
[[nodiscard]] Status adopt_versions_on_disk(const StoreLayout& layout,
                                            const std::map<PayloadId, VersionRecord>& records, unsigned threads);

}  // namespace weightcast
