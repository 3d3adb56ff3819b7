#include "worker/learner/learner_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "base/entropy.h"
#include "base/json_text.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/tasks/trajectory/trajectory_wire.h"
#include "transport/http/client.h"
#include "transport/security/node_keys.h"
#include "worker/learner/outbox.h"
#include "worker/learner/spool.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Bytes per second of the slowest link that a batch is given time for.
constexpr double kSlowLink = 64 * 1024;
constexpr std::size_t kBatchCountMax = 64;
constexpr std::uint64_t kBatchBytesMax = 4 * kMiB;
constexpr Duration kBackoffMin = milliseconds(100);
constexpr Duration kBackoffMax = std::chrono::seconds(5);
constexpr std::size_t kAbandonedMax = 40'000;  // of 20 digits: the learner reads 1 MiB of a call
constexpr std::string_view kVersionUnknown = "version_unknown";

std::string random_hex() { return fmt::format("{:016x}", host_entropy()); }

/// What the learner answers beside what was asked for.
struct Reply {
  std::string run;
  Outbox::Learner learner;
  LearnerState state;
  Json json;
};

template <typename T>
T get(const Json& json, const char* name) {
  return json.at(name).get<T>();
}

Result<Reply> read_reply(Json answer) {
  Reply reply;
  reply.json = std::move(answer);
  try {
    const Json& json = reply.json;
    reply.run = get<std::string>(json, "run");
    reply.learner.life = get<std::string>(json, "life");
    reply.learner.copies_begun = get<std::uint64_t>(json, "copies_begun");
    reply.learner.copies_durable = get<std::uint64_t>(json, "copies_durable");
    reply.learner.version = reply.state.version = Version{get<std::uint64_t>(json, "version")};
    reply.learner.oldest_admissible = reply.state.oldest_admissible =
        Version{get<std::uint64_t>(json, "oldest_admissible")};
    reply.state.ended = get<bool>(json, "ended");
    if (json.contains("active")) reply.state.is_wanted = get<bool>(json, "active");
    if (json.contains("begin_at_least"))
      reply.state.begin_at_least = Version{get<std::uint64_t>(json, "begin_at_least")};
    if (json.contains("abort")) reply.state.abort = get<std::vector<std::uint64_t>>(json, "abort");
  } catch (const Json::exception& error) {
    return fail(Errc::kCorrupt, Op::kReceive, fmt::format("the learner's answer: {}", error.what()));
  }
  return reply;
}

/// Why the learner did not do as asked.
Error refusal_of(const HttpResponse& response) {
  std::string why;
  const Json json = parse_json(response.body);
  if (json.is_object() && json.contains("error") && json["error"].is_object()) {
    const auto message = json["error"].find("message");
    if (message != json["error"].end() && message->is_string()) why = message->get<std::string>();
  }
  const Errc code = response.status == 409                             ? Errc::kWrongBase
                    : response.status == 429 || response.status == 503 ? Errc::kBusy
                    : response.status == 403                           ? Errc::kNotAllowed
                                                                       : Errc::kInvalidArgument;
  return fail(code, Op::kReceive, fmt::format("the learner answers {}: {}", response.status, printable(why)));
}

class Client final : public LearnerClient {
 public:
  Client(Options options, Spool spool)
      : options_(std::move(options)), spool_(std::move(spool)), outbox_(options_.spool_bytes_max) {}
  ~Client() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    if (sender_http_) sender_http_->interrupt();
    if (sender_.joinable()) sender_.join();
  }

  Status set_up() {
    if (!options_.trust.keys.empty()) {
      WC_ASSIGN(const NodeKeys keys, read_node_keys(options_.trust.keys, unix_now_s()));
      options_.name = keys.info.name;
    }
    if (options_.name.empty()) {
      return fail(Errc::kInvalidArgument, Op::kConfigure, "a worker without keys needs a name");
    }
    WC_ASSIGN(calls_http_, HttpClient::make({.server = options_.learner, .trust = options_.trust}));
    WC_ASSIGN(sender_http_, HttpClient::make({.server = options_.learner, .trust = options_.trust}));
    WC_TRY(restore_entries());
    stats_.restored = outbox_.pending();
    sender_ = std::thread([this] { send_all(); });
    return {};
  }

  const std::string& name() const override { return options_.name; }

  Result<RunDescription> run() override {
    WC_ASSIGN(const HttpResponse response, call({.target = "/v1/run"}));
    WC_ASSIGN(RunDescription run, read_run_description(response.body));
    const std::scoped_lock lock(mutex_);
    if (run_.empty()) {
      WC_TRY(begin_run(run.run_id));
    } else if (run_ != run.run_id) {
      return other_run(run.run_id);
    }
    return run;
  }

  Result<std::string> model_file(const std::string& name) override {
    WC_ASSIGN(HttpResponse response, call({.target = "/v1/model/" + name}));
    return std::move(response.body);
  }

  Result<std::string> task_data() override {
    WC_ASSIGN(HttpResponse response, call({.target = "/v1/task_data"}));
    return std::move(response.body);
  }

  Result<StartedGroups> start(std::uint64_t groups, std::uint64_t rollouts_per_group) override {
    const std::scoped_lock asking(start_mutex_);
    const std::uint64_t count = groups * rollouts_per_group;
    if (groups == 0 || rollouts_per_group == 0 || count / groups != rollouts_per_group || count > 1'000'000) {
      return fail(Errc::kInvalidArgument, Op::kSend,
                  fmt::format("{} groups of {} rollouts", groups, rollouts_per_group));
    }
    // Numbers of an earlier call that were not granted are asked for again.
    if (numbers_to_ - numbers_from_ < count) {
      const std::scoped_lock lock(mutex_);
      // An answer that was lost may have granted these. The learner is to know that nobody generates them.
      for (std::uint64_t number = numbers_from_; number < numbers_to_; ++number) abandoned_.push_back(number);
      WC_ASSIGN(numbers_from_, spool_.take_numbers(count));
      numbers_to_ = numbers_from_ + count;
    }
    Json body = about_worker();
    body["groups"] = groups;
    body["rollouts_per_group"] = rollouts_per_group;
    body["first_sequence"] = numbers_from_;
    WC_ASSIGN(const Reply reply, ask("/v1/starts", std::move(body)));
    StartedGroups started;
    started.learner = reply.state;
    try {
      started.retry = milliseconds(std::clamp<std::int64_t>(get<std::int64_t>(reply.json, "retry_ms"), 1, 60'000));
      std::vector<std::uint64_t> least_versions;
      if (reply.json.contains("groups_begin_at_least")) {
        least_versions = get<std::vector<std::uint64_t>>(reply.json, "groups_begin_at_least");
      }
      for (const std::uint64_t number : get<std::vector<std::uint64_t>>(reply.json, "groups")) {
        if (started.groups.size() == groups) break;
        // An older learner does not say.
        const std::size_t place = started.groups.size();
        const Version least{place < least_versions.size() ? least_versions[place] : 0};
        started.groups.push_back({number, numbers_from_, least});
        {
          const std::scoped_lock lock(mutex_);
          for (std::uint64_t i = 0; i < rollouts_per_group; ++i) held_[numbers_from_].insert(numbers_from_ + i);
        }
        numbers_from_ += rollouts_per_group;
      }
    } catch (const Json::exception& error) {
      return fail(Errc::kCorrupt, Op::kReceive, fmt::format("the learner's answer: {}", error.what()));
    }
    return started;
  }

  void abandon(const std::vector<std::uint64_t>& sequences) override {
    const std::scoped_lock lock(mutex_);
    for (const std::uint64_t sequence : sequences) release(sequence);
    abandoned_.insert(abandoned_.end(), sequences.begin(), sequences.end());
    // Beyond that the learner forgets them by itself, as their time is over.
    if (abandoned_.size() > kAbandonedMax) {
      abandoned_.erase(abandoned_.begin(), abandoned_.end() - static_cast<std::ptrdiff_t>(kAbandonedMax));
    }
  }

  Result<LearnerState> heartbeat(const WorkerHeartbeat& said) override {
    Json body = about_worker();
    body["version"] = said.weights.value;
    body["active"] = said.is_active;
    body["rollouts_per_s"] = said.rollouts_per_s;
    body["tokens_per_s"] = said.tokens_per_s;
    body["full_load_s"] = said.full_load_s;
    body["under_way"] = said.under_way;
    body["price_per_hour"] = said.price_per_hour;
    body["promised_rollouts_per_s"] = said.promised_rollouts_per_s;
    WC_ASSIGN(Reply reply, ask("/v1/heartbeats", body));
    if (!must_tell_held()) return std::move(reply.state);
    // At once: others wait until it knows.
    WC_ASSIGN(Reply second, ask("/v1/heartbeats", std::move(body)));
    second.state.abort.insert(second.state.abort.end(), reply.state.abort.begin(), reply.state.abort.end());
    return std::move(second.state);
  }

  Status send(Trajectory trajectory) override {
    trajectory.worker = options_.name;
    const std::string bytes = encode_trajectory(trajectory);
    {
      const std::scoped_lock lock(mutex_);
      if (run_.empty()) return fail(Errc::kInvalidArgument, Op::kSend, "run() has not said yet which run this is");
      const bool fits = outbox_.make_room(bytes.size());
      WC_TRY(delete_removed());
      if (!fits) {
        return fail(Errc::kNoSpace, Op::kSend,
                    fmt::format("{}: {} rollouts wait for the learner, and take {} bytes of {}",
                                printable(options_.spool.native()), outbox_.pending(), outbox_.bytes(),
                                options_.spool_bytes_max));
      }
      WC_ASSIGN(const Spool::Id id, spool_.add(bytes));
      outbox_.add(id, entry_of(trajectory, bytes.size()));
      release(trajectory.sequence);
      ++stats_.spooled;
    }
    changed_.notify_all();
    return {};
  }

  bool drain(Duration limit) override {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return outbox_.pending() == 0; });
  }

  LearnerClientStats stats() const override {
    const std::scoped_lock lock(mutex_);
    LearnerClientStats stats = stats_;
    stats.dropped = outbox_.dropped();
    stats.pending = outbox_.pending();
    stats.kept = outbox_.kept();
    stats.spool_bytes = outbox_.bytes();
    return stats;
  }

 private:
  static Outbox::Entry entry_of(const Trajectory& trajectory, std::uint64_t bytes) {
    Outbox::Entry entry{trajectory.sequence, trajectory.oldest_version, trajectory.oldest_version, bytes};
    for (const VersionRun& run : trajectory.version_runs) entry.newest = std::max(entry.newest, run.version);
    return entry;
  }

  Status restore_entries() {
    run_ = spool_.run();
    for (const Spool::Id id : spool_.records()) {
      WC_ASSIGN(const std::string bytes, spool_.read(id));
      const Result<Trajectory> trajectory = decode_trajectory(bytes);
      if (trajectory.has_value()) {
        outbox_.add(id, entry_of(*trajectory, bytes.size()));
      } else {
        WC_TRY(spool_.remove(id));
      }
    }
    // Which run the learner is at decides whether they count; until then they are sent under their own.
    spooled_run_ = std::exchange(run_, "");
    return {};
  }

  // The caller of what follows has the mutex.

  Status begin_run(const std::string& run) {
    if (run != spooled_run_) {
      outbox_.clear();
      while (outbox_.poll_removed()) continue;  // their files go as a whole
    }
    WC_TRY(spool_.set_run(run));
    if (run != spooled_run_) {
      // Of a run before the last one, which it may go back to.
      for (const Spool::Id id : spool_.records()) {
        WC_ASSIGN(const std::string bytes, spool_.read(id));
        const Result<Trajectory> trajectory = decode_trajectory(bytes);
        if (trajectory.has_value()) outbox_.add(id, entry_of(*trajectory, bytes.size()));
      }
    }
    run_ = spooled_run_ = run;
    changed_.notify_all();
    return {};
  }

  Error other_run(const std::string& run) const {
    return fail(
        Errc::kWrongBase, Op::kReceive,
        fmt::format("the learner is at run {}, and this worker's rollouts are of run {}", printable(run), run_));
  }

  /// The rollout is not under way any more.
  void release(std::uint64_t sequence) {
    auto group = held_.upper_bound(sequence);
    if (group == held_.begin()) return;
    --group;
    group->second.erase(sequence);
    if (group->second.empty()) held_.erase(group);
  }

  bool must_tell_held() const {
    const std::scoped_lock lock(mutex_);
    return must_tell_held_;
  }

  /// What the learner has to know once it was restarted.
  Json held() const {
    Json groups = Json::array();
    for (const auto& [first, sequences] : held_) {
      Json group = {first};
      for (const std::uint64_t sequence : sequences) group.push_back(sequence);
      groups.push_back(std::move(group));
    }
    return groups;
  }

  Status delete_removed() {
    while (const auto id = outbox_.poll_removed()) WC_TRY(spool_.remove(*id));
    return {};
  }

  Status handle_reply(const Reply& reply) {
    if (!run_.empty() && reply.run != run_) return other_run(reply.run);
    if (reply.run == spooled_run_) outbox_.handle_learner(reply.learner);
    return delete_removed();
  }

  // ---- calls

  Json about_worker() {
    const std::scoped_lock lock(mutex_);
    return {{"run", run_}, {"worker", options_.name}, {"incarnation", incarnation_}};
  }

  /// One call; its answer has status 200.
  Result<HttpResponse> call(const HttpCall& call) {
    const std::scoped_lock lock(calls_mutex_);
    WC_ASSIGN(HttpResponse response, calls_http_->call(call, options_.call_time_max));
    if (response.status == 200) return response;
    return refusal_of(response);
  }

  Result<Reply> ask(std::string target, Json body) {
    std::vector<std::uint64_t> abandoned;
    {
      const std::scoped_lock lock(mutex_);
      abandoned.swap(abandoned_);
      body["life"] = life_;
      if (must_tell_held_) body["held"] = held();
    }
    body["abandoned"] = abandoned;
    const Result<HttpResponse> response = call(
        {.method = "POST", .target = std::move(target), .content_type = "application/json", .body = json_text(body)});
    Result<Reply> reply =
        response.has_value() ? read_reply(parse_json(response->body)) : Result<Reply>(response.error());
    const std::scoped_lock lock(mutex_);
    if (!reply.has_value()) {
      abandoned_.insert(abandoned_.begin(), abandoned.begin(), abandoned.end());
      return reply;
    }
    WC_TRY(handle_reply(*reply));
    // A learner that was restarted has forgotten what was started since its checkpoint.
    must_tell_held_ = !life_.empty() && life_ != reply->learner.life;
    life_ = reply->learner.life;
    for (const std::uint64_t sequence : reply->state.abort) release(sequence);
    changed_.notify_all();  // what was kept or deferred may have to be sent
    return reply;
  }

  // ---- the sender

  void send_all() {
    Random random(host_entropy());
    Duration backoff = kBackoffMin;
    std::size_t count_max = kBatchCountMax;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      std::vector<Outbox::Id> batch;
      if (!spooled_run_.empty()) batch = outbox_.poll_batch(count_max, kBatchBytesMax);
      if (batch.empty()) {
        changed_.wait(lock);
        continue;
      }
      const Status sent = send_batch(lock, batch, count_max);
      outbox_.handle_not_sent(batch);  // those without a verdict
      changed_.notify_all();
      stats_.last_error = sent.has_value() ? "" : sent.error().message();
      if (sent.has_value()) {
        backoff = kBackoffMin;
        continue;
      }
      const Duration pause = std::max(backoff / 2 + random.duration(Duration::zero(), backoff / 2), wished_pause_);
      changed_.wait_for(lock, pause, [this] { return stopping_; });
      backoff = std::min(backoff * 2, kBackoffMax);
    }
  }

  /// Unlocks while it waits for the learner. An error: a pause is due.
  Status send_batch(std::unique_lock<std::mutex>& lock, const std::vector<Outbox::Id>& batch, std::size_t& count_max) {
    wished_pause_ = Duration::zero();
    std::vector<Spool::Place> places;
    std::map<std::uint64_t, Outbox::Id> by_sequence;
    for (const Outbox::Id id : batch) {
      by_sequence[outbox_.entry(id).sequence] = id;
      places.push_back(spool_.place_of(id));
    }
    const std::string run = spooled_run_;
    // Whoever generates waits for this lock: megabytes are not read under it.
    lock.unlock();
    std::vector<std::string> rollouts;
    for (std::size_t i = 0; i < batch.size(); ++i) {
      Result<std::string> bytes = Spool::read(places[i]);
      if (bytes.has_value()) {
        rollouts.push_back(std::move(*bytes));
        continue;
      }
      // The disk has lost it.
      lock.lock();
      ++stats_.refused;
      ++stats_.refused_by_reason["damaged_on_disk"];
      outbox_.handle_refused(batch[i]);
      WC_TRY(delete_removed());
      return std::move(bytes).error();
    }
    HttpCall call{.method = "POST",
                  .target = "/v1/rollouts",
                  .content_type = "application/x-protobuf",
                  .body = encode_batch(run, rollouts)};
    const Duration limit = options_.call_time_max + from_seconds(static_cast<double>(call.body.size()) / kSlowLink);
    const Result<HttpResponse> response = sender_http_->call(call, limit);
    lock.lock();
    if (!response.has_value()) {
      // On a slow link less of it comes through in time.
      count_max = std::max<std::size_t>(1, batch.size() / 2);
      return response.error();
    }
    if (response->status != 200 && response->status != 429) return handle_refusal(*response, batch, count_max);
    count_max = std::min(kBatchCountMax, count_max * 2);
    const std::string_view retry = response->header("Retry-After");
    wished_pause_ = std::chrono::seconds(std::clamp(std::atoi(std::string(retry).c_str()), 0, 60));
    // One that is overloaded says nothing of the rollouts.
    const Json json = parse_json(response->body);
    if (response->status == 429 && (!json.is_object() || !json.contains("verdicts"))) return refusal_of(*response);
    WC_ASSIGN(const Reply reply, read_reply(json));
    WC_TRY(handle_reply(reply));
    WC_TRY(handle_verdicts(reply.json, by_sequence));
    return response->status == 429 ? Status(fail(Errc::kBusy, Op::kSend, "the learner's buffer is full")) : Status();
  }

  /// The learner does not take the request itself.
  Status handle_refusal(const HttpResponse& response, const std::vector<Outbox::Id>& batch, std::size_t& count_max) {
    const Error refusal = refusal_of(response);
    const bool is_ours = response.status == 400 || response.status == 413 || response.status == 415;
    if (!is_ours) return refusal;
    if (batch.size() > 1) {
      count_max = std::max<std::size_t>(1, batch.size() / 2);
      return {};
    }
    ++stats_.refused;
    ++stats_.refused_by_reason[fmt::format("http_{}", response.status)];
    outbox_.handle_refused(batch.front());
    return delete_removed();
  }

  Status handle_verdicts(const Json& json, const std::map<std::uint64_t, Outbox::Id>& by_sequence) {
    bool is_full = false;
    try {
      for (const Json& one : json.at("verdicts")) {
        const auto found = by_sequence.find(get<std::uint64_t>(one, "sequence"));
        if (found == by_sequence.end()) continue;
        const auto verdict = get<std::string>(one, "verdict");
        if (verdict == "admitted" || verdict == "duplicate") {
          ++stats_.acknowledged;
          outbox_.handle_acknowledged(found->second);
        } else if (verdict == "refused") {
          const auto reason = get<std::string>(one, "reason");
          if (reason == kVersionUnknown) {
            outbox_.handle_deferred(found->second);
            continue;
          }
          ++stats_.refused;
          if (stats_.refused_by_reason.size() < 100) ++stats_.refused_by_reason[reason];
          outbox_.handle_refused(found->second);
        } else {
          is_full = true;
        }
      }
    } catch (const Json::exception& error) {
      return fail(Errc::kCorrupt, Op::kReceive, fmt::format("the learner's verdicts: {}", error.what()));
    }
    WC_TRY(delete_removed());
    return is_full ? Status(fail(Errc::kBusy, Op::kSend, "the learner's buffer is full")) : Status();
  }

  Options options_;
  const std::string incarnation_ = random_hex();
  std::unique_ptr<HttpClient> calls_http_;   // under calls_mutex_
  std::unique_ptr<HttpClient> sender_http_;  // the sender's
  std::mutex calls_mutex_;
  std::mutex start_mutex_;
  std::uint64_t numbers_from_ = 0, numbers_to_ = 0;  // reserved and not granted yet; under start_mutex_

  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  Spool spool_;
  Outbox outbox_;
  std::string run_;          // that run() has given; "": not yet
  std::string spooled_run_;  // that the entries are of
  std::vector<std::uint64_t> abandoned_;
  std::map<std::uint64_t, std::set<std::uint64_t>> held_;  // under way, by the first of their group
  std::string life_;                                       // of the learner, by the last call's answer
  bool must_tell_held_ = false;                            // with the next call
  LearnerClientStats stats_;
  Duration wished_pause_{};  // by the learner's last answer
  bool stopping_ = false;
  std::thread sender_;
};

}  // namespace

Result<std::unique_ptr<LearnerClient>> LearnerClient::open(FileSystem& files, Options options) {
  WC_ASSIGN(Spool spool, Spool::open(files, options.spool));
  auto client = std::make_unique<Client>(std::move(options), std::move(spool));
  WC_TRY(client->set_up());
  return std::unique_ptr<LearnerClient>(std::move(client));
}

}  // namespace weightcast
