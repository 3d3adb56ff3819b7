#include "client/client.h"

#include "client/local_channel.h"
#include "client/publish_exchange.h"

namespace weightcast {

Client::Client(std::unique_ptr<LocalChannel> channel) : channel_(std::move(channel)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::open(const std::string& state_dir, Duration timeout) {
  WC_ASSIGN(auto channel, LocalChannel::open(state_dir, LocalChannel::Clock::now() + timeout));
  return Client(std::move(channel));
}

Result<PublishOutcome> Client::publish(Version version, const std::string& path, const PublishOptions& options) {
  const auto deadline = LocalChannel::Clock::now() + options.timeout;
  WC_TRY(send_publish(*channel_, version, path, local::SOURCE_KIND_PATH, options, deadline));
  WC_ASSIGN(const double take_s, receive_taken(*channel_, version, deadline));
  return receive_outcome(*channel_, version, take_s, options, deadline);
}

Result<local::StatusReply> Client::status(Duration timeout) {
  const auto deadline = LocalChannel::Clock::now() + timeout;
  local::Message request;
  request.mutable_status_request();
  WC_TRY(channel_->send(request, deadline));
  WC_ASSIGN(local::Message reply, channel_->receive(deadline));
  return std::move(*reply.mutable_status_reply());
}

Result<local::VersionsReply> Client::versions(Duration timeout) {
  const auto deadline = LocalChannel::Clock::now() + timeout;
  local::Message request;
  request.mutable_versions_request();
  WC_TRY(channel_->send(request, deadline));
  WC_ASSIGN(local::Message reply, channel_->receive(deadline));
  return std::move(*reply.mutable_versions_reply());
}

VersionSubscription::VersionSubscription(std::unique_ptr<LocalChannel> channel) : channel_(std::move(channel)) {}
VersionSubscription::VersionSubscription(VersionSubscription&&) noexcept = default;
VersionSubscription& VersionSubscription::operator=(VersionSubscription&&) noexcept = default;
VersionSubscription::~VersionSubscription() = default;

Result<VersionSubscription> VersionSubscription::open(const std::string& state_dir) {
  const auto deadline = LocalChannel::Clock::now() + std::chrono::seconds(5);
  WC_ASSIGN(auto channel, LocalChannel::open(state_dir, deadline));
  local::Message request;
  request.mutable_subscribe_request();
  WC_TRY(channel->send(request, deadline));
  return VersionSubscription(std::move(channel));
}

Result<InstalledVersion> VersionSubscription::next(Duration timeout) {
  const auto deadline = LocalChannel::Clock::now() + timeout;
  for (;;) {
    WC_ASSIGN(const local::Message message, channel_->receive(deadline));
    if (message.has_version_preparing()) {
      if (prepare_) prepare_(Version{message.version_preparing().version()});
      continue;
    }
    const local::VersionInstalled& installed = message.version_installed();
    return InstalledVersion{Version{installed.version()}, installed.path(), installed.digest()};
  }
}

}  // namespace weightcast
