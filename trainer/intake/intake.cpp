#include "trainer/intake/intake.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "base/digest/content_digest.h"
#include "base/entropy.h"
#include "base/json_of.h"
#include "base/json_text.h"
#include "base/steady_clock.h"
#include "base/text.h"
#include "trainer/intake/call_fields.h"
#include "trainer/intake/rollout_bodies.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using std::chrono::milliseconds;

constexpr std::string_view kModelFiles = "/v1/model/";
constexpr Duration kFillWait = milliseconds(200);
constexpr std::size_t kCallsWaitingMax = 4096;
constexpr std::size_t kBodiesWaitingMax = 64;
// Of one worker with keys. Ours has one call and one body on their way; the next waits for those before it.
constexpr std::uint64_t kCallsPerWorkerMax = 16;
constexpr std::uint64_t kBodiesPerWorkerMax = 2;
constexpr std::uint64_t kStartsMax = 1'000'000;  // rollouts of one call
constexpr std::uint64_t kRunFileBytesMax = 4096;
// Of a start or a heartbeat: 40,000 numbers of rollouts. Its tree takes some 16 MiB at most, of one at a time.
constexpr std::size_t kCallBytesMax = kMiB;
// Workers that wait for permission to start ask again after so long: a few hundred calls a second, however many ask.
constexpr std::int64_t kRetryMin_ms = 20, kRetryMax_ms = 2000, kRetryPerWorker_ms = 2;
constexpr Duration kStopGrace = milliseconds(500);
constexpr Duration kFaultsInterval = std::chrono::seconds(1);

HttpResponse json_response(const Json& json) { return {.body = json_text(json) + "\n"}; }

HttpResponse overloaded(std::string_view why) {
  HttpResponse response = http_error(429, why);
  response.headers.push_back({"Retry-After", "1"});
  return response;
}

RolloutBodies bodies_of(const HttpRequest& request, const TrajectoryLimits& limits) {
  Result<RolloutBodies> bodies = RolloutBodies::open(request.header("Content-Type"), request.body, limits);
  if (bodies.has_value()) return std::move(*bodies);
  const Error& error = bodies.error();
  throw Refused{error.code == Errc::kUnsupported ? 415U : error.code == Errc::kTooLarge ? 413U : 400U, error.detail};
}

/// The id of the run that `path` is of, if that goes on, or else of a new one. Errors: kCorrupt, kNotFound, those of
/// the files.
Result<std::string> open_run(FileSystem& files, const std::filesystem::path& path, bool resumed) {
  if (!resumed) {
    std::string run = fmt::format("{:016x}", host_entropy());
    WC_TRY(replace_file(files, path, json_text(Json{{"run", run}}) + "\n", Synced::kBytesAndName));
    return run;
  }
  constexpr std::string_view kMend = "put back the one that was beside the checkpoints, or use another output_dir";
  Result<std::string> text = read_file(files, path, kRunFileBytesMax);
  if (!text.has_value() && text.error().code == Errc::kNotFound) {
    text.error().detail += fmt::format("; it says which run this is: {}", kMend);
  }
  WC_TRY(text);
  const Json json = parse_json(*text);
  const Json run = json.is_object() ? json.value("run", Json()) : Json();
  if (run.is_string() && is_run_id(run.get<std::string>())) return run.get<std::string>();
  return fail(Errc::kCorrupt, Op::kRead, fmt::format("{}: its run is no id; {}", path.native(), kMend));
}

}  // namespace

RolloutIntake::RolloutIntake(FileSystem& files, Options options, SharedReplayBuffer& buffer)
    : files_(files), options_(std::move(options)), buffer_(buffer), table_(options_.silence_max) {
  if (options_.sync) sync_.emplace(*options_.sync);
  life_ = fmt::format("{:016x}", host_entropy());
}

RolloutIntake::~RolloutIntake() {
  if (server_) server_->stop(kStopGrace);
  server_.reset();  // before the threads that its handler posts to
}

Status RolloutIntake::open(RunDescription run, bool resumed) {
  run_ = std::move(run);
  WC_ASSIGN(run_.run_id, open_run(files_, options_.directory / kRunFile, resumed));
  if (!options_.task_data.empty()) {
    run_.task_data_digest = content_digest_of(std::as_bytes(std::span(options_.task_data))).hex();
  }
  run_text_ = write_run_description(run_) + "\n";
  calls_ = std::make_unique<Queue>(kCallsWaitingMax, kCallsPerWorkerMax);
  bodies_ = std::make_unique<Queue>(kBodiesWaitingMax, kBodiesPerWorkerMax);
  HttpServerOptions options;
  options.listen = options_.listen;
  options.trust = options_.trust;
  options.limits.body_bytes_max = 64 * kMiB;
  options.limits.bodies_bytes_per_peer_max = 65 * kMiB;  // the largest, with its header
  options.warn = options_.warn;
  WC_ASSIGN(server_, HttpServer::start(std::move(options), [this](HttpRequest request, HttpResponder responder) {
              handle(std::move(request), std::move(responder));
            }));
  return replace_file(files_, options_.directory / "rollout_address", server_->endpoint().to_string() + "\n",
                      Synced::kNothing);
}

// ---- requests

void RolloutIntake::handle(HttpRequest request, HttpResponder responder) {
  const bool is_get = request.method == "GET";
  std::string_view taken;  // by the path, whatever the method
  const auto found = [&](std::string_view path, std::string_view method) {
    if (request.path == path) taken = method;
    return request.path == path && request.method == method;
  };
  if (found("/health", "GET")) {
    responder.send({.body = "{\"status\": \"ok\"}\n"});
  } else if (found("/v1/run", "GET")) {
    responder.send({.body = run_text_});
  } else if (found("/v1/task_data", "GET")) {
    responder.send({.content_type = "application/octet-stream", .body = options_.task_data});
  } else if (is_get && request.path.starts_with(kModelFiles)) {
    const auto file = options_.model_files.find(request.path.substr(kModelFiles.size()));
    responder.send(file == options_.model_files.end()
                       ? http_error(404,
                                    "the learner gives config.json, tokenizer.json and, where it "
                                    "publishes adapters alone, adapter_config.json")
                       : HttpResponse{.body = file->second});
  } else if (found("/v1/status", "GET")) {
    post(*calls_, &RolloutIntake::tell_status, std::move(request), std::move(responder));
  } else if (found("/v1/starts", "POST")) {
    post(*calls_, &RolloutIntake::start_groups, std::move(request), std::move(responder));
  } else if (found("/v1/heartbeats", "POST")) {
    post(*calls_, &RolloutIntake::take_heartbeat, std::move(request), std::move(responder));
  } else if (found("/v1/rollouts", "POST")) {
    post(*bodies_, &RolloutIntake::take_rollouts, std::move(request), std::move(responder));
  } else {
    if (request.path.starts_with(kModelFiles)) taken = "GET";
    responder.send(taken.empty() ? http_error(404, "there is nothing at this path; GET /v1/run describes the run")
                                 : http_wrong_method(request.method, taken == "GET" ? "GET, HEAD" : taken));
  }
}

void RolloutIntake::post(Queue& queue, Handler handler, HttpRequest request, HttpResponder responder) {
  if (&queue == calls_.get() && request.body.size() > kCallBytesMax) {
    responder.send(
        http_error(413, fmt::format("the body has {} bytes; at most {}", request.body.size(), kCallBytesMax)));
    return;
  }
  struct Job {
    HttpRequest request;
    HttpResponder responder;
  };
  const std::string worker = request.peer ? request.peer->name : "";
  const auto job = std::make_shared<Job>(std::move(request), std::move(responder));
  std::function<void()> run = [this, handler, job, worker, &queue] {
    HttpResponse response;
    try {
      response = (this->*handler)(job->request);
    } catch (const Refused& refused) {
      response = http_error(refused.status, refused.why);
    } catch (const std::exception& exception) {
      response = http_error(500, exception.what());
    }
    queue.give_back(worker);
    job->responder.send(std::move(response));
  };
  if (!queue.take(worker)) {
    job->responder.send(overloaded("this worker has sent more than the learner has read; send it again later"));
  } else if (!queue.thread.try_post(run)) {
    queue.give_back(worker);
    job->responder.send(overloaded("the learner is busy with others; send it again later"));
  }
}

HttpResponse RolloutIntake::take_rollouts(const HttpRequest& request) {
  RolloutBodies bodies = bodies_of(request, options_.limits);
  if (!bodies.run().empty() && bodies.run() != run_.run_id) {
    throw Refused{409, fmt::format("this learner is at run {}", run_.run_id)};
  }
  Json verdicts = Json::array();
  std::size_t full = 0;
  bool has_admitted = false;
  // One at a time, since text of a few bytes may say what takes many.
  while (std::optional<Result<Trajectory>> next = bodies.next()) {
    Result<Trajectory>& one = *next;
    const auto refuse = [&](std::string_view reason, std::string_view detail) {
      ++malformed_;
      Json verdict = {{"verdict", "refused"}, {"reason", reason}, {"detail", printable(cut_text(detail, 500))}};
      verdict["sequence"] = one.has_value() ? Json(one->sequence) : Json(nullptr);
      verdicts.push_back(std::move(verdict));
    };
    if (!one.has_value()) {
      refuse(one.error().code == Errc::kTooLarge ? "too_large" : "malformed", one.error().detail);
      continue;
    }
    if (request.peer) {
      if (one->worker.empty()) one->worker = request.peer->name;
      if (one->worker != request.peer->name) {
        refuse("other_worker", fmt::format("it is of {}, and the certificate of {}", one->worker, request.peer->name));
        continue;
      }
    }
    Json verdict = {{"sequence", one->sequence}};
    const std::string worker = one->worker;
    const Instant now = steady_now();
    const Arrival arrival = buffer_->handle_trajectory(now, std::move(*one));
    switch (arrival.admission) {
      case AdmissionOutcome::kAdmitted: {
        verdict["verdict"] = "admitted";
        has_admitted = true;
        const std::scoped_lock lock(table_mutex_);
        if (IntakeWorker* row = table_.handle_heard(now, worker)) ++row->admitted;
        break;
      }
      case AdmissionOutcome::kDuplicate: verdict["verdict"] = "duplicate"; break;
      case AdmissionOutcome::kRefused:
        verdict["verdict"] = "refused";
        verdict["reason"] = arrival.reason;
        verdict["detail"] = arrival.detail;
        count_refused(now, worker, arrival.reason);
        break;
      case AdmissionOutcome::kFull:
        verdict["verdict"] = "full";
        ++full;
        break;
    }
    verdicts.push_back(std::move(verdict));
  }
  if (has_admitted) {
    {
      const std::scoped_lock lock(admitted_mutex_);
      ++admitted_;
    }
    admitted_changed_.notify_all();
  }
  const auto buffer = buffer_.lock();
  Json answer = state_of(*buffer);
  answer["verdicts"] = std::move(verdicts);
  HttpResponse response = json_response(answer);
  if (full > 0) response.headers.push_back({"Retry-After", "1"});
  if (full > 0 && full == bodies.size()) response.status = 429;
  return response;
}

HttpResponse RolloutIntake::start_groups(const HttpRequest& request) {
  const Json json = call::parse_object(request);
  const std::string worker = call::worker_of(request, call::text(json, "worker"));
  const std::string run = call::text(json, "run");
  if (!run.empty() && run != run_.run_id) throw Refused{409, fmt::format("this learner is at run {}", run_.run_id)};
  const std::uint64_t groups = call::whole(json, "groups", 1, kStartsMax);
  const std::uint64_t size =
      json.contains("rollouts_per_group")
          ? call::whole(json, "rollouts_per_group", run_.group_size, run_.group_size + run_.group_size_redundancy)
          : run_.group_size;
  const std::uint64_t first = call::whole(json, "first_sequence", 0, std::uint64_t{1} << 62);
  if (groups * size > kStartsMax)
    throw Refused{400, fmt::format("{} groups of {} rollouts are too many", groups, size)};
  const Instant now = steady_now();
  Json answer, numbers = Json::array(), begin_at_least = Json::array();
  {
    const auto buffer = buffer_.lock();
    answer = take_worker_news(*buffer, now, worker, json);
    // A worker's numbers ascend: it has not heard of an answer that gave it these, and will not send them.
    buffer->handle_not_granted(worker, first);
    const bool is_wanted = !ended_ && answer["active"].get<bool>();
    const std::uint64_t granted = is_wanted ? buffer->leasable(now, worker, groups) : 0;
    for (std::uint64_t i = 0; i < granted; ++i) {
      const std::uint64_t number = buffer->take_group();
      numbers.push_back(number);
      begin_at_least.push_back(buffer->lease(now, worker, number, first + i * size, size).value);
    }
  }
  answer["groups_begin_at_least"] = std::move(begin_at_least);
  answer["groups"] = std::move(numbers);
  std::size_t workers = 0;
  {
    const std::scoped_lock lock(table_mutex_);
    workers = table_.size();
  }
  answer["retry_ms"] = std::clamp(kRetryPerWorker_ms * static_cast<std::int64_t>(workers), kRetryMin_ms, kRetryMax_ms);
  return json_response(answer);
}

HttpResponse RolloutIntake::take_heartbeat(const HttpRequest& request) {
  const Json json = call::parse_object(request);
  const std::string worker = call::worker_of(request, call::text(json, "worker"));
  WorkerHeartbeat said;
  if (json.contains("version")) said.weights = Version{call::whole(json, "version", 0, std::uint64_t{1} << 62)};
  said.is_active = call::flag(json, "active", true);
  said.rollouts_per_s = call::amount(json, "rollouts_per_s");
  said.tokens_per_s = call::amount(json, "tokens_per_s");
  said.full_load_s = call::amount(json, "full_load_s");
  if (json.contains("under_way")) said.under_way = call::whole(json, "under_way", 0, std::uint64_t{1} << 62);
  said.price_per_hour = call::amount(json, "price_per_hour");
  said.promised_rollouts_per_s = call::amount(json, "promised_rollouts_per_s");
  Json answer;
  {
    const auto buffer = buffer_.lock();
    answer = take_worker_news(*buffer, steady_now(), worker, json);
  }
  const std::scoped_lock lock(table_mutex_);
  if (IntakeWorker* row = table_.find(worker)) {
    // Again: who has looked at the row since the news were taken looks at what follows, too.
    row->heard = steady_now();
    if (row->said.weights != said.weights) row->weights_since = row->heard;
    row->said = said;
  }
  return json_response(answer);
}

Json RolloutIntake::state_of(const ReplayBuffer& buffer) const {
  return {{"run", run_.run_id},
          {"life", life_},
          {"version", buffer.learner().value},
          {"oldest_admissible", buffer.oldest_admissible().value},
          {"ended", ended_.load()}};
}

Json RolloutIntake::take_worker_news(ReplayBuffer& buffer, Instant now, const std::string& worker, const Json& json) {
  std::vector<std::uint64_t> abandoned;
  if (const auto found = json.find("abandoned"); found != json.end()) {
    if (!found->is_array() || found->size() > kStartsMax) throw Refused{400, "'abandoned' is no array"};
    for (const Json& one : *found) {
      if (!one.is_number_unsigned()) throw Refused{400, "'abandoned' holds something that is no sequence number"};
      abandoned.push_back(one.get<std::uint64_t>());
    }
  }
  const std::string incarnation = call::text(json, "incarnation");
  look_for_silent(buffer, now);
  const std::scoped_lock lock(table_mutex_);
  IntakeWorker* row = table_.handle_heard(now, worker);
  if (row == nullptr) throw Refused{503, "too many workers"};
  // What a worker had under way when it was restarted never comes.
  if (!incarnation.empty() && incarnation != std::exchange(row->incarnation, incarnation)) {
    buffer.handle_worker_lost(worker);
  }
  for (const std::uint64_t sequence : abandoned) buffer.handle_abandoned({worker, sequence});
  while (const auto id = buffer.poll_abort()) {
    IntakeWorker* whose = table_.find(id->first);
    if (whose != nullptr && whose->abort.size() < WorkerTable::kAbortsMax) whose->abort.push_back(id->second);
  }
  Json answer = state_of(buffer);
  // By what the answer says: the run may have ended since.
  row->knows_end = row->knows_end || answer["ended"].get<bool>();
  answer["abort"] = std::exchange(row->abort, {});
  answer["active"] = row->is_wanted;
  if (sync_) answer["begin_at_least"] = sync_->begin_at_least().value;
  return answer;
}

void RolloutIntake::count_refused(Instant now, const std::string& worker, std::string_view reason) {
  const std::scoped_lock lock(table_mutex_);
  IntakeWorker* row = table_.handle_heard(now, worker);
  if (row == nullptr) return;
  ++row->refused[std::string(reason)];
}

HttpResponse RolloutIntake::tell_status(const HttpRequest&) {
  Json answer;
  {
    const auto buffer = buffer_.lock();
    answer = state_of(*buffer);
    const ReplayStats& stats = buffer->stats();
    answer["buffer"] = merged(
        WC_JSON_OF(buffer->under_way(), stats.admitted, stats.taken, stats.duplicates, stats.full, stats.refused),
        {{"rollouts", buffer->buffered()}, {"bytes", buffer->buffered_bytes()}});
  }
  answer["malformed"] = malformed_.load();
  {
    const std::scoped_lock lock(figures_mutex_);
    answer["metrics"] = figures_;
  }
  Json rows = Json::array();
  const Instant now = steady_now();
  for (const IntakeWorker& row : workers()) {
    const LeaseRecord leases = buffer_->leases().record_of(row.name);
    rows.push_back(merged(WC_JSON_OF(row.name, row.said.price_per_hour, leases.groups_leased, leases.groups_overdue,
                                     leases.groups_delivered, leases.groups_failed, row.refused,
                                     row.said.rollouts_per_s, row.said.tokens_per_s, row.said.under_way, row.admitted),
                          {{"version", row.said.weights.value},
                           {"version_s", to_seconds(now - row.weights_since)},
                           {"fault", fault_of(row, leases).text},
                           {"active", row.said.is_active},
                           {"wanted", row.is_wanted},
                           {"silent_s", to_seconds(now - row.heard)}}));
  }
  answer["workers"] = std::move(rows);
  return json_response(answer);
}

void RolloutIntake::handle_figures(std::map<std::string, double, std::less<>> figures) {
  const std::scoped_lock lock(figures_mutex_);
  figures_ = std::move(figures);
}

void RolloutIntake::look_for_silent(ReplayBuffer& buffer, Instant now) {
  const std::scoped_lock lock(table_mutex_);
  for (const std::string& name : table_.poll_silent(now)) buffer.handle_worker_lost(name);
}

// ---- the learner's side

Result<bool> RolloutIntake::fill(Instant now, SharedReplayBuffer& buffer) {
  {
    const auto access = buffer.lock();
    access->handle_time(now);
    look_for_silent(*access, now);
  }
  {
    // A sync ends even if no step follows.
    const std::scoped_lock lock(table_mutex_);
    if (sync_) sync_->handle_workers(now, table_.all());
  }
  std::unique_lock lock(admitted_mutex_);
  admitted_changed_.wait_for(lock, kFillWait, [this] { return admitted_ != admitted_seen_; });
  admitted_seen_ = admitted_;
  return true;
}

std::string RolloutIntake::save() const { return json_text({{"malformed", malformed_.load()}}); }

Status RolloutIntake::restore(std::string_view state) {
  try {
    const Json json = parse_json(state);
    malformed_ = natural_of(json.at("malformed"), std::numeric_limits<std::uint64_t>::max()).value_or(0);
    // Of an earlier release's checkpoint, whose buffer does not say it.
    buffer_->skip_groups(natural_of(json.value("next_group", Json(0U))).value_or(0));
  } catch (const Json::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse, fmt::format("rollouts over HTTP: {}", error.what()));
  }
  return {};
}

void RolloutIntake::wait_for_workers(Duration limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (ended_ && std::chrono::steady_clock::now() < deadline) {
    const std::vector<IntakeWorker> all = workers();
    if (std::ranges::all_of(all, [](const IntakeWorker& row) { return row.is_silent || row.knows_end; })) return;
    std::this_thread::sleep_for(milliseconds(20));
  }
}

std::vector<IntakeWorker> RolloutIntake::workers() const {
  const std::scoped_lock lock(table_mutex_);
  return table_.all();
}

std::vector<std::string> RolloutIntake::take_faults(Instant now) {
  std::vector<std::string> news;
  if (now < faults_at_) return news;
  faults_at_ = now + kFaultsInterval;
  std::map<std::string, WorkerFault::Kind> faults;
  for (const IntakeWorker& row : workers()) {
    const WorkerFault fault = fault_of(row, buffer_->leases().record_of(row.name));
    if (fault.kind == WorkerFault::Kind::kNone) continue;
    const auto before = faults_.find(row.name);
    if (before == faults_.end() || before->second != fault.kind) {
      news.push_back(fmt::format("worker {}: {}", printable(row.name), fault.text));
    }
    faults.emplace(row.name, fault.kind);
  }
  faults_ = std::move(faults);
  return news;
}

void RolloutIntake::set_wanted(const std::string& worker, bool is_wanted) {
  const std::scoped_lock lock(table_mutex_);
  if (IntakeWorker* row = table_.find(worker)) row->is_wanted = is_wanted;
}

void RolloutIntake::handle_published(Version version) {
  const std::scoped_lock lock(table_mutex_);
  if (sync_) sync_->handle_published(version);
}

bool RolloutIntake::handle_step(Instant now, Version version) {
  const std::scoped_lock lock(table_mutex_);
  if (!sync_) return false;
  sync_->handle_workers(now, table_.all());
  sync_->handle_step(version);
  return sync_->wants_publication();
}

}  // namespace weightcast
