#pragma once

// weightcast.h for C++17: handles that free themselves, exceptions in place of codes, standard types in place of
// pointers. weightcast.h says what each call does, and its rules for threads, time and ownership hold here. Everything
// is inline, so that nothing but the C interface lies between a program and the library.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "weightcast/weightcast.h"

namespace wc {

using Milliseconds = std::chrono::milliseconds;

/// A call that failed. what() is one line for a person.
class Error : public std::runtime_error {
 public:
  explicit Error(const wc_error& error)
      : std::runtime_error(error.message), code_(error.code), operation_(error.operation) {}

  [[nodiscard]] wc_code code() const noexcept { return code_; }
  /// What was being done: "publish", "connect", ...
  [[nodiscard]] const std::string& operation() const noexcept { return operation_; }

 private:
  wc_code code_;
  std::string operation_;
};

namespace detail {

/// Calls `function` with `arguments` and a wc_error, and throws that.
template <typename Function, typename... Arguments>
void check(Function function, Arguments... arguments) {
  wc_error error = WC_INIT(error);
  if (function(arguments..., &error) != WC_OK) throw Error(error);
}

inline std::string take_text(char* text) {
  const std::unique_ptr<char, void (*)(char*)> owner(text, wc_free);
  return text;
}

inline std::optional<double> reached(double seconds) {
  return seconds >= 0 ? std::optional<double>(seconds) : std::nullopt;
}

}  // namespace detail

/// One tensor: a wc_tensor that owns its description. `data` stays the caller's.
struct Tensor {
  std::string name;
  std::string dtype;  ///< as safetensors writes it: "BF16", "F32", ...
  std::vector<std::uint64_t> shape;
  const void* data = nullptr;    ///< of publish() only
  std::uint64_t size_bytes = 0;  ///< 0, or what dtype and shape say

  [[nodiscard]] wc_tensor view() const {
    wc_tensor tensor{};
    tensor.name = name.c_str();
    tensor.dtype = dtype.c_str();
    tensor.shape = shape.data();
    tensor.rank = shape.size();
    tensor.data = data;
    tensor.size_bytes = size_bytes;
    return tensor;
  }
};

/// Cells of one tensor that have changed: a wc_change that owns its description. The arrays stay the caller's.
struct Change {
  std::string name;
  std::string dtype;
  const void* indices = nullptr;
  std::uint32_t index_bytes = 4;  ///< 4 or 8
  const void* values = nullptr;
  std::uint64_t count = 0;

  [[nodiscard]] wc_change view() const {
    wc_change change{};
    change.name = name.c_str();
    change.dtype = dtype.c_str();
    change.indices = indices;
    change.index_bytes = index_bytes;
    change.values = values;
    change.count = count;
    return change;
  }
};

/// A piece of a tensor, and how many of its elements change.
struct Piece {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> start;    ///< without any: the whole tensor
  std::vector<std::uint64_t> lengths;  ///< as many
  std::uint64_t count = 0;
  std::uint32_t index_bytes = 4;  ///< 4 or 8

  [[nodiscard]] wc_piece view() const {
    wc_piece piece{};
    piece.name = name.c_str();
    piece.dtype = dtype.c_str();
    piece.start = start.data();
    piece.lengths = lengths.data();
    piece.rank = start.size();
    piece.count = count;
    piece.index_bytes = index_bytes;
    return piece;
  }
};

/// The writable places of one piece.
struct PiecePlaces {
  void* indices = nullptr;
  void* values = nullptr;
};

struct PublishOptions {
  std::uint64_t version = WC_NEXT_VERSION;
  bool allow_nonfinite = false;
  bool second_region = false;        ///< begin(): rather take more memory than wait for the origin
  bool new_model = false;            ///< publish although the tensors are not those of the version before
  bool file_tree = false;            ///< publish_path(): all files below a directory
  std::vector<wc_file> files = {};   ///< what accompanies the weights; what they point to stays the caller's
  std::string files_directory = {};  ///< instead: the directory that holds such files
  std::uint32_t parts = 0;           ///< begin(), begin_changes(): how many Region::done() is called for

  /// Valid as long as this.
  [[nodiscard]] wc_publish_options view() const {
    wc_publish_options options = WC_INIT(options);
    options.version = version;
    if (allow_nonfinite) options.flags |= WC_ALLOW_NONFINITE;
    if (second_region) options.flags |= WC_SECOND_REGION;
    if (new_model) options.flags |= WC_NEW_MODEL;
    if (file_tree) options.flags |= WC_FILE_TREE;
    if (!files.empty()) options.files = files.data();
    options.file_count = files.size();
    if (!files_directory.empty()) options.files_directory = files_directory.c_str();
    options.parts = parts;
    return options;
  }
};

struct WaitOptions {
  double fraction = 0;  ///< of the active workers that are to have installed it; 0: until the origin has taken it over
  std::function<void(const wc_progress&)> on_progress;  ///< called from inside wait(); may not throw
};

/// wc_outcome.
struct Outcome {
  std::uint64_t version = 0;
  wc_payload payload = WC_UNDECIDED;
  bool reached = false;
  std::uint64_t payload_bytes = 0;
  std::uint32_t workers = 0;
  std::uint32_t installed = 0;
  std::optional<double> t50_s, t90_s, t100_s, take_s;
  double predicted_s = 0;
  std::uint64_t origin_egress_bytes = 0;
  std::string topology;
  std::vector<std::string> missing;
  std::string notice;  ///< of the origin: files that the version before had

  Outcome() = default;
  explicit Outcome(const wc_outcome& from)
      : version(from.version),
        payload(from.payload),
        reached(from.reached != 0),
        payload_bytes(from.payload_bytes),
        workers(from.workers),
        installed(from.installed),
        t50_s(detail::reached(from.t50_s)),
        t90_s(detail::reached(from.t90_s)),
        t100_s(detail::reached(from.t100_s)),
        take_s(detail::reached(from.take_s)),
        predicted_s(from.predicted_s),
        origin_egress_bytes(from.origin_egress_bytes),
        topology(from.topology),
        notice(from.notice) {
    const std::string names = from.missing;
    for (std::size_t begin = 0; begin < names.size();) {
      const std::size_t end = std::min(names.find('\n', begin), names.size());
      missing.push_back(names.substr(begin, end - begin));
      begin = end + 1;
    }
  }
};

/// wc_ready(); `has_version`: WC_READY_VERSION.
inline void wait_until_ready(const std::string& state_dir, Milliseconds timeout, bool has_version = false) {
  detail::check(wc_ready, state_dir.c_str(), has_version ? std::uint32_t{WC_READY_VERSION} : 0u, timeout.count());
}

/// wc_client. Every call may throw Error; its codes are those of the C function of the same name. `state_dir` "": the
/// environment's WEIGHTCAST_STATE.
class Client {
 public:
  explicit Client(const std::string& state_dir = {}, Milliseconds timeout = std::chrono::seconds(5)) {
    wc_client* client = nullptr;
    detail::check(wc_open, state_dir.c_str(), timeout.count(), &client);
    client_.reset(client);
  }

  [[nodiscard]] std::string status(Milliseconds timeout = std::chrono::seconds(5)) {
    char* json = nullptr;
    detail::check(wc_status, client_.get(), timeout.count(), &json);
    return detail::take_text(json);
  }
  [[nodiscard]] std::string versions(Milliseconds timeout = std::chrono::seconds(5)) {
    char* json = nullptr;
    detail::check(wc_versions, client_.get(), timeout.count(), &json);
    return detail::take_text(json);
  }
  /// Of one publication with its workers, or of all (0).
  [[nodiscard]] std::string history(std::uint64_t version = 0, Milliseconds timeout = std::chrono::seconds(5)) {
    char* json = nullptr;
    detail::check(wc_history, client_.get(), version, timeout.count(), &json);
    return detail::take_text(json);
  }
  [[nodiscard]] std::uint64_t next_version(Milliseconds timeout = std::chrono::seconds(5)) {
    std::uint64_t version = 0;
    detail::check(wc_next_version, client_.get(), timeout.count(), &version);
    return version;
  }

  /// Activates or releases a worker; with `provisions` no standby worker takes a lost one's place by itself.
  void serve(const std::string& name, bool serves, bool provisions = false,
             Milliseconds timeout = std::chrono::seconds(5)) {
    detail::check(wc_serve, client_.get(), name.empty() ? nullptr : name.c_str(), serves ? 1 : 0,
                  provisions ? std::uint32_t{WC_PROVISION} : 0u, timeout.count());
  }

  /// The origin knows that lost worker no more.
  void forget(const std::string& name, Milliseconds timeout = std::chrono::seconds(5)) {
    detail::check(wc_forget, client_.get(), name.c_str(), timeout.count());
  }

  /// The writable place of each tensor.
  [[nodiscard]] std::vector<void*> begin(const std::vector<Tensor>& tensors, const PublishOptions& options,
                                         Milliseconds timeout) {
    const std::vector<wc_tensor> views = views_of(tensors);
    const wc_publish_options given = options.view();
    std::vector<void*> addresses(tensors.size());
    detail::check(wc_begin, client_.get(), &given, views.data(), views.size(), addresses.data(), timeout.count());
    return addresses;
  }
  [[nodiscard]] std::vector<PiecePlaces> begin_changes(std::uint64_t base, const std::vector<Piece>& pieces,
                                                       const PublishOptions& options, Milliseconds timeout) {
    std::vector<wc_piece> views;
    views.reserve(pieces.size());
    for (const Piece& piece : pieces) {
      if (piece.start.size() != piece.lengths.size()) {
        throw std::invalid_argument("weightcast: a piece's start and lengths differ in number");
      }
      views.push_back(piece.view());
    }
    const wc_publish_options given = options.view();
    std::vector<void*> indices(pieces.size()), values(pieces.size());
    detail::check(wc_begin_changes, client_.get(), &given, base, views.data(), views.size(), indices.data(),
                  values.data(), timeout.count());
    std::vector<PiecePlaces> places(pieces.size());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = {indices[i], values[i]};
    return places;
  }
  /// Returns the version's number.
  std::uint64_t commit(Milliseconds timeout) {
    std::uint64_t version = 0;
    detail::check(wc_commit, client_.get(), static_cast<const wc_publish_options*>(nullptr), timeout.count(), &version);
    return version;
  }
  std::uint64_t commit(const PublishOptions& options, Milliseconds timeout) {
    const wc_publish_options given = options.view();
    std::uint64_t version = 0;
    detail::check(wc_commit, client_.get(), &given, timeout.count(), &version);
    return version;
  }
  void abort() { detail::check(wc_abort, client_.get()); }
  void reserve(const std::vector<Tensor>& tensors, unsigned regions = 1) {
    const std::vector<wc_tensor> views = views_of(tensors);
    detail::check(wc_reserve, client_.get(), views.data(), views.size(), regions);
  }
  std::uint64_t publish(const std::vector<Tensor>& tensors, const PublishOptions& options, Milliseconds timeout) {
    const std::vector<wc_tensor> views = views_of(tensors);
    const wc_publish_options given = options.view();
    std::uint64_t version = 0;
    detail::check(wc_publish, client_.get(), &given, views.data(), views.size(), timeout.count(), &version);
    return version;
  }
  std::uint64_t publish_path(const std::string& path, const PublishOptions& options, Milliseconds timeout) {
    const wc_publish_options given = options.view();
    std::uint64_t version = 0;
    detail::check(wc_publish_path, client_.get(), &given, path.c_str(), timeout.count(), &version);
    return version;
  }
  /// The version `base`, the last one, with these cells changed.
  std::uint64_t publish_sparse(std::uint64_t base, const std::vector<Change>& changes, const PublishOptions& options,
                               Milliseconds timeout) {
    std::vector<wc_change> views;
    views.reserve(changes.size());
    for (const Change& change : changes) views.push_back(change.view());
    const wc_publish_options given = options.view();
    std::uint64_t version = 0;
    detail::check(wc_publish_sparse, client_.get(), &given, base, views.data(), views.size(), timeout.count(),
                  &version);
    return version;
  }
  /// What was not reached in time is no error where the daemon told how far it came: see Outcome::reached.
  Outcome wait(std::uint64_t version, const WaitOptions& options, Milliseconds timeout) {
    wc_wait_options given = WC_INIT(given);
    given.until = options.fraction > 0 ? WC_INSTALLED : WC_TAKEN_OVER;
    given.fraction = options.fraction;
    if (options.on_progress) {
      given.on_progress = [](void* context, const wc_progress* progress) {
        static_cast<const WaitOptions*>(context)->on_progress(*progress);
      };
      given.context = const_cast<WaitOptions*>(&options);
    }
    wc_outcome outcome = WC_INIT(outcome);
    wc_error error = WC_INIT(error);
    const wc_code code = wc_wait(client_.get(), version, &given, timeout.count(), &outcome, &error);
    if (code != WC_OK && !(code == WC_TIMED_OUT && outcome.version != 0)) throw Error(error);
    return Outcome(outcome);
  }
  [[nodiscard]] int region_fd() {
    int fd = -1;
    detail::check(wc_region_fd, client_.get(), &fd);
    return fd;
  }

  /// Which publication the memory that was begun is filled for: see Region::filled_for().
  [[nodiscard]] std::uint64_t region_id() {
    std::uint64_t id = 0;
    detail::check(wc_region_id, client_.get(), &id);
    return id;
  }

  /// The memory that was begun, for what Region can do with it.
  [[nodiscard]] wc_region* hold_region() {
    wc_region* region = nullptr;
    detail::check(wc_region_hold, client_.get(), &region);
    return region;
  }

  /// From any thread, while a call runs.
  void cancel() noexcept { wc_cancel(client_.get()); }

 private:
  struct Close {
    void operator()(wc_client* client) const { wc_close(client); }
  };

  static std::vector<wc_tensor> views_of(const std::vector<Tensor>& tensors) {
    std::vector<wc_tensor> views;
    views.reserve(tensors.size());
    for (const Tensor& tensor : tensors) views.push_back(tensor.view());
    return views;
  }

  std::unique_ptr<wc_client, Close> client_;
};

/// wc_region: the memory of a publication that this process or another has begun.
class Region {
 public:
  /// The memory that `client` has begun.
  explicit Region(Client& client) : region_(client.hold_region()) {}
  explicit Region(int fd) {
    wc_region* region = nullptr;
    detail::check(wc_region_attach, fd, &region);
    region_.reset(region);
  }
  /// The number of the publication that it is filled for now; 0: none.
  [[nodiscard]] std::uint64_t filled_for() const { return wc_region_filled_for(region_.get()); }
  /// Which memory it is, in whatever process.
  [[nodiscard]] std::uint64_t memory() const { return wc_region_memory(region_.get()); }
  /// Reads what lies where again, for the next publication in the same memory.
  void renew() { detail::check(wc_region_renew, region_.get()); }
  /// Part `part` of the publication `id` is filled.
  void done(std::uint64_t id, std::uint32_t part) { detail::check(wc_region_done, region_.get(), id, part); }
  [[nodiscard]] std::size_t size() const { return wc_region_count(region_.get()); }
  [[nodiscard]] wc_slot slot(std::size_t index) const {
    wc_slot slot = WC_INIT(slot);
    detail::check(wc_region_slot, region_.get(), index, &slot);
    return slot;
  }
  [[nodiscard]] wc_slot find(const std::string& name) const {
    wc_slot slot = WC_INIT(slot);
    detail::check(wc_region_find, region_.get(), name.c_str(), &slot);
    return slot;
  }

 private:
  struct Close {
    void operator()(wc_region* region) const { wc_region_close(region); }
  };
  std::unique_ptr<wc_region, Close> region_;
};

/// wc_update_shadow(): returns how many elements differ.
inline std::uint64_t update_shadow(void* shadow, const void* now, std::uint64_t count, std::uint32_t element_bytes,
                                   std::uint64_t capacity, std::uint32_t* indices, void* values) {
  std::uint64_t changed = 0;
  detail::check(wc_update_shadow, shadow, now, count, element_bytes, capacity, indices, values, &changed);
  return changed;
}

struct Event {
  wc_event_kind kind{};
  std::uint64_t version = 0;
  std::string directory;
  std::string digest;
  std::uint32_t run = 0;  ///< wc_event
};

/// The elements in which a version differs from an earlier one. It owns the memory that its members point to.
class ChangeList {
 public:
  explicit ChangeList(wc_change_list* list) : list_(list) {}
  /// Tensors that have changes, by name.
  [[nodiscard]] std::size_t size() const noexcept { return wc_change_list_count(list_.get()); }
  /// `index` is below size().
  [[nodiscard]] const wc_change& operator[](std::size_t index) const { return *wc_change_list_at(list_.get(), index); }

 private:
  struct Close {
    void operator()(wc_change_list* list) const { wc_change_list_close(list); }
  };
  std::unique_ptr<wc_change_list, Close> list_;
};

/// wc_subscription.
class Subscription {
 public:
  explicit Subscription(const std::string& state_dir = {}, Milliseconds timeout = std::chrono::seconds(5)) {
    wc_subscription* subscription = nullptr;
    detail::check(wc_subscribe, state_dir.c_str(), timeout.count(), &subscription);
    subscription_.reset(subscription);
  }
  /// Nothing if no event came in time.
  [[nodiscard]] std::optional<Event> next(Milliseconds timeout) {
    wc_event event = WC_INIT(event);
    wc_error error = WC_INIT(error);
    const wc_code code = wc_next(subscription_.get(), timeout.count(), &event, &error);
    if (code == WC_TIMED_OUT) return std::nullopt;
    if (code != WC_OK) throw Error(error);
    return Event{event.kind, event.version, event.directory, event.digest, event.run};
  }
  /// `version` 0: the one in use. Release it, once per call.
  [[nodiscard]] Event acquire(std::uint64_t version = 0, Milliseconds timeout = std::chrono::seconds(5)) {
    wc_event event = WC_INIT(event);
    detail::check(wc_acquire, subscription_.get(), version, timeout.count(), &event);
    return Event{event.kind, event.version, event.directory, event.digest, event.run};
  }
  void release(std::uint64_t version, Milliseconds timeout = std::chrono::seconds(5)) {
    detail::check(wc_release, subscription_.get(), version, timeout.count());
  }
  /// The changes from `base_version`, of that digest, to `version`, which is acquired: see wc_changes(). `flags`: 0, or
  /// WC_OLD_VALUES.
  [[nodiscard]] ChangeList changes(std::uint64_t base_version, const std::string& base_digest, std::uint64_t version,
                                   Milliseconds timeout = std::chrono::minutes(1), std::uint32_t flags = 0) {
    wc_change_list* list = nullptr;
    detail::check(wc_changes, subscription_.get(), base_version, base_digest.c_str(), version, flags, timeout.count(),
                  &list);
    return ChangeList(list);
  }
  [[nodiscard]] int fd() const noexcept { return wc_subscription_fd(subscription_.get()); }
  /// From any thread, while next() runs.
  void cancel() noexcept { wc_subscription_cancel(subscription_.get()); }

 private:
  struct Close {
    void operator()(wc_subscription* subscription) const { wc_subscription_close(subscription); }
  };
  std::unique_ptr<wc_subscription, Close> subscription_;
};

}  // namespace wc
