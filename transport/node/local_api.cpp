#include "transport/node/local_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <climits>
#include <cmath>

#include "base/text.h"
#include "proto/limits.h"
#include "transport/io/log.h"
#include "transport/node/takeover/region.h"

namespace weightcast {
namespace {

constexpr Duration kProgressEvery = std::chrono::milliseconds(100);
// A worker that could not install a version may be given it in another form.
constexpr Duration kHopelessFor = std::chrono::seconds(2);
constexpr double kTimeoutMax_s = 7 * 24 * 3600.0;
// Of an error; it may quote a path.
constexpr std::size_t kDetailBytesMax = 8 * kKiB;

Status check_path(const std::string& path) {
  if (!path.empty() && path.size() < PATH_MAX && path.find('\0') == std::string::npos) return {};
  return fail(Errc::kInvalidArgument, Op::kPublish,
              fmt::format("a path has 1 to {} bytes, none of them 0; this one has {}", PATH_MAX - 1, path.size()));
}

}  // namespace

Error wrong_base(Version version, Version base, Version latest) {
  const std::string last = latest == kNoVersion ? std::string("there is none yet; publish one whole")
                                                : fmt::format(
                                                      "the last one is {}; make the changes against that, or "
                                                      "publish this version whole",
                                                      latest.value);
  return fail(Errc::kWrongBase, Op::kPublish,
              fmt::format("version {}: it changes version {}, and {}", version.value, base.value, last));
}

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
    : loop_(loop),
      service_(service),
      timer_(loop, [this] { check_waits(true); }),
      start_publish_(loop, [this] { start_next_publish(); }) {}

LocalApi::~LocalApi() { *alive_ = false; }

void LocalApi::accept(std::unique_ptr<FrameConnection> connection) {
  if (sessions_.size() >= kSessionsMax) {
    ++crowded_out_;
    log_warning("local API: {} connections are open; refusing one more", sessions_.size());
    return;  // dropped, and closed with it
  }
  auto session = std::make_shared<Session>();
  session->connection = std::move(connection);
  session->connection->set_receive_limits({.control_bytes_max = kRequestBytesMax, .chunk_bytes_max = 0});
  FrameConnection::Handlers handlers;
  handlers.on_control = [this, weak = std::weak_ptr(session)](const std::string& body) -> Status {
    const auto held = weak.lock();
    WC_ASSIGN(const local::Message message, local::decode(body));
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

void LocalApi::handle_closed(const SessionPtr& session) {
  session->closed = true;
  sessions_.remove(session);
  if (!session->pins.empty()) pin_all();
  if (session->provisions && std::ranges::none_of(sessions_, [](const auto& other) { return other->provisions; })) {
    static_cast<void>(service_.set_provisioned(false));  // it was set, so it can be
  }
  loop_.post([session] {});  // its own callback is running
}

Status LocalApi::handle(const SessionPtr& session, const local::Message& message) {
  return std::visit(
      [&](const auto& request) -> Status {
        if constexpr (requires { handle_request(session, message.request_id, request); }) {
          handle_request(session, message.request_id, request);
          return {};
        } else {
          return fail(Errc::kUnsupported, Op::kReceive, "local message: not a request of this release");
        }
      },
      message.kind);
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::VersionsRequest&) {
  reply(*session, id, service_.versions());
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::HistoryRequest& request) {
  reply_result(*session, id, service_.history(Version{request.version}));
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::ReadyRequest&) {
  reply(*session, id, service_.readiness());
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::SubscribeRequest&) {
  session->subscription = id;
  check_waits(false);
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::NextVersionRequest&) {
  reply_result(*session, id,
               next_version().transform([](Version next) { return local::NextVersionReply{next.value}; }));
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::ForgetRequest& request) {
  reply_result(*session, id, service_.forget(request.name).transform([] { return local::ForgetReply{}; }));
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::ReloadRequest&) {
  reply_result(*session, id, service_.reload().transform([](std::vector<std::string> changes) {
    return local::ReloadReply{.changes = std::move(changes)};
  }));
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::AcquireRequest& request) {
  const Version wanted{request.version};
  const auto refuse = [&](Errc code, std::string_view why) {
    reply_error(*session, id,
                fail(code, Op::kRead,
                     wanted == kNoVersion ? std::string(why) : fmt::format("version {}: {}", wanted.value, why)));
  };
  if (session->pins.size() >= kPinsMax) {
    return refuse(Errc::kBusy,
                  fmt::format("this subscription has {} versions pinned; release one", session->pins.size()));
  }
  if (const auto preparing = service_.preparing()) {
    return refuse(Errc::kBusy, fmt::format("version {} is about to take the place of the only copy; wait for it",
                                           preparing->version));
  }
  const auto found = wanted == kNoVersion ? service_.installed() : service_.installed_version(wanted);
  if (!found) {
    return refuse(Errc::kNotFound, wanted == kNoVersion
                                       ? "no version is in use yet; wait for one"
                                       : "it is not here; acquire the version in use, or wait for one");
  }
  session->pins.push_back(Version{found->version});
  pin_all();
  reply(*session, id, *found);
}

void LocalApi::handle_request(const SessionPtr& session, RequestId, const local::ReleaseRequest& request) {
  const auto found = std::ranges::find(session->pins, Version{request.version});
  if (found == session->pins.end()) return;
  session->pins.erase(found);
  pin_all();
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::ChangesRequest& request) {
  // Whatever becomes of the request, its descriptor is not the next one's.
  Result<FileRef> into = adopt_output(session->connection->take_descriptor());
  if (!into.has_value()) return reply_error(*session, id, into.error());
  const Version from{request.base_version}, to{request.version};
  const auto refuse = [&](Errc code, std::string_view why) {
    reply_error(*session, id, fail(code, Op::kRead, fmt::format("changes to version {}: {}", to.value, why)));
  };
  if (std::ranges::find(session->pins, to) == session->pins.end()) {
    return refuse(Errc::kNotFound, "this subscription has not acquired it");
  }
  // Each takes memory: whoever cannot wait reads the files.
  if (listed_) return refuse(Errc::kBusy, "another list is being made");
  // Pins of its own, so that neither a release nor a newer version takes the files away meanwhile.
  listed_ = {from, to};
  pin_all();
  service_.changes(from, request.base_digest, to, request.old_values, *std::move(into),
                   [this, alive = alive_, asker = std::weak_ptr(session), id](const Result<ListedChanges>& listed) {
                     if (!*alive) return;
                     listed_.reset();
                     pin_all();
                     const auto there = asker.lock();
                     if (!there || there->closed) return;
                     reply_result(*there, id, listed.transform([](const ListedChanges& changes) {
                       return local::ChangesReply{.bytes = changes.bytes, .elements = changes.elements};
                     }));
                   });
}

void LocalApi::pin_all() {
  std::vector<Version> pinned;
  if (listed_) pinned.assign(listed_->begin(), listed_->end());
  for (const SessionPtr& session : sessions_) {
    pinned.insert(pinned.end(), session->pins.begin(), session->pins.end());
  }
  service_.pin(std::move(pinned));
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::ServeRequest& request) {
  reply_result(*session, id, serve(*session, request).transform([] { return local::ServeReply{}; }));
}

Status LocalApi::serve(Session& session, const local::ServeRequest& request) {
  if (request.provisions && !session.provisions) {
    WC_TRY(service_.set_provisioned(true));
    session.provisions = true;
  }
  if (request.name.empty()) return {};
  return service_.set_serving(request.name, request.serves);
}

Result<Version> LocalApi::next_version() {
  WC_ASSIGN(const Version next, service_.next_version());
  Version given = taking_;
  if (!queue_.empty()) given = queue_.back().order.version;
  return std::max(next, Version{given.value + 1});
}

Version LocalApi::last_version() {
  if (!queue_.empty()) return queue_.back().order.version;
  if (taking_ != kNoVersion) return taking_;
  const auto installed = service_.installed();
  return installed ? Version{installed->version} : kNoVersion;
}

Result<PublishOrder> LocalApi::order_for(std::uint64_t version, bool allow_nonfinite) {
  PublishOrder order;
  WC_ASSIGN(const Version next, next_version());
  order.version = version == 0 ? next : Version{version};
  order.allow_nonfinite = allow_nonfinite;
  if (order.version > kVersionMax) {
    return fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("version {}: versions start at 1 and end at {}", order.version.value, kVersionMax.value));
  }
  if (order.version < next) {
    return fail(Errc::kAlreadyExists, Op::kPublish,
                fmt::format("version {}: the latest is {}; versions must grow", order.version.value, next.value - 1));
  }
  if (queue_.size() >= kPublishQueueMax) {
    return fail(Errc::kBusy, Op::kPublish,
                fmt::format("version {}: {} publications wait already; try again when they are taken over",
                            order.version.value, queue_.size()));
  }
  return order;
}

Result<PublishOrder> LocalApi::order_of(Session& session, const local::PublishRequest& request) {
  // Whatever becomes of the request, its descriptor is not the next one's.
  UniqueFd descriptor = request.region ? session.connection->take_descriptor() : UniqueFd();
  UniqueFd files = request.files_bytes > 0 ? session.connection->take_descriptor() : UniqueFd();
  WC_ASSIGN(PublishOrder order, order_for(request.version, request.allow_nonfinite));
  order.new_model = request.new_model;
  order.files_bytes = request.files_bytes;
  if (order.files_bytes > 0) {
    WC_ASSIGN(order.files, adopt_region(std::move(files)));
  }
  if (request.region) {
    WC_ASSIGN(order.region, adopt_region(std::move(descriptor)));
    WC_ASSIGN(const FileInfo info, order.region->info());
    order.region_bytes = request.region_bytes > 0 ? request.region_bytes : info.size_bytes;
    return order;
  }
  WC_TRY(check_path(request.path));
  order.path = request.path;
  order.file_tree = request.file_tree;
  return order;
}

Result<PublishOrder> LocalApi::order_of(Session& session, const local::PublishChangesRequest& request) {
  UniqueFd descriptor = session.connection->take_descriptor();
  WC_ASSIGN(PublishOrder order, order_for(request.version, request.allow_nonfinite));
  order.changes = true;
  order.base = Version{request.base_version};
  order.changes_bytes = request.changes_bytes;
  if (const Version last = last_version(); order.base == kNoVersion || order.base != last) {
    return wrong_base(order.version, order.base, last);
  }
  WC_ASSIGN(order.region, adopt_region(std::move(descriptor)));
  return order;
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::PublishRequest& request) {
  handle_order(session, id, order_of(*session, request));
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::PublishChangesRequest& request) {
  handle_order(session, id, order_of(*session, request));
}

void LocalApi::handle_order(const SessionPtr& session, RequestId id, Result<PublishOrder> order) {
  if (!order.has_value()) return reply_error(*session, id, order.error());
  reply(*session, id, local::PublishAccepted{order->version.value});
  queue_.push_back({{session, id, order->version, loop_.now()}, *std::move(order)});
  start_publish_.schedule();
}

bool LocalApi::is_pending(Version version) const {
  return (taking_ != kNoVersion && version == taking_) ||
         std::ranges::any_of(queue_, [&](const Queued& queued) { return queued.order.version == version; });
}

void LocalApi::start_next_publish() {
  if (taking_ != kNoVersion || queue_.empty()) return;
  Queued queued = std::move(queue_.front());
  queue_.pop_front();
  taking_ = queued.order.version;
  service_.publish(std::move(queued.order),
                   [this, alive = alive_, asker = queued.asker](const Result<TakenOver>& taken) {
                     if (!*alive) return;
                     taking_ = kNoVersion;
                     finish_publish(asker, taken);
                     start_next_publish();
                   });
}

void LocalApi::finish_publish(const Asker& asker, const Result<TakenOver>& taken) {
  // The publication goes on without the one who asked for it.
  if (const auto session = asker.session.lock(); session && !session->closed) {
    reply_result(*session, asker.id, taken.transform([&](const TakenOver& whole) {
      return local::PublishTaken{.version = asker.version.value,
                                 .snapshot_bytes = whole.snapshot_bytes,
                                 .seconds = to_seconds(loop_.now() - asker.received_at),
                                 .notice = std::string(cut_text(whole.notice, kDetailBytesMax))};
    }));
  }
  check_waits(false);
}

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::WaitRequest& request) {
  const auto refuse = [&](Errc code, std::string why) {
    reply_error(*session, id, fail(code, Op::kPublish, std::move(why)));
  };
  if (!std::isfinite(request.timeout_s)) return refuse(Errc::kInvalidArgument, "the time-out is no number");
  if (!(request.fraction >= 0 && request.fraction <= 1)) {
    return refuse(Errc::kInvalidArgument, "the fraction to wait for is not within 0 and 1");
  }
  if (session->waits.size() >= kWaitsMax) {
    return refuse(Errc::kBusy, fmt::format("version {}: this connection waits for {} others already", request.version,
                                           session->waits.size()));
  }
  const double timeout_s = std::clamp(request.timeout_s, 0.0, kTimeoutMax_s);
  session->waits.push_back(
      {id, Version{request.version}, request.fraction, loop_.now() + from_seconds(timeout_s), request.progress});
  check_waits(false);
}

void LocalApi::handle_change() { check_waits(false); }

void LocalApi::check_waits(bool send_progress) {
  const Instant now = loop_.now();
  std::optional<local::VersionInstalled> installed;
  const std::optional<local::VersionPreparing> preparing = service_.preparing();
  std::optional<Instant> next;
  for (const SessionPtr& session : sessions_) {
    if (session->outbox_bytes <= kOutboxBytesMax) {  // else it hears the rest when it has read this
      if (session->subscription) {
        if (!installed) installed = service_.installed();
        tell_subscriber(*session, installed, preparing);
      }
      std::erase_if(session->waits, [&](Session::Wait& wait) { return check_wait(*session, wait, send_progress); });
    }
    for (const Session::Wait& wait : session->waits) {
      const Instant due = std::min(std::max(wait.deadline, now), now + kProgressEvery);
      next = std::min(next.value_or(due), due);
    }
  }
  if (next && (send_progress || !timer_.armed() || *next < timer_due_)) {
    timer_due_ = *next;
    timer_.arm(timer_due_);
  }
}

bool LocalApi::check_wait(Session& session, Session::Wait& wait, bool send_progress) {
  const bool pending = is_pending(wait.version);
  const bool late = loop_.now() >= wait.deadline;
  const auto result =
      pending ? std::optional<local::PublishResult>() : service_.publish_result(wait.version, wait.fraction);
  const bool is_hopeless = result && !result->reached && !result->hopeless.empty();
  wait.hopeless_since = is_hopeless ? wait.hopeless_since.value_or(loop_.now()) : std::optional<Instant>();
  const bool is_given_up = wait.hopeless_since && loop_.now() - *wait.hopeless_since >= kHopelessFor;
  const bool over = late || (!pending && (!result || result->reached || is_given_up));
  if (wait.progress && (send_progress || over)) {
    reply(session, wait.request, service_.publish_progress(wait.version));
  }
  if (!over) return false;
  if (result) {
    reply(session, wait.request, *result);
  } else if (pending) {
    reply_error(session, wait.request,
                fail(Errc::kTimedOut, Op::kPublish,
                     fmt::format("version {}: it has not been taken over in time", wait.version.value)));
  } else {
    reply_error(
        session, wait.request,
        fail(Errc::kNotFound, Op::kPublish,
             fmt::format("version {}: it was not published here, or newer ones took its place", wait.version.value)));
  }
  return true;
}

void LocalApi::tell_subscriber(Session& session, const std::optional<local::VersionInstalled>& installed,
                               const std::optional<local::VersionPreparing>& preparing) {
  if (preparing) {
    if (session.told.second == kNoVersion || session.preparing == Version{preparing->version}) return;
    session.preparing = Version{preparing->version};
    return reply(session, *session.subscription, *preparing);
  }
  if (!installed) return;
  // Who let go hears what he can have again, be it the old version.
  const bool let_go = std::exchange(session.preparing, kNoVersion) != kNoVersion;
  const std::pair found(installed->run, Version{installed->version});
  if (!let_go && found <= session.told) return;
  session.told = found;
  reply(session, *session.subscription, *installed);
}

// ---- answers

void LocalApi::handle_request(const SessionPtr& session, RequestId id, const local::StatusRequest&) {
  local::StatusReply page = service_.status();
  const std::vector<local::NodeStatus> nodes = std::exchange(page.nodes, {});
  std::size_t page_bytes = 0;
  for (const local::NodeStatus& node : nodes) {
    const std::size_t node_bytes = local::encoded_bytes(node);
    if (page_bytes > 0 && page_bytes + node_bytes > kStatusPageBytes) {
      reply(*session, id, page);
      page.nodes.clear();
      page_bytes = 0;
    }
    page.nodes.push_back(node);
    page_bytes += node_bytes;
  }
  page.last = true;
  reply(*session, id, std::move(page));
}

void LocalApi::reply(Session& session, RequestId id, local::Message::Kind answer) {
  std::string body = local::encode({.kind = std::move(answer), .request_id = id});
  if (body.size() <= kControlBytesMax) return send(session, std::move(body));
  reply_error(session, id,
              fail(Errc::kTooLarge, Op::kSend,
                   fmt::format("the answer has {} bytes, at most {} can be sent", body.size(), kControlBytesMax)));
}

template <typename R>
void LocalApi::reply_result(Session& session, RequestId id, R result) {
  result.has_value() ? reply(session, id, *std::move(result)) : reply_error(session, id, result.error());
}

void LocalApi::reply_error(Session& session, RequestId id, const Error& error) {
  reply(session, id,
        local::ErrorReply{.code = static_cast<std::uint32_t>(error.code),
                          .detail = std::string(cut_text(error.detail, kDetailBytesMax)),
                          .op = static_cast<std::uint32_t>(error.op)});
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
