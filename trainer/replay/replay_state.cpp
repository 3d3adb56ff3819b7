// ReplayBuffer::save() and restore(): the buffer as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "tasks/trajectory_json.h"
#include "trainer/replay/replay_buffer.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

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

Result<RolloutGroup> group_from(const Json& json, Instant now) {
  RolloutGroup group;
  group.tag = json.at("tag").get<std::string>();
  group.oldest = Version{json.at("oldest").get<std::uint64_t>()};
  group.number = json.at("number").get<std::uint64_t>();
  group.bytes = json.at("bytes").get<std::uint64_t>();
  group.first_arrival = now - Duration(json.at("age_ns").get<std::int64_t>());
  for (const Json& rollout : json.at("rollouts")) {
    WC_ASSIGN(Trajectory trajectory, read_trajectory_object(rollout));
    group.rollouts.push_back(std::move(trajectory));
  }
  return group;
}

constexpr std::array kStates{"expected", "overdue", "lapsed"};  // in the order of Lease::State

Json to_json(const LeaseTable::Key& key, const Lease& lease, Instant now) {
  Json settled = Json::array();
  for (std::uint64_t i = 0; i < lease.size; ++i) {
    if (lease.settled[i]) settled.push_back(i);
  }
  return {{"worker", key.first},
          {"group", lease.group},
          {"first", lease.first},
          {"size", lease.size},
          {"version", lease.version.value},
          {"age_ns", (now - lease.granted).count()},
          {"state", kStates[static_cast<std::size_t>(lease.state)]},
          {"tag", lease.tag},
          {"settled", std::move(settled)},
          {"abandoned", lease.abandoned}};
}

Result<Lease> lease_from(const Json& json, const ReplayOptions& options, Instant now) {
  Lease lease{.group = json.at("group").get<std::uint64_t>(),
              .first = json.at("first").get<std::uint64_t>(),
              .size = json.at("size").get<std::uint64_t>(),
              .version = Version{json.at("version").get<std::uint64_t>()},
              .granted = now - Duration(json.at("age_ns").get<std::int64_t>()),
              .tag = json.at("tag").get<std::string>(),
              .abandoned = json.at("abandoned").get<std::uint64_t>()};
  const auto corrupt = [](std::string_view what) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("replay buffer: a lease's {} is none", what));
  };
  if (lease.size == 0 || lease.size > options.group_size + options.group_size_redundancy) return corrupt("size");
  const auto state = std::ranges::find(kStates, json.at("state").get<std::string>());
  if (state == kStates.end()) return corrupt("state");
  // Nobody counts on it before its worker says that it goes on.
  lease.state = Lease::State::kLapsed;
  lease.is_from_before = true;
  lease.settled.resize(lease.size);
  for (const Json& one : json.at("settled")) {
    const auto i = one.get<std::uint64_t>();
    if (i >= lease.size) return corrupt("rollout");
    lease.settled[i] = true;
  }
  return lease;
}

Json to_json(const ReplayStats& stats) {
  return {{"admitted", stats.admitted}, {"taken", stats.taken},       {"expired", stats.expired},
          {"given_up", stats.given_up}, {"filtered", stats.filtered}, {"duplicates", stats.duplicates},
          {"full", stats.full},         {"aborted", stats.aborted},   {"lost", stats.lost},
          {"refused", stats.refused}};
}

ReplayStats stats_from(const Json& json) {
  const auto count = [&](const char* name) { return json.at(name).get<std::uint64_t>(); };
  ReplayStats stats{count("admitted"),   count("taken"), count("expired"), count("given_up"), count("filtered"),
                    count("duplicates"), count("full"),  count("aborted"), count("lost"),     {}};
  for (const auto& [reason, refused] : json.at("refused").items()) stats.refused[reason] = refused;
  return stats;
}

}  // namespace

std::string ReplayBuffer::save(Instant now) const {
  Json open = Json::array(), complete = Json::array(), closed = Json::array(), leases = Json::array();
  Json aborts = Json::array(), workers = Json::object(), published = Json::array(), renumbered = Json::array();
  for (const auto& [tag, group] : open_) open.push_back(to_json(group, now));
  for (const RolloutGroup& group : complete_) complete.push_back(to_json(group, now));
  for (const std::string& tag : closed_order_) closed.push_back({tag, closed_.at(tag).value});
  for (const auto& [key, lease] : leases_.all()) leases.push_back(to_json(key, lease, now));
  for (const auto& [worker, sequence] : aborts_) aborts.push_back({worker, sequence});
  for (const Version version : published_) published.push_back(version.value);
  for (const auto& [named, number] : renumbered_) renumbered.push_back({named.value, number.value});
  for (const auto& [name, log] : workers_) {
    const SequenceSet::State seen = log.sequences.state();
    Json ranges = Json::array();
    for (const auto& [first, last] : seen.ranges) ranges.push_back({first, last});
    workers[name] = {{"newest", log.newest.value},
                     {"ranges", std::move(ranges)},
                     {"forgot", seen.forgot},
                     {"forgotten_to", seen.forgotten_to}};
  }
  return json_text({{"learner", learner_.value},
                    {"published", std::move(published)},
                    {"renumbered", std::move(renumbered)},
                    {"first_own", first_own_.value},
                    {"open", std::move(open)},
                    {"complete", std::move(complete)},
                    {"closed", std::move(closed)},
                    {"workers", std::move(workers)},
                    {"leases", std::move(leases)},
                    {"aborts", std::move(aborts)},
                    {"batches", batches_},
                    {"group_size", options_.group_size},
                    {"stats", to_json(stats_)}});
}

Result<ReplayBuffer> ReplayBuffer::restore(const ReplayOptions& options, const TrajectoryRules& rules,
                                           std::string_view text, Instant now) {
  WC_ASSIGN(ReplayBuffer buffer, make(options, rules));
  // The JSON library throws where a member is missing or of another type; its words name the member.
  try {
    const Json json = Json::parse(text);
    if (const auto size = json.at("group_size").get<std::uint64_t>(); size != options.group_size) {
      return fail(Errc::kInvalidArgument, Op::kConfigure,
                  fmt::format("the checkpoint has groups of {} rollouts, and group_size is {}; use group_size {}, or "
                              "another output_dir",
                              size, options.group_size, size));
    }
    buffer.learner_ = Version{json.at("learner").get<std::uint64_t>()};
    for (const Json& version : json.at("published")) buffer.published_.emplace_back(version.get<std::uint64_t>());
    // Absent in older checkpoints, as a lease is.
    for (const Json& pair : json.value("renumbered", Json::array())) {
      buffer.renumbered_.emplace(Version{pair.at(0).get<std::uint64_t>()}, Version{pair.at(1).get<std::uint64_t>()});
    }
    buffer.first_own_ = Version{json.value("first_own", std::uint64_t{0})};
    for (const Json& group : json.at("open")) {
      WC_ASSIGN(RolloutGroup read, group_from(group, now));
      buffer.open_.emplace(read.tag, std::move(read));
    }
    for (const Json& group : json.at("complete")) {
      WC_ASSIGN(RolloutGroup read, group_from(group, now));
      buffer.complete_.push_back(std::move(read));
    }
    for (const Json& tag : json.at("closed")) {
      buffer.closed_.emplace(tag.at(0).get<std::string>(), tag.at(1).get<std::uint64_t>());
      buffer.closed_order_.push_back(tag.at(0));
    }
    for (const auto& [name, log] : json.at("workers").items()) {
      SequenceSet::State seen;
      for (const Json& range : log.at("ranges")) seen.ranges.emplace(range.at(0), range.at(1));
      seen.forgot = log.at("forgot");
      seen.forgotten_to = log.at("forgotten_to");
      WorkerLog worker{SequenceSet(options.gaps_per_worker_max), Version{log.at("newest").get<std::uint64_t>()}};
      worker.sequences.restore(std::move(seen));
      buffer.workers_.emplace(name, std::move(worker));
    }
    // What an older learner had started comes as that of a worker without a lease.
    for (const Json& one : json.value("leases", Json::array())) {
      WC_ASSIGN(Lease lease, lease_from(one, options, now));
      buffer.leases_.add(one.at("worker").get<std::string>(), std::move(lease));
    }
    for (const Json& id : json.at("aborts")) buffer.aborts_.emplace_back(id.at(0), id.at(1));
    buffer.batches_ = json.at("batches");
    buffer.stats_ = stats_from(json.at("stats"));
  } catch (const Json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("replay buffer: {}", error.what()));
  }
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
    const RolloutGroup& group = open.second;
    // Without a lease nobody can complete the group.
    const bool is_leased = !options_.leased_only || group.rollouts.empty() ||
                           leases_.find(group.rollouts.front().worker, group.rollouts.front().sequence) != nullptr;
    return is_dropped(group, is_leased);
  });
  std::erase_if(complete_, [&](const RolloutGroup& group) {
    return is_dropped(group, group.rollouts.size() == options_.group_size);
  });
}

}  // namespace weightcast
