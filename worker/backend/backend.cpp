#include "worker/backend/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/steady_clock.h"
#include "transport/http/client.h"
#include "worker/backend/backend_core.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

// Bounds how late the core notices that time has passed.
constexpr std::chrono::milliseconds kRoundTime = 10ms;
constexpr Duration kEventTime = 5ms;
constexpr Duration kDaemonPause = 100ms;

BackendCoreOptions core_options(const BackendOptions& options, const BackendProtocol& protocol) {
  BackendCoreOptions made;
  made.running_max = options.running_max;
  made.is_told = protocol.is_told();
  made.drain_time_max = options.answer_time_max;
  return made;
}

HttpClientOptions client_options(const BackendOptions& options, const Endpoint& server) {
  return {.server = server, .trust = options.trust, .server_role = Role::kWorker};
}

const Endpoint& control_of(const BackendOptions& options) {
  return options.control.host.empty() ? options.server : options.control;
}

BackendCall call_by(HttpClient& client) {
  return [&client](const HttpCall& one, Duration limit) { return client.call(one, limit); };
}

class ServerBackend final : public Backend {
 public:
  ServerBackend(FileSystem& files, std::unique_ptr<VersionSource> source, BackendOptions options,
                std::unique_ptr<BackendProtocol> protocol, std::unique_ptr<HttpClient> examining,
                std::unique_ptr<HttpClient> controlling, std::function<void(const std::string&)> say)
      : files_(files),
        source_(std::move(source)),
        options_(std::move(options)),
        protocol_(std::move(protocol)),
        examining_(std::move(examining)),
        controlling_(std::move(controlling)),
        say_(std::move(say)),
        core_(core_options(options_, *protocol_)),
        follower_([this] { follow(); }) {}

  ~ServerBackend() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      examining_->interrupt();
      controlling_->interrupt();
      for (Sender& sender : senders_) sender.interrupt();
    }
    changed_.notify_all();
    may_send_.notify_all();
    follower_.join();
    for (Sender& sender : senders_) sender.thread.join();
  }

  Result<RequestId> add(EngineRequest request) override {
    const std::lock_guard lock(mutex_);
    auto id = core_.add(std::move(request));
    pump();
    return id;
  }

  Status abort(RequestId id) override {
    const std::lock_guard lock(mutex_);
    Status aborted = core_.abort(id);
    pump();
    return aborted;
  }

  /// Waits for an answer for at most kEventTime.
  std::vector<EngineEvent> step() override {
    std::unique_lock lock(mutex_);
    pump();
    has_events_.wait_for(lock, kEventTime, [&] { return core_.has_events(); });
    return core_.take_events();
  }

  bool busy() const override {
    const std::lock_guard lock(mutex_);
    return core_.open() > 0 || core_.has_events();
  }

  bool has_log_probs() const override { return protocol_->has_log_probs(); }

  std::optional<Version> take_version() override {
    const std::lock_guard lock(mutex_);
    return std::exchange(new_version_, std::nullopt);
  }

  Installs installs() const override {
    const std::lock_guard lock(mutex_);
    return installs_;
  }

 private:
  struct Sending {
    RequestId request;
    Version version;  // that the server had
  };
  struct Sender {
    std::unique_ptr<HttpClient> client, asking;
    std::optional<RequestId> request;  // whose call is under way
    std::thread thread;

    void interrupt() const {
      client->interrupt();
      asking->interrupt();
    }
  };

  // ---- with the mutex

  void pump() {
    const Instant now = steady_now();
    while (!stop_) {
      const auto action = core_.poll_action(now);
      if (!action) break;
      switch (action->kind) {
        case BackendAction::Kind::kSend: send(now, *action); break;
        case BackendAction::Kind::kCancel: cancel(action->request); break;
        case BackendAction::Kind::kAsk:
        case BackendAction::Kind::kInstall: order_ = *action; break;
      }
    }
    if (const std::optional<Version> version = core_.version(); version && version != version_) {
      version_ = new_version_ = version;
      ++installs_.installed;
    }
    if (order_) changed_.notify_all();
    if (core_.has_events()) has_events_.notify_all();
  }

  void send(Instant now, const BackendAction& action) {
    const auto idle =
        static_cast<std::size_t>(std::ranges::count_if(senders_, [](const Sender& sender) { return !sender.request; }));
    if (idle <= to_send_.size()) {
      if (const Status added = add_sender(); !added.has_value()) {
        return core_.handle_answer(now, action.request, added.error());
      }
    }
    to_send_.push_back({action.request, action.version.version});
    may_send_.notify_one();
  }

  Status add_sender() {
    WC_ASSIGN(auto client, HttpClient::make(client_options(options_, options_.server)));
    WC_ASSIGN(auto asking, HttpClient::make(client_options(options_, control_of(options_))));
    Sender& sender = senders_.emplace_back();
    sender.client = std::move(client);
    sender.asking = std::move(asking);
    sender.thread = std::thread([this, &sender] { send_all(sender); });
    return {};
  }

  void cancel(RequestId id) {
    // One that no thread has taken yet is answered when it is taken.
    for (const Sender& sender : senders_) {
      if (sender.request == id) sender.interrupt();
    }
  }

  // ---- threads

  void send_all(Sender& sender) {
    std::unique_lock lock(mutex_);
    for (;;) {
      may_send_.wait(lock, [&] { return stop_ || !to_send_.empty(); });
      if (stop_) return;
      const auto [id, version] = to_send_.front();
      to_send_.pop_front();
      Result<BackendAnswer> answer = fail(Errc::kCancelled, Op::kSend, "the request was called off");
      if (const EngineRequest* found = core_.request(id); found != nullptr) {
        const EngineRequest request = *found;
        sender.request = id;
        lock.unlock();
        answer = generate(sender, request, version);
        lock.lock();
        sender.request.reset();
      }
      core_.handle_answer(steady_now(), id, std::move(answer));
      pump();
    }
  }

  Result<BackendAnswer> generate(Sender& sender, const EngineRequest& request, Version before) {
    WC_ASSIGN(const HttpResponse response,
              sender.client->call(protocol_->completion(request), options_.answer_time_max));
    WC_ASSIGN(BackendAnswer answer, protocol_->read_completion(response, request));
    if (protocol_->says_versions()) return answer;
    WC_ASSIGN(const Version after, protocol_->installed(call_by(*sender.asking), options_.check_time_max));
    for (EngineToken& token : answer.tokens) token.version = after == before ? after : kNoVersion;
    return answer;
  }

  void follow() {
    std::string said;  // of the daemon
    for (;;) {
      const auto event = source_->next(kRoundTime);
      std::optional<BackendAction> order;
      std::vector<std::string> lines;
      {
        std::unique_lock lock(mutex_);
        if (!event.has_value()) changed_.wait_for(lock, kDaemonPause, [&] { return stop_ || order_; });
        if (stop_) return;
        if (event.has_value() && *event && (*event)->kind == VersionEvent::Kind::kInstalled) {
          core_.handle_published(steady_now(), (*event)->name);
        }
        pump();
        order = std::exchange(order_, std::nullopt);
        while (auto line = core_.poll_line()) lines.push_back(*std::move(line));
      }
      if (!event.has_value()) {
        if (std::exchange(said, event.error().message()) != said) lines.push_back(said);
      } else if (*event) {
        said.clear();
      }
      for (const std::string& line : lines) say_(line);
      if (order) perform(*order);
    }
  }

  void perform(const BackendAction& order) {
    if (order.kind == BackendAction::Kind::kAsk) {
      Result<Version> outcome = ask(order.is_anew);
      const std::lock_guard lock(mutex_);
      core_.handle_asked(steady_now(), std::move(outcome));
      return pump();
    }
    const Instant begin = steady_now();
    const Status outcome = install(order.version);
    const std::lock_guard lock(mutex_);
    installs_.install += steady_now() - begin;
    if (!outcome.has_value()) ++installs_.refused;
    core_.handle_installed(steady_now(), order.version, outcome);
    pump();
  }

  Result<Version> ask(bool is_anew) {
    // One that was started anew may have been started otherwise.
    if (is_anew) WC_TRY(protocol_->examine(call_by(*examining_), options_.needs, options_.examine_time_max));
    return protocol_->installed(call_by(*controlling_), options_.check_time_max);
  }

  Status install(VersionName name) {
    WC_ASSIGN(const PinnedVersion pinned, source_->pin(name));
    Status outcome =
        protocol_->install(files_, call_by(*controlling_), name.version, pinned.directory, options_.install_time_max);
    source_->unpin(name);
    return outcome;
  }

  FileSystem& files_;
  const std::unique_ptr<VersionSource> source_;  // of follower_
  const BackendOptions options_;
  const std::unique_ptr<BackendProtocol> protocol_;
  const std::unique_ptr<HttpClient> examining_, controlling_;
  const std::function<void(const std::string&)> say_;

  mutable std::mutex mutex_;
  std::condition_variable changed_, may_send_, has_events_;
  bool stop_ = false;
  BackendCore core_;
  std::deque<Sending> to_send_;
  std::optional<BackendAction> order_;  // for follower_ to do
  std::optional<Version> version_, new_version_;
  Installs installs_;
  std::deque<Sender> senders_;  // whose addresses stay
  std::thread follower_;
};

/// Errors: kInvalidArgument.
Status check_options(const BackendOptions& options) {
  if (options.kind == BackendKind::kParallax && options.protocol.blocks.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "parallax takes blocks of weights; set backend_blocks_dir");
  }
  if (!options.protocol.is_adapter) return {};
  if (options.kind != BackendKind::kVllm) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} takes whole models here, and the learner publishes adapters alone; set "
                            "lora_publish = \"merged\" at the learner",
                            to_string(options.kind)));
  }
  if (!options.protocol.model.empty()) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              "the learner publishes adapters; set backend_model to the name that the server's WEIGHTCAST_LORA gives");
}

}  // namespace

Result<std::unique_ptr<Backend>> Backend::start(FileSystem& files, std::unique_ptr<VersionSource> source,
                                                BackendOptions options, std::function<void(const std::string&)> say) {
  WC_TRY(check_options(options));
  std::unique_ptr<BackendProtocol> protocol = make_backend_protocol(options.kind, options.protocol);
  WC_ASSIGN(auto examining, HttpClient::make(client_options(options, options.server)));
  WC_ASSIGN(auto controlling, HttpClient::make(client_options(options, control_of(options))));
  const Status examined = protocol->examine(call_by(*examining), options.needs, options.examine_time_max);
  if (!examined.has_value()) {
    return about(fmt::format("the server that generates ({})", options.server.to_string()), examined.error());
  }
  return std::unique_ptr<Backend>(std::make_unique<ServerBackend>(files, std::move(source), std::move(options),
                                                                  std::move(protocol), std::move(examining),
                                                                  std::move(controlling), std::move(say)));
}

}  // namespace weightcast
