#include <fmt/format.h>

#include <optional>
#include <string>

#include "base/files/posix_file_system.h"
#include "base/parallel.h"
#include "base/text.h"
#include "base/units.h"
#include "security/node_keys.h"
#include "security/revocations.h"
#include "tools/command.h"
#include "transport/node/payload/verify_version.h"

namespace weightcast {
namespace {

struct VerifyFlags {
  std::string directory;
  std::string keys;
  unsigned threads = default_threads();
};

std::string proof_text(const ProvenVersion& proven) {
  if (proven.by == proven.manifest.version) return "SHA-256 of every byte";
  return fmt::format("SHA-256 of every byte of {} {} and {} signed patch{} from there",
                     proven.by_anchor ? "the anchor" : "version", proven.by.value, proven.patches,
                     proven.patches == 1 ? "" : "es");
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
  for (const std::filesystem::path& path : versions) {
    const Result<ProvenVersion> verified = verify_version(files, path, keys, revocations, flags.threads);
    if (!verified.has_value()) {
      fmt::print("{}: not proven\n", path.native());
      if (failures++ == 0) first_failure = verified.error();
      continue;
    }
    const ProvenVersion& proven = *verified;
    const Manifest& manifest = proven.manifest;
    fmt::print(
        "{}: proven\n"
        "  {} in {} files are version {} of run {}{}, as origin {} signed it, by {}\n"
        "  published {}; signing certificate {} of cluster {}, valid until {}{}\n",
        path.native(), format_bytes(manifest.snapshot_bytes()), manifest.files.size(), manifest.version.value,
        to_string(manifest.run), manifest.model_id.empty() ? "" : fmt::format(" of {}", printable(manifest.model_id)),
        proven.signer.name, proof_text(proven), date_of(manifest.published_unix_ms / 1000), proven.signer.serial,
        proven.signer.cluster, date_of(proven.signer.not_after_unix_s),
        proven.signer.not_after_unix_s < now ? ": expired since, it counted when the version was published" : "");
  }
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
}

}  // namespace weightcast
