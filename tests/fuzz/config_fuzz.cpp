// Arbitrary bytes as a configuration file: settings that can be written and read again, or an error.
#include <string>
#include <string_view>
#include <vector>

#include "tools/shell/config_file.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const auto settings = parse_settings({reinterpret_cast<const char*>(data), size}, "fuzz.toml");
  if (!settings.has_value()) {
    WC_CHECK(!settings.error().detail.empty());
    return 0;
  }
  std::string name;
  std::uint64_t port = 1;
  bool flag = false;
  std::vector<std::string> many;
  const std::vector<SettingField> fields{
      {"name", &name, ""}, {"port", &port, "", 1, 65535}, {"flag", &flag, ""}, {"many", &many, ""}};
  for (const Setting& setting : *settings) static_cast<void>(!apply_setting(fields, setting));
  WC_CHECK(port >= 1 && port <= 65535);
  const std::string text = settings_text(fields);
  const auto again = parse_settings(text, "again.toml");
  WC_CHECK(again.has_value());
  for (const Setting& setting : *again) WC_CHECK(apply_setting(fields, setting).has_value());
  WC_CHECK(settings_text(fields) == text);
  return 0;
}
