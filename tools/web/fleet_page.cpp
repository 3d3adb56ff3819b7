#include "tools/web/fleet_page.h"

#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/json_text.h"
#include "base/steady_clock.h"
#include "tools/web/page.h"
#include "tools/web/what_if.h"

namespace weightcast {
namespace {

// A learner's row of a worker has some 500 bytes, and it knows 10,000 workers at most.
constexpr std::uint64_t kLearnerBytesMax = 16 * kMiB;

HttpResponse page() {
  return {.content_type = "text/html; charset=utf-8",
          .body = std::string(page_html()),
          .headers = {{"Content-Security-Policy", std::string(page_policy()) + "; frame-ancestors 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-store"}}};
}

HttpResponse plan(const HttpRequest& request) {
  const auto question = parse_what_if(request);
  if (!question.has_value()) return http_error(400, question.error().detail);
  return {.body = json_text(what_if_json(*question))};
}

}  // namespace

Result<std::unique_ptr<FleetPage>> FleetPage::make(const FleetPageOptions& options) {
  std::unique_ptr<HttpClient> learner;
  if (options.learner) {
    WC_TRY(check_trust(options.learner_trust, *options.learner));
    WC_ASSIGN(learner,
              HttpClient::make(
                  {.server = *options.learner, .trust = options.learner_trust, .body_bytes_max = kLearnerBytesMax}));
  }
  return std::unique_ptr<FleetPage>(new FleetPage(std::move(learner)));
}

FleetPage::~FleetPage() {
  if (learner_) learner_->interrupt();
}

bool FleetPage::has(std::string_view path) { return path == "/" || path == "/plan" || path == "/learner"; }

void FleetPage::handle(HttpRequest request, HttpResponder responder) {
  if (request.path == "/") return responder.send(page());
  if (request.path == "/plan") {
    return post(
        planning_, [request = std::move(request)] { return plan(request); }, std::move(responder));
  }
  if (!learner_) {
    return responder.send(http_error(404, "this daemon knows of no learner; start it with --learner HOST:PORT"));
  }
  post(
      asking_, [this] { return ask_learner(); }, std::move(responder));
}

void FleetPage::post(WorkThread& thread, std::function<HttpResponse()> answer, HttpResponder responder) {
  const auto shared = std::make_shared<HttpResponder>(std::move(responder));
  std::function<void()> job = [shared, answer = std::move(answer)] {
    if (!shared->gone()) shared->send(answer());
  };
  if (!thread.try_post(job)) shared->send(http_error(503, "too many requests wait; try again later"));
}

HttpResponse FleetPage::ask_learner() {
  if (answer_ && steady_now() - asked_at_ < kLearnerAgeMax) return *answer_;
  auto told = learner_->call({.target = "/v1/status"}, kLearnerTimeout);
  asked_at_ = steady_now();
  if (!told.has_value()) {
    answer_ = http_error(502, "the learner does not answer: " + told.error().message());
  } else if (told->status != 200) {
    answer_ = http_error(502, "the learner answers GET /v1/status with status " + std::to_string(told->status));
  } else {
    answer_ = HttpResponse{.body = std::move(told->body)};
  }
  return *answer_;
}

}  // namespace weightcast
