#include "client/client.h"

#include <unordered_map>

#include "client/local_channel.h"
#include "client/publish_exchange.h"

namespace weightcast {
namespace {

constexpr Duration kOpenTimeout = std::chrono::seconds(5);

/// The origin tells parents alone.
void fill_in_children(local::StatusReply& status) {
  std::unordered_map<std::string, int> index_of;
  for (int i = 0; i < status.nodes_size(); ++i) index_of.emplace(status.nodes(i).name(), i);
  for (int i = 0; i < status.nodes_size(); ++i) {
    const auto parent = index_of.find(status.nodes(i).parent());
    if (parent == index_of.end() || parent->second == i) continue;
    status.mutable_nodes(parent->second)->add_children(status.nodes(i).name());
  }
}

}  // namespace

Client::Client(std::unique_ptr<LocalChannel> channel) : channel_(std::move(channel)) {}
Client::Client(Client&&) noexcept = default;
Client& Client::operator=(Client&&) noexcept = default;
Client::~Client() = default;

Result<Client> Client::open(const std::string& state_dir, Duration timeout) {
  WC_ASSIGN(auto channel, LocalChannel::open(state_dir, deadline_after(timeout)));
  return Client(std::move(channel));
}

Result<PublishOutcome> Client::publish(Version version, const std::string& path, const PublishOptions& options) {
  const auto deadline = deadline_after(options.timeout);
  WC_ASSIGN(const std::uint64_t request, send_publish(*channel_, version, path, options, deadline));
  WC_ASSIGN(const Taken taken, receive_taken(*channel_, request, deadline));
  WC_TRY(taken.status);
  return receive_outcome(*channel_, request, taken.seconds, options, deadline);
}

Result<local::StatusReply> Client::status(Duration timeout) {
  const auto deadline = deadline_after(timeout);
  local::Message message;
  message.mutable_status_request();
  WC_ASSIGN(const std::uint64_t request, channel_->send(std::move(message), deadline));
  local::StatusReply all;
  do {
    WC_ASSIGN(local::Message answer, channel_->receive(request, deadline));
    WC_TRY(check_answer(answer));
    all.MergeFrom(answer.status_reply());
  } while (!all.last());
  fill_in_children(all);
  return all;
}

Result<local::VersionsReply> Client::versions(Duration timeout) {
  const auto deadline = deadline_after(timeout);
  local::Message message;
  message.mutable_versions_request();
  WC_ASSIGN(const std::uint64_t request, channel_->send(std::move(message), deadline));
  WC_ASSIGN(local::Message answer, channel_->receive(request, deadline));
  WC_TRY(check_answer(answer));
  return std::move(*answer.mutable_versions_reply());
}

VersionSubscription::VersionSubscription(std::unique_ptr<LocalChannel> channel, std::uint64_t request)
    : channel_(std::move(channel)), request_(request) {}
VersionSubscription::VersionSubscription(VersionSubscription&&) noexcept = default;
VersionSubscription& VersionSubscription::operator=(VersionSubscription&&) noexcept = default;
VersionSubscription::~VersionSubscription() = default;

Result<VersionSubscription> VersionSubscription::open(const std::string& state_dir) {
  const auto deadline = deadline_after(kOpenTimeout);
  WC_ASSIGN(auto channel, LocalChannel::open(state_dir, deadline));
  local::Message message;
  message.mutable_subscribe_request();
  WC_ASSIGN(const std::uint64_t request, channel->send(std::move(message), deadline));
  return VersionSubscription(std::move(channel), request);
}

Result<InstalledVersion> VersionSubscription::next(Duration timeout) {
  const auto deadline = deadline_after(timeout);
  for (;;) {
    WC_ASSIGN(const local::Message message, channel_->receive(request_, deadline));
    WC_TRY(check_answer(message));
    if (message.has_version_preparing()) {
      if (prepare_) prepare_(Version{message.version_preparing().version()});
      continue;
    }
    if (!message.has_version_installed()) continue;
    const local::VersionInstalled& installed = message.version_installed();
    return InstalledVersion{Version{installed.version()}, installed.path(), installed.digest()};
  }
}

}  // namespace weightcast
