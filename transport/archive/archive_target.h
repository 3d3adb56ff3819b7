#pragma once

#include <memory>
#include <string>

#include "base/files/file_system.h"
#include "transport/archive/http_client.h"
#include "transport/archive/object_store.h"

namespace weightcast {

/// The objects at a place that a person names: s3://BUCKET/PREFIX, https://HOST/PATH, http://HOST/PATH, or a directory.
/// `files` outlives it. Errors: kInvalidArgument (the text), kUnsupported (this host lacks what it takes).
[[nodiscard]] Result<std::unique_ptr<ObjectStore>> open_objects(FileSystem& files, const std::string& place,
                                                                StorageHttpLimits limits = {});

}  // namespace weightcast
