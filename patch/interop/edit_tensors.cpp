#include "patch/interop/edit_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kCopyBytes = 4u << 20;

Status copy_range(const ByteSource& base, std::uint64_t begin, std::uint64_t end, std::vector<std::byte>& scratch,
                  ByteTarget& target) {
  while (begin < end) {
    const auto size = std::size_t(std::min(end - begin, kCopyBytes));
    WC_ASSIGN(const Bytes bytes, base.view(begin, size, scratch));
    WC_TRY(target.write(begin, bytes));
    begin += size;
  }
  return {};
}

}  // namespace

std::optional<Version> version_of_digits(std::string_view digits) {
  constexpr std::size_t kDigitsMax = 18;
  const auto number = digits.size() <= kDigitsMax ? parse_number<std::uint64_t>(digits) : std::nullopt;
  return number ? std::optional(Version{*number}) : std::nullopt;
}

Status write_edited(const SnapshotLayout& layout, const ByteSource& base, const FindEdit& find_edit,
                    ByteTarget& target) {
  WC_CHECK(base.size_bytes() == layout.size_bytes && target.size_bytes() == layout.size_bytes);
  std::vector<std::byte> scratch, cells;
  std::uint64_t done = 0;
  for (const TensorInfo& tensor : layout.tensors) {
    const TensorEdit edit = find_edit(tensor);
    if (!edit) continue;
    WC_TRY(copy_range(base, done, tensor.offset_bytes, scratch, target));
    WC_ASSIGN(const Bytes old, base.view(tensor.offset_bytes, std::size_t(tensor.size_bytes), scratch));
    cells.assign(old.begin(), old.end());
    WC_TRY(edit(cells));
    WC_TRY(target.write(tensor.offset_bytes, cells));
    done = tensor.offset_bytes + tensor.size_bytes;
  }
  return copy_range(base, done, layout.size_bytes, scratch, target);
}

Result<std::vector<TensorPair>> pair_tensors(const SnapshotLayout& before, const SnapshotLayout& after) {
  const auto refuse = [](const TensorInfo& tensor, std::string_view what) {
    return fail(Errc::kUnsupported, Op::kEncode,
                fmt::format("tensor {} {}, which this format cannot say; publish the version whole",
                            quoted_name(tensor.name), what));
  };
  std::unordered_map<std::string_view, const TensorInfo*> by_name;
  for (const TensorInfo& tensor : before.tensors) by_name[tensor.name] = &tensor;
  std::vector<TensorPair> pairs;
  for (const TensorInfo& tensor : after.tensors) {
    const auto old = by_name.find(tensor.name);
    if (old == by_name.end()) return refuse(tensor, "is new");
    if (old->second->dtype != tensor.dtype || old->second->size_bytes != tensor.size_bytes) {
      return refuse(tensor, "has another dtype or size than in the base");
    }
    pairs.push_back({*old->second, tensor});
    by_name.erase(old);
  }
  for (const TensorInfo& tensor : before.tensors) {
    if (by_name.contains(tensor.name)) return refuse(tensor, "is gone");
  }
  return pairs;
}

}  // namespace weightcast
