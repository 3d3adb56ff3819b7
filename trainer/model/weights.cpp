#include "trainer/model/weights.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <unordered_map>

#include "patch/snapshot/finite.h"

namespace weightcast {
namespace {

using torch::Tensor;

struct WeightDtype {
  torch::ScalarType type;
  std::string_view name;
};
constexpr std::array kDtypes{WeightDtype{at::kFloat, "F32"}, WeightDtype{at::kBFloat16, "BF16"},
                             WeightDtype{at::kHalf, "F16"}};

/// One of kDtypes: check_tensors() has refused others.
torch::ScalarType scalar_type(std::string_view name) {
  for (const WeightDtype& dtype : kDtypes) {
    if (dtype.name == name) return dtype.type;
  }
  die("a dtype that check_tensors() allows", __FILE__, __LINE__);
}

/// Gives parameters' bytes on the CPU; holds the one that was asked for last.
class ParameterBytes {
 public:
  explicit ParameterBytes(std::span<const Parameter> parameters) {
    for (const Parameter& parameter : parameters) by_name_.emplace(parameter.name, parameter.tensor);
  }
  Result<Bytes> operator()(const TensorInfo& info) {
    auto found = by_name_.find(info.name);
    if (found == by_name_.end() && info.name == "lm_head.weight") found = by_name_.find("model.embed_tokens.weight");
    if (found == by_name_.end()) {
      return fail(Errc::kInvalidArgument, Op::kWrite,
                  fmt::format("tensor {}: the model has no such parameter", quoted_name(info.name)));
    }
    current_ = found->second.detach().to(at::kCPU, scalar_type(info.dtype)).contiguous();
    return Bytes(static_cast<const std::byte*>(current_.data_ptr()), current_.nbytes());
  }

 private:
  std::unordered_map<std::string, Tensor> by_name_;
  Tensor current_;
};

}  // namespace

std::string_view dtype_name(torch::ScalarType dtype) {
  for (const WeightDtype& known : kDtypes) {
    if (known.type == dtype) return known.name;
  }
  die("a dtype of weights", __FILE__, __LINE__);
}

Result<Tensor> read_tensor(const SnapshotSource& snapshot, const TensorInfo& info) {
  const std::vector<std::int64_t> shape(info.shape.begin(), info.shape.end());
  Tensor tensor = at::empty(shape, at::TensorOptions(scalar_type(info.dtype)));
  const MutableBytes bytes(static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes());
  WC_TRY(snapshot.read_at(info.offset_bytes, bytes));
  if (const std::uint64_t count = count_non_finite(info.dtype, bytes); count != 0) {
    return fail(Errc::kInvalidArgument, Op::kRead,
                fmt::format("tensor {}: {} of its elements are NaN or infinite; the model was damaged or has diverged",
                            quoted_name(info.name), count));
  }
  return tensor;
}

Status write_weights_like(FileSystem& files, const SnapshotSource& source, const std::filesystem::path& directory,
                          std::span<const Parameter> parameters) {
  ParameterBytes bytes(parameters);
  return write_model_like(files, source, directory, [&](const TensorInfo& info) { return bytes(info); });
}

Status write_new_weights(FileSystem& files, const std::filesystem::path& directory,
                         std::span<const Parameter> parameters, const std::map<std::string, std::string>& sidecars,
                         std::uint64_t shard_bytes_max, std::string_view stem) {
  std::vector<TensorInfo> tensors;
  for (const Parameter& parameter : parameters) {
    TensorInfo info;
    info.name = parameter.name;
    info.dtype = dtype_name(parameter.tensor.scalar_type());
    info.shape.assign(parameter.tensor.sizes().begin(), parameter.tensor.sizes().end());
    info.size_bytes = parameter.tensor.nbytes();
    tensors.push_back(std::move(info));
  }
  ParameterBytes bytes(parameters);
  return write_new_model(
      files, directory, tensors, [&](const TensorInfo& info) { return bytes(info); }, sidecars, shard_bytes_max, stem);
}

}  // namespace weightcast
