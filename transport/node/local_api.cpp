#include "transport/node/local_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "base/text.h"
#include "transport/io/log.h"

namespace weightcast {
namespace {

constexpr Duration kProgressEvery = std::chrono::milliseconds(100);
constexpr double kTimeoutMax_s = 7 * 24 * 3600.0;
// Of an error; it may quote a path.
constexpr std::size_t kDetailBytesMax = 8 * kKiB;

Status check_publish(const local::PublishRequest& request) {
  const auto refuse = [](std::string why) { return fail(Errc::kInvalidArgument, Op::kPublish, std::move(why)); };
  const std::string& path = request.path();
  if (path.empty() || path.size() >= PATH_MAX || path.find('\0') != std::string::npos) {
    return refuse(fmt::format("a path has 1 to {} bytes, none of them 0; this one has {}", PATH_MAX - 1, path.size()));
  }
  if (!std::isfinite(request.timeout_s())) return refuse("the time-out is no number");
  if (!(request.wait_fraction() >= 0 && request.wait_fraction() <= 1)) {
    return refuse("the fraction to wait for is not within 0 and 1");
  }
  return {};
}

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
  session->connection->set_receive_limits({.control_bytes_max = kRequestBytesMax, .chunk_bytes_max = 0});
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
    if (const auto held = weak.lock()) handle_closed(held);
  };
  handlers.on_control_sent = [this, weak = std::weak_ptr(session)] {
    if (const auto held = weak.lock()) send_next(*held);
  };
  session->connection->set_handlers(std::move(handlers));
  sessions_.push_back(std::move(session));
}

void LocalApi::handle_closed(const std::shared_ptr<Session>& session) {
  session->closed = true;
  sessions_.remove(session);
  loop_.post([session] {});  // its own callback is running
}

Status LocalApi::handle(const std::shared_ptr<Session>& session, const local::Message& message) {
  using Kind = local::Message::KindCase;
  const RequestId id = message.request_id();
  switch (message.kind_case()) {
    case Kind::kStatusRequest: reply_status(*session, id); return {};
    case Kind::kVersionsRequest: {
      local::Message out;
      *out.mutable_versions_reply() = service_.versions();
      reply(*session, id, std::move(out));
      return {};
    }
    case Kind::kSubscribeRequest:
      session->subscription = id;
      check_waits(false);
      return {};
    case Kind::kPublishRequest: handle_publish(session, id, message.publish_request()); return {};
    default: return fail(Errc::kUnsupported, Op::kReceive, "local message: not a request of this release");
  }
}

void LocalApi::handle_publish(const std::shared_ptr<Session>& session, RequestId id,
                              const local::PublishRequest& request) {
  if (const Status ok = check_publish(request); !ok.has_value()) return reply_error(*session, id, ok.error());
  if (queue_.size() >= kPublishQueueMax) {
    return reply_error(*session, id,
                       fail(Errc::kBusy, Op::kPublish,
                            fmt::format("version {}: {} publications wait already; try again when they are taken over",
                                        request.version(), queue_.size())));
  }
  queue_.push_back({session, id, request, loop_.now()});
  start_next_publish();
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
  if (!taken.has_value()) return reply_error(*session, queued.id, taken.error());
  const Instant now = loop_.now();
  local::Message out;
  out.mutable_publish_taken()->set_version(queued.request.version());
  out.mutable_publish_taken()->set_snapshot_bytes(*taken);
  out.mutable_publish_taken()->set_seconds(to_seconds(now - queued.received_at));
  reply(*session, queued.id, std::move(out));
  if (session->wait) {
    reply_error(*session, session->wait->request,
                fail(Errc::kClosed, Op::kPublish,
                     fmt::format("version {}: not waited for any longer, version {} of the same program is",
                                 session->wait->version.value, queued.request.version())));
  }
  const double timeout_s = std::clamp(queued.request.timeout_s(), 0.0, kTimeoutMax_s);
  session->wait = Session::Wait{queued.id, Version{queued.request.version()}, queued.request.wait_fraction(),
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
    if (session->outbox_bytes > kOutboxBytesMax) {
      somebody_waits |= session->wait.has_value();  // it hears the rest when it has read this
      continue;
    }
    if (session->subscription) {
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
      reply(*session, wait.request, std::move(out));
    }
    if (!over) {
      somebody_waits = true;
      continue;
    }
    session->wait.reset();
    if (result) {
      local::Message out;
      *out.mutable_publish_result() = *result;
      reply(*session, wait.request, std::move(out));
    } else {
      reply_error(
          *session, wait.request,
          fail(Errc::kNotFound, Op::kPublish,
               fmt::format("version {}: newer ones took its place while it was waited for", wait.version.value)));
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
    return reply(session, *session.subscription, std::move(out));
  }
  if (!installed) return;
  // Who let go hears what he can have again, be it the old version.
  const bool let_go = std::exchange(session.preparing, kNoVersion) != kNoVersion;
  if (!let_go && Version{installed->version()} <= session.told) return;
  session.told = Version{installed->version()};
  local::Message out;
  *out.mutable_version_installed() = *installed;
  reply(session, *session.subscription, std::move(out));
}

// ---- answers

void LocalApi::reply_status(Session& session, RequestId id) {
  local::StatusReply all = service_.status();
  local::StatusReply nodes;
  nodes.mutable_nodes()->Swap(all.mutable_nodes());
  const auto fresh_page = [&] {
    local::Message page;
    *page.mutable_status_reply() = all;
    return page;
  };
  local::Message page = fresh_page();
  std::size_t page_bytes = 0;
  for (local::NodeStatus& node : *nodes.mutable_nodes()) {
    const std::size_t node_bytes = node.ByteSizeLong();
    if (page_bytes > 0 && page_bytes + node_bytes > kStatusPageBytes) {
      reply(session, id, std::move(page));
      page = fresh_page();
      page_bytes = 0;
    }
    *page.mutable_status_reply()->add_nodes() = std::move(node);
    page_bytes += node_bytes;
  }
  page.mutable_status_reply()->set_last(true);
  reply(session, id, std::move(page));
}

void LocalApi::reply(Session& session, RequestId id, local::Message message) {
  message.set_request_id(id);
  const std::size_t bytes = message.ByteSizeLong();
  if (bytes <= kControlBytesMax) return send(session, message.SerializeAsString());
  reply_error(session, id,
              fail(Errc::kTooLarge, Op::kSend,
                   fmt::format("the answer has {} bytes, at most {} can be sent", bytes, kControlBytesMax)));
}

void LocalApi::reply_error(Session& session, RequestId id, const Error& error) {
  local::Message out;
  out.mutable_error_reply()->set_code(static_cast<std::uint32_t>(error.code));
  out.mutable_error_reply()->set_op(static_cast<std::uint32_t>(error.op));
  out.mutable_error_reply()->set_detail(std::string(cut_text(error.detail, kDetailBytesMax)));
  reply(session, id, std::move(out));
}

void LocalApi::send(Session& session, std::string body) {
  if (session.closed) return;
  session.outbox_bytes += body.size();
  session.outbox.push_back(std::move(body));
  session.connection->pause_reading();
  if (!session.sending) send_next(session);
}

void LocalApi::send_next(Session& session) {
  session.sending = !session.outbox.empty();
  if (!session.sending) return session.connection->resume_reading();
  session.outbox_bytes -= session.outbox.front().size();
  session.connection->send_control(std::move(session.outbox.front()));
  session.outbox.pop_front();
}

}  // namespace weightcast
