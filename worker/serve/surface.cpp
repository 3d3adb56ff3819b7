#include "worker/serve/surface.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "tools/observe/metrics_port.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kBodiesWaitingMax = 1024;
constexpr std::size_t kScoresWaitingMax = 1024;
constexpr std::string_view kModelPath = "/v1/models/";
constexpr Duration kStopGrace = std::chrono::milliseconds(500);

HttpResponse json_response(const Json& json) { return {.body = json_text(json)}; }

unsigned status_of(const Error& error) {
  if (error.code == Errc::kNotFound) return 404;
  return error.code == Errc::kBusy ? 503 : 400;
}

std::optional<CallKind> call_kind_of(const std::string& path) {
  if (path == "/v1/completions") return CallKind::kCompletion;
  if (path == "/v1/chat/completions") return CallKind::kChat;
  if (path == "/v1/rl/trajectories") return CallKind::kTrajectories;
  return std::nullopt;
}

/// By whose keys it comes, or else from which host.
std::string client_of(const HttpRequest& request) {
  if (request.peer) return "keys of " + request.peer->name;
  return request.remote.substr(0, request.remote.rfind(':'));
}

bool has_body(const HttpRequest& request) {
  constexpr std::string_view kPaths[] = {"/tokenize", "/detokenize", "/abort_requests"};
  return call_kind_of(request.path) || std::ranges::find(kPaths, request.path) != std::end(kPaths);
}

/// What `path` takes; "" if there is nothing at it.
std::string_view methods_of(const HttpRequest& request) {
  constexpr std::string_view kRead[] = {"/health",  "/liveness",           "/v1/models",
                                        "/metrics", "/get_weight_version", "/is_paused"};
  const std::string_view path = request.path;
  if (has_body(request) || path == "/pause" || path == "/resume") return "POST";
  const bool is_read = std::ranges::find(kRead, path) != std::end(kRead) || path.starts_with(kModelPath);
  return is_read ? "GET, HEAD" : "";
}

}  // namespace

Surface::Surface(std::unique_ptr<Engine> engine, std::unique_ptr<VersionFollower> versions,
                 std::shared_ptr<const Tokenizer> tokenizer, const SurfaceOptions& options)
    : model_{options.model_name, engine->context_max(), options.chat, std::move(tokenizer), options.task},
      release_(options.release),
      wait_max_(options.wait_max),
      scores_(kScoresWaitingMax),
      host_(std::move(engine), std::move(versions), options.say),
      bodies_(std::make_unique<WorkThread>(kBodiesWaitingMax)) {}

Surface::~Surface() {
  // In the order of who calls whom: members end from the last to the first.
  if (server_) server_->stop(kStopGrace);
}

Result<std::unique_ptr<Surface>> Surface::start(std::unique_ptr<Engine> engine,
                                                std::unique_ptr<VersionFollower> versions,
                                                std::shared_ptr<const Tokenizer> tokenizer, SurfaceOptions options) {
  if (options.task != nullptr && tokenizer == nullptr) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "rewards are of an answer's text, and this model has no tokenizer.json; serve without --task");
  }
  std::unique_ptr<Surface> surface(new Surface(std::move(engine), std::move(versions), std::move(tokenizer), options));
  Surface& self = *surface;
  WC_ASSIGN(surface->server_, HttpServer::listen(std::move(options.http)));
  // Answers take the server's counters, so that it has to be in its place before the first one.
  surface->server_->serve(
      [&self](HttpRequest request, HttpResponder to) { self.handle(std::move(request), std::move(to)); });
  return surface;
}

void Surface::handle(HttpRequest request, HttpResponder responder) {
  if (request.path == kModelPath) request.path.pop_back();
  const std::string& path = request.path;
  const std::string_view methods = methods_of(request);
  if (!methods.empty() && methods.substr(0, methods.find(',')) != request.method) {
    responder.send(http_wrong_method(request.method, methods));
    return;
  }
  if (has_body(request)) {
    struct Job {
      HttpRequest request;
      HttpResponder responder;
    };
    const auto job = std::make_shared<Job>(std::move(request), std::move(responder));
    std::function<void()> run = [this, job] { read_body(job->request, std::move(job->responder)); };
    if (!bodies_->try_post(run)) job->responder.send(http_error(503, "too many requests wait; try again later"));
    return;
  }
  if (path == "/health" || path == "/liveness") {
    responder.send({.body = "{}"});
  } else if (path == "/v1/models") {
    responder.send(json_response({{"object", "list"}, {"data", {model_json()}}}));
  } else if (path.starts_with(kModelPath)) {
    const bool is_ours = path.substr(kModelPath.size()) == model_.name;
    responder.send(is_ours ? json_response(model_json())
                           : http_error(404, "there is no such model; GET /v1/models says what is served"));
  } else if (path == "/metrics") {
    answer_metrics(std::move(responder));
  } else if (path == "/get_weight_version") {
    post([this] { return version(); }, std::move(responder));
  } else if (path == "/is_paused") {
    post([this] { return json_response({{"is_paused", host_.is_paused()}}); }, std::move(responder));
  } else if (path == "/pause") {
    const std::string mode = request.query_value("mode").value_or("abort");
    post([this, mode] { return pause(mode); }, std::move(responder));
  } else if (path == "/resume") {
    post(
        [this] {
          host_.resume();
          return json_response({{"status", "resumed"}});
        },
        std::move(responder));
  } else {
    responder.send(http_error(404, "there is nothing at this path; GET /v1/models says what is served"));
  }
}

void Surface::answer_metrics(HttpResponder responder) {
  post(
      [this] {
        MetricsText text;
        add_build_info(text, release_, "engine");
        add_metrics(text);
        return metrics_response(text);
      },
      std::move(responder));
}

void Surface::post(std::function<HttpResponse()> job, HttpResponder responder) {
  const auto to = std::make_shared<HttpResponder>(std::move(responder));
  host_.post([job = std::move(job), to] { to->send(job()); });
}

Json Surface::model_json() const {
  return {{"id", model_.name},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "weightcast"},
          {"max_model_len", model_.context_max}};
}

HttpResponse Surface::version() const {
  const ServedVersion served = host_.version();
  return json_response({{"weight_version", std::to_string(served.version.value)},
                        {"digest", served.digest.empty() ? Json(nullptr) : Json(served.digest)},
                        {"versions_refused", served.refused},
                        {"last_version_error", served.last_error.empty() ? Json(nullptr) : Json(served.last_error)}});
}

HttpResponse Surface::pause(const std::string& mode) {
  if (mode == "abort") {
    host_.pause(EngineHost::Pause::kAbort);
  } else if (mode == "wait") {
    host_.pause(EngineHost::Pause::kWait);
  } else if (mode == "keep") {
    host_.pause(EngineHost::Pause::kKeep);
  } else {
    return http_error(400, "'mode' is abort, wait or keep");
  }
  return json_response({{"status", "paused"}});
}

void Surface::read_body(const HttpRequest& request, HttpResponder responder) {
  const Json json = parse_json(request.body);
  if (!json.is_object()) {
    responder.send(http_error(400, "the body is no JSON object"));
    return;
  }
  if (const auto kind = call_kind_of(request.path)) {
    complete(json, *kind, client_of(request), std::move(responder));
  } else if (request.path == "/tokenize") {
    const auto ids = read_text_to_tokenize(json, model_);
    responder.send(
        ids.has_value()
            ? json_response({{"tokens", *ids}, {"count", ids->size()}, {"max_model_len", model_.context_max}})
            : http_error(status_of(ids.error()), ids.error().detail));
  } else if (request.path == "/detokenize") {
    const Json list = json.value("tokens", Json());
    const bool fits = list.is_array() && std::ranges::all_of(list, [](const Json& one) {
                        return one.is_number_unsigned() && one.get<std::uint64_t>() <= 0x7fffffff;
                      });
    if (!fits || !model_.tokenizer) {
      responder.send(http_error(400, fits ? "this model has no tokenizer.json" : "'tokens' is no array of token ids"));
      return;
    }
    const Result<std::string> text = model_.tokenizer->decode(list.get<std::vector<TokenId>>());
    responder.send(text.has_value() ? json_response({{"prompt", *text}}) : http_error(400, text.error().detail));
  } else {
    const Json list = json.value("request_ids", Json());
    const bool fits = list.is_array() && std::ranges::all_of(list, [](const Json& one) { return one.is_string(); });
    if (!fits) {
      responder.send(http_error(400, "'request_ids' is no array of ids"));
      return;
    }
    post(
        [this, ids = list.get<std::vector<std::string>>()] {
          std::size_t aborted = 0;
          for (const std::string& id : ids) {
            const auto found = generations_.find(id);
            const auto generation = found == generations_.end() ? nullptr : found->second.lock();
            if (generation == nullptr || generation->ended()) continue;
            generation->abort();
            ++aborted;
          }
          return json_response({{"aborted", aborted}});
        },
        std::move(responder));
  }
}

void Surface::complete(const Json& json, CallKind kind, std::string client, HttpResponder responder) {
  Result<CompletionCall> call = read_completion_call(json, kind, model_);
  if (!call.has_value()) {
    responder.send(http_error(status_of(call.error()), call.error().detail));
    return;
  }
  call->request.client = std::move(client);
  const auto generation =
      std::make_shared<Generation>(host_, scores_, model_, std::move(*call), std::move(responder), ++calls_, wait_max_);
  host_.post([this, generation] {
    std::erase_if(generations_, [](const auto& one) { return one.second.expired(); });
    generations_.emplace(generation->id(), generation);
    generation->begin();
  });
}

void Surface::add_metrics(MetricsText& text) const {
  using enum MetricsText::Type;
  add_version_metrics(text, host_.engine().version(), host_.installs());
  add_engine_metrics(text, host_.engine().status());
  text.add("worker_waiting_to_begin", kGauge, "Calls that wait for a version, or for POST /resume.",
           std::uint64_t{host_.waiting()});
  const HttpServerStats http = server_->stats();
  text.add("worker_http_connections", kGauge, "Open connections.", http.connections);
  text.add("worker_http_requests_total", kCounter, "Requests.", http.requests);
  text.add("worker_http_timed_out_total", kCounter,
           "Connections closed since their client was too slow, or read nothing of a stream.", http.timed_out);
  text.add("worker_http_refused_total", kCounter, "Requests and connections that were refused.",
           http.refused_requests + http.refused_over_cap + http.refused_peers);
}

}  // namespace weightcast
