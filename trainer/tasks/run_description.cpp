#include "trainer/tasks/run_description.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kIdDigitsMax = 64;

template <typename T>
void get(const Json& json, const char* name, T& out) {
  out = json.at(name).get<T>();
}

template <typename T>
void get(const Json& json, const char* name, std::optional<T>& out) {
  const Json& value = json.at(name);
  out = value.is_null() ? std::optional<T>() : value.get<T>();
}

template <typename T>
void put(Json& json, const char* name, const T& value) {
  json[name] = value;
}

template <typename T>
void put(Json& json, const char* name, const std::optional<T>& value) {
  json[name] = value ? Json(*value) : Json(nullptr);
}

/// The one list of members.
template <typename Run, typename Visit>
void each_member(Run& run, const Visit& visit) {
  visit("run_id", run.run_id);
  visit("seed", run.seed);
  visit("task", run.task);
  visit("task_options", run.task_options);
  visit("task_data_digest", run.task_data_digest);
  visit("eval_prompts", run.eval_prompts);
  visit("chat_template", run.chat_template);
  visit("enable_thinking", run.enable_thinking);
  visit("group_size", run.group_size);
  visit("group_size_redundancy", run.group_size_redundancy);
  visit("filter_equal_rewards", run.filter_equal_rewards);
  visit("rollout_batch_size", run.rollout_batch_size);
  visit("temperature", run.temperature);
  visit("top_p", run.top_p);
  visit("max_prompt_length", run.max_prompt_length);
  visit("max_new_tokens", run.max_new_tokens);
  visit("turns_max", run.turns_max);
  visit("episode_time_max", run.episode_time_max);
  visit("tokens_max", run.tokens_max);
  visit("logprobs_recomputed", run.logprobs_recomputed);
  visit("model_digest", run.model_digest);
  visit("tokenizer_digest", run.tokenizer_digest);
  visit("adapter_digest", run.adapter_digest);
  visit("publish_interval", run.publish_interval);
  visit("max_staleness", run.max_staleness);
  visit("async_generation_ratio", run.async_generation_ratio);
}

}  // namespace

bool is_run_id(std::string_view text) {
  return !text.empty() && text.size() <= kIdDigitsMax &&
         text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string write_run_description(const RunDescription& run) {
  Json json;
  each_member(run, [&](const char* name, const auto& value) { put(json, name, value); });
  return json_text(json);
}

Result<RunDescription> read_run_description(std::string_view text) {
  RunDescription run;
  const Json json = parse_json(text);
  // The JSON library throws where a member is missing or of another type; its words name the member.
  try {
    each_member(run, [&](const char* name, auto& value) { get(json, name, value); });
  } catch (const Json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("the run's description: {}", error.what()));
  }
  return run;
}

}  // namespace weightcast
