#include "patch/snapshot/finite.h"

#include <algorithm>
#include <array>

#include "patch/kernels/kernels.h"
#include "patch/snapshot/snapshot.h"

namespace weightcast {
namespace {

/// Elements of `data` that, under `mask`, equal `value`. By default an exponent of all ones.
template <typename Word, Word mask, Word value = mask>
std::uint64_t count_masked(Bytes data) {
  return best_kernels().count_equal(sizeof(Word), mask, value, data.data(), data.size() / sizeof(Word));
}

}  // namespace

std::uint64_t count_non_finite(std::string_view dtype, Bytes data) {
  if (dtype == "BF16") return count_masked<std::uint16_t, 0x7f80>(data);
  if (dtype == "F16") return count_masked<std::uint16_t, 0x7c00>(data);
  if (dtype == "F32" || dtype == "C64") return count_masked<std::uint32_t, 0x7f800000>(data);
  if (dtype == "F64") return count_masked<std::uint64_t, 0x7ff0000000000000>(data);
  if (dtype == "F8_E5M2") return count_masked<std::uint8_t, 0x7c>(data);
  if (dtype == "F8_E4M3") return count_masked<std::uint8_t, 0x7f>(data);
  if (dtype == "F8_E8M0") return count_masked<std::uint8_t, 0xff>(data);
  // Their one NaN stands where the others have a negative zero.
  if (dtype == "F8_E4M3FNUZ" || dtype == "F8_E5M2FNUZ") return count_masked<std::uint8_t, 0xff, 0x80>(data);
  return 0;
}

NonFiniteScan::NonFiniteScan(const SnapshotSource& source) : source_(source), elements_(source.tensors().size()) {}

Status NonFiniteScan::scan(std::uint64_t offset_bytes, Bytes piece) {
  const std::vector<TensorInfo>& tensors = source_.tensors();
  const std::uint64_t piece_end = offset_bytes + piece.size();
  auto tensor = std::ranges::partition_point(
      tensors, [&](const TensorInfo& t) { return t.offset_bytes + t.size_bytes <= offset_bytes; });
  for (; tensor != tensors.end() && tensor->offset_bytes < piece_end; ++tensor) {
    const std::uint64_t element_bytes = dtype_bits(tensor->dtype) / 8;
    if (element_bytes == 0) continue;  // none of those has anything but finite values
    const std::uint64_t tensor_end = tensor->offset_bytes + tensor->size_bytes;
    std::uint64_t begin = std::max(offset_bytes, tensor->offset_bytes);
    begin += (element_bytes - (begin - tensor->offset_bytes) % element_bytes) % element_bytes;
    const std::uint64_t end = std::min(piece_end, tensor_end);
    if (begin >= end) continue;
    const std::uint64_t whole_bytes = (end - begin) / element_bytes * element_bytes;
    std::uint64_t found = count_non_finite(tensor->dtype, piece.subspan(begin - offset_bytes, whole_bytes));
    if (begin + whole_bytes < end && begin + whole_bytes + element_bytes <= tensor_end) {
      std::array<std::byte, 16> last;
      const MutableBytes element = MutableBytes(last).first(element_bytes);
      WC_TRY(source_.read_at(begin + whole_bytes, element));
      found += count_non_finite(tensor->dtype, element);
    }
    if (found == 0) continue;
    elements_[static_cast<std::size_t>(tensor - tensors.begin())] += found;
    any_ = true;
  }
  return {};
}

std::optional<NonFinite> NonFiniteScan::result() const {
  NonFinite found;
  for (std::size_t i = 0; i < elements_.size(); ++i) {
    if (elements_[i] == 0) continue;
    if (found.tensors == 0) found.first_tensor = source_.tensors()[i].name;
    ++found.tensors;
    found.elements += elements_[i];
  }
  if (found.tensors == 0) return std::nullopt;
  return found;
}

}  // namespace weightcast
