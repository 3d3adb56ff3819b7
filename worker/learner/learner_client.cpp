#include "worker/learner/learner_client.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/entropy.h"
#include "base/json_text.h"
#include "base/random.h"
#include "base/text.h"
#include "trainer/tasks/trajectory/trajectory_wire.h"
#include "transport/http/client.h"
#include "transport/security/node_keys.h"

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

/// Where a worker's numbers begin: above all that it had before it was restarted.
std::uint64_t first_number() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(since).count());
}

std::string random_hex() { return fmt::format("{:016x}", host_entropy()); }

/// What the learner answers beside what was asked for.
struct Reply {
  std::string run;
  std::string life;  // another one after each start of the learner
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
    reply.life = get<std::string>(json, "life");
    reply.state.version = Version{get<std::uint64_t>(json, "version")};
    reply.state.oldest_admissible = Version{get<std::uint64_t>(json, "oldest_admissible")};
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
  explicit Client(Options options) : options_(std::move(options)) {}
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
    sender_ = std::thread([this] { send_all(); });
    return {};
  }

  const std::string& name() const override { return options_.name; }

  Result<RunDescription> run() override {
    WC_ASSIGN(const HttpResponse response, call({.target = "/v1/run"}));
    WC_ASSIGN(RunDescription run, read_run_description(response.body));
    const std::scoped_lock lock(mutex_);
    if (run_.empty()) {
      run_ = run.run_id;
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
    Json body = about_worker();
    body["groups"] = groups;
    body["rollouts_per_group"] = rollouts_per_group;
    // The learner takes back what it gave under these numbers, if its answer was lost.
    body["first_sequence"] = next_number_;
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
        started.groups.push_back({number, next_number_, least});
        next_number_ += rollouts_per_group;
      }
    } catch (const Json::exception& error) {
      return fail(Errc::kCorrupt, Op::kReceive, fmt::format("the learner's answer: {}", error.what()));
    }
    return started;
  }

  void abandon(const std::vector<std::uint64_t>& sequences) override {
    const std::scoped_lock lock(mutex_);
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
    WC_ASSIGN(Reply reply, ask("/v1/heartbeats", std::move(body)));
    return std::move(reply.state);
  }

  Status send(Trajectory trajectory) override {
    trajectory.worker = options_.name;
    std::string bytes = encode_trajectory(trajectory);
    {
      const std::scoped_lock lock(mutex_);
      if (run_.empty()) return fail(Errc::kInvalidArgument, Op::kSend, "run() has not said yet which run this is");
      if (waiting_bytes_ + bytes.size() > options_.waiting_bytes_max) drop_stale();
      if (waiting_bytes_ + bytes.size() > options_.waiting_bytes_max) {
        return fail(Errc::kNoSpace, Op::kSend,
                    fmt::format("{} rollouts wait for the learner, and take {} bytes of {}", waiting_.size(),
                                waiting_bytes_, options_.waiting_bytes_max));
      }
      waiting_bytes_ += bytes.size();
      waiting_[trajectory.sequence] = {trajectory.oldest_version, std::move(bytes)};
    }
    changed_.notify_all();
    return {};
  }

  bool drain(Duration limit) override {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return waiting_.empty(); });
  }

  LearnerClientStats stats() const override {
    const std::scoped_lock lock(mutex_);
    LearnerClientStats stats = stats_;
    stats.waiting = waiting_.size();
    stats.waiting_bytes = waiting_bytes_;
    return stats;
  }

 private:
  struct Waiting {
    Version oldest{};  // of its tokens
    std::string bytes;
  };

  // The caller of what follows has the mutex.

  Error other_run(const std::string& run) const {
    return fail(
        Errc::kWrongBase, Op::kReceive,
        fmt::format("the learner is at run {}, and this worker's rollouts are of run {}", printable(run), run_));
  }

  void remove(std::map<std::uint64_t, Waiting>::iterator one) {
    waiting_bytes_ -= one->second.bytes.size();
    waiting_.erase(one);
  }

  void refuse(std::map<std::uint64_t, Waiting>::iterator one, const std::string& reason) {
    ++stats_.refused;
    if (stats_.refused_by_reason.size() < 100) ++stats_.refused_by_reason[reason];
    remove(one);
  }

  void drop_stale() {
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      const auto next = std::next(one);
      if (one->second.oldest < oldest_admissible_) {
        ++stats_.dropped;
        remove(one);
      }
      one = next;
    }
  }

  Status handle_reply(Reply& reply) {
    if (!run_.empty() && reply.run != run_) return other_run(reply.run);
    oldest_admissible_ = reply.state.oldest_admissible;
    const bool has_restarted = !life_.empty() && life_ != reply.life;
    life_ = reply.life;
    if (!has_restarted) return {};
    // It takes nothing of what it has leased before.
    must_tell_restart_ = true;
    stats_.dropped += waiting_.size();
    waiting_.clear();
    waiting_bytes_ = 0;
    return {};
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
    reply->state.has_restarted = std::exchange(must_tell_restart_, false);
    return reply;
  }

  // ---- the sender

  void send_all() {
    Random random(host_entropy());
    Duration backoff = kBackoffMin;
    std::size_t count_max = kBatchCountMax;
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const std::vector<std::uint64_t> batch = next_batch(count_max);
      if (batch.empty()) {
        changed_.wait(lock);
        continue;
      }
      const Status sent = send_batch(lock, batch, count_max);
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

  std::vector<std::uint64_t> next_batch(std::size_t count_max) const {
    std::vector<std::uint64_t> batch;
    std::uint64_t bytes = 0;
    for (const auto& [sequence, one] : waiting_) {
      bytes += one.bytes.size();
      if (batch.size() == count_max || (!batch.empty() && bytes > kBatchBytesMax)) break;
      batch.push_back(sequence);
    }
    return batch;
  }

  /// Unlocks while it waits for the learner. An error: a pause is due.
  Status send_batch(std::unique_lock<std::mutex>& lock, const std::vector<std::uint64_t>& batch,
                    std::size_t& count_max) {
    wished_pause_ = Duration::zero();
    std::vector<std::string> rollouts;
    for (const std::uint64_t sequence : batch) rollouts.push_back(waiting_.at(sequence).bytes);
    const std::string run = run_;
    lock.unlock();
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
    WC_ASSIGN(Reply reply, read_reply(json));
    WC_TRY(handle_reply(reply));
    WC_TRY(handle_verdicts(reply.json));
    return response->status == 429 ? Status(fail(Errc::kBusy, Op::kSend, "the learner's buffer is full")) : Status();
  }

  /// The learner does not take the request itself.
  Status handle_refusal(const HttpResponse& response, const std::vector<std::uint64_t>& batch, std::size_t& count_max) {
    const Error refusal = refusal_of(response);
    const bool is_ours = response.status == 400 || response.status == 413 || response.status == 415;
    if (!is_ours) return refusal;
    if (batch.size() > 1) {
      count_max = std::max<std::size_t>(1, batch.size() / 2);
      return {};
    }
    const auto found = waiting_.find(batch.front());
    if (found != waiting_.end()) refuse(found, fmt::format("http_{}", response.status));
    return {};
  }

  Status handle_verdicts(const Json& json) {
    bool is_full = false;
    try {
      for (const Json& one : json.at("verdicts")) {
        const auto found = waiting_.find(get<std::uint64_t>(one, "sequence"));
        if (found == waiting_.end()) continue;
        const auto verdict = get<std::string>(one, "verdict");
        if (verdict == "admitted" || verdict == "duplicate") {
          ++stats_.acknowledged;
          remove(found);
        } else if (verdict == "refused") {
          refuse(found, get<std::string>(one, "reason"));
        } else {
          is_full = true;
        }
      }
    } catch (const Json::exception& error) {
      return fail(Errc::kCorrupt, Op::kReceive, fmt::format("the learner's verdicts: {}", error.what()));
    }
    return is_full ? Status(fail(Errc::kBusy, Op::kSend, "the learner's buffer is full")) : Status();
  }

  Options options_;
  const std::string incarnation_ = random_hex();
  std::unique_ptr<HttpClient> calls_http_;   // under calls_mutex_
  std::unique_ptr<HttpClient> sender_http_;  // the sender's
  std::mutex calls_mutex_;
  std::mutex start_mutex_;
  std::uint64_t next_number_ = first_number();  // of the next rollout that is granted; under start_mutex_

  mutable std::mutex mutex_;  // of all that follows
  std::condition_variable changed_;
  std::map<std::uint64_t, Waiting> waiting_;  // by their numbers; a batch that is on its way, too
  std::uint64_t waiting_bytes_ = 0;
  Version oldest_admissible_{};
  std::string run_;  // that run() has given; "": not yet
  std::vector<std::uint64_t> abandoned_;
  std::string life_;                // of the learner, by its last answer
  bool must_tell_restart_ = false;  // of the learner, to the caller
  LearnerClientStats stats_;
  Duration wished_pause_{};  // by the learner's last answer
  bool stopping_ = false;
  std::thread sender_;
};

}  // namespace

Result<std::unique_ptr<LearnerClient>> LearnerClient::make(Options options) {
  auto client = std::make_unique<Client>(std::move(options));
  WC_TRY(client->set_up());
  return std::unique_ptr<LearnerClient>(std::move(client));
}

}  // namespace weightcast
