#include "trainer/tasks/program/program_messages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/text.h"
#include "trainer/tasks/program/line_reader.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kPrefix = "program:";
constexpr std::size_t kNameBytesMax = 64;
constexpr std::size_t kTagBytesMax = 256;
constexpr std::size_t kMessagesMax = 64;
constexpr std::size_t kMetadataMax = 64;  // names
constexpr std::size_t kReasonBytesMax = 300;
constexpr std::array<std::string_view, 3> kRoles{"system", "user", "assistant"};

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kNameBytesMax && std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '-';
  });
}

std::string line_of(Json call) { return json_text(call) + "\n"; }

Json call_of(std::uint64_t id, std::string_view name) { return {{"id", id}, {"call", name}}; }

/// One answer, member by member. Refusals show the whole of it.
class Answer {
 public:
  static Result<Answer> read(std::string_view line, std::uint64_t id) {
    Answer answer(line, parse_json(line));
    const Json& json = answer.json_;
    if (!json.is_object()) return answer.refuse("no JSON object");
    const auto answered = json.contains("id") ? natural_of(json["id"]) : std::nullopt;
    if (answered != id) return answer.refuse(fmt::format("no answer to call {}", id));
    if (!json.contains("error")) return answer;
    if (!json["error"].is_string()) return answer.refuse("'error' is no text");
    return fail(Errc::kInvalidArgument, Op::kReceive,
                fmt::format("it says: {}", printable(cut_text(json["error"].get<std::string>(), kReasonBytesMax))));
  }

  [[nodiscard]] Error refuse(std::string_view why) const {
    return fail(Errc::kCorrupt, Op::kReceive,
                fmt::format("its answer is refused: {}; received {}", why, beginning_of(line_)));
  }
  [[nodiscard]] Error refuse_member(std::string_view name, std::string_view what) const {
    return refuse(fmt::format("'{}' is {}", name, json_.contains(name) ? what : "missing"));
  }

  [[nodiscard]] bool has(std::string_view name) const { return json_.contains(name) && !json_[name].is_null(); }
  [[nodiscard]] const Json& at(std::string_view name) const { return json_[name]; }

  Status take(std::string_view name, std::string& out) const {
    if (!json_.contains(name) || !json_[name].is_string()) return refuse_member(name, "no text");
    out = json_[name].get<std::string>();
    return {};
  }
  Status take(std::string_view name, bool& out) const {
    if (!json_.contains(name) || !json_[name].is_boolean()) return refuse_member(name, "neither true nor false");
    out = json_[name].get<bool>();
    return {};
  }
  Status take(std::string_view name, double& out) const {
    if (!json_.contains(name) || !json_[name].is_number()) return refuse_member(name, "no number");
    out = json_[name].get<double>();
    if (!std::isfinite(out)) return refuse_member(name, "not finite");
    return {};
  }

 private:
  Answer(std::string_view line, Json json) : line_(line), json_(std::move(json)) {}

  std::string_view line_;
  Json json_;
};

Result<std::vector<ChatMessage>> take_messages(const Answer& answer) {
  if (!answer.has("messages")) return answer.refuse("'messages' is missing");
  const Json& list = answer.at("messages");
  if (!list.is_array() || list.empty() || list.size() > kMessagesMax) {
    return answer.refuse(fmt::format("'messages' is no list of 1 to {}", kMessagesMax));
  }
  std::vector<ChatMessage> messages;
  for (const Json& item : list) {
    const bool is_message = item.is_object() && item.contains("role") && item["role"].is_string() &&
                            item.contains("content") && item["content"].is_string();
    if (!is_message) return answer.refuse("a message is not {\"role\": TEXT, \"content\": TEXT}");
    ChatMessage message{item["role"].get<std::string>(), item["content"].get<std::string>()};
    if (std::ranges::find(kRoles, message.role) == kRoles.end()) {
      return answer.refuse(fmt::format("a message's role is none of {}", fmt::join(kRoles, ", ")));
    }
    messages.push_back(std::move(message));
  }
  return messages;
}

Result<Metadata> take_metadata(const Answer& answer, const ProgramHello& hello) {
  Metadata metadata;
  if (answer.has("metadata")) {
    const Json& object = answer.at("metadata");
    if (!object.is_object()) return answer.refuse("'metadata' is no object");
    for (const auto& [name, value] : object.items()) {
      if (!value.is_string())
        return answer.refuse(fmt::format("metadata '{}' is no text", printable(cut_text(name, 40))));
      metadata[name] = value.get<std::string>();
    }
  }
  std::vector<std::string> names;
  for (const auto& [name, value] : metadata) names.push_back(name);
  if (names == hello.metadata) return metadata;
  return answer.refuse(fmt::format("its hello promised the metadata [{}]", fmt::join(hello.metadata, ", ")));
}

}  // namespace

std::string program_task_name(const ProgramHello& hello) {
  return fmt::format("{}{}@{}", kPrefix, hello.name, hello.version);
}

bool is_program_task(std::string_view task) { return task.starts_with(kPrefix); }

std::string write_hello_call(std::uint64_t id, const TaskOptions& options) {
  Json call = call_of(id, "hello");
  call["protocol"] = kTaskProtocolVersion;
  call["options"] = options;
  return line_of(std::move(call));
}

std::string write_prompt_call(std::uint64_t id, std::uint64_t index) {
  Json call = call_of(id, "prompt");
  call["index"] = index;
  return line_of(std::move(call));
}

std::string write_score_call(std::uint64_t id, const Metadata& metadata, std::string_view response) {
  Json call = call_of(id, "score");
  call["metadata"] = metadata;
  call["response"] = response;
  return line_of(std::move(call));
}

std::string write_reset_call(std::uint64_t id, std::uint64_t episode, std::uint64_t seed,
                             std::span<const std::uint64_t> closed) {
  Json call = call_of(id, "reset");
  call["episode"] = episode;
  call["seed"] = seed;
  call["closed"] = std::vector<std::uint64_t>(closed.begin(), closed.end());
  return line_of(std::move(call));
}

std::string write_step_call(std::uint64_t id, std::uint64_t episode, std::string_view action) {
  Json call = call_of(id, "step");
  call["episode"] = episode;
  call["action"] = action;
  return line_of(std::move(call));
}

Result<ProgramHello> read_hello(std::string_view line, std::uint64_t id) {
  WC_ASSIGN(const Answer answer, Answer::read(line, id));
  const auto protocol = answer.has("protocol") ? natural_of(answer.at("protocol")) : std::nullopt;
  if (!protocol) return answer.refuse_member("protocol", "no whole number");
  if (*protocol != kTaskProtocolVersion) {
    return fail(Errc::kUnsupported, Op::kReceive,
                fmt::format("it speaks version {} of the protocol of tasks, and this program version {}; use a release "
                            "of weightcast.tasks as new as this one",
                            *protocol, kTaskProtocolVersion));
  }
  ProgramHello hello;
  WC_TRY(answer.take("name", hello.name));
  WC_TRY(answer.take("version", hello.version));
  for (const auto& [member, text] : {std::pair("name", hello.name), std::pair("version", hello.version)}) {
    if (!is_name(text)) return answer.refuse_member(member, "not 1 to 64 letters, digits and _ . -");
  }
  std::string offers;
  WC_TRY(answer.take("offers", offers));
  if (offers != "prompts" && offers != "episodes") return answer.refuse("'offers' is neither prompts nor episodes");
  hello.has_episodes = offers == "episodes";
  if (answer.has("prompt_count")) {
    hello.prompt_count = natural_of(answer.at("prompt_count"));
    if (!hello.prompt_count || *hello.prompt_count == 0) {
      return answer.refuse("'prompt_count' is no whole number from 1 on");
    }
  }
  if (answer.has("metadata")) {
    const Json& names = answer.at("metadata");
    if (!names.is_array() || names.size() > kMetadataMax) {
      return answer.refuse(fmt::format("'metadata' is no list of up to {} names", kMetadataMax));
    }
    for (const Json& name : names) {
      if (!name.is_string() || !is_name(name.get<std::string>())) return answer.refuse("a name in 'metadata' is none");
      hello.metadata.push_back(name.get<std::string>());
    }
    std::ranges::sort(hello.metadata);
    if (std::ranges::adjacent_find(hello.metadata) != hello.metadata.end()) {
      return answer.refuse("a name stands twice in 'metadata'");
    }
  }
  return hello;
}

Result<Prompt> read_prompt(std::string_view line, std::uint64_t id, const ProgramHello& hello, std::uint64_t index) {
  WC_ASSIGN(const Answer answer, Answer::read(line, id));
  Prompt prompt;
  WC_ASSIGN(prompt.messages, take_messages(answer));
  WC_ASSIGN(prompt.metadata, take_metadata(answer, hello));
  prompt.tag = fmt::format("{}/{}", hello.name, hello.prompt_count ? index % *hello.prompt_count : index);
  if (!answer.has("tag")) return prompt;
  WC_TRY(answer.take("tag", prompt.tag));
  if (prompt.tag.empty() || prompt.tag.size() > kTagBytesMax) {
    return answer.refuse(fmt::format("'tag' is not of 1 to {} bytes", kTagBytesMax));
  }
  return prompt;
}

Result<Score> read_score(std::string_view line, std::uint64_t id) {
  WC_ASSIGN(const Answer answer, Answer::read(line, id));
  Score score;
  WC_TRY(answer.take("reward", score.reward));
  WC_TRY(answer.take("success", score.success));
  return score;
}

Result<StepResult> read_step(std::string_view line, std::uint64_t id) {
  WC_ASSIGN(const Answer answer, Answer::read(line, id));
  StepResult step;
  WC_TRY(answer.take("reward", step.reward));
  WC_TRY(answer.take("done", step.done));
  WC_TRY(answer.take("success", step.success));
  if (step.done) return step;
  WC_TRY(answer.take("observation", step.observation));
  return step;
}

}  // namespace weightcast
