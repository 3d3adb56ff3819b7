#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/chat_message.h"
#include "base/files/file_system.h"
#include "trainer/config/config.h"
#include "trainer/tasks/task.h"
#include "worker/rollout/prompt_codec.h"
#include "worker/rollout/prompts.h"

namespace weightcast {

/// What supervised fine-tuning learns from: conversations with right answers, of a file or of the task itself.
class Examples {
 public:
  /// Reads sft_data: a JSON object {"prompt", "response"} or {"messages"} with the assistant's last, per line; of
  /// several answers each is learned, and the messages are those of PromptCodec::conversation_ids(). Errors:
  /// kInvalidArgument, which names file, line and reason; kUnsupported if there is no file, and the task knows no
  /// solutions.
  [[nodiscard]] static Result<Examples> make(FileSystem& files, const LearnerConfig& config, const Task& task,
                                             const PromptCodec& codec, const PromptOrder& prompts);

  /// The examples of update `update`: the loss counts the answers alone.
  [[nodiscard]] Result<std::vector<Sample>> batch(std::uint64_t update) const;

 private:
  Examples(const LearnerConfig& config, const Task& task, const PromptCodec& codec, const PromptOrder& prompts)
      : config_(config), task_(task), codec_(codec), prompts_(prompts) {}

  [[nodiscard]] Result<Sample> sample_of(std::span<const ChatMessage> messages) const;

  const LearnerConfig& config_;
  const Task& task_;
  const PromptCodec& codec_;
  const PromptOrder& prompts_;
  std::vector<Sample> from_file_;
};

}  // namespace weightcast
