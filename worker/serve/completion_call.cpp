#include "worker/serve/completion_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/settings/nearest_name.h"
#include "base/text.h"
#include "trainer/model/tokenizer/qwen_chat.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kTokensDefault = 16;

/// What is wrong with a member. Thrown inside this file alone.
struct Wrong {
  Errc code = Errc::kInvalidArgument;
  std::string why;
};

/// Absent and null are the same.
const Json* member(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

double number(const Json& json, const char* name, double absent) {
  const Json* value = member(json, name);
  if (value == nullptr) return absent;
  if (!value->is_number() || !std::isfinite(value->get<double>())) {
    throw Wrong{.why = fmt::format("'{}' is no number", name)};
  }
  return value->get<double>();
}

std::uint64_t whole(const Json& json, const char* name, std::uint64_t absent, std::uint64_t least, std::uint64_t most) {
  const Json* value = member(json, name);
  if (value == nullptr) return absent;
  const bool fits =
      value->is_number_unsigned() && value->get<std::uint64_t>() >= least && value->get<std::uint64_t>() <= most;
  if (!fits) throw Wrong{.why = fmt::format("'{}' is not a whole number from {} to {}", name, least, most)};
  return value->get<std::uint64_t>();
}

bool flag(const Json& json, const char* name, bool absent = false) {
  const Json* value = member(json, name);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) throw Wrong{.why = fmt::format("'{}' is neither true nor false", name)};
  return value->get<bool>();
}

std::vector<TokenId> ids(const Json& json, const char* name) {
  std::vector<TokenId> out;
  for (const Json& one : json) {
    if (!one.is_number_unsigned() || one.get<std::uint64_t>() > std::numeric_limits<TokenId>::max()) {
      throw Wrong{.why = fmt::format("'{}' holds something that is no token id", name)};
    }
    out.push_back(one.get<TokenId>());
  }
  return out;
}

/// `surround`: the text stands for itself, and no template has made it.
std::vector<TokenId> encoded(const std::string& text, const ServedModel& model, bool surround) {
  if (model.tokenizer == nullptr) throw Wrong{.why = "this model has no tokenizer.json; send token ids"};
  Result<std::vector<TokenId>> tokens = model.tokenizer->encode(text, {.surround = surround});
  if (!tokens.has_value()) throw Wrong{.why = tokens.error().detail};
  return std::move(*tokens);
}

std::vector<std::vector<TokenId>> prompts_of(const Json& json, const char* name, const ServedModel& model) {
  const Json* prompt = member(json, name);
  if (prompt == nullptr) throw Wrong{.why = fmt::format("'{}' is missing", name)};
  const bool surround = flag(json, "add_special_tokens", true);
  if (prompt->is_string()) return {encoded(prompt->get<std::string>(), model, surround)};
  if (!prompt->is_array() || prompt->empty())
    throw Wrong{.why = fmt::format("'{}' is neither text nor token ids", name)};
  if (prompt->front().is_number()) return {ids(*prompt, name)};
  if (prompt->size() > kAnswersMax) throw Wrong{.why = fmt::format("'{}' holds more than {}", name, kAnswersMax)};
  std::vector<std::vector<TokenId>> prompts;
  for (const Json& one : *prompt) {
    if (one.is_string()) {
      prompts.push_back(encoded(one.get<std::string>(), model, surround));
    } else if (one.is_array()) {
      prompts.push_back(ids(one, name));
    } else {
      throw Wrong{.why = fmt::format("'{}' is neither text nor token ids", name)};
    }
  }
  return prompts;
}

std::string content_of(const Json& message) {
  const Json* content = member(message, "content");
  if (content == nullptr) return "";
  if (content->is_string()) return content->get<std::string>();
  if (!content->is_array()) throw Wrong{.why = "a message's 'content' is no text"};
  std::string text;
  for (const Json& part : *content) {
    if (!part.is_object() || part.value("type", "") != "text" || member(part, "text") == nullptr ||
        !part["text"].is_string()) {
      throw Wrong{.why = "a message's 'content' holds something that is no text"};
    }
    text += part["text"].get<std::string>();
  }
  return text;
}

std::vector<TokenId> chat_prompt(const Json& json, const ServedModel& model) {
  const Json* list = member(json, "messages");
  if (list == nullptr || !list->is_array()) throw Wrong{.why = "'messages' is missing, or no array"};
  std::vector<ChatMessage> messages;
  for (const Json& one : *list) {
    if (!one.is_object() || member(one, "role") == nullptr || !one["role"].is_string()) {
      throw Wrong{.why = "'messages' holds something without a 'role'"};
    }
    // OpenAI's newer name for the same role.
    const std::string role = one["role"] == "developer" ? "system" : one["role"].get<std::string>();
    messages.push_back({role, content_of(one)});
  }
  if (!model.chat) {
    throw Wrong{.why =
                    "this model's chat template is none that this worker has, Qwen2.5's and Qwen3's; send what it "
                    "makes of the messages to /v1/completions"};
  }
  ChatOptions options{.style = *model.chat};
  if (const Json* template_options = member(json, "chat_template_kwargs")) {
    if (!template_options->is_object()) throw Wrong{.why = "'chat_template_kwargs' is no object"};
    if (member(*template_options, "enable_thinking") != nullptr) {
      options.enable_thinking = flag(*template_options, "enable_thinking");
    }
  }
  const Result<std::string> text = render_qwen_chat(messages, options);
  if (!text.has_value()) throw Wrong{.why = text.error().detail};
  return encoded(*text, model, flag(json, "add_special_tokens"));
}

void read_stops(const Json& json, EngineRequest& request) {
  if (const Json* stop = member(json, "stop")) {
    const Json list = stop->is_array() ? *stop : Json::array({*stop});
    for (const Json& one : list) {
      if (!one.is_string()) throw Wrong{.why = "'stop' is neither a text nor a list of them"};
      request.stop_strings.push_back(one.get<std::string>());
    }
  }
  if (const Json* stop = member(json, "stop_token_ids")) {
    if (!stop->is_array()) throw Wrong{.why = "'stop_token_ids' is no array"};
    request.stop_tokens = ids(*stop, "stop_token_ids");
  }
}

/// Members that have no meaning here, and the value, as JSON, that asks for what is done anyway. "any": whatever they
/// say changes no answer.
struct Meaningless {
  std::string_view name, value;
};
constexpr Meaningless kMeaningless[] = {
    {"user", "any"},
    {"algo", "any"},  // ECHO's call for trajectories says for which algorithm
    {"store", "any"},
    {"service_tier", "any"},
    {"safety_identifier", "any"},
    {"prompt_cache_key", "any"},
    {"prompt_cache_retention", "any"},
    {"cache_salt", "any"},
    {"prediction", "any"},
    {"priority", "any"},
    {"request_id", "any"},
    {"parallel_tool_calls", "any"},
    {"return_token_ids", "any"},
    {"spaces_between_special_tokens", "any"},
    {"frequency_penalty", "0"},
    {"presence_penalty", "0"},
    {"length_penalty", "1"},
    {"min_tokens", "0"},
    {"use_beam_search", "false"},
    {"include_stop_str_in_output", "false"},
    {"return_tokens_as_token_ids", "false"},
    {"skip_special_tokens", "true"},
    {"add_generation_prompt", "true"},
    {"continue_final_message", "false"},
    {"logit_bias", "{}"},
    {"tools", "[]"},
    {"functions", "[]"},
    {"tool_choice", "\"none\""},
    {"tool_choice", "\"auto\""},
    {"function_call", "\"none\""},
    {"function_call", "\"auto\""},
    {"suffix", "\"\""},
    {"modalities", "[\"text\"]"},
    {"response_format", "{\"type\": \"text\"}"},
};

std::span<const std::string_view> known_members(CallKind kind) {
  static constexpr std::string_view kCompletion[] = {
      "model", "prompt", "n",          "best_of",    "temperature",        "top_p",
      "min_p", "top_k",  "ignore_eos", "stop",       "repetition_penalty", "stop_token_ids",
      "seed",  "stream", "logprobs",   "max_tokens", "add_special_tokens", "stream_options",
      "echo"};
  static constexpr std::string_view kChat[] = {"model",
                                               "messages",
                                               "n",
                                               "best_of",
                                               "temperature",
                                               "top_p",
                                               "min_p",
                                               "top_k",
                                               "ignore_eos",
                                               "stop",
                                               "repetition_penalty",
                                               "stop_token_ids",
                                               "seed",
                                               "stream",
                                               "logprobs",
                                               "max_tokens",
                                               "add_special_tokens",
                                               "stream_options",
                                               "metadata",
                                               "top_logprobs",
                                               "max_completion_tokens",
                                               "chat_template_kwargs"};
  static constexpr std::string_view kTrajectories[] = {
      "model",   "prompts", "n",          "best_of",       "temperature",        "top_p",
      "min_p",   "top_k",   "ignore_eos", "stop",          "repetition_penalty", "stop_token_ids",
      "seed",    "stream",  "max_tokens", "param_version", "add_special_tokens", "version_gap_max",
      "metadata"};
  switch (kind) {
    case CallKind::kCompletion: return kCompletion;
    case CallKind::kChat: return kChat;
    case CallKind::kTrajectories: break;
  }
  return kTrajectories;
}

/// Refuses what is neither one of `known` nor asks for what is done anyway.
void refuse_what_is_not_known(const Json& json, std::span<const std::string_view> known) {
  for (const auto& [name, value] : json.items()) {
    if (value.is_null() || std::ranges::find(known, name) != known.end()) continue;
    bool has_meaning = true, is_named = false;
    for (const Meaningless& one : kMeaningless) {
      if (one.name != name) continue;
      is_named = true;
      // An empty list, object or text asks for nothing, either.
      const bool empty = (value.is_structured() && value.empty()) || value == "";
      if (one.value == "any" || empty || value == Json::parse(one.value)) has_meaning = false;
    }
    if (!has_meaning) continue;
    if (is_named) throw Wrong{.why = fmt::format("'{}' is not supported but for its default; leave it out", name)};
    const std::string_view nearest = nearest_name(name, known);
    throw Wrong{.why = fmt::format("'{}' is not known here; leave it out{}", printable(cut_text(name, 80)),
                                   nearest.empty() ? "" : fmt::format(", or is it '{}'?", nearest))};
  }
}

/// What the task scores each prompt's answers by.
std::vector<Metadata> metadata_of(const Json& json, const ServedModel& model, std::size_t prompts) {
  const Json* list = member(json, "metadata");
  if (list == nullptr) return {};
  if (model.task == nullptr) {
    throw Wrong{.why = "'metadata' is what rewards are computed from, and this worker has no task; serve with --task"};
  }
  if (!list->is_array() || list->size() != prompts) {
    throw Wrong{.why = fmt::format("'metadata' is no array of an object for each of {} prompts", prompts)};
  }
  std::vector<Metadata> all;
  for (const Json& one : *list) {
    if (!one.is_object()) throw Wrong{.why = "'metadata' holds something that is no object"};
    Metadata& metadata = all.emplace_back();
    for (const auto& [name, value] : one.items()) {
      if (!value.is_string()) throw Wrong{.why = "'metadata' has a value that is no text"};
      metadata[name] = value.get<std::string>();
    }
    // Before anything is generated.
    if (const auto score = model.task->score(metadata, ""); !score.has_value()) {
      throw Wrong{.why = fmt::format("'metadata', of task {}: {}", model.task->name(), score.error().detail)};
    }
  }
  return all;
}

CompletionCall read(const Json& json, CallKind kind, const ServedModel& model) {
  if (!json.is_object()) throw Wrong{.why = "the body is no JSON object"};
  if (const Json* name = member(json, "model")) {
    if (!name->is_string()) throw Wrong{.why = "'model' is no text"};
    if (*name != model.name) {
      throw Wrong{Errc::kNotFound, fmt::format("there is no model '{}'; this worker has '{}'",
                                               printable(cut_text(name->get<std::string>(), 80)), model.name)};
    }
  }
  refuse_what_is_not_known(json, known_members(kind));
  CompletionCall call;
  call.kind = kind;
  switch (kind) {
    case CallKind::kCompletion: call.prompts = prompts_of(json, "prompt", model); break;
    case CallKind::kChat: call.prompts = {chat_prompt(json, model)}; break;
    case CallKind::kTrajectories: call.prompts = prompts_of(json, "prompts", model); break;
  }
  call.n = whole(json, "n", 1, 1, kAnswersMax);
  if (whole(json, "best_of", call.n, 1, kAnswersMax) != call.n) {
    throw Wrong{.why = "'best_of' is not supported but for the value of 'n'"};
  }
  if (call.prompts.size() * call.n > kAnswersMax) {
    throw Wrong{.why = fmt::format("{} prompts with {} answers each are more than {} answers", call.prompts.size(),
                                   call.n, kAnswersMax)};
  }
  EngineRequest& request = call.request;
  request.sampling.temperature = number(json, "temperature", 1);
  request.sampling.top_p = number(json, "top_p", 1);
  request.sampling.min_p = number(json, "min_p", 0);
  request.sampling.repetition_penalty = number(json, "repetition_penalty", 1);
  // -1 says "all", as in other servers.
  const double top_k = number(json, "top_k", 0);
  if (top_k < -1 || top_k > 1e9 || top_k != std::floor(top_k)) throw Wrong{.why = "'top_k' is no whole number"};
  request.sampling.top_k = std::max<std::int64_t>(0, static_cast<std::int64_t>(top_k));
  if (const Status sampling = check_sampling(request.sampling); !sampling.has_value()) {
    throw Wrong{.why = sampling.error().detail};
  }
  request.ignore_end = flag(json, "ignore_eos");
  read_stops(json, request);
  if (const Json* seed = member(json, "seed")) {
    if (!seed->is_number_integer()) throw Wrong{.why = "'seed' is no whole number"};
    call.seed =
        seed->is_number_unsigned() ? seed->get<std::uint64_t>() : static_cast<std::uint64_t>(seed->get<std::int64_t>());
  }
  call.stream = flag(json, "stream");
  if (const Json* options = member(json, "stream_options")) {
    if (!options->is_object()) throw Wrong{.why = "'stream_options' is no object"};
    call.stream_usage = flag(*options, "include_usage");
  }
  switch (kind) {
    case CallKind::kCompletion:
      call.log_probs = member(json, "logprobs") != nullptr;
      request.top = whole(json, "logprobs", 0, 0, kTopMax);
      call.echo = flag(json, "echo");
      request.prompt_log_probs = call.echo && call.log_probs;
      break;
    case CallKind::kChat:
      call.log_probs = flag(json, "logprobs");
      request.top = call.log_probs ? whole(json, "top_logprobs", 0, 0, kTopMax) : 0;
      break;
    case CallKind::kTrajectories: {
      if (call.stream) throw Wrong{.why = "'stream' is not supported here; leave it out"};
      if (request.sampling.repetition_penalty != 1) {
        throw Wrong{.why =
                        "'repetition_penalty' is not supported here, as log-probabilities under it are none that a "
                        "learner computes; leave it out"};
      }
      Result<std::optional<VersionWanted>> version = read_version_wanted(json);
      if (!version.has_value()) throw Wrong{.why = version.error().detail};
      call.version = std::move(*version);
      call.metadata = metadata_of(json, model, call.prompts.size());
      break;
    }
  }
  std::size_t longest = 0;
  for (const std::vector<TokenId>& prompt : call.prompts) {
    if (prompt.empty()) throw Wrong{.why = "a prompt is empty"};
    longest = std::max(longest, prompt.size());
  }
  if (longest >= model.context_max) {
    throw Wrong{Errc::kTooLarge,
                fmt::format("this model's maximum context length is {} tokens, and a prompt has {}: the context is too "
                            "small for it and an answer",
                            model.context_max, longest)};
  }
  const std::size_t room = model.context_max - longest;
  const char* name = kind == CallKind::kChat && member(json, "max_completion_tokens") != nullptr
                         ? "max_completion_tokens"
                         : "max_tokens";
  const std::size_t absent = kind == CallKind::kCompletion ? std::min(kTokensDefault, room) : room;
  // Of an echo, whose prompt may be all that is wanted.
  const std::size_t least = call.echo ? 0 : 1;
  request.tokens_max = whole(json, name, absent, least, 1'000'000'000);
  call.prompt_only = request.tokens_max == 0;
  request.tokens_max = std::max<std::size_t>(request.tokens_max, 1);
  if (request.tokens_max > room) {
    throw Wrong{Errc::kTooLarge, fmt::format("this model's maximum context length is {} tokens; '{}' is {}, and with a "
                                             "prompt of {} tokens the context leaves {}",
                                             model.context_max, name, request.tokens_max, longest, room)};
  }
  return call;
}

}  // namespace

Result<CompletionCall> read_completion_call(const Json& json, CallKind kind, const ServedModel& model) {
  try {
    return read(json, kind, model);
  } catch (const Wrong& wrong) {
    return fail(wrong.code, Op::kParse, wrong.why);
  } catch (const Json::exception& error) {
    return fail(Errc::kInvalidArgument, Op::kParse, error.what());
  }
}

Result<std::vector<TokenId>> read_text_to_tokenize(const Json& json, const ServedModel& model) {
  try {
    if (!json.is_object()) throw Wrong{.why = "the body is no JSON object"};
    static constexpr std::string_view kKnown[] = {"model", "prompt", "messages", "add_special_tokens",
                                                  "chat_template_kwargs"};
    refuse_what_is_not_known(json, kKnown);
    if (member(json, "messages") != nullptr) return chat_prompt(json, model);
    const Json* prompt = member(json, "prompt");
    if (prompt == nullptr || !prompt->is_string()) throw Wrong{.why = "'prompt' is missing, or no text"};
    return encoded(prompt->get<std::string>(), model, flag(json, "add_special_tokens", true));
  } catch (const Wrong& wrong) {
    return fail(wrong.code, Op::kParse, wrong.why);
  } catch (const Json::exception& error) {
    return fail(Errc::kInvalidArgument, Op::kParse, error.what());
  }
}

}  // namespace weightcast
