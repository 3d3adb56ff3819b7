#include "trainer/rollouts/examples.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/draws.h"
#include "base/json_text.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kFileBytesMax = std::uint64_t{4} << 30;
constexpr std::uint64_t kExampleStream = 5;

/// The conversation, which ends with an answer.
Result<std::vector<ChatMessage>> parse_example(const std::string& line) {
  const auto wrong = [](const char* why) { return fail(Errc::kInvalidArgument, Op::kParse, why); };
  const auto json = parse_json(line);
  if (!json.is_object()) return wrong("no JSON object");
  std::vector<ChatMessage> messages;
  try {
    if (json.contains("prompt")) {
      return std::vector<ChatMessage>{{"user", json.at("prompt").get<std::string>()},
                                      {"assistant", json.at("response").get<std::string>()}};
    }
    for (const auto& message : json.at("messages")) {
      messages.push_back({message.at("role").get<std::string>(), message.at("content").get<std::string>()});
    }
  } catch (const nlohmann::json::exception& error) {
    return wrong(error.what());
  }
  if (messages.size() < 2 || messages.back().role != "assistant") {
    return wrong("'messages' do not end with the assistant's answer to another message");
  }
  return messages;
}

}  // namespace

Result<Examples> Examples::make(FileSystem& files, const LearnerConfig& config, const Task& task,
                                const PromptCodec& codec, const PromptOrder& prompts) {
  Examples examples(config, task, codec, prompts);
  if (config.sft_data.empty()) {
    WC_ASSIGN(const Prompt first, prompts.training(0));
    if (task.solution(first.metadata)) return examples;
    return fail(Errc::kUnsupported, Op::kConfigure,
                fmt::format("task {} knows no solutions to learn from; give sft_data, or sft_steps = 0", task.name()));
  }
  WC_ASSIGN(const std::string text, read_file(files, config.sft_data, kFileBytesMax));
  std::size_t line = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++line;
    const auto in_line = [&](Error error) {
      error.detail = fmt::format("{} line {}: {}", printable(config.sft_data), line, error.detail);
      return error;
    };
    auto example = parse_example(text.substr(begin, end - begin));
    if (!example.has_value()) return in_line(std::move(example).error());
    auto sample = examples.sample_of(*example);
    if (!sample.has_value()) return in_line(std::move(sample).error());
    examples.from_file_.push_back(std::move(*sample));
    begin = end + 1;
  }
  if (!examples.from_file_.empty()) return examples;
  return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("{}: no example", printable(config.sft_data)));
}

Result<Sample> Examples::sample_of(std::span<const ChatMessage> messages) const {
  WC_ASSIGN(ConversationIds ids, codec_.conversation_ids(messages));
  Sample sample;
  sample.tokens.assign(ids.tokens.begin(), ids.tokens.end());
  sample.loss_mask = std::move(ids.is_answer);
  sample.weights.assign(sample.loss_mask.begin(), sample.loss_mask.end());
  return sample;
}

Result<std::vector<Sample>> Examples::batch(std::uint64_t update) const {
  std::vector<Sample> samples;
  for (std::uint64_t i = 0; i < config_.sft_batch_size; ++i) {
    const std::uint64_t n = update * config_.sft_batch_size + i;
    if (!from_file_.empty()) {
      const std::uint64_t epoch = n / from_file_.size();
      samples.push_back(
          from_file_[shuffled(from_file_.size(), drawn(config_.seed, kExampleStream, epoch))[n % from_file_.size()]]);
      continue;
    }
    WC_ASSIGN(Prompt prompt, prompts_.training(n));
    const std::optional<std::string> solution = task_.solution(prompt.metadata);
    if (!solution) return fail(Errc::kUnsupported, Op::kConfigure, "a prompt without a solution");
    prompt.messages.push_back({"assistant", *solution});
    WC_ASSIGN(Sample sample, sample_of(prompt.messages));
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace weightcast
