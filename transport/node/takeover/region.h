#pragma once

#include "base/files/open_files.h"
#include "base/files/unique_fd.h"
#include "base/result.h"

namespace weightcast {

/// Takes a descriptor that a local program sent for the memory that it has filled: a memfd of this user, whose size is
/// sealed, so that no read of it can block, run into its end or raise SIGBUS. What is in it is for SnapshotSource to
/// check. Errors: kInvalidArgument (no such memory), kNotAllowed (another user's), kTooLarge.
[[nodiscard]] Result<FileRef> adopt_region(UniqueFd descriptor);

/// Takes a descriptor of memory that this node is to fill for a local program: a memfd that is empty and may grow. Who
/// sent it may change it meanwhile, which harms nobody else. Errors: kInvalidArgument (no such memory).
[[nodiscard]] Result<FileRef> adopt_output(UniqueFd descriptor);

}  // namespace weightcast
