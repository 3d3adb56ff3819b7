// weightcast.h over the classes of this folder: checks what a C caller passes, and makes the call.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "client/c_structs.h"
#include "client/client.h"
#include "client/ready.h"
#include "client/region.h"
#include "client/status_json.h"
#include "client/subscription.h"
#include "patch/changes/differing_cells.h"
#include "weightcast/weightcast.h"

namespace weightcast::client {
namespace {

/// Runs `body`, which returns a Status. No exception leaves the library. `asked`: as for operation_of().
template <typename Body>
wc_code run(wc_error* error, const Body& body, std::string_view asked = "") noexcept {
  try {
    const Status status = body();
    if (status.has_value()) return WC_OK;
    report(status.error(), error, asked);
    return code_of(status.error().code);
  } catch (const std::bad_alloc&) {
    report(Error{Errc::kNoSpace, Op::kConfigure, {}}, error);
    return WC_NO_SPACE;
  } catch (const std::exception&) {
    report(Error{Errc::kIo, Op::kConfigure, {}}, error);
    return WC_IO;
  }
}

/// One call at a time uses a handle; who comes second is told so.
class Turn {
 public:
  explicit Turn(Cancellation& call) : call_(call), ours_(call.begin()) {}
  ~Turn() {
    if (ours_) call_.end();
  }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;
  [[nodiscard]] bool ours() const { return ours_; }

 private:
  Cancellation& call_;
  const bool ours_;
};

/// run() with a handle's turn taken.
template <typename Handle, typename Body>
wc_code run_on(Handle* handle, wc_error* error, const Body& body, std::string_view asked = "") noexcept {
  const auto call = [&]() -> Status {
    if (handle == nullptr) return invalid("the handle is NULL");
    const Turn turn(handle->impl->cancellation());
    if (!turn.ours()) return fail(Errc::kBusy, Op::kConfigure, "another thread is inside a call of this handle");
    return body(*handle->impl);
  };
  return run(error, call, asked);
}

/// NULL and "" are the one that the environment names.
Result<std::string> state_of(const char* given) {
  if (given != nullptr && *given != '\0') return std::string(given);
  const char* const named = std::getenv("WEIGHTCAST_STATE");
  if (named != nullptr && *named != '\0') return std::string(named);
  return invalid("no state directory is given, and WEIGHTCAST_STATE is not set");
}

Result<std::span<const wc_tensor>> tensors_of(const wc_tensor* tensors, std::size_t count) {
  if (tensors == nullptr && count > 0) return invalid("the tensors are NULL");
  return std::span(tensors, count);
}

/// Options of what is published by one call: there nobody else could do a part.
Result<PublishOptions> whole_options_of(const wc_publish_options* given) {
  WC_ASSIGN(PublishOptions made, options_of(given));
  if (made.parts != 0)
    return invalid("wc_publish_options has parts, which only wc_begin() and wc_begin_changes() take");
  return made;
}

/// What lies where in a region that another process has begun.
Result<std::vector<TensorInfo>> tensors_of(const Region& region) {
  const auto bytes = std::as_bytes(std::span<const char>(region.data(), region.content_bytes()));
  WC_ASSIGN(SafetensorsHeader header, parse_safetensors_header(bytes, bytes.size(), "region"));
  return std::move(header.tensors);
}

Status give_text(const std::string& text, char** out) {
  *out = static_cast<char*>(std::malloc(text.size() + 1));
  if (*out == nullptr) throw std::bad_alloc();
  std::memcpy(*out, text.c_str(), text.size() + 1);
  return {};
}

}  // namespace
}  // namespace weightcast::client

using namespace weightcast;          // NOLINT: this file is the interface of the one below
using namespace weightcast::client;  // NOLINT

struct wc_client {
  std::unique_ptr<Client> impl;
};

struct wc_subscription {
  std::unique_ptr<Subscription> impl;
};

struct wc_change_list {
  std::unique_ptr<ChangeList> list;
};

struct wc_region {
  std::shared_ptr<Region> memory;
  std::vector<TensorInfo> tensors;
};

// ---- errors

const char* wc_version(void) { return WEIGHTCAST_VERSION; }

const char* wc_code_name(wc_code code) {
  if (code == WC_OK) return "ok";
  if (code < WC_INVALID_ARGUMENT || code > WC_TOO_FAR) return "unknown";
  return to_string(static_cast<Errc>(static_cast<int>(code) - 1)).data();  // of a literal
}

// ---- client

wc_code wc_open(const char* state_dir, int64_t timeout_ms, wc_client** client, wc_error* error) {
  if (client != nullptr) *client = nullptr;
  return run(error, [&]() -> Status {
    if (client == nullptr) return invalid("wc_open: an argument is NULL");
    WC_ASSIGN(const std::string state, state_of(state_dir));
    WC_ASSIGN(std::unique_ptr<Client> impl, Client::open(state, deadline_after(timeout_ms)));
    *client = new wc_client{std::move(impl)};
    return {};
  });
}

wc_code wc_ready(const char* state_dir, uint32_t flags, int64_t timeout_ms, wc_error* error) {
  return run(error, [&]() -> Status {
    WC_ASSIGN(const std::string state, state_of(state_dir));
    if ((flags & ~WC_READY_VERSION) != 0) return invalid("wc_ready has flags that this library does not know");
    return wait_until_ready(state, (flags & WC_READY_VERSION) != 0, deadline_after(timeout_ms));
  });
}

void wc_close(wc_client* client) { delete client; }

void wc_cancel(wc_client* client) {
  if (client != nullptr) client->impl->cancellation().request();
}

wc_code wc_status(wc_client* client, int64_t timeout_ms, char** json, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    if (json == nullptr) return invalid("wc_status: the place for the text is NULL");
    WC_ASSIGN(const local::StatusReply status, impl.status(deadline_after(timeout_ms)));
    return give_text(to_json(status), json);
  });
}

wc_code wc_versions(wc_client* client, int64_t timeout_ms, char** json, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    if (json == nullptr) return invalid("wc_versions: the place for the text is NULL");
    WC_ASSIGN(const local::VersionsReply versions, impl.versions(deadline_after(timeout_ms)));
    return give_text(to_json(versions), json);
  });
}

wc_code wc_history(wc_client* client, uint64_t version, int64_t timeout_ms, char** json, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    if (json == nullptr) return invalid("wc_history: the place for the text is NULL");
    WC_ASSIGN(const local::HistoryReply history, impl.history(version, deadline_after(timeout_ms)));
    return give_text(to_json(history), json);
  });
}

void wc_free(char* text) { std::free(text); }

// ---- publishing

wc_code wc_next_version(wc_client* client, int64_t timeout_ms, uint64_t* version, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    if (version == nullptr) return invalid("wc_next_version: the place for the version is NULL");
    WC_ASSIGN(*version, impl.next_version(deadline_after(timeout_ms)));
    return {};
  });
}

wc_code wc_serve(wc_client* client, const char* name, int serves, uint32_t flags, int64_t timeout_ms, wc_error* error) {
  const auto call = [&](Client& impl) -> Status {
    if ((flags & ~static_cast<uint32_t>(WC_PROVISION)) != 0)
      return invalid("wc_serve: flags that this release does not know");
    return impl.serve(name == nullptr ? "" : name, serves != 0, (flags & WC_PROVISION) != 0,
                      deadline_after(timeout_ms));
  };
  return run_on(client, error, call, name == nullptr ? "provision" : serves != 0 ? "activate" : "release");
}

wc_code wc_forget(wc_client* client, const char* name, int64_t timeout_ms, wc_error* error) {
  const auto call = [&](Client& impl) -> Status {
    if (name == nullptr) return invalid("wc_forget: the name is NULL");
    return impl.forget(name, deadline_after(timeout_ms));
  };
  return run_on(client, error, call, "forget");
}

wc_code wc_begin(wc_client* client, const wc_publish_options* options, const wc_tensor* tensors, size_t count,
                 void** addresses, int64_t timeout_ms, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    const Deadline deadline = deadline_after(timeout_ms);
    WC_ASSIGN(const PublishOptions made, options_of(options));
    WC_ASSIGN(const std::span<const wc_tensor> all, tensors_of(tensors, count));
    if (addresses == nullptr) return invalid("wc_begin: the place for the addresses is NULL");
    return impl.begin(made, all, addresses, deadline);
  });
}

wc_code wc_begin_changes(wc_client* client, const wc_publish_options* options, uint64_t base_version,
                         const wc_piece* pieces, size_t count, void** indices, void** values, int64_t timeout_ms,
                         wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    const Deadline deadline = deadline_after(timeout_ms);
    WC_ASSIGN(const PublishOptions made, options_of(options));
    if (count > 0 && (pieces == nullptr || indices == nullptr || values == nullptr)) {
      return invalid("wc_begin_changes: the pieces, or the place for the addresses, are NULL");
    }
    return impl.begin_changes(made, base_version, std::span(pieces, count), indices, values, deadline);
  });
}

wc_code wc_commit(wc_client* client, const wc_publish_options* options, int64_t timeout_ms, uint64_t* version,
                  wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    const Deadline deadline = deadline_after(timeout_ms);
    std::optional<PublishOptions> made;
    if (options != nullptr) {
      WC_ASSIGN(made, options_of(options));
    }
    WC_ASSIGN(const std::uint64_t given, impl.commit(made, deadline));
    if (version != nullptr) *version = given;
    return {};
  });
}

wc_code wc_abort(wc_client* client, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    impl.abort();
    return {};
  });
}

wc_code wc_reserve(wc_client* client, const wc_tensor* tensors, size_t count, unsigned regions, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    WC_ASSIGN(const std::span<const wc_tensor> all, tensors_of(tensors, count));
    if (regions < 1 || regions > RegionPool::kRegionsMax) return invalid("wc_reserve: regions is neither 1 nor 2");
    return impl.reserve(all, regions);
  });
}

wc_code wc_publish(wc_client* client, const wc_publish_options* options, const wc_tensor* tensors, size_t count,
                   int64_t timeout_ms, uint64_t* version, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    const Deadline deadline = deadline_after(timeout_ms);
    WC_ASSIGN(const PublishOptions made, whole_options_of(options));
    WC_ASSIGN(const std::span<const wc_tensor> all, tensors_of(tensors, count));
    WC_ASSIGN(const std::uint64_t given, impl.publish(made, all, deadline));
    if (version != nullptr) *version = given;
    return {};
  });
}

wc_code wc_publish_path(wc_client* client, const wc_publish_options* options, const char* path, int64_t timeout_ms,
                        uint64_t* version, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    const Deadline deadline = deadline_after(timeout_ms);
    WC_ASSIGN(const PublishOptions made, whole_options_of(options));
    if (path == nullptr) return invalid("wc_publish_path: the path is NULL");
    WC_ASSIGN(const std::uint64_t given, impl.publish_path(made, path, deadline));
    if (version != nullptr) *version = given;
    return {};
  });
}

wc_code wc_publish_sparse(wc_client* client, const wc_publish_options* options, uint64_t base_version,
                          const wc_change* changes, size_t count, int64_t timeout_ms, uint64_t* version,
                          wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    const Deadline deadline = deadline_after(timeout_ms);
    WC_ASSIGN(const PublishOptions made, whole_options_of(options));
    if (changes == nullptr && count > 0) return invalid("wc_publish_sparse: the changes are NULL");
    WC_ASSIGN(const std::uint64_t given, impl.publish_changes(made, base_version, std::span(changes, count), deadline));
    if (version != nullptr) *version = given;
    return {};
  });
}

wc_code wc_wait(wc_client* client, uint64_t version, const wc_wait_options* options, int64_t timeout_ms,
                wc_outcome* outcome, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    const Deadline deadline = deadline_after(timeout_ms);
    wc_wait_options given{};
    given.until = WC_TAKEN_OVER;
    WC_TRY(copy_in(options, given));
    WC_ASSIGN(const WaitOptions made, wait_options_of(given));
    if (outcome != nullptr) {
      WC_TRY(check_out(outcome));
      copy_out(wc_outcome{}, outcome);
    }
    WC_ASSIGN(const Outcome reached, impl.wait(version, made, deadline));
    if (outcome != nullptr) copy_out(outcome_of(reached), outcome);
    if (reached.result.reached) return {};
    return fail(Errc::kTimedOut, Op::kPublish,
                "version " + std::to_string(reached.result.version) + ": " + std::to_string(reached.result.installed) +
                    " of " + std::to_string(reached.result.workers) + " workers installed it" +
                    (reached.result.hopeless.empty() ? " in time; " : ", and the others cannot: ") +
                    (!reached.result.hopeless.empty() ? reached.result.hopeless
                     : reached.result.workers == 0    ? "no active worker is joined: start one"
                                                      : "`weightcast status` says what the others wait for"));
  });
}

// ---- regions of other processes

wc_code wc_region_fd(wc_client* client, int* fd, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    if (fd == nullptr) return invalid("wc_region_fd: the place for the descriptor is NULL");
    WC_ASSIGN(*fd, impl.region_fd());
    return {};
  });
}

wc_code wc_region_attach(int fd, wc_region** region, wc_error* error) {
  if (region != nullptr) *region = nullptr;
  return run(error, [&]() -> Status {
    if (region == nullptr) return invalid("wc_region_attach: the place for the region is NULL");
    WC_ASSIGN(std::shared_ptr<Region> memory, Region::attach(fd));
    WC_ASSIGN(std::vector<TensorInfo> tensors, tensors_of(*memory));
    *region = new wc_region{std::move(memory), std::move(tensors)};
    return {};
  });
}

wc_code wc_region_id(wc_client* client, uint64_t* id, wc_error* error) {
  return run_on(client, error, [&](Client& impl) -> Status {
    if (id == nullptr) return invalid("wc_region_id: the place for the number is NULL");
    WC_ASSIGN(*id, impl.region_id());
    return {};
  });
}

wc_code wc_region_hold(wc_client* client, wc_region** region, wc_error* error) {
  if (region != nullptr) *region = nullptr;
  return run_on(client, error, [&](Client& impl) -> Status {
    if (region == nullptr) return invalid("wc_region_hold: the place for the region is NULL");
    WC_ASSIGN(auto held, impl.share_region());
    *region = new wc_region{std::move(held.first), std::move(held.second)};
    return {};
  });
}

wc_code wc_update_shadow(void* shadow, const void* now, uint64_t count, uint32_t element_bytes, uint64_t capacity,
                         uint32_t* indices, void* values, uint64_t* changed, wc_error* error) {
  return run(error, [&]() -> Status {
    if (changed == nullptr) return invalid("wc_update_shadow: the place for the number of changes is NULL");
    if (count > 0 && (shadow == nullptr || now == nullptr)) return invalid("wc_update_shadow: an array is NULL");
    if (capacity > 0 && (indices == nullptr || values == nullptr)) {
      return invalid("wc_update_shadow: the place for the indices or the values is NULL");
    }
    if (!std::has_single_bit(element_bytes) || element_bytes > 16) {
      return invalid("wc_update_shadow: elements have 1, 2, 4, 8 or 16 bytes, not " + std::to_string(element_bytes));
    }
    if (count > std::uint64_t{1} << 32) {
      return fail(Errc::kTooLarge, Op::kPublish,
                  "more elements than indices of 32 bits can tell apart; compare them "
                  "in pieces");
    }
    const std::size_t bytes = count * element_bytes;
    const std::size_t room = std::min(capacity, count);
    const CellLists lists{{indices, room}, {static_cast<std::byte*>(values), room * element_bytes}};
    *changed = update_shadow({static_cast<std::byte*>(shadow), bytes}, {static_cast<const std::byte*>(now), bytes},
                             element_bytes, lists);
    return {};
  });
}

wc_code wc_region_renew(wc_region* region, wc_error* error) {
  return run(error, [&]() -> Status {
    if (region == nullptr) return invalid("wc_region_renew: the region is NULL");
    WC_ASSIGN(region->tensors, tensors_of(*region->memory));
    return {};
  });
}

wc_code wc_region_done(wc_region* region, uint64_t id, uint32_t part, wc_error* error) {
  return run(error, [&]() -> Status {
    if (region == nullptr) return invalid("wc_region_done: the region is NULL");
    return region->memory->mark_done(id, part);
  });
}

uint64_t wc_region_memory(const wc_region* region) { return region == nullptr ? 0 : region->memory->memory(); }

uint64_t wc_region_filled_for(const wc_region* region) { return region == nullptr ? 0 : region->memory->publication(); }

void wc_region_close(wc_region* region) { delete region; }

size_t wc_region_count(const wc_region* region) { return region == nullptr ? 0 : region->tensors.size(); }

namespace {

void fill_slot(const wc_region& region, const TensorInfo& tensor, wc_slot* out) {
  wc_slot slot{};
  slot.name = tensor.name.c_str();
  slot.dtype = tensor.dtype.c_str();
  slot.shape = tensor.shape.data();
  slot.rank = tensor.shape.size();
  slot.address = region.memory->data() + tensor.offset_bytes;
  slot.size_bytes = tensor.size_bytes;
  copy_out(slot, out);
}

}  // namespace

wc_code wc_region_slot(const wc_region* region, size_t index, wc_slot* slot, wc_error* error) {
  return run(error, [&]() -> Status {
    if (region == nullptr) return invalid("wc_region_slot: the region is NULL");
    WC_TRY(check_out(slot));
    if (index >= region->tensors.size()) {
      return fail(Errc::kNotFound, Op::kRead, "region: there is no tensor " + std::to_string(index));
    }
    fill_slot(*region, region->tensors[index], slot);
    return {};
  });
}

wc_code wc_region_find(const wc_region* region, const char* name, wc_slot* slot, wc_error* error) {
  return run(error, [&]() -> Status {
    if (region == nullptr || name == nullptr) return invalid("wc_region_find: an argument is NULL");
    WC_TRY(check_out(slot));
    const auto& tensors = region->tensors;
    const auto found =
        std::find_if(tensors.begin(), tensors.end(), [&](const TensorInfo& tensor) { return tensor.name == name; });
    if (found == tensors.end()) {
      return fail(Errc::kNotFound, Op::kRead, "region: there is no tensor " + quoted_name(name));
    }
    fill_slot(*region, *found, slot);
    return {};
  });
}

// ---- subscription

wc_code wc_subscribe(const char* state_dir, int64_t timeout_ms, wc_subscription** subscription, wc_error* error) {
  if (subscription != nullptr) *subscription = nullptr;
  return run(error, [&]() -> Status {
    if (subscription == nullptr) return invalid("wc_subscribe: an argument is NULL");
    WC_ASSIGN(const std::string state, state_of(state_dir));
    WC_ASSIGN(std::unique_ptr<Subscription> impl, Subscription::open(state, deadline_after(timeout_ms)));
    *subscription = new wc_subscription{std::move(impl)};
    return {};
  });
}

void wc_subscription_close(wc_subscription* subscription) { delete subscription; }

int wc_subscription_fd(const wc_subscription* subscription) {
  return subscription == nullptr ? -1 : subscription->impl->fd();
}

wc_code wc_next(wc_subscription* subscription, int64_t timeout_ms, wc_event* event, wc_error* error) {
  return run_on(subscription, error, [&](Subscription& impl) -> Status {
    WC_TRY(check_out(event));
    WC_ASSIGN(const Event next, impl.next(deadline_after(timeout_ms)));
    copy_out(event_of(next), event);
    return {};
  });
}

wc_code wc_acquire(wc_subscription* subscription, uint64_t version, int64_t timeout_ms, wc_event* event,
                   wc_error* error) {
  return run_on(subscription, error, [&](Subscription& impl) -> Status {
    WC_TRY(check_out(event));
    WC_ASSIGN(const local::VersionInstalled pinned, impl.acquire(version, deadline_after(timeout_ms)));
    copy_out(event_of(pinned), event);
    return {};
  });
}

wc_code wc_release(wc_subscription* subscription, uint64_t version, int64_t timeout_ms, wc_error* error) {
  return run_on(subscription, error,
                [&](Subscription& impl) -> Status { return impl.release(version, deadline_after(timeout_ms)); });
}

wc_code wc_changes(wc_subscription* subscription, uint64_t base_version, const char* base_digest, uint64_t version,
                   uint32_t flags, int64_t timeout_ms, wc_change_list** list, wc_error* error) {
  if (list != nullptr) *list = nullptr;
  return run_on(subscription, error, [&](Subscription& impl) -> Status {
    if (list == nullptr || base_digest == nullptr) return invalid("wc_changes: the digest or the place is NULL");
    if ((flags & ~std::uint32_t{WC_OLD_VALUES}) != 0) return invalid("wc_changes: unknown flags");
    WC_ASSIGN(
        std::unique_ptr<ChangeList> found,
        impl.changes(base_version, base_digest, version, (flags & WC_OLD_VALUES) != 0, deadline_after(timeout_ms)));
    *list = new wc_change_list{std::move(found)};
    return {};
  });
}

size_t wc_change_list_count(const wc_change_list* list) { return list == nullptr ? 0 : list->list->changes().size(); }

const wc_change* wc_change_list_at(const wc_change_list* list, size_t index) {
  return index < wc_change_list_count(list) ? &list->list->changes()[index] : nullptr;
}

void wc_change_list_close(wc_change_list* list) { delete list; }

void wc_subscription_cancel(wc_subscription* subscription) {
  if (subscription != nullptr) subscription->impl->cancellation().request();
}
