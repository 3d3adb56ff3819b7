#include "trainer/model/device.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/version.h>

#include "trainer/model/device_name.h"

namespace weightcast {

Result<torch::Device> open_device(std::string_view name, bool tf32) {
  WC_ASSIGN(const DeviceName parsed, parse_device_name(name));
  if (!parsed.cuda) return torch::Device(at::kCPU);
  const auto refuse = [&](Errc code, std::string why) {
    return fail(code, Op::kConfigure, fmt::format("device is '{}'; {}", name, std::move(why)));
  };
  // A LibTorch with CUDA says so; it finds no GPU where there is no driver.
  if (!at::globalContext().hasCUDART()) {
    return refuse(
        Errc::kUnsupported,
        fmt::format("this program was built with a LibTorch ({}) that has no CUDA: build it with one that has "
                    "(HACKING.md), or set device to cpu",
                    TORCH_VERSION));
  }
  const std::size_t gpus = at::globalContext().hasCUDA() ? at::getNumGPUs() : 0;
  if (gpus == 0) {
    return refuse(
        Errc::kUnsupported,
        "no GPU is to be had: look at what nvidia-smi says and at CUDA_VISIBLE_DEVICES, or set device to cpu");
  }
  const auto number = static_cast<std::size_t>(*parsed.cuda);
  if (number >= gpus) {
    return refuse(Errc::kInvalidArgument,
                  fmt::format("this host has {} GPU{}: cuda:0 to cuda:{}", gpus, gpus == 1 ? "" : "s", gpus - 1));
  }
  at::globalContext().setAllowTF32CuBLAS(tf32);
  return torch::Device(at::kCUDA, *parsed.cuda);
}

}  // namespace weightcast
