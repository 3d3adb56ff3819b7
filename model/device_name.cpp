#include "model/device_name.h"

#include <fmt/format.h>

#include <charconv>

#include "base/text.h"

namespace weightcast {

Result<DeviceName> parse_device_name(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  if (name == "cpu") return DeviceName{};
  if (name == kCuda) return DeviceName{0};
  std::int8_t number = -1;
  if (name.starts_with("cuda:")) {
    const char* const end = name.data() + name.size();
    const auto [stop, error] = std::from_chars(name.data() + kCuda.size() + 1, end, number);
    if (error == std::errc() && stop == end && number >= 0) return DeviceName{number};
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("device is '{}'; it is cpu, cuda, or cuda:N with N from 0 to 127", printable(name)));
}

}  // namespace weightcast
