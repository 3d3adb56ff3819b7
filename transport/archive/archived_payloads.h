#pragma once

#include <memory>
#include <string>

#include "base/files/file_system.h"
#include "transport/node/payload/payload_archive.h"

namespace weightcast {

/// An archive as a worker's daemon reads it: the versions that it has whole. The daemon checks all that comes of it
/// against a manifest that its origin has signed, so neither index nor digests count here but to find things.
/// OpenArchive of all places that open_objects() knows. A call is tried once: whoever reads has peers meanwhile.
[[nodiscard]] Result<std::unique_ptr<PayloadArchive>> open_archived_payloads(FileSystem& files,
                                                                             const std::string& place);

}  // namespace weightcast
