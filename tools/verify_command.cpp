#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/units.h"
#include "tools/command.h"
#include "tools/shell/terminal.h"
#include "transport/node/payload/verify_version.h"
#include "transport/security/node_keys.h"
#include "transport/security/revocations.h"

namespace weightcast {
namespace {

struct VerifyFlags {
  std::string directory;
  std::string keys;
  unsigned threads = default_threads();
  bool json = false;
};

std::string proof_text(const ProvenVersion& proven) {
  if (proven.by == proven.manifest.version) return "SHA-256 of every byte";
  return fmt::format("SHA-256 of every byte of version {} and {} signed patch{} from there", proven.by.value,
                     proven.patches, proven.patches == 1 ? "" : "es");
}

/// For a person who waits; what cannot be read counts as nothing.
std::uint64_t bytes_below(const std::filesystem::path& directory) {
  std::uint64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    std::error_code unread;
    const std::uintmax_t size = at->is_regular_file(unread) ? at->file_size(unread) : 0;
    if (!unread) bytes += size;
  }
  return bytes;
}

Status verify(const VerifyFlags& flags) {
  const std::int64_t now = unix_now_s();
  WC_ASSIGN(const NodeKeys keys, read_node_keys(flags.keys, now));
  PosixFileSystem files;
  WC_ASSIGN(const std::vector<std::filesystem::path> versions, versions_below(files, flags.directory));
  const std::filesystem::path keys_file = flags.keys, state = state_directory_of(files, versions.front());
  WC_ASSIGN(const Revocations revocations,
            newest_revocations(files, {keys_file.parent_path(), state}, keys.authority.get()));
  std::optional<Error> first_failure;
  std::size_t failures = 0;
  nlohmann::json list = nlohmann::json::array();
  std::uint64_t total = 0, done = 0;
  for (const std::filesystem::path& path : versions) total += bytes_below(path);
  std::optional<ProgressBar> bar;
  for (const std::filesystem::path& path : versions) {
    bar.emplace("proving");  // after the lines of the one before
    bar->show(done, total);
    done += bytes_below(path);
    const Result<ProvenVersion> verified = verify_version(files, path, keys, revocations, flags.threads);
    bar.reset();
    if (!verified.has_value()) {
      if (flags.json) {
        list.push_back({{"path", path.native()}, {"proven", false}, {"why", verified.error().detail}});
      } else {
        fmt::print("{}: {}\n", path.native(), coloured_for(stdout, Colour::kRed, "not proven"));
      }
      if (failures++ == 0) first_failure = verified.error();
      continue;
    }
    const ProvenVersion& proven = *verified;
    const Manifest& manifest = proven.manifest;
    if (flags.json) {
      list.push_back({{"path", path.native()},
                      {"proven", true},
                      {"version", manifest.version.value},
                      {"run", to_string(manifest.run)},
                      {"model", manifest.model_id},
                      {"bytes", manifest.snapshot_bytes()},
                      {"files", manifest.files.size()},
                      {"origin", proven.signer.name},
                      {"cluster", proven.signer.cluster},
                      {"by", proven.by.value},
                      {"patches", proven.patches},
                      {"published_unix_ms", manifest.published_unix_ms}});
      continue;
    }
    fmt::print(
        "{}: {}\n"
        "  {} in {} files are version {} of run {}{}, as origin {} signed it, by {}\n"
        "  published {}; signing certificate {} of cluster {}, valid until {}{}\n",
        path.native(), coloured_for(stdout, Colour::kGreen, "proven"), format_bytes(manifest.snapshot_bytes()),
        manifest.files.size(), manifest.version.value, to_string(manifest.run),
        manifest.model_id.empty() ? "" : fmt::format(" of {}", printable(manifest.model_id)), proven.signer.name,
        proof_text(proven), date_of(manifest.published_unix_ms / 1000), proven.signer.serial, proven.signer.cluster,
        date_of(proven.signer.not_after_unix_s),
        proven.signer.not_after_unix_s < now ? ": expired since, it counted when the version was published" : "");
  }
  bar.reset();
  if (flags.json) fmt::print("{}\n", json_text(list));
  if (!first_failure) return {};
  if (failures > 1) {
    first_failure->detail += fmt::format("; {} of {} versions are not proven", failures, versions.size());
  }
  return *first_failure;
}

}  // namespace

void add_verify_command(const Commands& commands) {
  const auto [app, flags] = add_command<VerifyFlags>(
      commands, "verify", "Prove that versions on disk are what the cluster's origin published, byte for byte", verify);
  app->add_option("directory", flags->directory, "A daemon's --state directory, or one version's directory in it")
      ->required();
  app->add_option("--keys", flags->keys, "File of a node's keys: its authority is who is believed")->required();
  app->add_option("--threads", flags->threads, "Threads that hash; default: half of the cores, at most 8")
      ->check(CLI::Range(1, 64));
  app->add_flag("--json", flags->json, "A JSON array with an object of each version");
}

}  // namespace weightcast
