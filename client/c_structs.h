#pragma once

// The structs of weightcast.h and what they stand for in this folder. A caller of an earlier or a later release has a
// smaller or a larger struct, whose struct_size says so.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>

#include "base/result.h"
#include "client/client.h"
#include "client/subscription.h"
#include "weightcast/weightcast.h"

namespace weightcast::client {

/// kInvalidArgument: a C caller has passed what it may not.
[[nodiscard]] Error invalid(std::string why);

/// What the first release had of a struct; members were added behind it since.
template <typename T>
inline constexpr std::size_t kFirstSize = sizeof(T);
template <>
inline constexpr std::size_t kFirstSize<wc_publish_options> = offsetof(wc_publish_options, files);
template <>
inline constexpr std::size_t kFirstSize<wc_outcome> = offsetof(wc_outcome, notice);

/// Copies a caller's struct, whose `struct_size` says how much of it he has.
template <typename T>
[[nodiscard]] Status copy_in(const T* from, T& to) {
  if (from == nullptr) return {};
  if (from->struct_size < kFirstSize<T>) return invalid("a struct's struct_size is too small; set it by WC_INIT");
  const auto* const bytes = reinterpret_cast<const char*>(from);
  if (from->struct_size > sizeof(T) &&
      std::any_of(bytes + sizeof(T), bytes + from->struct_size, [](char byte) { return byte != 0; })) {
    return fail(Errc::kUnsupported, Op::kConfigure,
                "a struct has members that this library does not know; install the library that its header is from");
  }
  std::memcpy(&to, from, std::min(from->struct_size, sizeof(T)));
  return {};
}

/// Fills in as much of a caller's struct as he has.
template <typename T>
void copy_out(const T& from, T* to) {
  const std::size_t size = std::min(to->struct_size, sizeof(T));
  const std::size_t kept = to->struct_size;
  std::memcpy(to, &from, size);
  to->struct_size = kept;
}

/// Whether a result can be written there.
template <typename T>
[[nodiscard]] Status check_out(const T* out) {
  if (out == nullptr) return invalid("the place for the result is NULL");
  if (out->struct_size < kFirstSize<T>) return invalid("a struct's struct_size is too small; set it by WC_INIT");
  return {};
}

/// WC_IO for a code that this release does not have: a daemon of a later one may know more.
[[nodiscard]] wc_code code_of(Errc code);
/// Fills in `out`, unless it is NULL or too small.
void report(const Error& error, wc_error* out, std::string_view asked = "");

/// Errors: kInvalidArgument, kUnsupported (members of a later release), those of pack_files() and pack_directory().
[[nodiscard]] Result<PublishOptions> options_of(const wc_publish_options* given);
/// Errors: kInvalidArgument.
[[nodiscard]] Result<WaitOptions> wait_options_of(const wc_wait_options& options);
[[nodiscard]] wc_outcome outcome_of(const Outcome& from);
[[nodiscard]] wc_event event_of(const Event& from);

}  // namespace weightcast::client
