#include "transport/node/daemon.h"

#include <fmt/format.h>
#include <grp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "base/entropy.h"
#include "base/files/descriptors.h"
#include "base/files/posix_file_system.h"
#include "base/heap.h"
#include "base/parallel.h"
#include "base/process.h"
#include "base/text.h"
#include "proto/limits.h"
#include "proto/names.h"
#include "transport/core/peer_check.h"
#include "transport/io/jobs.h"
#include "transport/io/log.h"
#include "transport/io/net/socket.h"
#include "transport/io/net/socket_network.h"
#include "transport/io/supervisor.h"
#include "transport/io/uv_loop.h"
#include "transport/node/members/revocation_file.h"
#include "transport/node/node.h"
#include "transport/node/payload/signed_manifests.h"
#include "transport/node/private_files.h"
#include "transport/node/replaced_keys.h"

namespace weightcast {
namespace {

// A worker hears from its origin, and a child that has subscribed from its parent, several times a second. One that has
// not keeps its connection for the next version, so long.
constexpr Duration kIdleTimeout = std::chrono::seconds(120);

// For the loop, the store, the local socket and a few connections. With fewer libuv ends the process.
constexpr rlim_t kDescriptorsMin = 64;

Status check_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= kDescriptorsMin) return {};
  return fail(Errc::kNotAllowed, Op::kConfigure,
              fmt::format("this process may open {} files, and a node needs {}: raise the limit (ulimit -n)",
                          limit.rlim_cur, kDescriptorsMin));
}

}  // namespace

Status validate(const DaemonConfig& config) {
  const auto refuse = [](Errc code, std::string why) -> Status { return fail(code, Op::kConfigure, std::move(why)); };
  if (config.state.empty()) return refuse(Errc::kInvalidArgument, "--state: a directory is needed");
  if (const Status name = check_node_name(config.name); !name.has_value()) {
    return refuse(Errc::kInvalidArgument, "--name: " + name.error().detail);
  }
  if (config.model_id.size() > kNameBytesMax) {
    return refuse(Errc::kInvalidArgument, fmt::format("--model: longer than {} bytes", kNameBytesMax));
  }
  if (config.role == Role::kWorker && !config.origin) {
    return refuse(Errc::kInvalidArgument, "--origin HOST:PORT: a worker needs to know its origin");
  }
  if (config.role == Role::kOrigin && config.origin) {
    return refuse(Errc::kInvalidArgument, "--origin: an origin has none; did you mean --role worker?");
  }
  if (config.role == Role::kOrigin && config.single_copy) {
    return refuse(Errc::kInvalidArgument, "--single-copy: an origin needs the version before to make patches from");
  }
  if (config.role == Role::kOrigin && config.takes_files) {
    return refuse(Errc::kInvalidArgument, "--files: for workers; an origin sends what 'weightcast publish' names");
  }
  if (config.role == Role::kOrigin && !config.archive.empty()) {
    return refuse(Errc::kInvalidArgument,
                  "--archive: for workers, which read it; 'weightcast archive' beside the origin writes it");
  }
  if (config.archive.empty() && config.archive_limits != ArchiveLimits{}) {
    return refuse(Errc::kInvalidArgument, "--archive-rate and --archive-below: they need --archive");
  }
  if (config.memory_bytes_max && config.versions_in != VersionsIn::kAuto) {
    return refuse(Errc::kInvalidArgument, "--memory-max: for --versions-in auto, which chooses by it");
  }
  if (config.version_age_max != Duration::zero() && (config.role == Role::kOrigin || config.keys.empty())) {
    return refuse(Errc::kInvalidArgument, "--version-age-max: for a worker with --keys, which alone knows the time");
  }
  if (config.versions_kept < 1) return refuse(Errc::kInvalidArgument, "--keep: at least 1");
  if (!config.keys.empty() && config.insecure) {
    return refuse(Errc::kInvalidArgument, "--insecure: with --keys connections are encrypted; give one of the two");
  }
  if (!config.enroll.empty() && (config.keys.empty() || config.role != Role::kOrigin)) {
    return refuse(Errc::kInvalidArgument, "--enroll: an origin with --keys enrols workers");
  }
  if (!config.keys.empty() || config.insecure) return {};
  const auto refuse_plain = [&](std::string_view flag, const Endpoint& endpoint) {
    return refuse(Errc::kNotAllowed, fmt::format("{} {}: {}", flag, endpoint.to_string(), kBeyondLoopback));
  };
  if (!config.listen.is_loopback()) return refuse_plain("--listen", config.listen);
  if (config.origin && !config.origin->is_loopback()) return refuse_plain("--origin", *config.origin);
  return {};
}

Status fit_to_keys(DaemonConfig& config, const NodeKeys& keys) {
  if (keys.role() != config.role) {
    return fail(
        Errc::kNotAllowed, Op::kConfigure,
        fmt::format("--keys {}: they are for {} {}, and this node is to be {} {}; weightcast keys issue makes a "
                    "worker's, weightcast keys init the origin's",
                    config.keys, to_string(keys.role()), keys.info.name, config.role == Role::kOrigin ? "an" : "a",
                    to_string(config.role)));
  }
  if (config.name.empty()) config.name = keys.info.name;
  if (config.name == keys.info.name) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("--name {}: the keys in {} are for {}; leave --name out, or issue keys for that name",
                          config.name, config.keys, keys.info.name));
}

namespace {

/// Ends the process if stopping it takes longer than kStopTimeout: a disk that hangs holds the threads that wait for
/// it, and those who wait for the threads. Nothing is lost that kill -9 would not lose, which the store survives.
/// An alarm rather than a thread, because a host may have none left.
class StopDeadline {
 public:
  StopDeadline() = default;
  ~StopDeadline() { ::alarm(0); }
  StopDeadline(const StopDeadline&) = delete;
  StopDeadline& operator=(const StopDeadline&) = delete;

  void start() {
    std::signal(SIGALRM, [](int) {
      write_at_once(STDERR_FILENO, "the disk did not let go of what is under way in time; ending all the same\n");
      std::_Exit(EXIT_SUCCESS);
    });
    ::alarm(unsigned(std::chrono::duration_cast<std::chrono::seconds>(kStopTimeout).count()));
  }
};

/// Says in the log that this node's certificate is about to expire: at the start, and once a day.
class ExpiryWarning {
 public:
  ExpiryWarning(EventLoop& loop, std::shared_ptr<TlsContext> tls)
      : loop_(loop), tls_(std::move(tls)), timer_(loop, [this] { tell(); }) {
    if (tls_) tell();
  }

 private:
  static constexpr Duration kInterval = std::chrono::hours(24);

  void tell() {
    if (const auto warning = tls_->keys().expiry_warning(unix_now_s())) log_warning("{}", *warning);
    timer_.arm(loop_.now() + kInterval);
  }

  EventLoop& loop_;
  const std::shared_ptr<TlsContext> tls_;
  Timer timer_;
};

/// Gives free memory back now and then: seldom enough that a busy relay does not notice.
class HeapTrimmer {
 public:
  explicit HeapTrimmer(EventLoop& loop) : loop_(loop), timer_(loop, [this] { trim(); }) {
    timer_.arm(loop_.now() + kInterval);
  }

 private:
  static constexpr Duration kInterval = std::chrono::seconds(5);
  static constexpr std::size_t kFreeBytesMax = 8 * kMiB;

  void trim() {
    return_free_memory(kFreeBytesMax);
    timer_.arm(loop_.now() + kInterval);
  }

  EventLoop& loop_;
  Timer timer_;
};

/// Errors: kInvalidArgument (no such group), kIo.
Result<gid_t> group_named(const std::string& name) {
  group found{};
  group* result = nullptr;
  std::vector<char> buffer(4096);
  int error = 0;
  while ((error = ::getgrnam_r(name.c_str(), &found, buffer.data(), buffer.size(), &result)) == ERANGE &&
         buffer.size() < kMiB) {
    buffer.resize(2 * buffer.size());  // for its list of members
  }
  if (result != nullptr) return found.gr_gid;
  if (error != 0) return fail_errno(error, Op::kRead, "--api-group " + printable(name));
  // Not a mistake for certain: where a directory service names groups, it may not be up yet.
  return fail(Errc::kInvalidArgument, Op::kRead,
              fmt::format("--api-group {}: this host has no such group", printable(name)));
}

/// What lies above it is for all; it is for this user, and the group. What is wrong with it the store says.
Status make_state_directory(FileSystem& files, const std::filesystem::path& state, std::optional<gid_t> group) {
  static_cast<void>(make_directories(files, state.parent_path()));
  write_for(group);
  static_cast<void>(make_directories(files, state));
  return restrict_directory(state, group);
}

/// Looks each second whether somebody has deleted what versions lie in. Not on the loop's thread, which a disk that
/// hangs is not to hold up. It counts when it was gone twice: a node that is opened anew makes it.
class DeletionWatch {
 public:
  /// `look` says what is gone, or "", on another thread.
  DeletionWatch(EventLoop& loop, std::function<std::filesystem::path()> look,
                std::function<void(const std::filesystem::path&)> deleted)
      : loop_(loop), look_(std::move(look)), deleted_(std::move(deleted)), jobs_(loop), timer_(loop, [this] {
          begin();
        }) {
    timer_.arm(loop_.now() + kInterval);
  }

 private:
  static constexpr Duration kInterval = std::chrono::milliseconds(500);

  void begin() {
    jobs_.run([this] { found_ = look_(); }, [this] { end(); });
  }
  void end() {
    if (!found_.empty() && found_ == before_) deleted_(found_);
    before_ = found_;
    timer_.arm(loop_.now() + kInterval);
  }

  EventLoop& loop_;
  const std::function<std::filesystem::path()> look_;
  const std::function<void(const std::filesystem::path&)> deleted_;
  std::filesystem::path found_, before_;
  Jobs jobs_;
  Timer timer_;
};

}  // namespace

void take_reloaded(DaemonConfig& config, const DaemonConfig& read) {
  config.uplink = read.uplink;
  config.downlink = read.downlink;
  config.snapshot_bytes_max = read.snapshot_bytes_max;
  config.archive_limits = read.archive_limits;
  config.addresses_allowed = read.addresses_allowed;
  config.version_age_max = read.version_age_max;
}

Status run_daemon(DaemonConfig config, OpenArchive open_archive, const std::function<Status()>& when_open,
                  const ReadConfig& read_config) {
  std::shared_ptr<TlsContext> tls;
  if (!config.keys.empty()) {
    hide_memory();
    WC_ASSIGN(NodeKeys keys, read_node_keys(config.keys, unix_now_s()));
    WC_TRY(fit_to_keys(config, keys));
    config.keys_expire_unix_s = keys.info.not_after_unix_s;
    tls = TlsContext::make(std::move(keys), {.enrols = !config.enroll.empty()});
  }
  WC_TRY(validate(config));
  set_up_heap();
  if (const Status raised = raise_descriptor_limit(); !raised.has_value()) log_warning("{}", raised.error().message());
  WC_TRY(check_descriptor_limit());
  config.admission = AdmissionLimits::of_this_process();
  config.packing_speed = measure_packing_speed();
  StopDeadline deadline;  // outlives all that may take long to end
  PosixFileSystem files;  // takes its share of that limit
  UvLoop loop(config.threads > 0 ? config.threads : default_threads());
  SocketOptions sockets;
  sockets.congestion = config.congestion;
  sockets.idle_timeout = kIdleTimeout;
  if (!config.api_group.empty()) {
    WC_ASSIGN(sockets.local_group, group_named(config.api_group));
  }
  WC_TRY(make_state_directory(files, config.state, sockets.local_group));
  sockets.loopback_only = !tls && !config.insecure;
  SocketNetwork network(loop, config.pace ? config.uplink : Rate{}, config.pace ? config.downlink : Rate{}, sockets,
                        tls);
  const auto open_store = [&](StoreOptions options) { return Store::open(loop, files, std::move(options)); };
  bool stopping = false;
  bool reopening = false;
  if (tls) {
    // For what the node judges of its disk when it is opened; RevocationFile then begins with what counts.
    const std::filesystem::path keys_file = config.keys;
    WC_ASSIGN(Revocations revoked,
              newest_revocations(files, {keys_file.parent_path(), config.state}, tls->keys().authority.get()));
    tls->set_revocations(std::move(revoked));
  }
  NodeEnvironment environment{loop, network, files, open_store, host_entropy, [&] {
                                reopening = true;
                                loop.stop();
                              }};
  environment.open_archive = std::move(open_archive);
  std::shared_ptr<SigningKey> signer;
  if (tls && config.role == Role::kOrigin) {
    environment.signer = signer = std::make_shared<SigningKey>(tls->keys());
    environment.may_sign = [tls](std::int64_t unix_s) { return check_may_sign(tls->keys(), unix_s); };
  }
  std::shared_ptr<ClusterTrust> trust;
  if (tls && config.role == Role::kWorker) {
    environment.trust = trust = std::make_shared<ClusterTrust>(tls, TrustOptions{config.version_age_max});
  }
  std::optional<RevocationFile> revocations;
  Node* running = nullptr;
  const auto reload = [&]() -> Result<std::vector<std::string>> {
    if (!read_config) return fail(Errc::kUnsupported, Op::kConfigure, "this daemon has no configuration to read");
    WC_ASSIGN(ReadAgain again, read_config());
    again.config.name = config.name;  // which the keys may have given
    WC_TRY(validate(again.config));
    std::optional<NodeKeys> keys;
    if (tls) {
      WC_ASSIGN(keys, read_replaced_keys(config, tls->keys()));
      WC_TRY(revocations->check((keys ? *keys : tls->keys()).authority.get()));
    }
    // Nothing fails from here on.
    const auto add = [&](std::vector<std::string> changes) {
      std::ranges::move(changes, std::back_inserter(again.changes));
    };
    take_reloaded(config, again.config);
    network.set_rates(config.pace ? config.uplink : Rate{}, config.pace ? config.downlink : Rate{});
    if (trust) trust->set_options({config.version_age_max});
    if (keys) {
      add(changes_between(tls->keys(), *keys));
      config.keys_expire_unix_s = keys->info.not_after_unix_s;
      tls->set_keys(*std::move(keys));
      if (signer) signer->set_keys(tls->keys());
    }
    running->apply(config);
    if (tls) {
      const std::uint64_t list = tls->revocations().number();
      revocations->look_again();
      if (const std::uint64_t now = tls->revocations().number(); now != list) {
        add({fmt::format("revoked keys: list {} -> {}", list, now)});
      }
    }
    again.taken();
    for (const std::string& change : again.changes) log_info("the configuration was read again: {}", change);
    return std::move(again.changes);
  };
  environment.reload = reload;
  const VersionsPlace places(files, {config.versions_in, config.state, config.memory_dir,
                                     copies_kept(config.versions_kept, config.single_copy), config.memory_bytes_max,
                                     config.role == Role::kWorker && !config.single_copy});
  environment.check_room = [&places](std::uint64_t bytes, std::uint32_t copies) {
    return places.check_room(bytes, copies);
  };
  bool deleted = false;  // once: what versions lie in
  const auto open = [&]() -> Result<std::unique_ptr<Node>> {
    WC_ASSIGN(std::optional<StorePlace> place, places.at_start());
    environment.choose_place = nullptr;
    if (!place) environment.choose_place = [&places](std::uint64_t bytes) { return places.for_version(bytes); };
    config.place = std::move(place).value_or(StorePlace());
    if (deleted) config.place.why += "; anew, as somebody had deleted what was there";
    if (const auto& memory = config.place.memory_directory; !memory.empty()) {
      WC_TRY(restrict_directory(memory, sockets.local_group));
    }
    return open_node(config, environment);
  };
  WC_ASSIGN(std::unique_ptr<Node> node, open());
  running = node.get();
  if (config.place.memory_directory.empty()) places.give_up_memory();
  const ExpiryWarning expiry_warning(loop, tls);
  const HeapTrimmer heap_trimmer(loop);
  const auto look_for_deletion = [&places, &files, state = config.state,
                                  memory = memory_directory_of(config.memory_dir, config.state)] {
    return places.is_deleted() ? memory : deleted_folder(files, state);
  };
  const DeletionWatch deletion_watch(loop, look_for_deletion, [&](const std::filesystem::path& gone) {
    if (stopping || reopening) return;
    log_error("somebody has deleted {}; beginning anew with what the disk has", gone.native());
    deleted = reopening = true;
    loop.stop();
  });
  const auto follow_revocations = [&] {
    if (!tls) return;
    node->apply(tls->revocations());
    node->on_revocations([&](const std::string& list) {
      const Status taken = revocations->take(list);
      if (taken.has_value()) return;
      node->audit().note(loop.now(), Refusal::kRevocations, std::nullopt, config.origin->host, taken.error());
    });
  };
  if (tls) {
    tls->set_revocations({});
    revocations.emplace(loop, files, tls, RevocationFile::Places{config.keys, config.state},
                        [&] { node->apply(tls->revocations()); });
    WC_TRY(revocations->start());
  }
  follow_revocations();
  Timer goodbye(loop, [&] { loop.stop(); });
  loop.on_terminate([&](int signal) {
    if (stopping) return loop.stop();
    stopping = true;
    tell_supervisor("STOPPING=1");
    deadline.start();
    log_info("signal {}: stopping", signal);
    node->stop("it was stopped");
    goodbye.arm(loop.now() + Node::kGoodbye);
  });
  loop.on_hangup([&] {
    if (stopping) return;
    const auto changes = reload();
    if (!changes.has_value()) return log_warning("SIGHUP: {}; nothing has changed", changes.error().message());
    if (changes->empty()) log_info("SIGHUP: the configuration is as it was");
  });
  if (when_open) WC_TRY(when_open());
  tell_supervisor("READY=1");
  loop.run();
  while (std::exchange(reopening, false) && !stopping) {
    config.listen.port = node->endpoint().port;
    node.reset();
    WC_ASSIGN(node, open());
    running = node.get();
    follow_revocations();
    loop.run();
  }
  return {};
}

}  // namespace weightcast
