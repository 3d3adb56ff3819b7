#include "client/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "client/changes.h"

namespace weightcast::client {
namespace {

// Finished ones that wc_wait() can still tell of.
constexpr std::size_t kPublicationsMax = 64;
// The daemon keeps a wait's deadline; its answer may take so much longer. A call returns within 100 ms of its deadline.
constexpr auto kGrace = std::chrono::milliseconds(80);

/// The origin tells parents alone.
void fill_in_children(local::StatusReply& status) {
  std::unordered_map<std::string, std::size_t> index_of;
  for (std::size_t i = 0; i < status.nodes.size(); ++i) index_of.emplace(status.nodes[i].name, i);
  for (std::size_t i = 0; i < status.nodes.size(); ++i) {
    const auto parent = index_of.find(status.nodes[i].parent);
    if (parent == index_of.end() || parent->second == i) continue;
    status.nodes[parent->second].children.push_back(status.nodes[i].name);
  }
}

local::PublishRequest request_of(const PublishOptions& options) {
  return {.version = options.version,
          .allow_nonfinite = options.allow_nonfinite,
          .files_bytes = options.files ? options.files->size_bytes() : 0,
          .new_model = options.new_model,
          .file_tree = options.file_tree};
}

Status check_no_file_tree(const PublishOptions& options) {
  if (!options.file_tree) return {};
  return fail(Errc::kInvalidArgument, Op::kPublish, "WC_FILE_TREE: for wc_publish_path(), whose path is a directory");
}

Status check_keeps_model(const PublishOptions& options) {
  WC_TRY(check_no_file_tree(options));
  if (!options.files && !options.new_model) return {};
  return fail(Errc::kInvalidArgument, Op::kPublish,
              "changes of cells keep the files and the tensors of their base; publish all tensors to replace them");
}

local::Message::Kind changes_request(const PublishOptions& options, std::uint64_t base_version, std::uint64_t bytes) {
  return local::PublishChangesRequest{.version = options.version,
                                      .base_version = base_version,
                                      .allow_nonfinite = options.allow_nonfinite,
                                      .changes_bytes = bytes};
}

double seconds_until(Deadline deadline) {
  return std::max(0.0, std::chrono::duration<double>(deadline - Clock::now()).count());
}

}  // namespace

Result<std::unique_ptr<Client>> Client::open(std::string state_dir, Deadline deadline) {
  std::unique_ptr<Client> client(new Client(std::move(state_dir)));
  if (client->cancellation_.fd() < 0) {
    return fail(Errc::kIo, Op::kConnect, "no descriptor is left in this process; raise 'ulimit -n'");
  }
  WC_TRY(client->connect(deadline));
  return client;
}

// ---- the connection

void Client::take_what_has_come() {
  while (channel_) {
    const Result<std::optional<local::Message>> message = channel_->poll();
    if (!message.has_value()) return disconnect();
    if (!*message) return;
    take_for_publication(**message);
  }
}

Status Client::connect(Deadline deadline) {
  take_what_has_come();
  if (channel_) return {};
  WC_ASSIGN(channel_, LocalChannel::open(state_dir_, deadline, cancellation_));
  return {};
}

void Client::disconnect() {
  channel_.reset();
  for (Publication& publication : publications_) {
    if (!publication.open()) continue;
    publication.state = Publication::State::kLost;
    publication.region = nullptr;
  }
  // A daemon that has closed the connection may live on, and read on.
  regions_.abandon_sent();
  change_regions_.abandon_sent();
}

Result<std::optional<local::Message>> Client::receive(Deadline deadline) {
  if (!channel_) return fail(Errc::kClosed, Op::kReceive, "local socket: the daemon closed it");
  Result<local::Message> message = channel_->receive(deadline);
  if (!message.has_value()) {
    const Errc code = message.error().code;
    if (code != Errc::kTimedOut && code != Errc::kCancelled) disconnect();
    return message.error();
  }
  if (take_for_publication(*message)) return std::optional<local::Message>();
  return std::optional(*std::move(message));
}

bool Client::take_for_publication(const local::Message& message) {
  const auto found = std::find_if(publications_.begin(), publications_.end(), [&](const Publication& publication) {
    return publication.open() && publication.request_id == message.request_id;
  });
  if (found == publications_.end()) return false;
  if (const auto* accepted = message.get<local::PublishAccepted>()) {
    found->version = accepted->version;
    found->state = Publication::State::kAccepted;
  } else if (const auto* taken = message.get<local::PublishTaken>()) {
    found->version = taken->version;
    found->take_s = taken->seconds;
    found->notice = taken->notice;
    end(*found, Publication::State::kTaken);
  } else if (const auto* error = message.get<local::ErrorReply>()) {
    found->error = error_of(*error);
    end(*found, Publication::State::kFailed);
  }
  return true;
}

void Client::end(Publication& publication, Publication::State state) {
  publication.state = state;
  if (publication.region != nullptr) publication.pool->release(*std::exchange(publication.region, nullptr));
}

Result<std::uint64_t> Client::send(local::Message::Kind request, Deadline deadline) {
  WC_TRY(connect(deadline));
  const Result<std::uint64_t> sent = channel_->send({.kind = std::move(request)}, deadline);
  if (!sent.has_value() && sent.error().code == Errc::kClosed) disconnect();
  return sent;
}

Result<local::Message> Client::answer(std::uint64_t request_id, Deadline deadline) {
  for (;;) {
    WC_ASSIGN(std::optional<local::Message> message, receive(deadline));
    if (!message || message->request_id != request_id) continue;  // a late one, of a call that gave up
    if (const auto* error = message->get<local::ErrorReply>()) return error_of(*error);
    return *std::move(message);
  }
}

// ---- questions

Result<local::StatusReply> Client::status(Deadline deadline) {
  WC_ASSIGN(const std::uint64_t request, send(local::StatusRequest{}, deadline));
  std::optional<local::StatusReply> all;
  do {
    WC_ASSIGN(local::Message message, answer(request, deadline));
    auto* page = std::get_if<local::StatusReply>(&message.kind);
    if (page == nullptr) return unknown_answer();
    if (!all) {
      all = std::move(*page);
      continue;
    }
    all->last = page->last;
    std::move(page->nodes.begin(), page->nodes.end(), std::back_inserter(all->nodes));
  } while (!all->last);
  fill_in_children(*all);
  return *std::move(all);
}

template <typename Reply>
Result<Reply> Client::ask(local::Message::Kind question, Deadline deadline) {
  WC_ASSIGN(const std::uint64_t request, send(std::move(question), deadline));
  WC_ASSIGN(local::Message message, answer(request, deadline));
  auto* reply = std::get_if<Reply>(&message.kind);
  if (reply == nullptr) return unknown_answer();
  return std::move(*reply);
}

Result<local::VersionsReply> Client::versions(Deadline deadline) {
  return ask<local::VersionsReply>(local::VersionsRequest{}, deadline);
}

Result<local::HistoryReply> Client::history(std::uint64_t version, Deadline deadline) {
  return ask<local::HistoryReply>(local::HistoryRequest{version}, deadline);
}

Result<local::ReadyReply> Client::readiness(Deadline deadline) {
  return ask<local::ReadyReply>(local::ReadyRequest{}, deadline);
}

Result<std::uint64_t> Client::next_version(Deadline deadline) {
  WC_ASSIGN(const local::NextVersionReply reply, ask<local::NextVersionReply>(local::NextVersionRequest{}, deadline));
  return reply.version;
}

Status Client::serve(const std::string& name, bool serves, bool provisions, Deadline deadline) {
  const local::ServeRequest request{.name = name, .serves = serves, .provisions = provisions};
  WC_TRY(ask<local::ServeReply>(request, deadline));
  return {};
}

Status Client::forget(const std::string& name, Deadline deadline) {
  WC_TRY(ask<local::ForgetReply>(local::ForgetRequest{name}, deadline));
  return {};
}

Result<std::vector<std::string>> Client::reload(Deadline deadline) {
  WC_ASSIGN(local::ReloadReply reply, ask<local::ReloadReply>(local::ReloadRequest{}, deadline));
  return std::move(reply.changes);
}

// ---- publishing

Status Client::check_nothing_begun() const {
  if (!begun_) return {};
  return fail(Errc::kBusy, Op::kPublish, "a publication was begun already; commit or abort it first");
}

Status Client::begin(const PublishOptions& options, std::span<const wc_tensor> tensors, void** addresses,
                     Deadline deadline) {
  WC_TRY(check_nothing_begun());
  WC_TRY(regions_.lay_out(tensors));
  WC_ASSIGN(Region * region, take_region(regions_, options, deadline));
  begun_ = Begun{&regions_, region, options};
  for (std::size_t i = 0; i < tensors.size(); ++i) addresses[i] = region->data() + regions_.offsets_bytes()[i];
  return {};
}

Status Client::begin_changes(const PublishOptions& options, std::uint64_t base_version,
                             std::span<const wc_piece> pieces, void** indices, void** values, Deadline deadline) {
  WC_TRY(check_nothing_begun());
  WC_TRY(check_keeps_model(options));
  WC_ASSIGN(std::vector<TensorInfo> tensors, tensors_of_pieces(pieces));
  WC_TRY(change_regions_.lay_out(std::move(tensors)));
  WC_ASSIGN(Region * region, take_region(change_regions_, options, deadline));
  begun_ = Begun{&change_regions_, region, options, base_version};
  const std::vector<std::uint64_t>& offsets = change_regions_.offsets_bytes();
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    indices[i] = region->data() + offsets[2 * i];
    values[i] = region->data() + offsets[2 * i + 1];
  }
  return {};
}

Result<Region*> Client::take_region(RegionPool& pool, const PublishOptions& options, Deadline deadline) {
  // What the origin has said meanwhile may free a region. It need not be there for that, nor for filling one.
  take_what_has_come();
  for (;;) {
    WC_ASSIGN(Region * region, pool.take(options.second_region, options.parts));
    if (region != nullptr) return region;
    const Result<std::optional<local::Message>> message = receive(deadline);
    if (message.has_value()) continue;
    Error error = message.error();
    if (error.code == Errc::kClosed) continue;  // what the origin was reading will not be used again
    error.detail += "; the origin may still be reading the last version from memory";
    return error;
  }
}

Result<std::uint64_t> Client::commit(const std::optional<PublishOptions>& options, Deadline deadline) {
  if (!begun_) return fail(Errc::kInvalidArgument, Op::kPublish, "nothing was begun that could be committed");
  WC_TRY(begun_->region->check_done(begun_->pool->publication(*begun_->region)));
  if (options) begun_->options = *options;
  if (begun_->base_version) {
    WC_TRY(check_keeps_model(begun_->options));
    return send_publish(changes_request(begun_->options, *begun_->base_version, change_regions_.bytes()),
                        &change_regions_, begun_->region, nullptr, deadline);
  }
  WC_TRY(check_no_file_tree(begun_->options));
  local::PublishRequest request = request_of(begun_->options);
  request.region = true;
  request.region_bytes = regions_.bytes();
  return send_publish(std::move(request), &regions_, begun_->region, begun_->options.files.get(), deadline);
}

Result<std::uint64_t> Client::publish_path(const PublishOptions& options, const std::string& path, Deadline deadline) {
  if (options.file_tree && options.files) {
    return fail(Errc::kInvalidArgument, Op::kPublish, "a directory brings its own files; put the others into it");
  }
  local::PublishRequest request = request_of(options);
  request.path = path;
  return send_publish(std::move(request), nullptr, nullptr, options.files.get(), deadline);
}

Result<std::uint64_t> Client::publish_changes(const PublishOptions& options, std::uint64_t base_version,
                                              std::span<const wc_change> changes, Deadline deadline) {
  WC_TRY(check_keeps_model(options));
  if (begun_ && begun_->pool == &change_regions_) WC_TRY(check_nothing_begun());
  WC_ASSIGN(std::vector<TensorInfo> tensors, tensors_of_changes(changes));
  WC_TRY(change_regions_.lay_out(std::move(tensors)));
  WC_ASSIGN(Region * region, take_region(change_regions_, options, deadline));
  const std::vector<std::uint64_t>& offsets = change_regions_.offsets_bytes();
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const auto copy = [&](std::size_t tensor, const void* from) {
      const std::uint64_t bytes = change_regions_.tensors()[tensor].size_bytes;
      if (bytes > 0) std::memcpy(region->data() + offsets[tensor], from, bytes);
    };
    copy(2 * i, changes[i].indices);
    copy(2 * i + 1, changes[i].values);
  }
  Result<std::uint64_t> version = send_publish(changes_request(options, base_version, change_regions_.bytes()),
                                               &change_regions_, region, nullptr, deadline);
  change_regions_.release_taken();  // of a request that did not leave, or was refused
  return version;
}

Result<std::uint64_t> Client::send_publish(local::Message::Kind request, RegionPool* pool, Region* region,
                                           const Region* files, Deadline deadline) {
  WC_TRY(connect(deadline));
  std::vector<int> descriptors;
  if (region != nullptr) descriptors.push_back(region->fd());
  if (files != nullptr) descriptors.push_back(files->fd());
  // Before the origin reads it: its time of modification stays as it is then.
  if (region != nullptr) pool->hand_over(*region);
  const Result<std::uint64_t> sent = channel_->send({.kind = std::move(request)}, deadline, descriptors);
  if (!sent.has_value()) {
    if (region != nullptr) pool->take_back(*region);
    if (sent.error().code == Errc::kClosed) disconnect();
    return sent.error();  // the origin acts on nothing of it
  }
  while (publications_.size() >= kPublicationsMax) {
    const auto done = std::find_if(publications_.begin(), publications_.end(),
                                   [](const Publication& publication) { return !publication.open(); });
    // Without a region none is kept from being read; the origin refuses so many anyway.
    publications_.erase(done != publications_.end() ? done : publications_.begin());
  }
  Publication& publication = publications_.emplace_back();
  publication.request_id = *sent;
  publication.pool = pool;
  publication.region = region;
  std::optional<Begun> begun;
  if (begun_ && begun_->region == region) begun.swap(begun_);
  while (publication.state == Publication::State::kSent) {
    const Result<std::optional<local::Message>> message = receive(deadline);
    if (message.has_value()) continue;
    Error error = message.error();
    // Whatever ended the connection, the caller is to know that the origin may have the publication.
    if (error.code != Errc::kTimedOut && error.code != Errc::kCancelled) error.code = Errc::kClosed;
    return error;
  }
  if (publication.state != Publication::State::kFailed) return publication.version;
  // Refused: the origin has not looked at the weights, and the caller may ask again.
  const Error refused = *publication.error;
  publications_.pop_back();
  if (region != nullptr) pool->take_back(*region);
  if (begun) begun_ = begun;
  return refused;
}

void Client::abort() {
  if (begun_) begun_->pool->release(*begun_->region);
  begun_.reset();
}

Status Client::reserve(std::span<const wc_tensor> tensors, std::size_t regions) {
  WC_TRY(check_nothing_begun());
  WC_TRY(regions_.lay_out(tensors));
  return regions_.reserve(regions);
}

Result<std::uint64_t> Client::publish(const PublishOptions& options, std::span<const wc_tensor> tensors,
                                      Deadline deadline) {
  std::vector<void*> addresses(tensors.size());
  WC_TRY(begin(options, tensors, addresses.data(), deadline));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorInfo& info = regions_.tensors()[i];
    if (info.size_bytes == 0) continue;
    if (tensors[i].data == nullptr) {
      abort();
      return fail(Errc::kInvalidArgument, Op::kPublish,
                  fmt::format("tensor {}: its data is NULL", quoted_name(info.name)));
    }
    std::memcpy(addresses[i], tensors[i].data, info.size_bytes);
  }
  Result<std::uint64_t> version = commit(std::nullopt, deadline);
  if (!version.has_value()) abort();
  return version;
}

Status Client::check_begun() const {
  if (begun_) return {};
  return fail(Errc::kInvalidArgument, Op::kPublish, "nothing was begun, so there is no region");
}

Result<int> Client::region_fd() const {
  WC_TRY(check_begun());
  return begun_->region->fd();
}

Result<std::uint64_t> Client::region_id() {
  WC_TRY(check_begun());
  return begun_->pool->publication(*begun_->region);
}

Result<std::pair<std::shared_ptr<Region>, std::vector<TensorInfo>>> Client::share_region() {
  WC_TRY(check_begun());
  RegionPool& pool = *begun_->pool;
  std::vector<TensorInfo> tensors = pool.tensors();
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].offset_bytes = pool.offsets_bytes()[i];
  std::ranges::stable_sort(tensors, {}, &TensorInfo::offset_bytes);
  return std::pair(pool.share(*begun_->region), std::move(tensors));
}

// ---- waiting

Client::Publication* Client::find(std::uint64_t version) {
  const auto found = std::find_if(publications_.rbegin(), publications_.rend(), [&](const Publication& publication) {
    return version == 0 || publication.version == version;
  });
  return found != publications_.rend() ? &*found : nullptr;
}

Result<Outcome> Client::wait(std::uint64_t version, const WaitOptions& options, Deadline deadline) {
  const Publication* const mine = find(version);
  if (version == 0 && mine == nullptr) {
    return fail(Errc::kNotFound, Op::kPublish, "nothing was committed that could be waited for");
  }
  while (mine != nullptr && mine->state == Publication::State::kSent) {
    const Result<std::optional<local::Message>> message = receive(deadline);
    if (!message.has_value()) return message.error();
  }
  if (mine != nullptr) version = mine->version;
  if (mine != nullptr && mine->state == Publication::State::kFailed) return *mine->error;
  if (version == 0) {
    return fail(Errc::kClosed, Op::kPublish,
                "the connection ended before the origin had given the publication a number; ask for the versions");
  }
  const local::WaitRequest request{.version = version,
                                   .fraction = options.fraction,
                                   .timeout_s = seconds_until(deadline),
                                   .progress = options.on_progress != nullptr};
  WC_ASSIGN(const std::uint64_t request_id, send(request, deadline));
  const Result<Outcome> outcome = receive_outcome(request_id, options, deadline + kGrace);
  if (mine == nullptr) return outcome;
  if (mine->state == Publication::State::kFailed) return *mine->error;
  if (mine->state != Publication::State::kTaken) return outcome;
  if (outcome.has_value()) return Outcome{outcome->result, mine->take_s, mine->notice};
  if (outcome.error().code != Errc::kNotFound || options.fraction > 0) return outcome;
  // The origin has forgotten it, but its word stands.
  return Outcome{{.version = version, .reached = true}, mine->take_s, mine->notice};
}

Result<Outcome> Client::receive_outcome(std::uint64_t request_id, const WaitOptions& options, Deadline deadline) {
  for (;;) {
    WC_ASSIGN(const local::Message message, answer(request_id, deadline));
    if (const auto* progress = message.get<local::PublishProgress>()) {
      if (options.on_progress) options.on_progress(*progress);
    } else if (const auto* result = message.get<local::PublishResult>()) {
      return Outcome{*result, std::nullopt, {}};
    } else {
      return unknown_answer();
    }
  }
}

}  // namespace weightcast::client
