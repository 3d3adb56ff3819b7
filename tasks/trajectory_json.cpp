#include "tasks/trajectory_json.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/nearest_name.h"
#include "base/text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using namespace std::string_view_literals;

constexpr std::array kMembers{"task"sv,   "worker"sv,        "sequence"sv,       "group"sv,    "model_digest"sv,
                              "tokens"sv, "response_mask"sv, "logprobs"sv,       "reward"sv,   "tokenizer_digest"sv,
                              "turns"sv,  "version_runs"sv,  "oldest_version"sv, "metadata"sv, "success"sv};

Error wrong(std::string_view member, std::string_view why) {
  return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("rollout: '{}' {}", member, why));
}

/// Null stands for not a number: JSON cannot say it, and check_trajectory() refuses it by name.
template <typename Float>
Status read(const Json& json, std::string_view member, Float& out) requires std::is_floating_point_v<Float> {
  if (json.is_null()) {
    out = std::numeric_limits<Float>::quiet_NaN();
    return {};
  }
  if (!json.is_number()) return wrong(member, "holds something that is no number");
  out = json.get<Float>();
  return {};
}

template <typename Int>
Status read(const Json& json, std::string_view member, Int& out) requires std::is_integral_v<Int> {
  if (!json.is_number_integer()) return wrong(member, "holds something that is no integer");
  const bool fits = json.is_number_unsigned()
                        ? json.get<std::uint64_t>() <= static_cast<std::uint64_t>(std::numeric_limits<Int>::max())
                        : json.get<std::int64_t>() >= static_cast<std::int64_t>(std::numeric_limits<Int>::min()) &&
                              std::is_signed_v<Int>;
  if (!fits) return wrong(member, fmt::format("holds {}, which is out of range", json.dump()));
  out = json.get<Int>();
  return {};
}

Status read(const Json& json, std::string_view member, std::string& out) {
  if (!json.is_string()) return wrong(member, "is no text");
  out = json.get<std::string>();
  return {};
}

/// Null, as absent, says nothing.
Status read(const Json& json, std::string_view member, std::optional<bool>& out) {
  if (json.is_null()) return {};
  if (!json.is_boolean()) return wrong(member, "is neither true nor false");
  out = json.get<bool>();
  return {};
}

Status read(const Json& json, std::string_view member, Version& out) { return read(json, member, out.value); }

Status read(const Json& json, std::string_view member, VersionRun& out) {
  if (!json.is_array() || json.size() != 2) return wrong(member, "holds something that is not [version, tokens]");
  WC_TRY(read(json[0], member, out.version));
  return read(json[1], member, out.tokens);
}

Status read(const Json& json, std::string_view member, Turn& out) {
  if (!json.is_array() || json.size() != 3) return wrong(member, "holds something that is not [begin, end, reward]");
  WC_TRY(read(json[0], member, out.begin));
  WC_TRY(read(json[1], member, out.end));
  return read(json[2], member, out.reward);
}

Status read(const Json& json, std::string_view member, Metadata& out) {
  if (!json.is_object()) return wrong(member, "is no object");
  for (const auto& [name, value] : json.items()) WC_TRY(read(value, member, out[name]));
  return {};
}

template <typename T>
Status read(const Json& json, std::string_view member, std::vector<T>& out) {
  if (!json.is_array()) return wrong(member, "is no array");
  out.reserve(json.size());
  for (const Json& value : json) {
    out.emplace_back();
    WC_TRY(read(value, member, out.back()));
  }
  return {};
}

enum class Presence { kRequired, kOptional };

template <typename T>
Status take(const Json& object, std::string_view member, T& out, Presence presence = Presence::kRequired) {
  const auto found = object.find(member);
  if (found != object.end()) return read(*found, member, out);
  return presence == Presence::kOptional ? Status() : wrong(member, "is missing");
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

Result<Trajectory> read_trajectory(std::string_view line) {
  const Json json = parse_json(line);
  if (!json.is_object()) {
    return fail(Errc::kInvalidArgument, Op::kParse,
                fmt::format("rollout: no JSON object: {}", printable(cut_text(line, 80))));
  }
  return read_trajectory_object(json);
}

Result<Trajectory> read_trajectory_object(const Json& json) {
  if (!json.is_object()) return fail(Errc::kInvalidArgument, Op::kParse, "rollout: no JSON object");
  for (const auto& [member, value] : json.items()) {
    if (std::find(kMembers.begin(), kMembers.end(), member) == kMembers.end()) {
      return fail(Errc::kInvalidArgument, Op::kParse, "rollout: " + unknown_name("member", member, kMembers));
    }
  }
  Trajectory t;
  WC_TRY(take(json, "task", t.task));
  WC_TRY(take(json, "worker", t.worker));
  WC_TRY(take(json, "sequence", t.sequence));
  WC_TRY(take(json, "group", t.group));
  WC_TRY(take(json, "model_digest", t.model_digest));
  WC_TRY(take(json, "tokenizer_digest", t.tokenizer_digest));
  WC_TRY(take(json, "tokens", t.tokens));
  WC_TRY(take(json, "response_mask", t.response_mask));
  WC_TRY(take(json, "logprobs", t.logprobs, Presence::kOptional));
  WC_TRY(take(json, "version_runs", t.version_runs));
  WC_TRY(take(json, "oldest_version", t.oldest_version));
  WC_TRY(take(json, "reward", t.reward));
  WC_TRY(take(json, "success", t.success, Presence::kOptional));
  WC_TRY(take(json, "turns", t.turns, Presence::kOptional));
  WC_TRY(take(json, "metadata", t.metadata, Presence::kOptional));
  return t;
}

std::string write_trajectory(const Trajectory& t) {
  Json logprobs = Json::array(), runs = Json::array(), turns = Json::array();
  for (const float logprob : t.logprobs) logprobs.push_back(number(static_cast<double>(logprob)));
  for (const VersionRun& run : t.version_runs) runs.push_back({run.version.value, run.tokens});
  for (const Turn& turn : t.turns) turns.push_back({turn.begin, turn.end, number(turn.reward)});
  Json json = {{"task", t.task},
               {"worker", t.worker},
               {"sequence", t.sequence},
               {"group", t.group},
               {"model_digest", t.model_digest},
               {"tokenizer_digest", t.tokenizer_digest},
               {"tokens", t.tokens},
               {"response_mask", t.response_mask},
               {"logprobs", std::move(logprobs)},
               {"version_runs", std::move(runs)},
               {"oldest_version", t.oldest_version.value},
               {"reward", number(t.reward)},
               {"turns", std::move(turns)},
               {"metadata", t.metadata}};
  if (t.success) json["success"] = *t.success;
  return json_text(json);
}

}  // namespace weightcast
