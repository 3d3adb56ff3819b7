#include "client/changes.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast::client {

Result<std::vector<TensorInfo>> tensors_of_changes(std::span<const wc_change> changes) {
  std::vector<TensorInfo> tensors;
  tensors.reserve(2 * changes.size());
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const wc_change& change = changes[i];
    const auto refuse = [&](std::string_view why) {
      return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("change {} of those given: {}", i, why));
    };
    if (change.name == nullptr || change.dtype == nullptr) return refuse("its name or its dtype is NULL");
    if (change.count > 0 && (change.indices == nullptr || change.values == nullptr)) {
      return refuse("its indices or its values are NULL");
    }
    if (change.index_bytes != 4 && change.index_bytes != 8) return refuse("its indices have neither 4 nor 8 bytes");
    if (change.reserved32 != 0 || change.reserved != 0) return refuse("its reserved members are not 0");
    if (change.old_values != nullptr) return refuse("it has old values, which a publication does not take");
    if (dtype_bits(change.dtype) == 0 || dtype_bits(change.dtype) % 8 != 0) {
      return refuse(fmt::format("elements of {} are not whole bytes; publish all tensors", quoted_name(change.dtype)));
    }
    const auto add = [&](std::string_view prefix, std::string dtype) -> Status {
      TensorInfo& info = tensors.emplace_back();
      info.name.append(prefix).append(change.name);
      info.dtype = std::move(dtype);
      info.shape = {change.count};
      WC_ASSIGN(info.size_bytes, tensor_bytes(info.dtype, info.shape));
      return {};
    };
    WC_TRY(add(kIndicesPrefix, change.index_bytes == 4 ? "U32" : "U64"));
    WC_TRY(add(kValuesPrefix, change.dtype));
  }
  return tensors;
}

}  // namespace weightcast::client
