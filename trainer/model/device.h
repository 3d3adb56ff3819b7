#pragma once

#include <torch/types.h>

#include <string_view>

#include "base/result.h"

namespace weightcast {

/// The device that `name` says: "cpu", "cuda" (the same as "cuda:0") or "cuda:N". `tf32`: FP32 products on it may round
/// their factors to TF32; a setting of the whole process. Errors: kInvalidArgument (another name, a device that this
/// host does not have); kUnsupported (a LibTorch without CUDA, a host without a usable GPU). They say what to do.
[[nodiscard]] Result<torch::Device> open_device(std::string_view name, bool tf32 = false);

}  // namespace weightcast
