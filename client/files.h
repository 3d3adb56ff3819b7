#pragma once

#include <memory>
#include <span>
#include <string>

#include "client/region.h"
#include "weightcast/weightcast.h"

namespace weightcast::client {

/// Memory with the files that are to accompany weights, for the origin: a safetensors file of one U8 tensor for each,
/// under the file's name. Errors: kInvalidArgument (no files; a NULL; a name that no such file may have, or that is
/// given twice), kTooLarge (kSidecarBytesMax, kSidecarsMax, kSidecarsBytesMax), kNoSpace, kIo.
[[nodiscard]] Result<std::shared_ptr<Region>> pack_files(std::span<const wc_file> files);

/// The same of what a directory holds of such files. Weights, hidden files and other kinds are passed over. Errors:
/// kNotFound (no such directory), and as above.
[[nodiscard]] Result<std::shared_ptr<Region>> pack_directory(const std::string& directory);

}  // namespace weightcast::client
