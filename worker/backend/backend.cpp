#include "worker/backend/backend.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/steady_clock.h"
#include "base/text.h"
#include "trainer/model/lora_files.h"
#include "transport/http/client.h"
#include "worker/backend/backend_core.h"
#include "worker/backend/install_check.h"
#include "worker/engine/weights.h"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

// Bounds how late the core notices that time has passed.
constexpr std::chrono::milliseconds kRoundTime = 10ms;
constexpr Duration kEventTime = 5ms;
constexpr Duration kDaemonPause = 100ms;
constexpr Duration kLastInstallTime = 10s;  // for an install that is under way at the end

BackendCoreOptions core_options(const BackendOptions& options, const BackendProtocol& protocol) {
  BackendCoreOptions made;
  made.running_max = options.running_max;
  made.on_switch = options.on_switch;
  made.drain_time_max = options.answer_time_max;
  made.says_versions = protocol.says_versions();
  made.installs_itself = protocol.installs_itself();
  made.adapters_max = protocol.adapters_max();
  return made;
}

/// The model that adapters are for: the server's own, whose directory is also ours to read. Errors: those of
/// ModelFiles::open() and check_same_model(), with what to do.
Result<ModelFiles> open_base(FileSystem& files, const BackendOptions& options, const std::string& directory) {
  Result<ModelFiles> base = ModelFiles::open(files, directory);
  Status fits = base.has_value() ? check_same_model(options.model, base->config) : Status(base.error());
  if (fits.has_value()) return base;
  Error error = std::move(fits).error();
  error.detail = fmt::format(
      "the model beneath the run's adapters, {}, that the server was started with: {}; start it with that model's "
      "directory on this host, or set backend_check = false",
      printable(directory), error.detail);
  return error;
}

HttpClientOptions client_options(const BackendOptions& options, const Endpoint& server) {
  return {.server = server, .trust = options.trust, .server_role = Role::kWorker};
}

/// Errors: kInvalidArgument and those of open_base(), if the run's adapters cannot be used.
Status check_adapters(FileSystem& files, const BackendOptions& options, const BackendProtocol& protocol,
                      const std::string& base) {
  if (protocol.adapters_max() == 0) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} is given whole models here, and the learner publishes adapters alone; set "
                            "lora_publish = \"merged\" at the learner",
                            to_string(options.kind)));
  }
  if (goes_on(options.on_switch)) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                "an answer ends under the adapter that it began with, while others begin under the next; set "
                "backend_in_flight to wait, or to restart for answers that begin anew");
  }
  if (!options.checks_installs) return {};
  WC_TRY(open_base(files, options, base));
  return {};
}

class ServerBackend final : public Backend {
 public:
  ServerBackend(FileSystem& files, std::unique_ptr<VersionSource> source, BackendOptions options,
                std::unique_ptr<BackendProtocol> protocol, BackendServer server, std::unique_ptr<HttpClient> probing,
                std::unique_ptr<HttpClient> installing, std::unique_ptr<HttpClient> checking,
                std::function<void(const std::string&)> say)
      : files_(files),
        source_(std::move(source)),
        options_(std::move(options)),
        protocol_(std::move(protocol)),
        server_(std::move(server)),
        probing_(std::move(probing)),
        installing_(std::move(installing)),
        checking_(std::move(checking)),
        say_(std::move(say)),
        core_(core_options(options_, *protocol_)),
        follower_([this] { follow(); }),
        checker_([this] { check(); }) {}

  ~ServerBackend() override {
    {
      std::unique_lock lock(mutex_);
      stop_ = true;
      probing_->interrupt();
      // A server that is told half of it stays paused.
      changed_.notify_all();
      changed_.wait_for(lock, kLastInstallTime, [&] { return !is_performing_; });
      installing_->interrupt();
      checking_->interrupt();
      for (Sender& sender : senders_) sender.client->interrupt();
    }
    changed_.notify_all();
    may_send_.notify_all();
    follower_.join();
    checker_.join();
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
  struct Prepared {
    std::string directory;
    std::string digest;   // of the snapshot
    std::string adapter;  // its name at the server; "": a whole model
    std::optional<InstallCheck> check;
  };
  struct Sending {
    RequestId request;
    std::string adapter;
  };
  struct Sender {
    std::unique_ptr<HttpClient> client;
    std::optional<RequestId> request;  // whose call is under way
    std::thread thread;
  };

  // ---- with the mutex

  void pump() {
    const Instant now = steady_now();
    while (!stop_) {
      const auto action = core_.poll_action(now);
      if (!action) break;
      switch (action->kind) {
        case BackendAction::Kind::kSend: send(now, action->request, action->version); break;
        case BackendAction::Kind::kCancel: cancel(action->request); break;
        case BackendAction::Kind::kInstall:
        case BackendAction::Kind::kUnload:
        case BackendAction::Kind::kRestore: order_ = *action; break;
        case BackendAction::Kind::kCheck: check_ = true; break;
      }
    }
    if (check_ || order_) changed_.notify_all();
    if (core_.has_events()) has_events_.notify_all();
  }

  void send(Instant now, RequestId id, VersionName version) {
    const auto idle =
        static_cast<std::size_t>(std::ranges::count_if(senders_, [](const Sender& sender) { return !sender.request; }));
    if (idle <= to_send_.size()) {
      auto client = HttpClient::make(client_options(options_, options_.server));
      if (!client.has_value()) return core_.handle_answer(now, id, client.error());
      Sender& sender = senders_.emplace_back();
      sender.client = std::move(*client);
      sender.thread = std::thread([this, &sender] { send_all(sender); });
    }
    to_send_.push_back({id, takes_adapters() ? adapters_.at(version) : std::string()});
    may_send_.notify_one();
  }

  void cancel(RequestId id) {
    // One that no thread has taken yet is answered when it is taken.
    for (Sender& sender : senders_) {
      if (sender.request == id) sender.client->interrupt();
    }
  }

  // ---- threads

  void send_all(Sender& sender) {
    std::unique_lock lock(mutex_);
    for (;;) {
      may_send_.wait(lock, [&] { return stop_ || !to_send_.empty(); });
      if (stop_) return;
      const auto [id, adapter] = std::move(to_send_.front());
      to_send_.pop_front();
      Result<BackendAnswer> answer = fail(Errc::kCancelled, Op::kSend, "the request was called off");
      if (const EngineRequest* found = core_.request(id); found != nullptr) {
        const EngineRequest request = *found;
        const HttpCall call = protocol_->completion(request, adapter);
        sender.request = id;
        lock.unlock();
        const Result<HttpResponse> response = sender.client->call(call, options_.answer_time_max);
        if (response.has_value()) {
          answer = protocol_->read_completion(*response, request, adapter);
        } else {
          answer = response.error();
        }
        lock.lock();
        sender.request.reset();
      }
      core_.handle_answer(steady_now(), id, std::move(answer));
      pump();
    }
  }

  void check() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stop_ || check_; });
      if (stop_) return;
      check_ = false;
      // Of a version that was installed.
      const std::optional<VersionName> last = core_.last_installed();
      const std::string adapter = takes_adapters() ? adapters_.at(*last) : std::string();
      lock.unlock();
      const BackendCall call = [this](const HttpCall& one, Duration limit) { return checking_->call(one, limit); };
      Result<Version> outcome = kNoVersion;
      if (adapter.empty()) {
        outcome = protocol_->installed(call, options_.check_time_max);
      } else {
        const Result<bool> has = protocol_->has_adapter(call, adapter, options_.check_time_max);
        outcome = !has.has_value() ? Result<Version>(has.error()) : *has ? last->version : kNoVersion;
      }
      lock.lock();
      core_.handle_checked(steady_now(), std::move(outcome));
      pump();
    }
  }

  void follow() {
    std::string said;  // of the daemon
    for (;;) {
      auto event = source_->next(kRoundTime);
      std::optional<BackendAction> order;
      std::vector<std::string> lines;
      {
        std::unique_lock lock(mutex_);
        if (!event.has_value()) changed_.wait_for(lock, kDaemonPause, [&] { return stop_ || order_; });
        if (stop_) return;
        if (event.has_value() && *event && (*event)->kind == VersionEvent::Kind::kInstalled) {
          core_.handle_published((*event)->name);
        }
        pump();
        order = std::exchange(order_, std::nullopt);
        is_performing_ = order.has_value();
        while (auto line = core_.poll_line()) lines.push_back(*std::move(line));
      }
      if (!event.has_value()) {
        if (std::exchange(said, event.error().message()) != said) lines.push_back(said);
      } else if (*event) {
        said.clear();
        // Who changes files in place waits for pins. An install that comes later pins again.
        if ((*event)->kind == VersionEvent::Kind::kPreparing) unpin_all_but([](VersionName) { return false; });
        if ((*event)->kind == VersionEvent::Kind::kDisconnected) pins_.clear();
      }
      for (const std::string& line : lines) say_(line);
      if (!order) continue;
      switch (order->kind) {
        case BackendAction::Kind::kRestore: restore(); break;
        case BackendAction::Kind::kUnload: unload(order->version); break;
        default: install(order->version, order->is_anew);
      }
      const std::lock_guard lock(mutex_);
      is_performing_ = false;
      changed_.notify_all();
    }
  }

  void restore() {
    Status outcome = protocol_->restore(installing_call(), options_.install_time_max);
    const std::lock_guard lock(mutex_);
    core_.handle_restored(steady_now(), std::move(outcome));
    pump();
  }

  void unload(VersionName name) {
    std::string adapter;
    {
      const std::lock_guard lock(mutex_);
      adapter = adapters_.at(name);
    }
    Status outcome = protocol_->unload_adapter(installing_call(), adapter, options_.check_time_max);
    {
      const std::lock_guard lock(mutex_);
      core_.handle_unloaded(steady_now(), name, std::move(outcome));
      pump();
    }
    unpin_unused();
  }

  void install(VersionName name, bool is_anew) {
    const Instant begin = steady_now();
    const Result<const Prepared*> prepared = prepare(name);
    if (!prepared.has_value()) {
      const std::lock_guard lock(mutex_);
      ++installs_.refused;
      core_.handle_skipped(steady_now(), name, prepared.error());
      return pump();
    }
    // One that was started anew may have been started otherwise.
    if (is_anew && !std::exchange(is_examined_, false)) {
      const BackendCall call = [this](const HttpCall& one, Duration limit) { return probing_->call(one, limit); };
      const auto server = protocol_->examine(call, options_.needs, options_.examine_time_max);
      if (!server.has_value()) {
        const std::lock_guard lock(mutex_);
        ++installs_.refused;
        core_.handle_unready(steady_now(), name, server.error());
        return pump();
      }
      server_ = *server;
    }
    const Instant prepared_at = steady_now();
    Result<Version> outcome = load(name, **prepared);
    const Instant loaded_at = steady_now();
    if (outcome.has_value() && (*prepared)->check) {
      if (const Status right = check_install(**prepared, name.version); !right.has_value()) {
        outcome = right.error();
        // It generates nothing until it has other weights. Where it cannot be told, the next install fails, too. Nobody
        // has named an adapter that is refused.
        if (!stops() && !takes_adapters()) {
          static_cast<void>(protocol_->hold(installing_call(), options_.check_time_max));
        }
      }
    }
    {
      const std::lock_guard lock(mutex_);
      installs_.prepare += prepared_at - begin;
      installs_.install += loaded_at - prepared_at;
      installs_.check += steady_now() - loaded_at;
      ++(outcome.has_value() ? installs_.installed : installs_.refused);
      const std::optional<Version> before = core_.version();
      core_.handle_installed(steady_now(), name, std::move(outcome));
      // An adapter that is refused leaves the one before in use.
      if (core_.version() && core_.version() != before) new_version_ = core_.version();
      pump();
    }
    unpin_unused();
  }

  Result<Version> load(VersionName name, const Prepared& prepared) {
    if (!takes_adapters()) {
      return protocol_->install(files_, installing_call(), {name.version, prepared.directory, options_.on_switch},
                                options_.install_time_max);
    }
    WC_TRY(protocol_->load_adapter(installing_call(), prepared.adapter, prepared.directory, options_.install_time_max));
    return name.version;
  }

  /// Errors: those of the calls; that of InstallCheck::compare().
  Status check_install(const Prepared& prepared, Version version) {
    const InstallCheck& check = *prepared.check;
    std::vector<EngineToken> answers;
    for (const EngineRequest& request : check.requests()) {
      WC_ASSIGN(const HttpResponse response,
                probing_->call(protocol_->completion(request, prepared.adapter), options_.answer_time_max));
      WC_ASSIGN(const BackendAnswer answer, protocol_->read_completion(response, request, prepared.adapter));
      answers.push_back(answer.tokens.front());
      if (protocol_->says_versions() && !takes_adapters() && answers.back().version != version) {
        return fail(Errc::kBusy, Op::kVerify,
                    fmt::format("the server answers under version {}", answers.back().version.value));
      }
    }
    const double tolerance = options_.tolerance > 0 ? options_.tolerance : install_tolerance(server_.dtype);
    return check.compare(answers, tolerance);
  }

  bool stops() {
    const std::lock_guard lock(mutex_);
    return stop_;
  }

  BackendCall installing_call() {
    return [this](const HttpCall& one, Duration limit) { return installing_->call(one, limit); };
  }

  /// The version's directory, pinned, if it is of our model: config.json, and what the headers of its weights say. Not
  /// null.
  Result<const Prepared*> prepare(VersionName name) {
    if (!pins_.contains(name)) {
      WC_ASSIGN(PinnedVersion pinned, source_->pin(name));
      Prepared& made = pins_[name];
      made.directory = std::move(pinned.directory);
      made.digest = std::move(pinned.digest);
    }
    Prepared& prepared = pins_.at(name);
    if (takes_adapters()) {
      WC_TRY(prepare_adapter(name, prepared));
      return &prepared;
    }
    const Result<std::string> json =
        read_file(files_, std::filesystem::path(prepared.directory) / "config.json", kSidecarBytesMax);
    if (json.has_value()) {
      WC_ASSIGN(const ModelConfig config, parse_model_config(*json));
      WC_TRY(check_same_model(options_.model, config));
    } else if (json.error().code != Errc::kNotFound) {
      return json.error();
    }
    WC_TRY(check_no_adapter(prepared.directory));
    WC_ASSIGN(ModelFiles model, ModelFiles::open(files_, prepared.directory, options_.model));
    const bool is_checked = options_.checks_installs && protocol_->has_log_probs() && !protocol_->installs_itself();
    if (is_checked && !prepared.check) {
      WC_ASSIGN(const std::shared_ptr<const EngineWeights> weights, EngineWeights::open(std::move(model)));
      WC_TRY(make_check(prepared, weights, name.version));
    }
    return &prepared;
  }

  Status make_check(Prepared& prepared, std::shared_ptr<const EngineWeights> weights, Version version) {
    // Without the cut and the temperature they are what every server has, whatever the learner takes.
    const SamplingOptions sampling = options_.needs.log_probs ? options_.needs.sampling : SamplingOptions();
    WC_ASSIGN(prepared.check, InstallCheck::make(std::move(weights), version, sampling, options_.check_threads));
    return {};
  }

  /// What its configuration and the header of its tensors say, and its name.
  Status prepare_adapter(VersionName name, Prepared& prepared) {
    Result<LoraFiles> opened = LoraFiles::open(files_, prepared.directory, options_.model);
    if (!opened.has_value()) return about("it is no adapter of the run's", std::move(opened).error());
    const auto adapter = std::make_shared<const LoraFiles>(*std::move(opened));
    if (static_cast<std::uint64_t>(adapter->config.rank) > options_.needs.adapter_rank) {
      return fail(Errc::kInvalidArgument, Op::kInstall,
                  fmt::format("its rank is {}, and the run's adapters have {}", adapter->config.rank,
                              options_.needs.adapter_rank));
    }
    // Never of two contents: the server's cache knows an adapter by it.
    prepared.adapter = fmt::format("weightcast-{}-{}", name.version.value, prepared.digest);
    {
      const std::lock_guard lock(mutex_);
      adapters_[name] = prepared.adapter;
    }
    if (!options_.checks_installs || prepared.check) return {};
    if (!base_) {
      WC_ASSIGN(ModelFiles files, open_base(files_, options_, server_.model));
      WC_ASSIGN(base_, map_model(std::move(files)));
    }
    std::vector<NamedTensor> tensors = base_->tensors;
    WC_ASSIGN(std::vector<NamedTensor> added, map_tensors(adapter->snapshot));
    std::ranges::move(added, std::back_inserter(tensors));
    WC_ASSIGN(std::shared_ptr<const EngineWeights> weights,
              EngineWeights::make(options_.model, tensors, adapter, &adapter->config));
    return make_check(prepared, std::move(weights), name.version);
  }

  Status check_no_adapter(const std::string& directory) {
    WC_ASSIGN(const SnapshotSource snapshot, SnapshotSource::open(files_, directory));
    const bool is_adapter = std::ranges::any_of(
        snapshot.tensors(), [](const TensorInfo& tensor) { return tensor.name.find(".lora_A.") != std::string::npos; });
    if (!is_adapter) return {};
    return fail(
        Errc::kInvalidArgument, Op::kInstall,
        "it is an adapter alone, and the learner publishes whole models; have no other program publish at its origin");
  }

  [[nodiscard]] bool takes_adapters() const { return protocol_->adapters_max() > 0; }

  /// The files of the version in use are what the server is given if it refuses the next. An adapter's it may read as
  /// long as calls name it.
  void unpin_unused() {
    std::set<VersionName> used;
    {
      const std::lock_guard lock(mutex_);
      for (const auto& [name, adapter] : adapters_) {
        if (core_.is_loaded(name)) used.insert(name);
      }
      std::erase_if(adapters_, [&](const auto& one) { return !used.contains(one.first); });
      if (core_.last_installed()) used.insert(*core_.last_installed());
    }
    unpin_all_but([&](VersionName name) { return used.contains(name); });
  }

  void unpin_all_but(const std::function<bool(VersionName)>& is_kept) {
    std::erase_if(pins_, [&](const auto& pin) {
      if (is_kept(pin.first)) return false;
      source_->unpin(pin.first);
      return true;
    });
  }

  FileSystem& files_;
  const std::unique_ptr<VersionSource> source_;  // of follower_
  std::map<VersionName, Prepared> pins_;         // the same
  std::optional<MappedModel> base_;              // the same; beneath adapters, for checks
  const BackendOptions options_;
  const std::unique_ptr<BackendProtocol> protocol_;
  BackendServer server_;     // of follower_
  bool is_examined_ = true;  // the same; by Backend::start()
  const std::unique_ptr<HttpClient> probing_, installing_, checking_;
  const std::function<void(const std::string&)> say_;

  mutable std::mutex mutex_;
  std::condition_variable changed_, may_send_, has_events_;
  bool stop_ = false;
  BackendCore core_;
  std::map<VersionName, std::string> adapters_;  // names at the server, of versions that it may have
  std::deque<Sending> to_send_;
  std::optional<BackendAction> order_;  // for follower_ to do
  bool is_performing_ = false;          // an order
  bool check_ = false;                  // for checker_ to do
  std::optional<Version> new_version_;
  Installs installs_;
  std::deque<Sender> senders_;  // whose addresses stay
  std::thread follower_, checker_;
};

}  // namespace

Result<std::unique_ptr<Backend>> Backend::start(FileSystem& files, std::unique_ptr<VersionSource> source,
                                                BackendOptions options, std::function<void(const std::string&)> say) {
  std::unique_ptr<BackendProtocol> protocol = make_backend_protocol(options.kind, options.protocol);
  options.needs.on_switch = options.on_switch;
  options.needs.allows_quantisation = options.tolerance > 0;
  if (options.kind == BackendKind::kParallax && options.protocol.blocks.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "parallax takes blocks of weights; set backend_blocks_dir");
  }
  const Endpoint& control = options.control.host.empty() ? options.server : options.control;
  WC_ASSIGN(auto probing, HttpClient::make(client_options(options, options.server)));
  WC_ASSIGN(auto installing, HttpClient::make(client_options(options, control)));
  WC_ASSIGN(auto checking, HttpClient::make(client_options(options, control)));
  const BackendCall call = [&](const HttpCall& one, Duration limit) { return probing->call(one, limit); };
  const std::string who = fmt::format("the server that generates ({})", options.server.to_string());
  auto server = protocol->examine(call, options.needs, options.examine_time_max);
  if (!server.has_value()) return about(who, server.error());
  const bool is_its_own =
      options.kind == BackendKind::kWeightcast;  // which says what becomes of answers by its own flag
  if (goes_on(options.on_switch) && !protocol->says_versions()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                std::string(to_string(options.kind)) +
                    " does not say under which weights it sampled a token, so answers cannot go on under other ones; "
                    "set backend_in_flight to wait or restart");
  }
  if (options.needs.adapter_rank > 0) WC_TRY(check_adapters(files, options, *protocol, server->model));
  if (is_its_own && options.on_switch == BackendSwitch::kRecompute) {
    return fail(
        Errc::kInvalidArgument, Op::kConfigure,
        "what becomes of answers is for weightcast-engine serve to say: start it with --in-flight recompute, and "
        "set backend_in_flight = keep");
  }
  return std::unique_ptr<Backend>(std::make_unique<ServerBackend>(
      files, std::move(source), std::move(options), std::move(protocol), *std::move(server), std::move(probing),
      std::move(installing), std::move(checking), std::move(say)));
}

}  // namespace weightcast
