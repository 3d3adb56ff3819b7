#include "trainer/tasks/trajectory/trajectory_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/json_of.h"
#include "base/json_text.h"
#include "base/settings/nearest_name.h"
#include "base/text.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using namespace std::string_view_literals;

constexpr std::size_t kShownBytesMax = 80;

enum class Member {
  kTask,
  kWorker,
  kSequence,
  kGroup,
  kModelDigest,
  kTokens,
  kResponseMask,
  kLogprobs,
  kReward,
  kTokenizerDigest,
  kTurns,
  kVersionRuns,
  kOldestVersion,
  kMetadata,
  kSuccess,
};
constexpr std::array kMembers{"task"sv,   "worker"sv,        "sequence"sv,       "group"sv,    "model_digest"sv,
                              "tokens"sv, "response_mask"sv, "logprobs"sv,       "reward"sv,   "tokenizer_digest"sv,
                              "turns"sv,  "version_runs"sv,  "oldest_version"sv, "metadata"sv, "success"sv};
constexpr std::array kOptional{Member::kLogprobs, Member::kTurns, Member::kMetadata, Member::kSuccess};

Error refuse_rollout(Errc code, std::string why) { return fail(code, Op::kParse, "rollout: " + std::move(why)); }

/// A value that is neither an array nor an object, as the parser tells it.
struct Scalar {
  enum class Kind { kNull, kBoolean, kUnsigned, kNegative, kFloat, kText };
  Kind kind;
  std::uint64_t natural = 0;
  std::int64_t negative = 0;
  double real = 0;
  std::string* text = nullptr;
};

/// Takes one rollout's JSON as events, and makes no tree of it: each value of a tree takes 16 bytes and more, and the
/// text of one may have two.
class Reader final : public nlohmann::json_sax<Json> {
 public:
  explicit Reader(const TrajectoryLimits& limits) : limits_(limits) {}

  /// After the last event.
  [[nodiscard]] std::optional<Error>& error() { return error_; }
  [[nodiscard]] Trajectory& rollout() { return t_; }

  bool null() override { return take({Scalar::Kind::kNull}); }
  bool boolean(bool value) override { return take({Scalar::Kind::kBoolean, value ? 1U : 0U}); }
  bool number_integer(std::int64_t value) override { return take({Scalar::Kind::kNegative, 0, value}); }
  bool number_unsigned(std::uint64_t value) override { return take({Scalar::Kind::kUnsigned, value}); }
  bool number_float(double value, const std::string&) override { return take({Scalar::Kind::kFloat, 0, 0, value}); }
  bool string(std::string& value) override { return take({Scalar::Kind::kText, 0, 0, 0, &value}); }
  bool binary(Json::binary_t&) override { return false; }

  bool start_object(std::size_t) override {
    if (at_ == At::kStart) return enter(At::kRollout);
    if (at_ == At::kRollout && member_ == Member::kMetadata) return enter(At::kMetadata);
    return wrong_type();
  }
  bool end_object() override {
    if (at_ == At::kMetadata) return enter(At::kRollout);
    for (std::size_t i = 0; i < kMembers.size(); ++i) {
      const bool is_optional = std::ranges::find(kOptional, static_cast<Member>(i)) != kOptional.end();
      if (!seen_[i] && !is_optional) return wrong(kMembers[i], "is missing");
    }
    return enter(At::kEnd);
  }
  bool start_array(std::size_t) override {
    if (at_ == At::kRollout && is_list()) return enter(At::kList);
    if (at_ == At::kList && fields() > 0) {
      field_ = 0;
      const bool has_room = member_ == Member::kTurns ? push(t_.turns, Turn()) : push(t_.version_runs, VersionRun());
      return has_room && enter(At::kTuple);
    }
    return wrong_type();
  }
  bool end_array() override {
    if (at_ == At::kTuple) return field_ == fields() ? enter(At::kList) : wrong_type();
    t_.tokens.shrink_to_fit();
    t_.response_mask.shrink_to_fit();
    t_.logprobs.shrink_to_fit();
    t_.version_runs.shrink_to_fit();
    t_.turns.shrink_to_fit();
    return enter(At::kRollout);
  }
  bool key(std::string& name) override {
    if (at_ == At::kMetadata) {
      name_ = name;
      return count_metadata(name.size());
    }
    const auto found = std::find(kMembers.begin(), kMembers.end(), name);
    if (found == kMembers.end()) {
      return refuse(Errc::kInvalidArgument, unknown_name("member", cut_text(name, kShownBytesMax), kMembers));
    }
    member_ = static_cast<Member>(found - kMembers.begin());
    if (std::exchange(seen_[static_cast<std::size_t>(member_)], true)) return wrong(*found, "is given twice");
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  enum class At { kStart, kRollout, kList, kTuple, kMetadata, kEnd };

  bool enter(At at) {
    at_ = at;
    return true;
  }
  bool refuse(Errc code, std::string why) {
    error_ = refuse_rollout(code, std::move(why));
    return false;
  }
  bool wrong(std::string_view member, std::string_view why) {
    return refuse(Errc::kInvalidArgument, fmt::format("'{}' {}", member, why));
  }
  bool wrong(std::string_view why) { return wrong(kMembers[static_cast<std::size_t>(member_)], why); }

  [[nodiscard]] bool is_list() const {
    return member_ == Member::kTokens || member_ == Member::kResponseMask || member_ == Member::kLogprobs ||
           fields() > 0;
  }
  /// Of each entry of a list that has arrays for entries.
  [[nodiscard]] std::size_t fields() const {
    return member_ == Member::kVersionRuns ? 2 : member_ == Member::kTurns ? 3 : 0;
  }

  /// What is wanted at this place, and is not there.
  bool wrong_type() {
    if (at_ == At::kStart) return refuse(Errc::kInvalidArgument, "no JSON object");
    if (member_ == Member::kMetadata) return wrong(at_ == At::kRollout ? "is no object" : "is no text");
    if (is_list() && at_ == At::kRollout) return wrong("is no array");
    switch (member_) {
      case Member::kVersionRuns: return wrong("holds something that is not [version, tokens]");
      case Member::kTurns: return wrong("holds something that is not [begin, end, reward]");
      case Member::kLogprobs:
      case Member::kReward: return wrong("holds something that is no number");
      case Member::kTokens:
      case Member::kResponseMask:
      case Member::kSequence:
      case Member::kOldestVersion: return wrong("holds something that is no integer");
      case Member::kSuccess: return wrong("is neither true nor false");
      default: return wrong("is no text");
    }
  }

  bool take(const Scalar& value) {
    switch (at_) {
      case At::kRollout: return take_member(value);
      case At::kList: return take_entry(value);
      case At::kTuple: return take_field(value);
      case At::kMetadata:
        if (value.kind != Scalar::Kind::kText) return wrong_type();
        if (!count_metadata(value.text->size())) return false;
        t_.metadata[name_] = std::move(*value.text);
        return true;
      default: return wrong_type();
    }
  }

  bool take_member(const Scalar& value) {
    switch (member_) {
      case Member::kTask: return text(value, t_.task);
      case Member::kWorker: return text(value, t_.worker);
      case Member::kGroup: return text(value, t_.group);
      case Member::kModelDigest: return text(value, t_.model_digest);
      case Member::kTokenizerDigest: return text(value, t_.tokenizer_digest);
      case Member::kSequence: return integer(value, t_.sequence);
      case Member::kOldestVersion: return integer(value, t_.oldest_version.value);
      case Member::kReward: return real(value, t_.reward);
      case Member::kSuccess:
        if (value.kind == Scalar::Kind::kNull) return true;  // as absent, it says nothing
        if (value.kind != Scalar::Kind::kBoolean) return wrong_type();
        t_.success = value.natural != 0;
        return true;
      default: return wrong_type();
    }
  }

  bool take_entry(const Scalar& value) {
    switch (member_) {
      case Member::kTokens: return push(t_.tokens, 0) && integer(value, t_.tokens.back());
      case Member::kResponseMask:
        return push(t_.response_mask, std::uint8_t{0}) && integer(value, t_.response_mask.back());
      case Member::kLogprobs: return push(t_.logprobs, 0.0F) && real(value, t_.logprobs.back());
      default: return wrong_type();
    }
  }

  bool take_field(const Scalar& value) {
    if (member_ == Member::kVersionRuns) {
      VersionRun& run = t_.version_runs.back();
      switch (field_++) {
        case 0: return integer(value, run.version.value);
        case 1: return integer(value, run.tokens);
        default: return wrong_type();
      }
    }
    Turn& turn = t_.turns.back();
    switch (field_++) {
      case 0: return integer(value, turn.begin);
      case 1: return integer(value, turn.end);
      case 2: return real(value, turn.reward);
      default: return wrong_type();
    }
  }

  bool text(const Scalar& value, std::string& out) {
    if (value.kind != Scalar::Kind::kText) return wrong_type();
    if (value.text->size() > limits_.metadata_bytes_max) {
      return refuse(Errc::kTooLarge,
                    fmt::format("'{}' takes more than {} bytes", kMembers[static_cast<std::size_t>(member_)],
                                limits_.metadata_bytes_max));
    }
    out = std::move(*value.text);
    return true;
  }

  template <typename Int>
  bool integer(const Scalar& value, Int& out) {
    if (value.kind == Scalar::Kind::kUnsigned) {
      if (value.natural > static_cast<std::uint64_t>(std::numeric_limits<Int>::max())) {
        return wrong(fmt::format("holds {}, which is out of range", value.natural));
      }
      out = static_cast<Int>(value.natural);
      return true;
    }
    if (value.kind != Scalar::Kind::kNegative) return wrong_type();
    if (!std::is_signed_v<Int> || value.negative < static_cast<std::int64_t>(std::numeric_limits<Int>::min())) {
      return wrong(fmt::format("holds {}, which is out of range", value.negative));
    }
    out = static_cast<Int>(value.negative);
    return true;
  }

  /// Null stands for not a number: JSON cannot say it, and check_trajectory() refuses it by name.
  template <typename Float>
  bool real(const Scalar& value, Float& out) {
    switch (value.kind) {
      case Scalar::Kind::kNull: out = std::numeric_limits<Float>::quiet_NaN(); return true;
      case Scalar::Kind::kUnsigned: out = static_cast<Float>(value.natural); return true;
      case Scalar::Kind::kNegative: out = static_cast<Float>(value.negative); return true;
      case Scalar::Kind::kFloat: out = static_cast<Float>(value.real); return true;
      default: return wrong_type();
    }
  }

  template <typename T>
  bool push(std::vector<T>& out, T value) {
    if (out.size() >= limits_.tokens_max) {
      return refuse(Errc::kTooLarge, fmt::format("'{}' has more than {} values",
                                                 kMembers[static_cast<std::size_t>(member_)], limits_.tokens_max));
    }
    out.push_back(value);
    return true;
  }

  bool count_metadata(std::size_t bytes) {
    metadata_bytes_ += bytes;
    if (metadata_bytes_ <= limits_.metadata_bytes_max) return true;
    return refuse(Errc::kTooLarge, fmt::format("'metadata' takes more than {} bytes", limits_.metadata_bytes_max));
  }

  const TrajectoryLimits& limits_;
  Trajectory t_;
  std::optional<Error> error_;
  At at_ = At::kStart;
  Member member_ = Member::kTask;
  std::array<bool, kMembers.size()> seen_{};
  std::size_t field_ = 0;  // of a list's entry
  std::string name_;       // in metadata
  std::uint64_t metadata_bytes_ = 0;
};

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

Result<Trajectory> read_trajectory(std::string_view line, const TrajectoryLimits& limits) {
  Reader reader(limits);
  if (Json::sax_parse(line, &reader)) return std::move(reader.rollout());
  if (reader.error()) return std::move(*reader.error());
  return refuse_rollout(Errc::kInvalidArgument, "no JSON object: " + printable(cut_text(line, kShownBytesMax)));
}

Result<Trajectory> read_trajectory_object(const Json& json) { return read_trajectory(json_text(json)); }

std::string write_trajectory(const Trajectory& t) {
  Json logprobs = Json::array(), runs = Json::array(), turns = Json::array();
  for (const float logprob : t.logprobs) logprobs.push_back(number(static_cast<double>(logprob)));
  for (const VersionRun& run : t.version_runs) runs.push_back({run.version.value, run.tokens});
  for (const Turn& turn : t.turns) turns.push_back({turn.begin, turn.end, number(turn.reward)});
  Json json = merged(WC_JSON_OF(t.task, t.worker, t.sequence, t.group, t.model_digest, t.tokenizer_digest, t.tokens,
                                t.response_mask, t.metadata),
                     {{"logprobs", std::move(logprobs)},
                      {"version_runs", std::move(runs)},
                      {"oldest_version", t.oldest_version.value},
                      {"reward", number(t.reward)},
                      {"turns", std::move(turns)}});
  if (t.success) json["success"] = *t.success;
  return json_text(json);
}

}  // namespace weightcast
