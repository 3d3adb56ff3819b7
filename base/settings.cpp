#include "base/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <type_traits>

#include "base/nearest_name.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::string_view kUnlimited = "unlimited";

std::string range_of(const SettingField& field) {
  if (!field.choices.empty()) return fmt::format("{}", fmt::join(field.choices, ", "));
  return std::visit(
      [&](const auto* value) -> std::string {
        using Value = std::remove_cvref_t<decltype(*value)>;
        const std::string numbers = fmt::format("{:g} to {:g}", field.least, field.most);
        if constexpr (std::is_same_v<Value, bool>) return "true, false";
        if constexpr (std::is_same_v<Value, std::string>) return "any text";
        if constexpr (std::is_same_v<Value, std::uint64_t>) return "a whole number, " + numbers;
        if constexpr (std::is_same_v<Value, double>) return numbers;
        return numbers + ", or unlimited";
      },
      field.target);
}

Error refused(const SettingField& field, std::string_view value) {
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{} is '{}'; it is {}", field.name, printable(cut_text(value, 80)), range_of(field)));
}

bool parse(const SettingField&, std::string_view text, bool& out) {
  out = text == "true";
  return text == "true" || text == "false";
}

template <typename Number>
bool parse(const SettingField& field, std::string_view text, Number& out) requires std::is_arithmetic_v<Number> {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  // Written so that NaN is refused, too.
  return error == std::errc() && stop == end && static_cast<double>(out) >= field.least &&
         static_cast<double>(out) <= field.most;
}

bool parse(const SettingField& field, std::string_view text, std::string& out) {
  out = text;
  return field.choices.empty() || std::find(field.choices.begin(), field.choices.end(), text) != field.choices.end();
}

template <typename Number>
bool parse(const SettingField& field, std::string_view text, std::optional<Number>& out) {
  out.reset();
  return text == kUnlimited || parse(field, text, out.emplace());
}

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::uint64_t value) { return std::to_string(value); }
// The shortest text that reads back as the same number.
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::string& value) { return value; }
template <typename Number>
std::string text_of(const std::optional<Number>& value) {
  return value ? text_of(*value) : std::string(kUnlimited);
}

std::string value_text(const SettingField& field) {
  return std::visit([](const auto* value) { return text_of(*value); }, field.target);
}

}  // namespace

Result<Setting> parse_setting(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos && equals > 0) {
    return Setting{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("--set {}: it is KEY=VALUE", printable(cut_text(text, 80))));
}

Status check_setting_value(const Setting& setting) {
  const auto& [name, value] = setting;
  constexpr std::string_view kUnwritable = "#\"\\";
  const auto is_unwritable = [&](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f' || kUnwritable.find(c) != std::string_view::npos;
  };
  if (std::ranges::none_of(value, is_unwritable)) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{} is '{}'; a configuration file cannot hold #, \", \\ and control characters in a value",
                          printable(cut_text(name, 80)), printable(cut_text(value, 80))));
}

Status apply_setting(std::span<const SettingField> fields, const Setting& setting,
                     std::span<const std::string_view> further_names) {
  const auto& name = setting.first;  // clang 14 lets no lambda capture a structured binding
  const auto& value = setting.second;
  WC_TRY(check_setting_value(setting));
  const auto field = std::find_if(fields.begin(), fields.end(), [&](const SettingField& f) { return f.name == name; });
  if (field == fields.end()) {
    std::vector<std::string_view> names(further_names.begin(), further_names.end());
    for (const SettingField& f : fields) names.push_back(f.name);
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("'{}' is no key of the configuration; the nearest is '{}' (--print-config shows all)",
                            printable(cut_text(name, 80)), nearest_name(name, names)));
  }
  if (std::visit([&](auto* target) { return parse(*field, value, *target); }, field->target)) return {};
  if (!field->choices.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, unknown_name(field->name, value, field->choices));
  }
  return refused(*field, value);
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string settings_table(std::span<const SettingField> fields) {
  std::string table;
  for (const SettingField& field : fields) {
    table += fmt::format("| `{}` | {} | {} | {} |\n", field.name, value_text(field), range_of(field), field.help);
  }
  return table;
}

std::string settings_text(std::span<const SettingField> fields) {
  std::string text;
  for (const SettingField& field : fields) {
    const std::string value = value_text(field);
    const bool is_text = std::holds_alternative<std::string*>(field.target) || value == kUnlimited;
    text += is_text ? fmt::format("{} = \"{}\"\n", field.name, value) : fmt::format("{} = {}\n", field.name, value);
  }
  return text;
}

}  // namespace weightcast
