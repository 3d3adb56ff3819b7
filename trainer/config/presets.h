#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/settings/settings.h"

namespace weightcast {

/// A published recipe, as keys of the configuration. Sizes of batches are in rollouts: prompts times group_size.
struct Preset {
  std::string_view name;
  std::string_view source;
  std::vector<Setting> settings;
};

[[nodiscard]] const std::vector<Preset>& presets();

[[nodiscard]] std::span<const std::string_view> preset_names();
/// Of the preset of that name; none of another.
[[nodiscard]] std::span<const Setting> preset_settings(std::string_view name);

}  // namespace weightcast
