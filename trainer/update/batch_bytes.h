#pragma once

#include <string>
#include <string_view>

#include "trainer/update/training_batch.h"

namespace weightcast {

/// What updates read of a batch, as the ranks of one learner send it to each other: samples, rewards, groups.
[[nodiscard]] std::string pack_batch(const TrainingBatch& batch);
/// Errors: kCorrupt, if `bytes` are not what pack_batch() gives.
[[nodiscard]] Result<TrainingBatch> unpack_batch(std::string_view bytes);

}  // namespace weightcast
