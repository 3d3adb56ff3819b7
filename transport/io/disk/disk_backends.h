#pragma once

#include <memory>

#include "transport/io/disk/disk.h"

namespace weightcast {

/// Errors: kUnsupported, with the kernel's reason.
[[nodiscard]] Result<std::unique_ptr<Disk>> open_uring_disk(UvLoop& loop);
[[nodiscard]] std::unique_ptr<Disk> open_thread_disk(UvLoop& loop);

}  // namespace weightcast
