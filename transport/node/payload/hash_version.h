#pragma once

#include <cstdint>
#include <functional>

#include "transport/io/jobs.h"
#include "transport/io/store/store.h"
#include "transport/node/payload/payload_producer.h"

namespace weightcast {

struct HashVersionRequest {
  Version version{};
  ManifestAuthor author = {};
  /// Called on the loop's thread with the payload's size.
  std::function<std::uint32_t(std::uint64_t payload_bytes)> choose_chunk_bytes;
};

/// Makes the full payload of a complete version of the store that was published by its patch, off the loop: reads its
/// files where they lie, and hashes them. The version must stay until that is done. What was hashed so far can be read,
/// and in the end the store's record of the version has all digests. If the disk has no room for that record, the
/// payload is made all the same, and a restart hashes again. Errors: kNotFound (no such version), kCorrupt (its bytes
/// are not those that were published, or a file was cut short), kIo, kTooLarge (a manifest that cannot be sent),
/// kClosed (the jobs were cancelled).
void hash_version(Jobs& jobs, FileSystem& files, Store& store, HashVersionRequest request, PayloadObserver observer);

}  // namespace weightcast
