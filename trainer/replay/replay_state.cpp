// ReplayBuffer::save() and restore(): the buffer as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/json_of.h"
#include "base/json_text.h"
#include "base/text.h"
#include "trainer/replay/replay_buffer.h"
#include "trainer/tasks/trajectory/trajectory_json.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kShownBytesMax = 64;

Json to_json(const RolloutGroup& group, Instant now) {
  Json rollouts = Json::array();
  for (const Trajectory& rollout : group.rollouts) rollouts.push_back(Json::parse(write_trajectory(rollout)));
  Json json = {{"tag", group.tag},
               {"rollouts", std::move(rollouts)},
               {"oldest", group.oldest.value},
               {"number", group.number},
               {"bytes", group.bytes},
               {"age_ns", (now - group.first_arrival).count()}};
  return json;
}

/// What restore() refuses for its value, as the JSON library throws for what is missing or of another type.
struct Wrong {
  std::string why;
};

constexpr Duration kAgeMax = std::chrono::hours(24 * 365 * 10);

std::uint64_t number_from(const Json& json) {
  if (const auto number = natural_of(json, kNaturalMax)) return *number;
  throw Wrong{fmt::format("{} stands where a whole number is due", cut_text(json_text(json), kShownBytesMax))};
}
std::uint64_t number_at(const Json& json, const char* name) { return number_from(json.at(name)); }

/// The time of something so long ago.
Instant time_from(const Json& json, Instant now) {
  if (!json.is_number_integer()) throw Wrong{"an age is no whole number"};
  const Duration age(json.is_number_unsigned()
                         ? static_cast<std::int64_t>(std::min(json.get<std::uint64_t>(), kNaturalMax))
                         : json.get<std::int64_t>());
  return now - std::clamp(age, Duration(0), kAgeMax);
}

Result<RolloutGroup> group_from(const Json& json, Instant now) {
  RolloutGroup group;
  group.tag = json.at("tag").get<std::string>();
  group.oldest = Version{number_at(json, "oldest")};
  group.number = number_at(json, "number");
  group.first_arrival = time_from(json.at("age_ns"), now);
  for (const Json& rollout : json.at("rollouts")) {
    WC_ASSIGN(Trajectory trajectory, read_trajectory_object(rollout));
    group.rollouts.push_back(std::move(trajectory));
  }
  return group;
}

Json to_json(const ReplayStats& stats) {
  return WC_JSON_OF(stats.admitted, stats.taken, stats.expired, stats.given_up, stats.filtered, stats.duplicates,
                    stats.full, stats.aborted, stats.lost, stats.refused);
}

ReplayStats stats_from(const Json& json) {
  const auto count = [&](const char* name) { return number_at(json, name); };
  ReplayStats stats{count("admitted"),   count("taken"), count("expired"), count("given_up"), count("filtered"),
                    count("duplicates"), count("full"),  count("aborted"), count("lost"),     {}};
  for (const auto& [reason, refused] : json.at("refused").items()) stats.refused[reason] = number_from(refused);
  return stats;
}

}  // namespace

std::string ReplayBuffer::save(Instant now) const {
  Json open = Json::array(), complete = Json::array(), closed = Json::array();
  Json published = Json::array(), renumbered = Json::array();
  for (const auto& [tag, group] : open_) open.push_back(to_json(group, now));
  for (const RolloutGroup& group : complete_) complete.push_back(to_json(group, now));
  for (const std::string& tag : closed_order_) closed.push_back({tag, closed_.at(tag).value});
  // A learner that goes on from here knows no leases: their groups are made again.
  std::set<std::uint64_t> again = again_;
  for (const auto& [key, lease] : leases_.all()) {
    if (lease.state != Lease::State::kLapsed) again.insert(lease.group);
  }
  for (const Version version : published_) published.push_back(version.value);
  for (const auto& [named, number] : renumbered_) renumbered.push_back({named.value, number.value});
  return json_text({{"learner", learner_.value},
                    {"published", std::move(published)},
                    {"renumbered", std::move(renumbered)},
                    {"first_own", first_own_.value},
                    {"open", std::move(open)},
                    {"complete", std::move(complete)},
                    {"closed", std::move(closed)},
                    {"next_group", next_group_},
                    {"again", again},
                    {"batches", batches_},
                    {"group_size", options_.group_size},
                    {"stats", to_json(stats_)}});
}

Result<ReplayBuffer> ReplayBuffer::restore(const ReplayOptions& options, const TrajectoryRules& rules,
                                           std::string_view text, Instant now) {
  ReplayBuffer buffer(options, rules);
  // The JSON library throws where a member is missing or of another type; its words name the member.
  try {
    const Json json = parse_json(text);
    if (const std::uint64_t size = number_at(json, "group_size"); size != options.group_size) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("the checkpoint has groups of {} rollouts, and group_size is {}; use group_size {}, or "
                              "another output_dir",
                              size, options.group_size, size));
    }
    buffer.learner_ = Version{number_at(json, "learner")};
    for (const Json& version : json.at("published")) {
      buffer.published_.emplace_back(number_from(version));
      const std::size_t count = buffer.published_.size();
      if (count > 1 && buffer.published_[count - 2] >= buffer.published_.back()) {
        throw Wrong{"the versions published do not ascend"};
      }
    }
    // Absent in older checkpoints.
    for (const Json& pair : json.value("renumbered", Json::array())) {
      buffer.renumbered_.emplace(Version{number_from(pair.at(0))}, Version{number_from(pair.at(1))});
    }
    if (json.contains("first_own")) buffer.first_own_ = Version{number_at(json, "first_own")};
    std::set<std::string> tags;
    const auto read_group = [&](const Json& group) -> Result<RolloutGroup> {
      WC_ASSIGN(RolloutGroup read, group_from(group, now));
      if (!tags.insert(read.tag).second) throw Wrong{fmt::format("group '{}' is there twice", printable(read.tag))};
      return read;
    };
    for (const Json& group : json.at("open")) {
      WC_ASSIGN(RolloutGroup read, read_group(group));
      buffer.open_.emplace(read.tag, std::move(read));
    }
    for (const Json& group : json.at("complete")) {
      WC_ASSIGN(RolloutGroup read, read_group(group));
      buffer.complete_.push_back(std::move(read));
    }
    for (const Json& tag : json.at("closed")) {
      const auto [closed, is_new] = buffer.closed_.emplace(tag.at(0).get<std::string>(), number_from(tag.at(1)));
      if (!is_new) throw Wrong{fmt::format("group '{}' is closed twice", printable(closed->first))};
      buffer.closed_order_.push_back(closed->first);
    }
    // So are these.
    if (json.contains("next_group")) buffer.next_group_ = number_at(json, "next_group");
    for (const Json& group : json.value("again", Json::array())) buffer.again_.insert(number_from(group));
    buffer.batches_ = number_at(json, "batches");
    buffer.stats_ = stats_from(json.at("stats"));
  } catch (const Json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("replay buffer: {}", error.what()));
  } catch (const Wrong& wrong) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("replay buffer: {}", wrong.why));
  }
  buffer.leases_.handle_resumed();
  buffer.check_restored();
  return buffer;
}

void ReplayBuffer::check_restored() {
  const auto is_sound = [&](const RolloutGroup& group) {
    return !group.rollouts.empty() && group.rollouts.size() <= options_.group_size &&
           std::ranges::all_of(group.rollouts, [&](const Trajectory& t) {
             return t.group == group.tag &&
                    !check_trajectory(t, rules_, [this](Version version) { return standing_of(version); });
           });
  };
  const auto weigh = [&](RolloutGroup& group) {
    group.bytes = 0;
    for (const Trajectory& t : group.rollouts) group.bytes += t.size_bytes();
    buffered_ += group.rollouts.size();
    buffered_bytes_ += group.bytes;
  };
  for (auto& [tag, group] : open_) weigh(group);
  for (RolloutGroup& group : complete_) weigh(group);
  const auto is_dropped = [&](const RolloutGroup& group, bool is_expected) {
    if (is_expected && is_sound(group)) return false;
    close(group.tag);
    release(group, stats_.given_up);
    return true;
  };
  std::erase_if(open_, [&](const auto& open) {
    if (!options_.leased_only) return is_dropped(open.second, true);
    // Whoever makes the group again brings all of it.
    release(open.second, stats_.given_up);
    return true;
  });
  std::erase_if(complete_, [&](const RolloutGroup& group) {
    return is_dropped(group, group.rollouts.size() == options_.group_size);
  });
}

}  // namespace weightcast
