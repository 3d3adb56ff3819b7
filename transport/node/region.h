#pragma once

#include "base/open_files.h"
#include "base/result.h"
#include "base/unique_fd.h"

namespace weightcast {

/// Takes a descriptor that a local program sent for the memory that it has filled: a memfd of this user, whose size is
/// sealed, so that no read of it can block, run into its end or raise SIGBUS. What is in it is for SnapshotSource to
/// check. Errors: kInvalidArgument (no such memory), kNotAllowed (another user's), kTooLarge.
[[nodiscard]] Result<FileRef> adopt_region(UniqueFd descriptor);

}  // namespace weightcast
