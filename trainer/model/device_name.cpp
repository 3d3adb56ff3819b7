#include "trainer/model/device_name.h"

#include <fmt/format.h>

#include "base/text.h"

namespace weightcast {

Result<DeviceName> parse_device_name(std::string_view name) {
  constexpr std::string_view kCuda = "cuda";
  if (name == "cpu") return DeviceName{};
  if (name == kCuda) return DeviceName{0};
  if (name.starts_with("cuda:")) {
    const auto number = parse_number<std::int8_t>(name.substr(kCuda.size() + 1));
    if (number && *number >= 0) return DeviceName{*number};
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("device is '{}'; it is cpu, cuda, or cuda:N with N from 0 to 127", printable(name)));
}

}  // namespace weightcast
