#include "transport/node/local_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "transport/io/log.h"

namespace weightcast {
namespace {

constexpr Duration kProgressEvery = std::chrono::milliseconds(100);
constexpr double kTimeoutMax_s = 7 * 24 * 3600.0;

}  // namespace

Result<std::unique_ptr<LocalApi>> LocalApi::open(EventLoop& loop, Network& network, const std::string& socket_path,
                                                 LocalService& service) {
  std::unique_ptr<LocalApi> api(new LocalApi(loop, service));
  WC_ASSIGN(api->listener_,
            network.listen_locally(socket_path, [raw = api.get()](std::unique_ptr<FrameConnection> connection) {
              raw->accept(std::move(connection));
            }));
  return api;
}

LocalApi::LocalApi(EventLoop& loop, LocalService& service)
    : loop_(loop), service_(service), timer_(loop, [this] { check_waits(true); }) {}

LocalApi::~LocalApi() { *alive_ = false; }

void LocalApi::accept(std::unique_ptr<FrameConnection> connection) {
  if (sessions_.size() >= kSessionsMax) {
    log_warning("local API: {} connections are open; refusing one more", sessions_.size());
    return;  // dropped, and closed with it
  }
  auto session = std::make_shared<Session>();
  session->connection = std::move(connection);
  FrameConnection::Handlers handlers;
  handlers.on_control = [this, weak = std::weak_ptr(session)](const std::string& body) -> Status {
    const auto held = weak.lock();
    local::Message message;
    if (!message.ParseFromString(body)) {
      return fail(Errc::kCorrupt, Op::kParse, "local message: not what this release speaks");
    }
    return held ? handle(held, message) : Status{};
  };
  handlers.on_chunk = [](const ReceivedChunk&) {};
  handlers.on_closed = [this, weak = std::weak_ptr(session)](const Error&) {
    const auto held = weak.lock();
    if (!held) return;
    held->closed = true;
    sessions_.remove(held);
    loop_.post([held] {});  // its own callback is running
  };
  session->connection->set_handlers(std::move(handlers));
  sessions_.push_back(std::move(session));
}

Status LocalApi::handle(const std::shared_ptr<Session>& session, const local::Message& message) {
  using Kind = local::Message::KindCase;
  local::Message out;
  switch (message.kind_case()) {
    case Kind::kStatusRequest:
      *out.mutable_status_reply() = service_.status();
      reply(*session, out);
      break;
    case Kind::kVersionsRequest:
      *out.mutable_versions_reply() = service_.versions();
      reply(*session, out);
      break;
    case Kind::kSubscribeRequest:
      session->subscribed = true;
      check_waits(false);
      break;
    case Kind::kPublishRequest: {
      const local::PublishRequest& request = message.publish_request();
      if (!std::isfinite(request.timeout_s()) || !(request.wait_fraction() >= 0 && request.wait_fraction() <= 1)) {
        reply_error(*session,
                    fail(Errc::kInvalidArgument, Op::kPublish, "the fraction to wait for is not within 0 and 1"));
        break;
      }
      if (queue_.size() >= kPublishQueueMax) {
        reply_error(*session,
                    fail(Errc::kBusy, Op::kPublish,
                         fmt::format("version {}: {} publications wait already; try again when they are taken over",
                                     request.version(), queue_.size())));
        break;
      }
      queue_.push_back({session, request, loop_.now()});
      start_next_publish();
      break;
    }
    default: return fail(Errc::kUnsupported, Op::kReceive, "local message: not a request of this release");
  }
  return {};
}

void LocalApi::start_next_publish() {
  if (taking_ || queue_.empty()) return;
  taking_ = true;
  Queued queued = std::move(queue_.front());
  queue_.pop_front();
  const local::PublishRequest request = queued.request;
  service_.publish(request, [this, alive = alive_, queued = std::move(queued)](Result<std::uint64_t> taken) {
    if (!*alive) return;
    taking_ = false;
    finish_publish(queued, std::move(taken));
    start_next_publish();
  });
}

void LocalApi::finish_publish(const Queued& queued, Result<std::uint64_t> taken) {
  const auto session = queued.session.lock();
  if (!session || session->closed) return;  // the publication goes on without the one who asked for it
  if (!taken.has_value()) return reply_error(*session, taken.error());
  const Instant now = loop_.now();
  local::Message out;
  out.mutable_publish_taken()->set_version(queued.request.version());
  out.mutable_publish_taken()->set_snapshot_bytes(*taken);
  out.mutable_publish_taken()->set_seconds(to_seconds(now - queued.received_at));
  reply(*session, out);
  const double timeout_s = std::clamp(queued.request.timeout_s(), 0.0, kTimeoutMax_s);
  session->wait = Session::Wait{Version{queued.request.version()}, queued.request.wait_fraction(),
                                queued.received_at + from_seconds(timeout_s), queued.request.progress()};
  check_waits(false);
}

void LocalApi::handle_change() { check_waits(false); }

void LocalApi::check_waits(bool send_progress) {
  const Instant now = loop_.now();
  std::optional<local::VersionInstalled> installed;
  const std::optional<local::VersionPreparing> preparing = service_.preparing();
  bool somebody_waits = false;
  for (const std::shared_ptr<Session>& session : sessions_) {
    if (session->subscribed) {
      if (!installed) installed = service_.installed();
      tell_subscriber(*session, installed, preparing);
    }
    if (!session->wait) continue;
    const Session::Wait wait = *session->wait;
    const auto result = service_.publish_result(wait.version, wait.fraction);
    const bool over = !result || result->reached() || now >= wait.deadline;
    if (wait.progress && (send_progress || over)) {
      local::Message out;
      *out.mutable_publish_progress() = service_.publish_progress(wait.version);
      reply(*session, out);
    }
    if (!over) {
      somebody_waits = true;
      continue;
    }
    session->wait.reset();
    if (result) {
      local::Message out;
      *out.mutable_publish_result() = *result;
      reply(*session, out);
    } else {
      reply_error(*session, fail(Errc::kNotFound, Op::kPublish,
                                 fmt::format("version {}: newer ones took its place while it was waited for",
                                             wait.version.value)));
    }
  }
  if (somebody_waits && (send_progress || !timer_.armed())) timer_.arm(now + kProgressEvery);
}

void LocalApi::tell_subscriber(Session& session, const std::optional<local::VersionInstalled>& installed,
                               const std::optional<local::VersionPreparing>& preparing) {
  if (preparing) {
    if (session.told == kNoVersion || session.preparing == Version{preparing->version()}) return;
    session.preparing = Version{preparing->version()};
    local::Message out;
    *out.mutable_version_preparing() = *preparing;
    return reply(session, out);
  }
  if (!installed) return;
  // Who let go hears what he can have again, be it the old version.
  const bool let_go = std::exchange(session.preparing, kNoVersion) != kNoVersion;
  if (!let_go && Version{installed->version()} <= session.told) return;
  session.told = Version{installed->version()};
  local::Message out;
  *out.mutable_version_installed() = *installed;
  reply(session, out);
}

void LocalApi::reply(Session& session, const local::Message& message) {
  if (!session.closed) session.connection->send_control(message.SerializeAsString());
}

void LocalApi::reply_error(Session& session, const Error& error) {
  local::Message out;
  out.mutable_error_reply()->set_code(static_cast<std::uint32_t>(error.code));
  out.mutable_error_reply()->set_op(static_cast<std::uint32_t>(error.op));
  out.mutable_error_reply()->set_detail(error.detail);
  reply(session, out);
}

}  // namespace weightcast
