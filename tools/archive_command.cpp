#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/parallel.h"
#include "base/settings/log_writer.h"
#include "base/steady_clock.h"
#include "base/text.h"
#include "base/units.h"
#include "tools/command.h"
#include "tools/shell/terminal.h"
#include "transport/archive/archive_plan.h"
#include "transport/archive/archive_target.h"
#include "transport/archive/archiver.h"
#include "transport/archive/fetch_version.h"
#include "transport/io/log.h"
#include "transport/security/node_keys.h"
#include "transport/security/revocations.h"

namespace weightcast {
namespace {

// The origin makes the patch to a version after the version.
constexpr Duration kPatchGrace = std::chrono::seconds(10);
constexpr Duration kLookInterval = std::chrono::seconds(1);
// With --follow a storage that is away or full is tried again, ever more rarely.
constexpr Duration kRetryMax = std::chrono::seconds(60);
constexpr const char* kPlaces = "s3://BUCKET/PREFIX, https://HOST/PATH, http://HOST/PATH, or a directory";

struct ArchiveFlags {
  std::string state;
  std::string to;
  std::uint64_t every = 16;
  bool follow = false;
  bool json = false;
  unsigned connections = 4;
};

struct FetchFlags {
  std::string from;
  std::uint64_t version = 0;
  std::string keys;
  std::string output;
  bool json = false;
  unsigned connections = 4;
};

/// Whether the same call may succeed later: a disk is emptied, a storage answers again.
bool may_pass(const Error& error) {
  return error.code == Errc::kIo || error.code == Errc::kNoSpace || error.code == Errc::kTimedOut ||
         error.code == Errc::kNotFound || error.code == Errc::kBusy || error.code == Errc::kClosed;
}

/// The objects of a place. libcurl may write to a connection that its other end has closed.
Result<std::unique_ptr<ObjectStore>> open_place(FileSystem& files, const std::string& place) {
  std::signal(SIGPIPE, SIG_IGN);
  return open_objects(files, place);
}

std::string json_line(const nlohmann::json& object) { return json_text(object) + "\n"; }

Status archive(const ArchiveFlags& flags) {
  PosixFileSystem files;
  WC_ASSIGN(const std::unique_ptr<ObjectStore> objects, open_place(files, flags.to));
  std::optional<ProgressBar> bar;
  const auto show = [&bar, mutex = std::make_shared<std::mutex>()](std::uint64_t done, std::uint64_t total) {
    const std::lock_guard lock(*mutex);
    if (!bar) bar.emplace("archiving");
    bar->show(done, total);
  };
  WC_ASSIGN(Archiver archiver, Archiver::open(files, *objects,
                                              {.state = flags.state,
                                               .every = flags.every,
                                               .connections = flags.connections,
                                               .patch_grace = flags.follow ? kPatchGrace : Duration::zero(),
                                               .on_progress = show}));
  Duration wait = kLookInterval;
  for (;;) {
    const Result<std::optional<Archiver::Archived>> next = archiver.archive_next(steady_now());
    bar.reset();
    if (next.has_value() && *next) {
      const ArchivedPayload& payload = (*next)->payload;
      write_output(flags.json ? json_line({{"payload", to_string(payload.id)},
                                           {"bytes", payload.bytes},
                                           {"sent_bytes", (*next)->sent_bytes}})
                              : fmt::format("{}: {}, of which {} sent\n", to_string(payload.id),
                                            format_bytes(payload.bytes), format_bytes((*next)->sent_bytes)));
      wait = kLookInterval;
      continue;
    }
    if (!next.has_value() && !(flags.follow && may_pass(next.error()))) return next.error();
    if (!flags.follow) break;
    if (next.has_value()) {
      wait = kLookInterval;
    } else {
      write_log_text(fmt::format("weightcast: {}; trying again\n", printable(next.error().message())));
      wait = std::min(2 * wait, kRetryMax);
    }
    std::this_thread::sleep_for(wait);
  }
  const Version newest = newest_in(archiver.index());
  if (newest == kNoVersion) {
    return fail(
        Errc::kNotFound, Op::kRead,
        flags.state +
            ": no version here can begin an archive: the origin has signed a SHA-256 of none of them; it signs one "
            "every --anchor-interval publications, and --follow waits for that");
  }
  write_output(flags.json ? json_line({{"to", flags.to}, {"newest", newest.value}})
                          : fmt::format("{} leads to version {}\n", flags.to, newest.value));
  return {};
}

Status fetch(const FetchFlags& flags) {
  set_up_log("warning", {});  // recovery's own words are about a store
  PosixFileSystem files;
  const std::int64_t now = unix_now_s();
  std::optional<NodeKeys> keys;
  Revocations revocations;
  if (!flags.keys.empty()) {
    WC_ASSIGN(keys, read_node_keys(flags.keys, now));
    const std::filesystem::path file = flags.keys;
    WC_ASSIGN(revocations, newest_revocations(files, {file.parent_path()}, keys->authority.get()));
  }
  WC_ASSIGN(const std::unique_ptr<ObjectStore> objects, open_place(files, flags.from));
  std::optional<ProgressBar> bar(std::in_place, "fetching");
  const auto show = [&bar](std::uint64_t done, std::uint64_t total) { bar->show(done, total); };
  WC_ASSIGN(const FetchedVersion fetched, fetch_version(files, *objects, keys ? &*keys : nullptr, revocations,
                                                        {.version = Version{flags.version},
                                                         .output = flags.output,
                                                         .connections = flags.connections,
                                                         .threads = default_threads(),
                                                         .on_progress = show}));
  bar.reset();
  const Manifest& manifest = fetched.manifest;
  const std::string way = fetched.patches == 0
                              ? "SHA-256 of every byte"
                              : fmt::format("SHA-256 of every byte of version {} and {} patch{} from there",
                                            fetched.whole.value, fetched.patches, fetched.patches == 1 ? "" : "es");
  if (flags.json) {
    fmt::print("{}", json_line({{"output", flags.output},
                                {"version", manifest.version.value},
                                {"run", to_string(manifest.run)},
                                {"model", manifest.model_id},
                                {"bytes", manifest.snapshot_bytes()},
                                {"files", manifest.files.size()},
                                {"proven", keys.has_value()},
                                {"origin", fetched.signer ? fetched.signer->name : ""},
                                {"whole", fetched.whole.value},
                                {"patches", fetched.patches},
                                {"received_bytes", fetched.received_bytes},
                                {"published_unix_ms", manifest.published_unix_ms}}));
    return {};
  }
  fmt::print("{}: {}\n  {} in {} files are version {} of run {}{}, {}by {}\n  {} received, published {}\n",
             flags.output, keys ? "proven" : "not proven, without --keys; the bytes are those that the archive names",
             format_bytes(manifest.snapshot_bytes()), manifest.files.size(), manifest.version.value,
             to_string(manifest.run),
             manifest.model_id.empty() ? "" : fmt::format(" of {}", printable(manifest.model_id)),
             fetched.signer ? fmt::format("as origin {} signed it, ", fetched.signer->name) : "", way,
             format_bytes(fetched.received_bytes), date_of(manifest.published_unix_ms / 1000));
  return {};
}

}  // namespace

void add_archive_commands(const Commands& commands) {
  {
    const auto [app, flags] =
        add_command<ArchiveFlags>(commands, "archive", "Keep a daemon's versions in object storage", archive);
    add_state_option(*app, flags->state, "The daemon's state directory; it may run meanwhile");
    app->add_option("--to", flags->to, kPlaces)->required();
    app->add_option("--every", flags->every, "One version in so many is kept whole; patches lead from one to the next")
        ->check(CLI::Range(1, 1'000'000))
        ->capture_default_str();
    app->add_flag("--json", flags->json, "A JSON object a line: of each payload, and of the archive at the end");
    app->add_flag("--follow", flags->follow, "Go on with each version that comes, until a signal ends it");
    app->add_option("--connections", flags->connections, "At once; each takes 32 MiB of memory")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
  }
  const auto [app, flags] =
      add_command<FetchFlags>(commands, "fetch", "Make a version of an archive, without a daemon", fetch);
  app->add_option("--from", flags->from, kPlaces)->required();
  app->add_option("--version", flags->version, "This version; default: the newest")->check(CLI::PositiveNumber);
  app->add_option("--keys", flags->keys, "File of a node's keys: its authority is who is believed");
  app->add_option("-o,--output", flags->output, "The directory to make; what arrives lies in OUTPUT.fetch until then")
      ->required();
  app->add_flag("--json", flags->json, "One JSON object instead of text");
  app->add_option("--connections", flags->connections, "At once")->check(CLI::Range(1, 64))->capture_default_str();
}

}  // namespace weightcast
