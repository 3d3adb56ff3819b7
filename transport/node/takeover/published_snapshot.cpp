#include "transport/node/takeover/published_snapshot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/units.h"
#include "transport/node/payload/model_files.h"
#include "transport/node/payload/sampled_share.h"

namespace weightcast {
namespace {

Error holds_nothing(const std::string& name) {
  return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("{}: holds nothing", name));
}

Result<SnapshotSource> open_source(FileSystem& files, const SnapshotOrder& order, const std::string& name) {
  if (order.file_tree) {
    WC_ASSIGN(const std::vector<TreeFile> tree, list_file_tree(files, order.path));
    if (tree.empty()) return holds_nothing(name);
    return SnapshotSource::open_tree(files, order.path, tree);
  }
  if (!order.region) return SnapshotSource::open(files, order.path);
  return SnapshotSource::over(files, order.region, order.region_bytes, name);
}

Error another_model(const SnapshotOrder& order, const std::string& name, const std::string& difference) {
  return fail(Errc::kInvalidArgument, Op::kPublish,
              fmt::format("{}: its tensors are not those of version {}: {}; publish with {} if the workers are to take "
                          "another model",
                          name, order.before.value, difference, order.region ? "WC_NEW_MODEL" : "--new-model"));
}

Error other_contents(const SnapshotOrder& order, const std::string& name) {
  return fail(
      Errc::kInvalidArgument, Op::kPublish,
      fmt::format("{}: {}, and version {} is {}; publish with {} if the workers are to change over to it", name,
                  order.file_tree ? "it is a directory of files" : "it is a model", order.before.value,
                  order.file_tree ? "a model" : "a directory of files", order.region ? "WC_NEW_MODEL" : "--new-model"));
}

/// What is to accompany the weights, where they bring nothing themselves.
Result<std::optional<Sidecars>> added_files(FileSystem& files, const SnapshotOrder& order, const std::string& name,
                                            bool brings_own) {
  if (!order.files) return std::optional<Sidecars>();
  if (brings_own) {
    return fail(Errc::kInvalidArgument, Op::kPublish,
                fmt::format("{}: a directory brings its own files; put the others into it", name));
  }
  WC_ASSIGN(Sidecars unpacked, unpack_files(files, order.files, order.files_bytes));
  return std::optional(std::move(unpacked));
}

Result<std::optional<SnapshotSource>> open_before(FileSystem& files, const SnapshotOrder& order) {
  if (order.before_path.empty()) return std::optional<SnapshotSource>();
  // Nothing of the one stands in the other.
  if (order.before_is_tree != order.file_tree) return std::optional<SnapshotSource>();
  Result<SnapshotSource> opened =
      open_stored(files, order.before_path.string(), order.before_files, order.before_is_tree);
  if (opened.has_value()) return std::optional(std::move(*opened));
  if (order.new_model) return std::optional<SnapshotSource>();
  return about(fmt::format("version {}, which this one is to follow", order.before.value), opened.error());
}

bool have_equal_places(const SnapshotSource& before, const SnapshotSource& now) {
  return before.file_table().files() == now.file_table().files() && std::ranges::equal(before.tensors(), now.tensors());
}

}  // namespace

Result<PublishedSnapshot> PublishedSnapshot::open(FileSystem& files, const SnapshotOrder& order) {
  const std::string name = order.region ? "the region" : order.path;
  if (!order.new_model && !order.before_path.empty() && order.before_is_tree != order.file_tree) {
    return other_contents(order, name);
  }
  WC_ASSIGN(SnapshotSource source, open_source(files, order, name));
  bool brings_own = false;
  if (!order.region) {
    WC_ASSIGN(const FileInfo info, files.info(order.path));
    brings_own = info.is_directory();
  }
  WC_ASSIGN(std::optional<Sidecars> added, added_files(files, order, name, brings_own));
  WC_ASSIGN(const std::optional<SnapshotSource> before, open_before(files, order));
  if (before) {
    const std::optional<std::string> other =
        order.file_tree ? std::nullopt : difference_of(before->tensors(), source.tensors());
    if (other && !order.new_model) return another_model(order, name, *other);
    // Those of another model would be wrong.
    if (!brings_own && !added && !other) {
      WC_ASSIGN(added, before->read_sidecars());
      std::erase_if(*added, [&](const auto& file) {
        return std::ranges::find(order.before_files, file.first, &SnapshotFile::name) == order.before_files.end();
      });
    }
  }
  if (added) WC_TRY(source.add_sidecars(*added));
  if (source.size_bytes() == 0) {
    return holds_nothing(name);
  }
  PublishedSnapshot snapshot{std::move(source), name, order.region != nullptr, order.file_tree, {}, {}};
  if (!snapshot.source.left_out().empty()) {
    snapshot.notice =
        fmt::format("version {} goes without files above {}, which no engine needs: {}", order.version.value,
                    format_bytes(kSidecarBytesMax), fmt::join(snapshot.source.left_out(), ", "));
  }
  if (!before) return snapshot;
  const std::string lost =
      order.file_tree ? "" : lost_sidecars(order.before_files, snapshot.source.file_table().files());
  if (!lost.empty()) {
    snapshot.notice += fmt::format("{}version {} goes without files that version {} had: {}",
                                   snapshot.notice.empty() ? "" : "; ", order.version.value, order.before.value, lost);
  }
  if (have_equal_places(*before, snapshot.source)) {
    // What cannot be read of the version before is no reason to refuse this one.
    const Result<double> share = weightcast::changed_share(*before, snapshot.source);
    if (share.has_value()) snapshot.changed_share = *share;
  }
  return snapshot;
}

Status check_finite(const NonFiniteScan& scan, const PublishedSnapshot& snapshot) {
  const std::optional<NonFinite> found = scan.result();
  if (!found) return {};
  return fail(
      Errc::kInvalidArgument, Op::kPublish,
      fmt::format("{}: {} elements of {} tensors are NaN or infinite, the first in '{}'; publish with {} if that "
                  "is meant",
                  snapshot.name, found->elements, found->tensors, found->first_tensor,
                  snapshot.is_region ? "WC_ALLOW_NONFINITE" : "--allow-nonfinite"));
}

}  // namespace weightcast
