#include "client/c_structs.h"

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/asked_error.h"
#include "base/text.h"
#include "client/files.h"

namespace weightcast::client {
namespace {

static_assert(WC_INVALID_ARGUMENT == static_cast<int>(Errc::kInvalidArgument) + 1);
static_assert(WC_WRONG_BASE == static_cast<int>(Errc::kWrongBase) + 1);
static_assert(WC_NOT_ALLOWED == static_cast<int>(Errc::kNotAllowed) + 1);
static_assert(WC_CANCELLED == static_cast<int>(Errc::kCancelled) + 1);
static_assert(WC_TOO_FAR == static_cast<int>(Errc::kTooFar) + 1);

template <std::size_t Size>
void copy_text(char (&to)[Size], std::string_view text) {
  const std::string_view cut = cut_text(text, Size - 1);
  std::memcpy(to, cut.data(), cut.size());
  to[cut.size()] = '\0';
}

void tell_progress(const wc_wait_options& options, const local::PublishProgress& from) {
  std::vector<wc_worker_progress> workers;
  for (const local::WorkerProgress& worker : from.workers) {
    workers.push_back({worker.name.c_str(), worker.chunks_verified, worker.chunks_total, worker.receive_bytes_per_s,
                       worker.installed ? 1u : 0u, 0});
  }
  wc_progress progress{};
  progress.struct_size = sizeof progress;
  progress.version = from.version;
  progress.payload_bytes = from.payload_bytes;
  progress.elapsed_s = from.elapsed_s;
  progress.received = from.received;
  progress.workers = from.workers_total;
  progress.installed = from.installed;
  progress.worker = workers.data();
  progress.worker_count = workers.size();
  options.on_progress(options.context, &progress);
}

}  // namespace

Error invalid(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

wc_code code_of(Errc code) {
  const int number = static_cast<int>(code) + 1;
  return number >= WC_INVALID_ARGUMENT && number <= WC_TOO_FAR ? static_cast<wc_code>(number) : WC_IO;
}

void report(const Error& error, wc_error* out, std::string_view asked) {
  if (out == nullptr || out->struct_size < sizeof *out) return;
  wc_error filled{};
  filled.code = code_of(error.code);
  copy_text(filled.operation, operation_of(error, asked));
  std::string line = message_of(error, asked);
  std::replace(line.begin(), line.end(), '\n', ' ');
  copy_text(filled.message, line);
  copy_out(filled, out);
}

Result<PublishOptions> options_of(const wc_publish_options* given) {
  wc_publish_options options{};
  WC_TRY(copy_in(given, options));
  constexpr std::uint32_t kFlags = WC_ALLOW_NONFINITE | WC_SECOND_REGION | WC_NEW_MODEL | WC_FILE_TREE;
  if ((options.flags & ~kFlags) != 0 || options.reserved != 0 || options.reserved2 != 0) {
    return invalid("wc_publish_options has flags that this library does not know");
  }
  PublishOptions made;
  made.version = options.version;
  made.allow_nonfinite = (options.flags & WC_ALLOW_NONFINITE) != 0;
  made.second_region = (options.flags & WC_SECOND_REGION) != 0;
  made.new_model = (options.flags & WC_NEW_MODEL) != 0;
  made.file_tree = (options.flags & WC_FILE_TREE) != 0;
  made.parts = options.parts;
  if (options.files == nullptr && options.file_count > 0) return invalid("wc_publish_options: the files are NULL");
  if (options.files != nullptr && options.files_directory != nullptr) {
    return invalid("wc_publish_options has files and a directory of files; give one of them");
  }
  if (options.files != nullptr) {
    WC_ASSIGN(made.files, pack_files(std::span(options.files, options.file_count)));
  } else if (options.files_directory != nullptr) {
    WC_ASSIGN(made.files, pack_directory(options.files_directory));
  }
  return made;
}

wc_outcome outcome_of(const Outcome& from) {
  const local::PublishResult& result = from.result;
  wc_outcome out{};
  out.version = result.version;
  out.payload = result.kind <= WC_PATCH ? static_cast<wc_payload>(result.kind) : WC_UNDECIDED;
  out.reached = result.reached ? 1 : 0;
  out.payload_bytes = result.payload_bytes;
  out.workers = result.workers;
  out.installed = result.installed;
  out.t50_s = result.t50_s.value_or(-1);
  out.t90_s = result.t90_s.value_or(-1);
  out.t100_s = result.t100_s.value_or(-1);
  out.take_s = from.take_s.value_or(-1);
  out.predicted_s = result.predicted_s;
  out.origin_egress_bytes = result.origin_egress_bytes;
  copy_text(out.topology, result.topology);
  std::string missing;
  for (const std::string& name : result.missing) {
    if (missing.size() + name.size() + 2 > sizeof out.missing) break;
    missing += missing.empty() ? name : "\n" + name;
  }
  copy_text(out.missing, missing);
  copy_text(out.notice, from.notice);
  return out;
}

Result<WaitOptions> wait_options_of(const wc_wait_options& options) {
  WaitOptions made;
  if (options.until == WC_INSTALLED) {
    if (!(options.fraction > 0 && options.fraction <= 1)) return invalid("wc_wait: the fraction is not within 0 and 1");
    made.fraction = options.fraction;
  } else if (options.until != WC_TAKEN_OVER) {
    return invalid("wc_wait: there is no such thing to wait for");
  }
  if (options.on_progress != nullptr) {
    made.on_progress = [options](const local::PublishProgress& progress) { tell_progress(options, progress); };
  }
  return made;
}

wc_event event_of(const Event& from) {
  wc_event out{};
  if (const auto* installed = std::get_if<local::VersionInstalled>(&from)) {
    out.kind = WC_EVENT_INSTALLED;
    out.version = installed->version;
    out.run = installed->run;
    copy_text(out.directory, installed->path);
    copy_text(out.digest, installed->digest);
  } else if (const auto* preparing = std::get_if<local::VersionPreparing>(&from)) {
    out.kind = WC_EVENT_PREPARING;
    out.version = preparing->version;
  } else {
    out.kind = WC_EVENT_DISCONNECTED;
  }
  return out;
}

}  // namespace weightcast::client
