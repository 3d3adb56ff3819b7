#include "transport/core/worker/acceptance.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "patch/snapshot/file_table.h"

namespace weightcast {
namespace {

Error refuse(const Manifest& manifest, Errc code, std::string_view why) {
  return fail(code, Op::kInstall, fmt::format("version {}: {}", manifest.version.value, why));
}

Status check_files(const Manifest& manifest, bool takes_files) {
  if (takes_files) return {};
  if (manifest.file_tree) {
    return refuse(manifest, Errc::kNotAllowed,
                  "it is a directory of any files, which may hold what programs execute; a worker takes these when it "
                  "is started with --files");
  }
  const auto foreign = std::ranges::find_if(
      manifest.files, [](const SnapshotFile& file) { return !is_kind_of_snapshot_file(file.name); });
  if (foreign == manifest.files.end()) return {};
  return refuse(manifest, Errc::kNotAllowed,
                fmt::format("it holds '{}'; of a snapshot this worker takes {} alone", printable(foreign->name),
                            kSnapshotFileKinds));
}

}  // namespace

Status Acceptance::check(const Manifest& manifest, RunId followed) const {
  if (config_.trust) WC_TRY(config_.trust->check(manifest));
  if (!config_.model_id.empty() && manifest.model_id != config_.model_id) {
    return refuse(manifest, Errc::kNotAllowed,
                  fmt::format("it is of model '{}', and this worker was told --model {}", printable(manifest.model_id),
                              config_.model_id));
  }
  if (manifest.run != kNoRun && followed != kNoRun && manifest.run != followed) {
    return refuse(
        manifest, Errc::kNotAllowed,
        fmt::format("it is of run {}, and this worker follows run {}", to_string(manifest.run), to_string(followed)));
  }
  WC_TRY(check_files(manifest, config_.takes_files));
  if (const Version newest = accepted_of(manifest.run != kNoRun ? manifest.run : followed); manifest.version < newest) {
    // The origin answers this by the latest version, whole.
    const Errc code = manifest.id().is_encoded() ? Errc::kWrongBase : Errc::kNotAllowed;
    return refuse(manifest, code,
                  fmt::format("this worker has had version {} of that run; publish a greater one, or empty "
                              "its --state directory",
                              newest.value));
  }
  const std::uint64_t bytes = std::max(manifest.snapshot_bytes(), manifest.payload_bytes);
  if (bytes <= config_.snapshot_bytes_max) return {};
  return fail(Errc::kTooLarge, Op::kInstall,
              fmt::format("version {} takes {}; this worker takes at most {}: see --snapshot-max",
                          manifest.version.value, format_bytes(bytes), format_bytes(config_.snapshot_bytes_max)));
}

void Acceptance::note_durable(const Manifest& manifest, RunId followed) {
  const RunId run = manifest.run != kNoRun ? manifest.run : followed;
  if (run == kNoRun) return;
  const Version newest = std::max(accepted_of(run), manifest.version);
  std::erase_if(accepted_, [&](const AcceptedVersion& accepted) { return accepted.run == run; });
  accepted_.push_back({run, newest});
  if (accepted_.size() > kRunsMax) accepted_.erase(accepted_.begin());
}

Version Acceptance::accepted_of(RunId run) const {
  const auto found = std::ranges::find(accepted_, run, &AcceptedVersion::run);
  return found == accepted_.end() ? kNoVersion : found->version;
}

}  // namespace weightcast
