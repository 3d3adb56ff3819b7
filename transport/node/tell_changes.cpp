#include "transport/node/tell_changes.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "patch/snapshot/snapshot.h"

namespace weightcast {
namespace {

// From there on an engine reads the whole in about the same time.
constexpr double kShareMax = 0.5;

Error too_far(const TellChangesRequest& request, std::string_view why) {
  return fail(Errc::kTooFar, Op::kRead,
              fmt::format("from version {} to {}: {}; load version {} whole", request.from.value, request.to.value, why,
                          request.to.value));
}

Error too_large(const TellChangesRequest& request, std::uint64_t bytes) {
  return too_far(request,
                 fmt::format("the changes take {:.0f} % of it", 100 * double(bytes) / double(request.snapshot_bytes)));
}

std::uint64_t bytes_of(std::span<const StepRef> steps) {
  std::uint64_t bytes = 0;
  for (const StepRef& step : steps) bytes += step->bytes;
  return bytes;
}

/// Why the steps do not say what has changed; empty if they do.
std::string why_not_by_steps(const TellChangesRequest& request) {
  if (request.from == request.to) {
    return request.to_digest == request.from_digest ? "" : "what is here comes from another version of that number";
  }
  if (request.steps.empty()) return "the changes of some step between them are not known here";
  if (request.steps.front()->from_digest.hex() != request.from_digest) {
    return "what is known here leads from another version of that number";
  }
  for (const StepRef& step : request.steps) {
    if (step->plan != request.steps.front()->plan) return "the tensors' places have changed";
    if (std::ranges::any_of(step->segments, [](const auto& segment) { return !segment.has_value(); })) {
      return fmt::format("version {} changed most cells of a part", step->to.value);
    }
  }
  return "";
}

Result<ListedChanges> list_steps(const Jobs& jobs, const TellChangesRequest& request, const SnapshotSource& snapshot,
                                 const ReadStream& read, const ChangesBase* base) {
  const std::vector<SegmentRange> plan =
      request.steps.empty() ? std::vector<SegmentRange>() : request.steps.front()->plan;
  std::vector<CellChanges> folded(plan.size());  // of segments that more than one step has changed
  std::vector<const CellChanges*> segments(plan.size());
  for (const SegmentRange& range : plan) {
    if (jobs.cancelled()) return Jobs::cancelled_error(Op::kRead);
    std::vector<const CellChanges*> each;
    for (const StepRef& step : request.steps) each.push_back(&*step->segments[range.index]);
    segments[range.index] = &fold_changes(each, geometry_of(range.kind).bytes, folded[range.index]);
  }
  return list_changes(plan, segments, snapshot.tensors(), read, base, *request.into);
}

Result<ListedChanges> write_changes(const Jobs& jobs, FileSystem& files, const TellChangesRequest& request) {
  if (request.directory.empty()) {
    return fail(Errc::kNotFound, Op::kRead, fmt::format("version {}: it is not here any more", request.to.value));
  }
  if (request.file_tree) return too_far(request, "it is a directory of files, and not a model");
  const std::string why_not = why_not_by_steps(request);
  if (why_not.empty() && double(bytes_of(request.steps)) >= kShareMax * double(request.snapshot_bytes)) {
    return too_large(request, bytes_of(request.steps));
  }
  const bool is_base_needed = request.from != request.to && (request.old_values || !why_not.empty());
  if (request.base.empty() && !why_not.empty()) {
    if (request.from == request.to) return too_far(request, why_not);
    return too_far(request, fmt::format("{}, and version {} is not here to compare with", why_not, request.from.value));
  }
  if (request.base.empty() && is_base_needed) {
    return too_far(request, fmt::format("old values are read from version {}, which is not here any more; without them "
                                        "the changes are known",
                                        request.from.value));
  }
  WC_ASSIGN(const SnapshotSource snapshot, SnapshotSource::open(files, request.directory.string()));
  const auto read_of = [](const SnapshotSource& source) -> ReadStream {
    return [&source](std::uint64_t offset, MutableBytes out) { return source.read_at(offset, out); };
  };
  const ReadStream read = read_of(snapshot);
  // What is found out while the files are read does not know which versions they are.
  const auto named = [&](Result<ListedChanges> listed) -> Result<ListedChanges> {
    if (listed.has_value() || listed.error().code != Errc::kTooFar) return listed;
    return too_far(request, listed.error().detail);
  };
  if (!is_base_needed) return named(list_steps(jobs, request, snapshot, read, nullptr));
  WC_ASSIGN(const SnapshotSource before, SnapshotSource::open(files, request.base.string()));
  const ChangesBase base{before.tensors(), read_of(before)};
  if (why_not.empty()) return named(list_steps(jobs, request, snapshot, read, &base));
  CompareOptions options;
  options.old_values = request.old_values;
  options.bytes_max = std::uint64_t(kShareMax * double(request.snapshot_bytes));
  options.go_on = [&jobs]() -> Status {
    if (jobs.cancelled()) return Jobs::cancelled_error(Op::kRead);
    return {};
  };
  return named(compare_changes(snapshot.tensors(), read, base, options, *request.into));
}

}  // namespace

void tell_changes(Jobs& jobs, FileSystem& files, TellChangesRequest request,
                  std::function<void(Result<ListedChanges>)> done) {
  auto asked = std::make_shared<TellChangesRequest>(std::move(request));
  auto told = std::make_shared<std::optional<Result<ListedChanges>>>();
  jobs.run([&jobs, &files, asked, told] { *told = write_changes(jobs, files, *asked); },
           [told, done = std::move(done)] { done(std::move(**told)); });
}

}  // namespace weightcast
