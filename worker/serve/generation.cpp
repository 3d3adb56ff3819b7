#include "worker/serve/generation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/entropy.h"
#include "base/json_text.h"
#include "base/steady_clock.h"
#include "base/text.h"
#include "trainer/tasks/trajectory/trajectory.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

std::int64_t unix_s() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Bytes at the end of `text` that begin a character and do not end it.
std::size_t unfinished_bytes(std::string_view text) {
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const std::size_t size = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return size > back ? back : 0;
  }
  return 0;
}

/// Counts the characters of a text that comes in pieces, as it is sent: what is no UTF-8 becomes one U+FFFD each time.
class CharacterCounter {
 public:
  void add(std::string_view text) {
    for (const char c : text) add(static_cast<unsigned char>(c));
  }
  /// Those that are whole.
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  void add(unsigned char byte) {
    if (missing_ > 0) {
      if (byte >= least_ && byte <= most_) {
        least_ = 0x80;
        most_ = 0xbf;
        if (--missing_ == 0) ++count_;
        return;
      }
      missing_ = 0;
      ++count_;  // what had begun
    }
    missing_ = byte < 0xc2 || byte > 0xf4 ? 0 : byte >= 0xf0 ? 3 : byte >= 0xe0 ? 2 : 1;
    least_ = byte == 0xe0 ? 0xa0 : byte == 0xf0 ? 0x90 : 0x80;
    most_ = byte == 0xed ? 0x9f : byte == 0xf4 ? 0x8f : 0xbf;
    if (missing_ == 0) ++count_;
  }

  std::size_t count_ = 0;
  int missing_ = 0;  // bytes of a character that has begun
  unsigned char least_ = 0x80, most_ = 0xbf;
};

std::string_view prefix_of(CallKind kind) {
  switch (kind) {
    case CallKind::kCompletion: return "cmpl";
    case CallKind::kChat: return "chatcmpl";
    case CallKind::kTrajectories: break;
  }
  return "traj";
}

Json version_runs(const std::vector<EngineToken>& tokens) {
  Json runs = Json::array();
  for (const EngineToken& token : tokens) {
    if (runs.empty() || runs.back()[0] != token.version.value) runs.push_back({token.version.value, 0});
    runs.back()[1] = runs.back()[1].get<std::uint64_t>() + 1;
  }
  return runs;
}

}  // namespace

Generation::Generation(EngineHost& host, WorkThread& scores, ServedModel model, CompletionCall call,
                       HttpResponder responder, std::uint64_t number, Duration wait_max)
    : host_(host),
      scores_(scores),
      model_(std::move(model)),
      call_(std::move(call)),
      responder_(std::move(responder)),
      id_(fmt::format("{}-{}", prefix_of(call_.kind), number)),
      created_(unix_s()),
      wait_max_(wait_max) {}

void Generation::begin() {
  responder_->on_gone([&host = host_, weak = weak_from_this()] {
    host.post([weak] {
      if (const auto self = weak.lock()) self->abort();
    });
  });
  host_.when([self = shared_from_this()] { return self->ended_ || self->can_begin(); }, wait_max_,
             [self = shared_from_this()] { self->handle_waited(); });
}

bool Generation::can_begin() const {
  if (host_.is_paused()) return false;
  return !call_.version || !host_.follows_versions() || version_fit() != VersionFit::kNotYet;
}

VersionFit Generation::version_fit() const { return fit(*call_.version, host_.engine().version(), host_.digest()); }

void Generation::handle_waited() {
  if (ended_) return;
  if (host_.is_paused()) {
    fail_all(503, fmt::format("generation is paused, and was not resumed in {:g} s; POST /resume ends that",
                              to_seconds(wait_max_)));
    return;
  }
  if (!call_.version || version_fit() == VersionFit::kFits) {
    digest_ = host_.digest();
    add_requests();
    return;
  }
  const ServedVersion here = host_.version();
  const std::string wanted = to_string(*call_.version);
  if (version_fit() == VersionFit::kTooNew) {
    fail_all(409, fmt::format("this worker has version {}, and does not go back to {}", here.version.value, wanted));
  } else if (!host_.follows_versions()) {
    fail_all(409, fmt::format("this worker has version {} for good, and {} is wanted; serve with --state follows "
                              "versions",
                              here.version.value, wanted));
  } else {
    fail_all(503, fmt::format("this worker has version {}, and {} has not come in {:g} s; ask again{}",
                              here.version.value, wanted, to_seconds(wait_max_),
                              here.last_error.empty() ? "" : ". The last failure: " + here.last_error));
  }
}

void Generation::add_requests() {
  const std::uint64_t seed = call_.seed ? *call_.seed : host_entropy();
  choices_.resize(call_.prompts.size() * call_.n);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    choices_[i].prompt = i / call_.n;
    EngineRequest request = call_.request;
    request.prompt = call_.prompts[choices_[i].prompt];
    // The first answer is that of a call for one.
    request.seed = seed + i;
    const Result<RequestId> added = host_.add(
        std::move(request), [self = shared_from_this(), i](const EngineEvent& event) { self->handle(i, event); });
    if (!added.has_value()) {
      const unsigned status = added.error().code == Errc::kBusy ? 503 : 400;
      fail_all(status, added.error().detail);
      return;
    }
    choices_[i].request = *added;
    ++unfinished_;
  }
  if (call_.stream) {
    stream_ = responder_->stream({.content_type = "text/event-stream", .headers = {{"Cache-Control", "no-cache"}}});
    responder_.reset();
  }
}

void Generation::abort() {
  if (choices_.empty()) fail_all(503, "the call was aborted before it began");
  abort_requests();
}

void Generation::abort_requests() {
  for (const Choice& choice : choices_) {
    if (!choice.finished && choice.request != RequestId{}) host_.abort(choice.request);
  }
}

void Generation::fail_all(unsigned status, const std::string& why) {
  if (ended_) return;
  ended_ = true;
  abort_requests();
  HttpResponse error = http_error(status, why);
  if (status == 503) error.headers.push_back({"Retry-After", "1"});
  if (responder_) {
    std::exchange(responder_, std::nullopt)->send(std::move(error));
  } else if (stream_) {
    send_event(error.body.substr(0, error.body.size() - 1));
    stream_.reset();
  }
}

std::string Generation::bytes_of(TokenId token) const {
  if (model_.tokenizer == nullptr) return "";
  return model_.tokenizer->decode(std::span(&token, 1), {.skip_special_tokens = true, .begins = false})
      .value_or(std::string());
}

/// As a key, which has to be text, and another one for each token.
std::string Generation::name_of(TokenId token) const {
  const std::string bytes = bytes_of(token);
  if (bytes.empty()) return fmt::format("token_id:{}", token);
  const bool is_ascii = std::ranges::all_of(bytes, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  return is_ascii ? bytes : printable(bytes);
}

void Generation::handle(std::size_t index, const EngineEvent& event) {
  if (ended_) return;
  Choice& choice = choices_[index];
  if (event.restarted) {
    if (choice.streamed_tokens > 0) {
      fail_all(503, "the weights have changed, and this worker begins answers anew: ask again");
      return;
    }
    choice.tokens.clear();
    choice.text.clear();
  }
  if (!event.prompt.empty()) choice.prompt_tokens = event.prompt;
  for (const EngineToken& token : event.tokens) {
    if (call_.prompt_only) break;
    choice.tokens.push_back(token);
    choice.text += bytes_of(token.token);
    ++answer_tokens_;
  }
  if (event.finished == FinishReason::kFailed) {
    fail_all(500, event.failure);
    return;
  }
  if (event.finished == FinishReason::kAborted && call_.kind == CallKind::kTrajectories) {
    fail_all(503, "the call was aborted");
    return;
  }
  if (event.finished) {
    choice.finished = event.finished;
    choice.stop = event.stop;
    if (event.stop) choice.text.resize(std::min(choice.text.size(), event.stop->text_bytes));
    --unfinished_;
  }
  if (stream_) stream(index);
  if (unfinished_ == 0 && !ended_) finish();
}

// ---- at once

Json Generation::head(const char* object) const {
  std::optional<Version> newest;
  for (const Choice& choice : choices_) {
    if (!choice.tokens.empty()) newest = std::max(newest.value_or(Version{}), choice.tokens.back().version);
  }
  return {{"id", id_},
          {"object", object},
          {"created", created_},
          {"model", model_.name},
          {"weight_version", std::to_string(newest.value_or(host_.engine().version()).value)}};
}

Json Generation::usage() const {
  std::uint64_t prompt = 0, answer = 0;
  for (const std::vector<TokenId>& one : call_.prompts) prompt += one.size();
  for (const Choice& choice : choices_) answer += choice.tokens.size();
  return {{"prompt_tokens", prompt}, {"completion_tokens", answer}, {"total_tokens", prompt + answer}};
}

Json Generation::finish_reason(const Choice& choice) const {
  if (!choice.finished) return nullptr;
  if (call_.prompt_only && *choice.finished != FinishReason::kAborted) return "length";
  switch (*choice.finished) {
    case FinishReason::kStopToken:
    case FinishReason::kStopString: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kAborted:
    case FinishReason::kFailed: break;
  }
  return "abort";
}

Json Generation::log_probs_json(const Choice& choice, std::size_t from, bool with_prompt) const {
  if (!call_.log_probs) return nullptr;
  if (is_chat()) {
    Json content = Json::array();
    for (std::size_t i = from; i < choice.tokens.size(); ++i) {
      const EngineToken& token = choice.tokens[i];
      const auto entry = [&](TokenId id, float log_prob) {
        const std::string text = bytes_of(id);
        return Json{
            {"token", text},
            {"logprob", log_prob},
            {"bytes", std::vector<unsigned>(reinterpret_cast<const unsigned char*>(text.data()),
                                            reinterpret_cast<const unsigned char*>(text.data()) + text.size())}};
      };
      Json one = entry(token.token, token.log_prob);
      one["top_logprobs"] = Json::array();
      for (const TokenLogProb& top : token.top) one["top_logprobs"].push_back(entry(top.token, top.log_prob));
      content.push_back(std::move(one));
    }
    return {{"content", std::move(content)}};
  }
  Json tokens = Json::array(), log_probs = Json::array(), tops = Json::array(), offsets = Json::array();
  CharacterCounter before;
  const auto add = [&](TokenId id, Json log_prob, const std::vector<TokenLogProb>& top) {
    const std::string text = bytes_of(id);
    tokens.push_back(text);
    log_probs.push_back(std::move(log_prob));
    Json best = Json::object();
    for (const TokenLogProb& one : top) best[name_of(one.token)] = one.log_prob;
    tops.push_back(std::move(best));
    offsets.push_back(before.count());
    before.add(text);
  };
  if (call_.echo && !with_prompt) {
    // It has left before, and still stands in front.
    for (const TokenId id : call_.prompts[choice.prompt]) before.add(bytes_of(id));
  }
  if (with_prompt) {
    for (std::size_t i = 0; i < choice.prompt_tokens.size(); ++i) {
      const PromptToken& token = choice.prompt_tokens[i];
      add(token.token, i == 0 ? Json(nullptr) : Json(token.log_prob), token.top);
    }
  }
  for (std::size_t i = 0; i < choice.tokens.size(); ++i) {
    if (i >= from) {
      add(choice.tokens[i].token, choice.tokens[i].log_prob, choice.tokens[i].top);
    } else {
      before.add(bytes_of(choice.tokens[i].token));
    }
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(log_probs)},
          {"top_logprobs", call_.request.top > 0 ? std::move(tops) : Json(nullptr)},
          {"text_offset", std::move(offsets)}};
}

Json Generation::choice_json(std::size_t index) const {
  const Choice& choice = choices_[index];
  std::vector<TokenId> ids;
  for (const EngineToken& token : choice.tokens) ids.push_back(token.token);
  Json json = {{"index", index},
               {"finish_reason", finish_reason(choice)},
               {"logprobs", log_probs_json(choice, 0, call_.echo)},
               {"token_ids", ids},
               {"prompt_token_ids", call_.prompts[choice.prompt]},
               {"version_runs", version_runs(choice.tokens)}};
  if (is_chat()) {
    json["message"] = {{"role", "assistant"}, {"content", choice.text}};
    return json;
  }
  std::string text;
  if (call_.echo) {
    for (const TokenId id : call_.prompts[choice.prompt]) text += bytes_of(id);
  }
  json["text"] = text + choice.text;
  return json;
}

/// ECHO's own answer, still without rewards.
Json Generation::trajectories_json() const {
  Json list = Json::array();
  std::optional<Version> oldest;
  for (const Choice& choice : choices_) {
    std::vector<TokenId> actions;
    std::vector<float> log_probs;
    for (const EngineToken& token : choice.tokens) {
      actions.push_back(token.token);
      log_probs.push_back(token.log_prob);
      oldest = std::min(oldest.value_or(token.version), token.version);
    }
    std::vector<TokenId> tokens = call_.prompts[choice.prompt];
    tokens.insert(tokens.end(), actions.begin(), actions.end());
    const bool terminal = choice.finished == FinishReason::kStopToken || choice.finished == FinishReason::kStopString;
    list.push_back({{"tokens", tokens},
                    {"actions", actions},
                    {"logprobs", log_probs},
                    {"values", nullptr},
                    {"rewards", nullptr},
                    {"success", nullptr},
                    {"terminal", terminal},
                    {"version_runs", version_runs(choice.tokens)}});
  }
  const VersionNaming naming = call_.version ? call_.version->naming : VersionNaming::kNumber;
  Json absent = {{"values", "this worker has no value head; take those of your own model, or none"}};
  if (call_.metadata.empty()) {
    absent["rewards"] = model_.task == nullptr ? "this worker has no task; serve with --task"
                                               : "the call has no 'metadata' to compute them from";
  }
  return {{"id", id_},
          {"model", model_.name},
          {"param_version", version_json(naming, oldest.value_or(host_.engine().version()), digest_)},
          {"trajectories", std::move(list)},
          {"absent", std::move(absent)}};
}

/// Rewards take their time elsewhere: the engine goes on with other calls.
void Generation::finish_trajectories() {
  HttpResponder responder = *std::exchange(responder_, std::nullopt);
  if (call_.metadata.empty()) {
    responder.send({.body = json_text(trajectories_json())});
    return;
  }
  struct Job {
    Json json;
    HttpResponder responder;
    std::shared_ptr<const Generation> generation;
    Instant deadline;
  };
  const auto job = std::make_shared<Job>(
      Job{trajectories_json(), std::move(responder), shared_from_this(), steady_now() + wait_max_});
  std::function<void()> run = [job] {
    const Generation& of = *job->generation;
    for (std::size_t i = 0; i < of.choices_.size(); ++i) {
      const Choice& choice = of.choices_[i];
      if (steady_now() > job->deadline) {
        job->responder.send(http_error(503, fmt::format("rewards took longer than {:g} s", to_seconds(of.wait_max_))));
        return;
      }
      const Result<Score> score = of.model_.task->score(of.call_.metadata[choice.prompt], choice.text);
      if (!score.has_value()) {
        job->responder.send(http_error(500, "a reward: " + score.error().detail));
        return;
      }
      if (!(std::fabs(score->reward) <= TrajectoryRules::kRewardMax)) {
        job->responder.send(http_error(500, fmt::format("a reward: it is {}, and at most {} in size counts",
                                                        score->reward, TrajectoryRules::kRewardMax)));
        return;
      }
      // As for an environment of one turn: the last action has it.
      std::vector<double> rewards(choice.tokens.size(), 0);
      if (!rewards.empty()) rewards.back() = score->reward;
      job->json["trajectories"][i]["rewards"] = std::move(rewards);
      job->json["trajectories"][i]["success"] = score->success;
    }
    job->responder.send({.body = json_text(job->json)});
  };
  if (!scores_.try_post(run)) job->responder.send(http_error(503, "too many calls wait for rewards; try again later"));
}

void Generation::finish() {
  ended_ = true;
  if (stream_) {
    if (call_.stream_usage) {
      Json last = head(is_chat() ? "chat.completion.chunk" : "text_completion");
      last["choices"] = Json::array();
      last["usage"] = usage();
      send_event(json_text(last));
    }
    send_event("[DONE]");
    stream_.reset();
    return;
  }
  if (call_.kind == CallKind::kTrajectories) {
    finish_trajectories();
    return;
  }
  Json json = head(is_chat() ? "chat.completion" : "text_completion");
  json["choices"] = Json::array();
  for (std::size_t i = 0; i < choices_.size(); ++i) json["choices"].push_back(choice_json(i));
  json["usage"] = usage();
  std::exchange(responder_, std::nullopt)->send({.body = json_text(json)});
}

// ---- as a stream

void Generation::send_event(const std::string& data) {
  // Who has gone needs no more tokens.
  if (stream_ && !stream_->write("data: " + data + "\n\n")) abort();
}

void Generation::stream(std::size_t index) {
  Choice& choice = choices_[index];
  // What may be the beginning of a stop string, or of a character, waits for what follows.
  std::size_t until = choice.text.size();
  if (!choice.finished) {
    std::size_t held = 0;
    for (const std::string& stop : call_.request.stop_strings) held = std::max(held, stop.size() - 1);
    until -= std::min(held, until);
    until -= unfinished_bytes(std::string_view(choice.text).substr(0, until));
  }
  const std::size_t from = std::min(choice.streamed_bytes, until);
  if (until == from && choice.streamed_tokens == choice.tokens.size() && !choice.finished) return;
  std::string text = choice.text.substr(from, until - from);
  std::vector<TokenId> ids;
  for (std::size_t i = choice.streamed_tokens; i < choice.tokens.size(); ++i) ids.push_back(choice.tokens[i].token);
  const bool is_first = !std::exchange(choice.has_begun, true);
  if (is_first && call_.echo) {
    std::string prompt;
    for (const TokenId id : call_.prompts[choice.prompt]) prompt += bytes_of(id);
    text = prompt + text;
  }
  Json one = {{"index", index},
              {"finish_reason", finish_reason(choice)},
              {"logprobs", log_probs_json(choice, choice.streamed_tokens, is_first && call_.echo)},
              {"token_ids", ids}};
  if (is_chat()) {
    one["delta"] = {{"content", text}};
    if (is_first) one["delta"]["role"] = "assistant";
  } else {
    one["text"] = text;
  }
  choice.streamed_bytes = until;
  choice.streamed_tokens = choice.tokens.size();
  Json json = head(is_chat() ? "chat.completion.chunk" : "text_completion");
  json["choices"] = Json::array({std::move(one)});
  send_event(json_text(json));
}

}  // namespace weightcast
