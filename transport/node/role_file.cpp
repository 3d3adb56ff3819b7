#include "transport/node/role_file.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <optional>
#include <string_view>

#include "transport/core/words.h"
#include "transport/io/log.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kFileBytesMax = 64;

fs::path path_of(const std::string& state) { return fs::path(state) / "role"; }

/// Errors: those of a disk that does not say.
Result<std::optional<Role>> role_in(FileSystem& files, const std::string& state) {
  const Result<std::string> text = read_file(files, path_of(state), kFileBytesMax);
  if (text.has_value()) {
    for (const Role role : {Role::kOrigin, Role::kWorker}) {
      if (*text == std::string(to_string(role)) + "\n") return std::optional(role);
    }
  } else if (text.error().code != Errc::kNotFound && text.error().code != Errc::kTooLarge) {
    return text.error();
  }
  for (const char* kept : {"peers.json", "history"}) {
    if (exists(files, fs::path(state) / kept)) return std::optional(Role::kOrigin);
  }
  if (exists(files, fs::path(state) / "accepted")) return std::optional(Role::kWorker);
  return std::optional<Role>();
}

}  // namespace

Status check_role(FileSystem& files, const std::string& state, Role role) {
  WC_ASSIGN(const std::optional<Role> there, role_in(files, state));
  if (!there || *there == role) return {};
  const auto named = [](Role one) { return one == Role::kOrigin ? "an origin" : "a worker"; };
  return fail(
      Errc::kNotAllowed, Op::kConfigure,
      fmt::format("--state {}: it is the directory of {}, and this node is to be {}; give it a directory of its "
                  "own, or end the one there with all that it has: weightcast remove --state {}",
                  state, named(*there), named(role), state));
}

void keep_role(FileSystem& files, const std::string& state, Role role) {
  const std::string text = std::string(to_string(role)) + "\n";
  const Result<std::string> there = read_file(files, path_of(state), kFileBytesMax);
  if (there.has_value() && *there == text) return;
  const Status written = replace_file(files, path_of(state), text, Synced::kBytesAndName);
  if (!written.has_value()) log_warning("{}", written.error().message());
}

}  // namespace weightcast
