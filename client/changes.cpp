#include "client/changes.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast::client {

namespace {

/// `name`: the tensor's; NULL: it has none.
Error refuse(std::string_view kind, std::size_t index, const char* name, std::string_view why) {
  const std::string of = name == nullptr ? std::string() : fmt::format(", of tensor {}", quoted_name(name));
  return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("{} {} of those given{}: {}", kind, index, of, why));
}

/// What a change and a piece have in common.
template <typename Changes>
Status check(std::string_view kind, std::size_t index, const Changes& given) {
  if (given.name == nullptr || given.dtype == nullptr) {
    return refuse(kind, index, given.name, "its name or its dtype is NULL");
  }
  if (given.index_bytes != 4 && given.index_bytes != 8) {
    return refuse(kind, index, given.name, "its indices have neither 4 nor 8 bytes");
  }
  if (dtype_bits(given.dtype) == 0 || dtype_bits(given.dtype) % 8 != 0) {
    return refuse(kind, index, given.name,
                  fmt::format("elements of {} are not whole bytes; publish all tensors", quoted_name(given.dtype)));
  }
  return {};
}

/// The indices and the values of one change or piece. `names`: of the indices so far.
template <typename Changes>
Status add_lists(std::string_view kind, std::size_t index, const Changes& given, const Box& box,
                 std::unordered_set<std::string>& names, std::vector<TensorInfo>& tensors) {
  if (!names.insert(change_name(kIndicesPrefix, box, given.name)).second) {
    return refuse(kind, index, given.name, "it is given twice; give one list of each");
  }
  const auto add = [&](std::string_view prefix, std::string dtype) -> Status {
    TensorInfo& info = tensors.emplace_back();
    info.name = change_name(prefix, box, given.name);
    info.dtype = std::move(dtype);
    info.shape = {given.count};
    WC_ASSIGN(info.size_bytes, tensor_bytes(info.dtype, info.shape));
    return {};
  };
  WC_TRY(add(kIndicesPrefix, given.index_bytes == 4 ? "U32" : "U64"));
  return add(kValuesPrefix, given.dtype);
}

}  // namespace

Result<std::vector<TensorInfo>> tensors_of_changes(std::span<const wc_change> changes) {
  std::vector<TensorInfo> tensors;
  tensors.reserve(2 * changes.size());
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    const wc_change& change = changes[i];
    WC_TRY(check("change", i, change));
    if (change.count > 0 && (change.indices == nullptr || change.values == nullptr)) {
      return refuse("change", i, change.name, "its indices or its values are NULL");
    }
    if (change.reserved32 != 0 || change.reserved != 0) {
      return refuse("change", i, change.name, "its reserved members are not 0");
    }
    if (change.old_values != nullptr) {
      return refuse("change", i, change.name, "it has old values, which a publication does not take");
    }
    WC_TRY(add_lists("change", i, change, {}, names, tensors));
  }
  return tensors;
}

Result<std::vector<TensorInfo>> tensors_of_pieces(std::span<const wc_piece> pieces) {
  std::vector<TensorInfo> tensors;
  tensors.reserve(2 * pieces.size());
  std::unordered_set<std::string> names;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const wc_piece& piece = pieces[i];
    WC_TRY(check("piece", i, piece));
    if (piece.rank > kTensorRankMax) {
      return refuse("piece", i, piece.name, fmt::format("it has more than {} dimensions", kTensorRankMax));
    }
    if (piece.rank > 0 && (piece.start == nullptr || piece.lengths == nullptr)) {
      return refuse("piece", i, piece.name, "its start or its lengths are NULL");
    }
    if (piece.reserved32 != 0 || piece.reserved[0] != 0 || piece.reserved[1] != 0) {
      return refuse("piece", i, piece.name, "its reserved members are not 0");
    }
    Box box(piece.rank);
    for (std::size_t k = 0; k < piece.rank; ++k) box[k] = {piece.start[k], piece.lengths[k]};
    const std::optional<std::uint64_t> elements = volume_of(box);
    if (!elements) return refuse("piece", i, piece.name, "its box has more than 2^64 elements");
    if (piece.rank > 0 && piece.count > *elements) {
      return refuse("piece", i, piece.name, fmt::format("{} changes in a box of {} elements", piece.count, *elements));
    }
    if (piece.index_bytes == 4 && *elements > std::uint64_t{1} << 32) {
      return refuse("piece", i, piece.name, "its box has more elements than indices of 4 bytes can tell apart; give 8");
    }
    WC_TRY(add_lists("piece", i, piece, box, names, tensors));
  }
  return tensors;
}

}  // namespace weightcast::client
