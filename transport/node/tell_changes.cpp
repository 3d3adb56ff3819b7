#include "transport/node/tell_changes.h"

#include <fmt/format.h>

#include <algorithm>

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

Status check_steps(const TellChangesRequest& request) {
  const bool is_same = request.from == request.to;
  if (!is_same && request.steps.empty())
    return too_far(request, "the changes of some step between them are not known here");
  if ((is_same ? request.to_digest : request.steps.front()->from_digest.hex()) != request.from_digest) {
    return too_far(request, "what is known here leads from another version of that number");
  }
  std::uint64_t bytes = 0;
  for (const StepRef& step : request.steps) {
    bytes += step->bytes;
    if (step->plan != request.steps.front()->plan) return too_far(request, "the tensors' places have changed");
    if (std::ranges::any_of(step->segments, [](const auto& segment) { return !segment.has_value(); })) {
      return too_far(request, fmt::format("version {} changed most cells of a part", step->to.value));
    }
  }
  if (double(bytes) < kShareMax * double(request.snapshot_bytes)) return {};
  return too_far(request,
                 fmt::format("the changes take {:.0f} % of it", 100 * double(bytes) / double(request.snapshot_bytes)));
}

Result<ListedChanges> write_changes(const Jobs& jobs, FileSystem& files, const TellChangesRequest& request) {
  WC_TRY(check_steps(request));
  WC_ASSIGN(const SnapshotSource snapshot, SnapshotSource::open(files, request.directory.string()));
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
  return list_changes(
      plan, segments, snapshot.tensors(),
      [&](std::uint64_t offset, MutableBytes out) { return snapshot.read_at(offset, out); }, *request.into);
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
