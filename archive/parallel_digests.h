#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "base/content_digest.h"
#include "base/result.h"

namespace weightcast {

/// The root of the hash tree over chunks with these digests (HashTree).
[[nodiscard]] ContentDigest root_over(const std::vector<ContentDigest>& chunks, std::uint32_t part_chunks);

/// for_each_index() (base/parallel.h) that begins nothing more once a call has failed, and returns the first error.
[[nodiscard]] Status for_each_until_error(std::size_t count, unsigned threads_max,
                                          const std::function<Status(std::size_t)>& body);

}  // namespace weightcast
