#include "transport/core/worker/origin_link.h"

#include <fmt/format.h>

#include <algorithm>

#include "proto/limits.h"
#include "transport/core/deadline.h"

namespace weightcast {

void OriginLink::start(Instant now) {
  heard_at_ = now;
  dial();
}

void OriginLink::stop() {
  if (open_) actions_.push(action::Close{conn_});
  open_ = joined_ = false;
}

void OriginLink::dial() {
  redial_at_.reset();
  refused_ = false;
  conn_ = conn_ids_.next();
  open_ = joined_ = false;
  actions_.push(action::Connect{conn_, config_.origin_host, config_.origin_port});
}

void OriginLink::lose(Instant now) {
  open_ = joined_ = false;
  conn_ = ConnId{};
  const auto doublings = std::min<std::uint32_t>(redials_++, 10);
  redial_at_ =
      now + std::min(config_.timeouts.redial_max, config_.timeouts.redial_min * (std::int64_t{1} << doublings));
}

void OriginLink::handle_connected(Instant now, wire::Join join) {
  open_ = true;
  heard_at_ = now;
  join.set_protocol(config_.protocols.lowest);
  join.set_protocol_max(config_.protocols.highest);
  join.set_name(config_.name);
  join.set_model_id(config_.model_id);
  join.set_incarnation(config_.incarnation);
  join.mutable_listen()->set_host(config_.listen_host);
  join.mutable_listen()->set_port(config_.listen_port);
  join.set_uplink_bytes_per_s(config_.uplink.bytes_per_s);
  join.set_downlink_bytes_per_s(config_.downlink.bytes_per_s);
  join.set_unpack_bytes_per_s(config_.unpack_bytes_per_s);
  join.set_leaf_only(config_.leaf_only);
  join.set_standby(config_.standby);
  wire::Message message;
  *message.mutable_join() = std::move(join);
  send(std::move(message));
}

void OriginLink::handle_closed(Instant now, const Error& why) {
  actions_.push(action::warning(
      fmt::format("origin {}:{}: {}; dialling again", config_.origin_host, config_.origin_port, why.detail)));
  if (!refused_) last_error_ = why.message();  // the origin's own words say more than that it closed
  lose(now);
}

void OriginLink::handle_joined(Instant now, const wire::Joined& joined) {
  joined_ = true;
  redials_ = 0;
  id_ = PeerId{joined.peer_id()};
  last_error_.clear();
  actions_.push(
      action::info(fmt::format("joined as peer {}; the latest version is {}", id_.value, joined.latest_version())));
  if (joined.heartbeat_ms() > 0) {
    heartbeat_ = std::chrono::milliseconds(std::clamp<std::uint32_t>(joined.heartbeat_ms(), 10, 10'000));
  }
  heartbeat_due_ = now;
}

void OriginLink::handle_bye(const wire::Bye& bye) {
  refused_ = true;
  last_error_ = fmt::format("{}:{} refused: {}", config_.origin_host, config_.origin_port, bye.reason());
  actions_.push(action::warning(last_error_));
}

void OriginLink::send(wire::Message message) {
  if (open_) actions_.push(action::Send{conn_, std::move(message)});
}

void OriginLink::send_heartbeat(Instant now, wire::Message heartbeat) {
  heartbeat.mutable_heartbeat()->set_revocations(revocations_);
  send(std::move(heartbeat));
  heartbeat_due_ = now + heartbeat_;
}

void OriginLink::handle_timeout(Instant now) {
  if (redial_at_ && now >= *redial_at_) dial();
  if (open_ && now - heard_at_ >= config_.timeouts.origin_silence) rejoin(now, "the origin says nothing");
}

void OriginLink::rejoin(Instant now, std::string_view why) {
  if (!open_) return;
  actions_.push(action::warning(fmt::format("{}; dialling again", why)));
  actions_.push(action::Close{conn_});
  lose(now);
}

std::optional<Instant> OriginLink::poll_deadline() const {
  EarliestDeadline earliest;
  earliest.consider(redial_at_);
  if (joined_) earliest.consider(heartbeat_due_);
  if (open_) earliest.consider(heard_at_ + config_.timeouts.origin_silence);
  return earliest.first();
}

}  // namespace weightcast
