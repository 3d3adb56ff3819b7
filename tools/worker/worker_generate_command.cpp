#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "tools/shell/configured_command.h"
#include "tools/worker/model_directory.h"
#include "tools/worker/worker_commands.h"
#include "trainer/model/tokenizer/qwen_chat.h"
#include "worker/engine/engine.h"

namespace weightcast {
namespace {

struct GenerateFlags {
  std::string directory;
  std::string prompt;
  std::vector<TokenId> ids;
  bool chat = false;
  std::size_t samples = 1;
  EngineRequest request;
  EngineOptions engine;
  bool json = false;
};

/// An answer so far.
struct Answer {
  std::vector<TokenId> ids;
  std::vector<float> log_probs;
  nlohmann::json top = nlohmann::json::array();
  nlohmann::json prompt_log_probs = nlohmann::json::array();
  std::string finish_reason;
  std::optional<StopStringFound> stop;
};

nlohmann::json to_json(const std::vector<TokenLogProb>& top) {
  nlohmann::json list = nlohmann::json::array();
  for (const TokenLogProb& one : top) list.push_back({{"id", one.token}, {"log_prob", one.log_prob}});
  return list;
}

Result<std::vector<TokenId>> prompt_ids(FileSystem& files, const GenerateFlags& flags, const Tokenizer* tokenizer) {
  if (!flags.ids.empty()) return flags.ids;
  if (tokenizer == nullptr) {
    return fail(Errc::kNotFound, Op::kOpen,
                fmt::format("{}/tokenizer.json: it is missing, and --prompt needs it; give --ids", flags.directory));
  }
  std::string text = flags.prompt;
  if (flags.chat) {
    const std::vector<ChatMessage> messages{{"user", flags.prompt}};
    WC_ASSIGN(const std::optional<QwenChat> style, read_chat_style(files, flags.directory, tokenizer));
    if (!style) {
      return fail(
          Errc::kUnsupported, Op::kParse,
          fmt::format("{}: its chat template is none that we have, Qwen2.5's and Qwen3's; leave --chat out, and "
                      "give the text that it makes",
                      flags.directory));
    }
    WC_ASSIGN(text, render_qwen_chat(messages, {.style = *style}));
  }
  return tokenizer->encode(text, {.surround = !flags.chat});
}

std::string text_of(const Answer& answer, const Tokenizer& tokenizer) {
  const Result<std::string> text = tokenizer.decode(answer.ids, {.skip_special_tokens = true, .begins = false});
  if (!text.has_value()) return "";
  return answer.stop ? text->substr(0, answer.stop->text_bytes) : *text;
}

Status generate(const GenerateFlags& flags) {
  PosixFileSystem files;
  WC_ASSIGN(const std::shared_ptr<const Tokenizer> tokenizer, read_tokenizer(files, flags.directory));
  WC_ASSIGN(ModelFiles model, ModelFiles::open(files, flags.directory));
  WC_ASSIGN(const auto weights, EngineWeights::open(std::move(model)));
  EngineOptions options = flags.engine;
  WC_TRY(set_tokens(files, flags.directory, tokenizer, options));
  WC_ASSIGN(const std::unique_ptr<Engine> engine, Engine::make(weights, kNoVersion, options));
  EngineRequest request = flags.request;
  WC_ASSIGN(request.prompt, prompt_ids(files, flags, tokenizer.get()));
  std::vector<Answer> answers(flags.samples);
  for (std::size_t i = 0; i < flags.samples; ++i) {
    request.tag = i;
    WC_TRY(engine->add(request));
    ++request.seed;
  }
  while (engine->busy()) {
    for (EngineEvent& event : engine->step()) {
      Answer& answer = answers[event.tag];
      if (event.finished == FinishReason::kFailed) {
        return fail(Errc::kInvalidArgument, Op::kVerify, fmt::format("{}: {}", flags.directory, event.failure));
      }
      for (const PromptToken& token : event.prompt) answer.prompt_log_probs.push_back(token.log_prob);
      for (const EngineToken& token : event.tokens) {
        answer.ids.push_back(token.token);
        answer.log_probs.push_back(token.log_prob);
        answer.top.push_back(to_json(token.top));
      }
      if (event.finished) answer.finish_reason = to_string(*event.finished);
      if (event.stop) answer.stop = event.stop;
    }
  }
  for (const Answer& answer : answers) {
    const std::string text = tokenizer ? text_of(answer, *tokenizer) : "";
    if (!flags.json) {
      std::printf("%s\n", tokenizer ? text.c_str() : fmt::format("{}", fmt::join(answer.ids, ",")).c_str());
      continue;
    }
    nlohmann::json line{{"prompt_tokens", request.prompt.size()},
                        {"ids", answer.ids},
                        {"log_probs", answer.log_probs},
                        {"finish_reason", answer.finish_reason}};
    if (tokenizer) line["text"] = text;
    if (request.top > 0) line["top"] = answer.top;
    if (request.prompt_log_probs) line["prompt_log_probs"] = answer.prompt_log_probs;
    std::printf("%s\n", json_text(line).c_str());
  }
  return {};
}

}  // namespace

void add_worker_generate_command(const Commands& commands) {
  const auto [command, flags] =
      add_command<GenerateFlags>(commands, "generate", "Continue a prompt with a model", generate);
  EngineRequest& request = flags->request;
  command->add_option("DIR", flags->directory, "A model's directory in Hugging Face's layout")->required();
  auto* const source = command->add_option_group("prompt")->require_option(1);
  source->add_option("--prompt", flags->prompt, "The text to continue");
  source->add_option("--ids", flags->ids, "Its tokens: 1,2,3")->delimiter(',');
  command->add_flag("--chat", flags->chat, "The prompt is a user's message, in Qwen's chat template");
  command->add_option("--top-k", request.sampling.top_k, "Only so many of the most probable tokens; 0: all")
      ->capture_default_str();
  command->add_option("--stop", request.stop_strings, "A text that ends the answer; may be given several times")
      ->take_all()
      ->allow_extra_args(false);
  command->add_option("--stop-ids", request.stop_tokens, "Tokens that end the answer")->delimiter(',');
  const std::vector<SettingField> fields{
      {"max-tokens", &request.tokens_max, "Tokens of the answer"},
      {"temperature", &request.sampling.temperature, "0: the most probable token"},
      {"top-p", &request.sampling.top_p, "Only the most probable tokens with this share", 0, 1},
      {"min-p", &request.sampling.min_p, "Only tokens with this share of the greatest probability", 0, 1},
      {"repetition-penalty", &request.sampling.repetition_penalty, "Of tokens that were there before"},
      {"seed", &request.seed, "Of the samples; sample i of --samples has seed + i", 0, 1.8e19},
      {"samples", &flags->samples, "Answers", 1, 65536},
      {"ignore-eos", &request.ignore_end, "Go on after the model's own end tokens"},
      {"top", &request.top, "With --json: so many alternatives to each token"},
      {"prompt-log-probs", &request.prompt_log_probs, "With --json: of the prompt's tokens, too"},
      {"cache-bytes", ByteCount{&flags->engine.cache_bytes_max}, "At most so much for keys and values"},
      {"cache-dtype", &flags->engine.cache_dtype, "Of keys and values"},
      {"threads", &flags->engine.threads, "Threads", 1, 1024},
  };
  add_setting_flags(*command, fields);
  command->add_flag("--json", flags->json, "An object per answer: ids, log_probs, finish_reason, text");
}

}  // namespace weightcast
