// The only file that sees c10d. What differs between LibTorch 1.13 and 2 stays in here.
#include <fmt/format.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <thread>

#include "trainer/parallel/process_group.h"

#if defined(WEIGHTCAST_GLOO)
#if !defined(USE_C10D_GLOO)
#define USE_C10D_GLOO
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#if defined(WEIGHTCAST_NCCL)
#if !defined(USE_C10D_NCCL)
#define USE_C10D_NCCL
#endif
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#endif
#endif

namespace weightcast {

#if defined(WEIGHTCAST_GLOO)
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kBeat = 500ms;
// Longer than any exchange: who waits looks at the other ranks meanwhile.
constexpr auto kOperationTimeMax = std::chrono::hours(24);
constexpr auto kPoll = 100us;
constexpr std::uint64_t kCommandsKept = 64;

std::string words_of(const std::exception& exception) {
  const std::string_view words = exception.what();
  return std::string(words.substr(0, words.find('\n')));
}

std::vector<std::uint8_t> bytes_of_text(std::string_view text) { return {text.begin(), text.end()}; }

struct Address {
  std::string host;
  std::uint16_t port = 0;
};

Result<Address> parse_address(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Address address;
  if (colon != std::string::npos && colon > 0) {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    address.host = text.substr(0, colon);
    if (error == std::errc() && stop == end && address.port != 0) return address;
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("rendezvous is '{}'; it is HOST:PORT", text));
}

/// This host's address on the way to `address`, which other ranks reach, too.
Result<std::string> own_address(const Address& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  if (const int error = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return fail(Errc::kInvalidArgument, Op::kConnect,
                fmt::format("rendezvous {}: {}", address.host, ::gai_strerror(error)));
  }
  std::string own;
  for (const addrinfo* one = found; one != nullptr && own.empty(); one = one->ai_next) {
    const int fd = ::socket(one->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    sockaddr_storage local = {};
    socklen_t length = sizeof local;
    char text[NI_MAXHOST];
    // Connecting a datagram socket sends nothing: it asks for the route.
    if (::connect(fd, one->ai_addr, one->ai_addrlen) == 0 &&
        ::getsockname(fd, reinterpret_cast<sockaddr*>(&local), &length) == 0 &&
        ::getnameinfo(reinterpret_cast<sockaddr*>(&local), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) ==
            0) {
      own = text;
    }
    ::close(fd);
  }
  ::freeaddrinfo(found);
  if (!own.empty()) return own;
  return fail(Errc::kIo, Op::kConnect, fmt::format("no route to the rendezvous {}:{}", address.host, address.port));
}

/// Tells the other ranks every half second that this one lives, and notices when one of them does not.
class Watch {
 public:
  Watch(c10::intrusive_ptr<c10d::TCPStore> store, const ProcessGroupOptions& options)
      : store_(std::move(store)), options_(options), thread_([this] { run(); }) {}
  ~Watch() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  /// Which rank is gone, and why; "" if all live.
  [[nodiscard]] std::string gone() const {
    const std::lock_guard lock(mutex_);
    return gone_;
  }
  /// The same, after waiting for it for as long as it may take to find out.
  [[nodiscard]] std::string wait_for_gone() {
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, options_.silence_max + 3s, [&] { return !gone_.empty(); });
    return gone_;
  }

 private:
  struct Beat {
    std::int64_t count = -1;
    Clock::time_point seen = Clock::now();
  };

  void run() {
    std::vector<Beat> beats(options_.world_size);
    std::unique_lock lock(mutex_);
    while (!ending_ && gone_.empty()) {
      lock.unlock();
      const std::string gone = look(beats);
      lock.lock();
      gone_ = gone;
      if (!gone_.empty()) wake_.notify_all();
      wake_.wait_for(lock, kBeat, [&] { return ending_; });
    }
  }

  std::string look(std::vector<Beat>& beats) {
    try {
      store_->add(fmt::format("beat/{}", options_.rank), 1);
      for (std::uint32_t rank = 0; rank < options_.world_size; ++rank) {
        if (rank == options_.rank) continue;
        if (store_->check({fmt::format("left/{}", rank)})) {
          const std::vector<std::uint8_t> reason = store_->get(fmt::format("left/{}", rank));
          return fmt::format("rank {} has ended: {}", rank, std::string(reason.begin(), reason.end()));
        }
        const std::int64_t count = store_->add(fmt::format("beat/{}", rank), 0);
        const Clock::time_point now = Clock::now();
        if (count != beats[rank].count) {
          beats[rank] = {count, now};
        } else if (now - beats[rank].seen > options_.silence_max) {
          return fmt::format("rank {} has died, or its host does not answer: silent for {} s", rank,
                             std::chrono::duration_cast<std::chrono::seconds>(now - beats[rank].seen).count());
        }
      }
    } catch (const std::exception& exception) {
      return fmt::format("rank 0 has died, or its host does not answer: {}", words_of(exception));
    }
    return "";
  }

  const c10::intrusive_ptr<c10d::TCPStore> store_;
  const ProcessGroupOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::string gone_;
  bool ending_ = false;
  std::thread thread_;
};

Error gone_error(const std::string& who) { return fail(Errc::kClosed, Op::kReceive, who); }

/// Waits for an operation of c10d, but not for a rank that is gone.
template <typename Work>
Status wait_for(const Work& work, Watch& watch) {
  while (!work->isCompleted()) {
    if (const std::string who = watch.gone(); !who.empty()) return gone_error(who);
    std::this_thread::sleep_for(kPoll);
  }
  try {
    work->wait();
    return {};
  } catch (const std::exception& exception) {
    // A connection has ended: whose, the watch finds out.
    const std::string who = watch.wait_for_gone();
    return gone_error(who.empty() ? fmt::format("another rank is gone: {}", words_of(exception)) : who);
  }
}

template <typename Group>
class C10dGroup final : public ProcessGroup {
 public:
  C10dGroup(const ProcessGroupOptions& options, c10::intrusive_ptr<c10d::TCPStore> store,
            c10::intrusive_ptr<c10d::TCPStore> watch_store, c10::intrusive_ptr<c10d::ProcessGroupGloo> host_group,
            c10::intrusive_ptr<Group> group)
      : options_(options),
        store_(std::move(store)),
        host_group_(std::move(host_group)),
        group_(std::move(group)),
        watch_(std::move(watch_store), options) {}

  std::uint32_t rank() const override { return options_.rank; }
  std::uint32_t world_size() const override { return options_.world_size; }

  Result<std::unique_ptr<Pending>> exchange(torch::Tensor send, torch::Tensor receive,
                                            std::vector<std::int64_t> send_cells,
                                            std::vector<std::int64_t> receive_cells) override {
    try {
      // What lies in the host's memory goes over Gloo, whatever the device.
      auto work = send.is_cuda() ? group_->alltoall_base(receive, send, receive_cells, send_cells)
                                 : host_group_->alltoall_base(receive, send, receive_cells, send_cells);
      return std::unique_ptr<Pending>(
          std::make_unique<Exchange<decltype(work)>>(std::move(work), std::move(send), std::move(receive), watch_));
    } catch (const std::exception& exception) {
      return lost(exception);
    }
  }

  Status broadcast(std::span<std::byte> bytes, std::uint32_t root) override {
    if (bytes.empty()) return {};
    try {
      // A copy that the work owns: where a rank is gone Gloo goes on after this call has returned, and the caller's
      // memory may be no more. Bytes, because Gloo knows no BF16.
      std::vector<torch::Tensor> copy{torch::empty({static_cast<std::int64_t>(bytes.size())}, torch::kByte)};
      if (options_.rank == root) std::memcpy(copy[0].data_ptr(), bytes.data(), bytes.size());
      c10d::BroadcastOptions of;
      of.rootRank = static_cast<int>(root);
      WC_TRY(wait_for(host_group_->broadcast(copy, of), watch_));
      if (options_.rank != root) std::memcpy(bytes.data(), copy[0].data_ptr(), bytes.size());
      return {};
    } catch (const std::exception& exception) {
      return lost(exception);
    }
  }

  Result<std::string> next_command() override {
    const std::string key = fmt::format("command/{}", commands_);
    for (;;) {
      if (const std::string who = watch_.gone(); !who.empty()) return gone_error(who);
      try {
        store_->wait({key}, 500ms);
      } catch (const std::exception&) {
        continue;  // no command yet; the watch tells whether rank 0 is gone
      }
      try {
        const std::vector<std::uint8_t> command = store_->get(key);
        ++commands_;
        return std::string(command.begin(), command.end());
      } catch (const std::exception& exception) {
        return lost(exception);
      }
    }
  }

  Status send_command(const std::string& command) override {
    try {
      store_->set(fmt::format("command/{}", commands_), bytes_of_text(command));
      // The others may lag by the few commands that make no exchange.
      if (commands_ >= kCommandsKept) store_->deleteKey(fmt::format("command/{}", commands_ - kCommandsKept));
      ++commands_;
      return {};
    } catch (const std::exception& exception) {
      return lost(exception);
    }
  }

  std::string gone() const override { return watch_.gone(); }

  void leave(const std::string& reason) override {
    if (reason.empty()) return;
    try {
      store_->set(fmt::format("left/{}", options_.rank), bytes_of_text(reason));
      // Rank 0 holds the store: the others read it before it goes.
      if (options_.rank == 0) std::this_thread::sleep_for(2 * kBeat);
    } catch (const std::exception&) {  // rank 0 is gone, so nobody can read it
    }
  }

 private:
  template <typename Work>
  class Exchange final : public Pending {
   public:
    Exchange(Work work, torch::Tensor send, torch::Tensor receive, Watch& watch)
        : work_(std::move(work)), send_(std::move(send)), receive_(std::move(receive)), watch_(watch) {}
    Status wait() override { return wait_for(work_, watch_); }

   private:
    const Work work_;
    const torch::Tensor send_, receive_;  // in use until the end
    Watch& watch_;
  };

  Error lost(const std::exception& exception) {
    const std::string who = watch_.wait_for_gone();
    return gone_error(who.empty() ? fmt::format("another rank is gone: {}", words_of(exception)) : who);
  }

  const ProcessGroupOptions options_;
  const c10::intrusive_ptr<c10d::TCPStore> store_;
  const c10::intrusive_ptr<c10d::ProcessGroupGloo> host_group_;
  const c10::intrusive_ptr<Group> group_;
  Watch watch_;
  std::uint64_t commands_ = 0;
};

c10::intrusive_ptr<c10d::TCPStore> open_store(const Address& address, bool is_server,
                                              const ProcessGroupOptions& options) {
  c10d::TCPStoreOptions of;
  of.port = address.port;
  of.isServer = is_server;
  of.numWorkers = options.world_size;
  of.waitWorkers = false;
  of.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(options.join_time_max);
  return c10::make_intrusive<c10d::TCPStore>(address.host, of);
}

/// Waits until all ranks have come, so that an error can say how many have not.
Status wait_for_all(c10d::TCPStore& store, const ProcessGroupOptions& options) {
  const Clock::time_point until = Clock::now() + options.join_time_max;
  std::int64_t joined = store.add("joined", 1);
  while (joined < static_cast<std::int64_t>(options.world_size)) {
    if (Clock::now() > until) {
      return fail(Errc::kTimedOut, Op::kJoin,
                  fmt::format("{} of {} ranks came to {} within {} s; start the others, with ranks 0 to {}", joined,
                              options.world_size, options.rendezvous,
                              std::chrono::duration_cast<std::chrono::seconds>(options.join_time_max).count(),
                              options.world_size - 1));
    }
    std::this_thread::sleep_for(50ms);
    joined = store.add("joined", 0);
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ProcessGroup>> join_process_group(const ProcessGroupOptions& options) {
  WC_ASSIGN(const Address address, parse_address(options.rendezvous));
  WC_ASSIGN(const std::string own, own_address(address));
  try {
    const auto store = open_store(address, options.rank == 0, options);
    // A connection of its own, because a wait holds the other one.
    const auto watch_store = open_store(address, false, options);
    if (store->add(fmt::format("taken/{}", options.rank), 1) != 1) {
      return fail(Errc::kInvalidArgument, Op::kJoin,
                  fmt::format("another process at {} has rank {}; give each process a rank of its own",
                              options.rendezvous, options.rank));
    }
    WC_TRY(wait_for_all(*store, options));
    const auto of = c10d::ProcessGroupGloo::Options::create();
    of->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(kOperationTimeMax);
    of->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(own));
    const int rank = static_cast<int>(options.rank), size = static_cast<int>(options.world_size);
    const auto gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, of);
    if (!options.use_nccl) {
      return std::unique_ptr<ProcessGroup>(
          std::make_unique<C10dGroup<c10d::ProcessGroupGloo>>(options, store, watch_store, gloo, gloo));
    }
#if defined(WEIGHTCAST_NCCL)
    const auto nccl = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank, size);
    return std::unique_ptr<ProcessGroup>(
        std::make_unique<C10dGroup<c10d::ProcessGroupNCCL>>(options, store, watch_store, gloo, nccl));
#else
    return fail(Errc::kUnsupported, Op::kJoin, "this build has no NCCL, so ranks on CUDA devices cannot join");
#endif
  } catch (const std::exception& exception) {
    return fail(Errc::kTimedOut, Op::kJoin,
                fmt::format("rank {} at {}: {}; is rank 0 up, and the address right?", options.rank, options.rendezvous,
                            words_of(exception)));
  }
}

#else

Result<std::unique_ptr<ProcessGroup>> join_process_group(const ProcessGroupOptions&) {
  return fail(Errc::kUnsupported, Op::kJoin, "this build has no Gloo (libgloo-dev), so world_size is 1");
}

#endif

}  // namespace weightcast
