#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "trainer/config/config.h"
#include "trainer/loop/learner.h"
#include "trainer/parallel/process_group.h"
#include "trainer/update/training_batch.h"

namespace weightcast {

/// What rank 0 tells the other ranks to do together with it.
enum class Command {
  kBegin,          ///< the ranks' configurations are compared, and all get the weights of rank 0
  kWarmUp,         ///< an update from right answers; with a batch, and the update's number
  kReset,          ///< forget the optimiser's state
  kReference,      ///< the weights of now become the reference model
  kLoad,           ///< rank 0 has read a checkpoint
  kLoadReference,  ///< and a reference model in it
  kStep,           ///< a training step; with a batch, and the step's number
  kSave,           ///< rank 0 wants the optimiser's state
  kStop,
};

/// Tells it, if there are other ranks. `number` and `batch` as the command wants. Errors: those of ProcessGroup.
[[nodiscard]] Status tell(ProcessGroup* group, Command command, std::uint64_t number = 0,
                          const TrainingBatch* batch = nullptr);
/// Tells kStop, and waits until all have heard it. Errors: as tell().
[[nodiscard]] Status tell_stop(ProcessGroup& group);
/// Tells kBegin. Errors: as tell().
[[nodiscard]] Status tell_begin(ProcessGroup* group, const LearnerConfig& config);

/// The group that the configuration describes; null for a learner of one process. Errors: those of
/// join_process_group().
[[nodiscard]] Result<std::unique_ptr<ProcessGroup>> join_ranks(const LearnerConfig& config);

/// A rank other than 0: computes what rank 0 tells it. It reads the model, and writes no file.
/// Errors: those of the model and of joining; kInvalidArgument, which names a key in which it differs from rank 0.
[[nodiscard]] Result<std::unique_ptr<Learner>> make_follower(FileSystem& files, const LearnerConfig& config);

}  // namespace weightcast
