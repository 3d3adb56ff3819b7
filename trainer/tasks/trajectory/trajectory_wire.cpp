#include "trainer/tasks/trajectory/trajectory_wire.h"

#include <fmt/format.h>

#include <protozero/pbf_reader.hpp>
#include <utility>

#include "proto/rollout.pb.h"

namespace weightcast {
namespace {

// Tags of Batch's members, both of wire type 2.
constexpr char kRunTag = 1 << 3 | 2;
constexpr char kRolloutTag = 2 << 3 | 2;

void append_member(std::string& out, char tag, std::string_view bytes) {
  out += tag;
  std::size_t size = bytes.size();
  for (; size >= 0x80; size >>= 7) out += static_cast<char>(size | 0x80);
  out += static_cast<char>(size);
  out += bytes;
}

using protozero::pbf_reader;
using protozero::pbf_wire_type;

/// Thrown within this file alone, as protozero's own exceptions are.
struct TooLarge {
  std::string why;
};

/// Fields of another type than the message's are no fields of it, as Protobuf has it.
bool is(const pbf_reader& in, pbf_wire_type type) { return in.has_wire_type(type); }

void take(pbf_reader& in, std::uint64_t& out) {
  if (is(in, pbf_wire_type::varint)) {
    out = in.get_uint64();
  } else {
    in.skip();
  }
}

void take(pbf_reader& in, double& out) {
  if (is(in, pbf_wire_type::fixed64)) {
    out = in.get_double();
  } else {
    in.skip();
  }
}

VersionRun version_run_of(pbf_reader in) {
  VersionRun run;
  while (in.next()) {
    switch (in.tag()) {
      case 1: take(in, run.version.value); break;
      case 2: take(in, run.tokens); break;
      default: in.skip();
    }
  }
  return run;
}

Turn turn_of(pbf_reader in) {
  Turn turn;
  while (in.next()) {
    switch (in.tag()) {
      case 1: take(in, turn.begin); break;
      case 2: take(in, turn.end); break;
      case 3: take(in, turn.reward); break;
      default: in.skip();
    }
  }
  return turn;
}

/// Reads one rollout into vectors that never hold more than the limits. Not by Protobuf's own parser: that makes 40
/// bytes of the two that an empty message takes, before anybody can count.
class Reader {
 public:
  Reader(std::string_view bytes, const TrajectoryLimits& limits) : in_(bytes.data(), bytes.size()), limits_(limits) {}

  Trajectory read() {
    while (in_.next()) read_field();
    return std::move(t_);
  }

 private:
  void read_field() {
    switch (in_.tag()) {
      case 1: return text(t_.task, "task");
      case 2: return text(t_.worker, "worker");
      case 3: return take(in_, t_.sequence);
      case 4: return text(t_.group, "group");
      case 5: return text(t_.model_digest, "model_digest");
      case 6: return text(t_.tokenizer_digest, "tokenizer_digest");
      case 7:
        if (is(in_, pbf_wire_type::length_delimited)) return append(in_.get_packed_int32(), t_.tokens, "tokens");
        if (is(in_, pbf_wire_type::varint)) return push(in_.get_int32(), t_.tokens, "tokens");
        break;
      case 8:
        if (is(in_, pbf_wire_type::length_delimited)) {
          const protozero::data_view mask = in_.get_view();
          check_count(mask.size(), "response_mask");
          t_.response_mask.assign(mask.data(), mask.data() + mask.size());
          return;
        }
        break;
      case 9:
        if (is(in_, pbf_wire_type::length_delimited)) return append(in_.get_packed_float(), t_.logprobs, "logprobs");
        if (is(in_, pbf_wire_type::fixed32)) return push(in_.get_float(), t_.logprobs, "logprobs");
        break;
      case 10:
        if (!is(in_, pbf_wire_type::length_delimited)) break;
        return push(version_run_of(in_.get_message()), t_.version_runs, "version_runs");
      case 11: return take(in_, t_.oldest_version.value);
      case 12: return take(in_, t_.reward);
      case 13:
        if (!is(in_, pbf_wire_type::length_delimited)) break;
        return push(turn_of(in_.get_message()), t_.turns, "turns");
      case 14:
        if (!is(in_, pbf_wire_type::length_delimited)) break;
        return read_metadata(in_.get_message());
      case 15:
        if (!is(in_, pbf_wire_type::varint)) break;
        t_.success = in_.get_bool();
        return;
      default: break;
    }
    in_.skip();
  }

  static std::string string_of(protozero::data_view bytes) { return {bytes.data(), bytes.size()}; }

  void text(std::string& out, std::string_view member) {
    if (!is(in_, pbf_wire_type::length_delimited)) return in_.skip();
    const protozero::data_view bytes = in_.get_view();
    check_bytes(bytes.size(), member);
    out = string_of(bytes);
  }

  void read_metadata(pbf_reader in) {
    std::string name, value;
    while (in.next()) {
      const auto tag = in.tag();  // a value that was read takes it along, where protozero checks its callers
      if ((tag != 1 && tag != 2) || !is(in, pbf_wire_type::length_delimited)) {
        in.skip();
        continue;
      }
      const protozero::data_view bytes = in.get_view();
      metadata_bytes_ += bytes.size();
      check_bytes(metadata_bytes_, "metadata");
      (tag == 1 ? name : value) = string_of(bytes);
    }
    t_.metadata[std::move(name)] = std::move(value);
  }

  void check_bytes(std::uint64_t bytes, std::string_view member) const {
    if (bytes <= limits_.metadata_bytes_max) return;
    throw TooLarge{fmt::format("'{}' takes more than {} bytes", member, limits_.metadata_bytes_max)};
  }
  void check_count(std::uint64_t count, std::string_view member) const {
    if (count <= limits_.tokens_max) return;
    throw TooLarge{fmt::format("'{}' has more than {} values", member, limits_.tokens_max)};
  }

  template <typename T>
  void push(T value, std::vector<T>& out, std::string_view member) {
    check_count(out.size() + 1, member);
    out.push_back(value);
  }
  template <typename Range, typename T>
  void append(const Range& range, std::vector<T>& out, std::string_view member) {
    const auto count = static_cast<std::size_t>(range.size());
    check_count(out.size() + count, member);
    // Of one part, which is usual, exactly what it takes. Of a million parts not a million times.
    if (out.empty()) out.reserve(count);
    for (const T value : range) out.push_back(value);
  }

  pbf_reader in_;
  const TrajectoryLimits& limits_;
  Trajectory t_;
  std::uint64_t metadata_bytes_ = 0;
};

/// What `read` returns, or the error that it threw.
template <typename Read>
auto read_message(std::string_view what, const Read& read) -> Result<decltype(read())> {
  try {
    return read();
  } catch (const TooLarge& error) {
    return fail(Errc::kTooLarge, Op::kParse, fmt::format("{}: {}", what, error.why));
  } catch (const protozero::exception&) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("{}: no such message of proto/rollout.proto", what));
  }
}

}  // namespace

std::string encode_trajectory(const Trajectory& t) {
  rollout::Trajectory message;
  message.set_task(t.task);
  message.set_worker(t.worker);
  message.set_sequence(t.sequence);
  message.set_group(t.group);
  message.set_model_digest(t.model_digest);
  message.set_tokenizer_digest(t.tokenizer_digest);
  message.mutable_tokens()->Add(t.tokens.begin(), t.tokens.end());
  message.set_response_mask(t.response_mask.data(), t.response_mask.size());
  message.mutable_logprobs()->Add(t.logprobs.begin(), t.logprobs.end());
  for (const VersionRun& run : t.version_runs) {
    rollout::VersionRun& added = *message.add_version_runs();
    added.set_version(run.version.value);
    added.set_tokens(run.tokens);
  }
  message.set_oldest_version(t.oldest_version.value);
  message.set_reward(t.reward);
  if (t.success) message.set_success(*t.success);
  for (const Turn& turn : t.turns) {
    rollout::Turn& added = *message.add_turns();
    added.set_begin(turn.begin);
    added.set_end(turn.end);
    added.set_reward(turn.reward);
  }
  for (const auto& [name, value] : t.metadata) {
    rollout::Metadata& added = *message.add_metadata();
    added.set_name(name);
    added.set_value(value);
  }
  return message.SerializeAsString();
}

Result<Trajectory> decode_trajectory(std::string_view bytes, const TrajectoryLimits& limits) {
  return read_message("a rollout", [&] { return Reader(bytes, limits).read(); });
}

std::string encode_batch(std::string_view run, std::span<const std::string> rollouts) {
  std::string bytes;
  append_member(bytes, kRunTag, run);
  for (const std::string& one : rollouts) append_member(bytes, kRolloutTag, one);
  return bytes;
}

Result<RolloutBatch> split_batch(std::string_view bytes) {
  return read_message("a batch of rollouts", [&] {
    RolloutBatch batch;
    pbf_reader in(bytes.data(), bytes.size());
    while (in.next()) {
      const auto tag = in.tag();
      if ((tag != 1 && tag != 2) || !is(in, pbf_wire_type::length_delimited)) {
        in.skip();
        continue;
      }
      const protozero::data_view member = in.get_view();
      if (tag == 1) {
        if (member.size() > kRunIdBytesMax)
          throw TooLarge{fmt::format("'run' takes more than {} bytes", kRunIdBytesMax)};
        batch.run.assign(member.data(), member.size());
      } else if (batch.rollouts.size() == kBatchRolloutsMax) {
        throw TooLarge{fmt::format("more than {} rollouts in one body", kBatchRolloutsMax)};
      } else {
        batch.rollouts.emplace_back(member.data(), member.size());
      }
    }
    return batch;
  });
}

}  // namespace weightcast
