#include "base/settings/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/settings/nearest_name.h"
#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::string_view kUnlimited = "unlimited";
constexpr std::string_view kFlagRange = "true, false";
constexpr std::string_view kEndpointRange = "HOST:PORT, or empty";
constexpr std::string_view kRateRange = "a rate such as 300mbit, 1gbit, 12MiB/s or unlimited";
constexpr std::string_view kBytesRange = "a size such as 64MiB, 1GiB, 500kB or 4096";

Status refuse(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

std::optional<bool> parse_flag(std::string_view text) {
  const bool value = text == "true";
  return value || text == "false" ? std::optional(value) : std::nullopt;
}
std::string flag_text(bool value) { return value ? "true" : "false"; }

template <typename Number>
auto number_parser(double least, double most) {
  return [=](std::string_view text) {
    std::optional<Number> value = parse_number<Number>(text);
    // Written so that NaN is refused, too.
    if (value && !(static_cast<double>(*value) >= least && static_cast<double>(*value) <= most)) value.reset();
    return value;
  };
}
/// The shortest text that reads back as the same number.
constexpr auto kNumberText = [](auto value) { return fmt::format("{}", value); };

/// Parser and printer of an optional value, of which `absent` says that there is none.
template <typename T, typename Parse>
auto optional_parser(std::string_view absent, Parse parse) {
  return [=](std::string_view text) {
    std::optional<std::optional<T>> value;
    if (text == absent) {
      value.emplace();
    } else if (auto given = parse(text); given.has_value()) {
      value.emplace(*std::move(given));
    }
    return value;
  };
}
template <typename Print>
auto optional_text(std::string_view absent, Print print) {
  return [=](const auto& value) { return value ? print(*value) : std::string(absent); };
}

std::optional<std::string> any_text(std::string_view text) { return std::string(text); }

/// What parse_rate() reads as the same again.
std::string rate_text(Rate rate) {
  if (!rate.limited()) return std::string(kUnlimited);
  for (const auto& [unit, scale] : {std::pair("gbit", 1e9), std::pair("mbit", 1e6), std::pair("kbit", 1e3)}) {
    const std::string text = fmt::format("{}{}", rate.bits_per_s() / scale, unit);
    if (rate.bits_per_s() >= scale && parse_rate(text) == rate) return text;
  }
  return fmt::format("{}B/s", rate.bytes_per_s);
}

/// What parse_bytes() reads as the same again.
std::string bytes_text(std::uint64_t bytes) {
  for (const auto& [unit, scale] : {std::pair("GiB", kGiB), std::pair("MiB", kMiB), std::pair("KiB", kKiB)}) {
    if (bytes > 0 && bytes % scale == 0) return fmt::format("{}{}", bytes / scale, unit);
  }
  return fmt::format("{}", bytes);
}

/// `text` as a string of TOML.
std::string toml_string(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string toml_key(std::string_view text) {
  constexpr std::string_view kBare = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
  const bool is_bare = !text.empty() && text.find_first_not_of(kBare) == std::string_view::npos;
  return is_bare ? std::string(text) : toml_string(text);
}

std::string toml_lines(const SettingField& field) {
  const std::string value = field.value();
  std::vector<std::string> items = split_items(value);
  if (field.kind() == SettingKind::kNamed) {
    std::string lines;
    for (const std::string& item : items) {
      const std::size_t equals = item.find('=');
      lines += fmt::format("{}.{} = {}\n", field.name(), toml_key(item.substr(0, equals)),
                           toml_string(item.substr(equals + 1)));
    }
    return lines;
  }
  std::ranges::transform(items, items.begin(), toml_string);
  const std::string text = field.kind() == SettingKind::kList ? fmt::format("[{}]", fmt::join(items, ", "))
                           : field.kind() == SettingKind::kText || value == kUnlimited ? toml_string(value)
                                                                                       : value;
  return fmt::format("{} = {}\n", field.name(), text);
}

}  // namespace

std::string join_items(std::span<const std::string> items) {
  std::string text;
  for (const std::string& item : items) {
    if (!text.empty()) text += ',';
    for (const char c : item) {
      if (c == ',' || c == '\\') text += '\\';
      text += c;
    }
  }
  return text;
}

std::vector<std::string> split_items(std::string_view text) {
  std::vector<std::string> items(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escaped = text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == ',' || text[i + 1] == '\\');
    if (is_escaped) ++i;
    if (text[i] == ',' && !is_escaped) {
      items.emplace_back();
    } else {
      items.back() += text[i];
    }
  }
  std::erase(items, "");
  return items;
}

SettingField::SettingField(std::string_view name, std::string* target, std::string_view text,
                           std::span<const std::string_view> choices)
    : name_(name), text_(text), choices_(choices.begin(), choices.end()) {
  const auto parse = [all = choices_, takes_empty = target->empty()](std::string_view value) {
    const bool is_known = std::ranges::find(all, value) != all.end() || (takes_empty && value.empty());
    return is_known ? any_text(value) : std::nullopt;
  };
  take(target, SettingKind::kText, "", parse, std::identity());
}

std::string SettingField::numbers() const { return fmt::format("{:g} to {:g}", least_, most_); }

template <typename Number>
void SettingField::take_number(Number* target, SettingKind kind) {
  take(target, kind, numbers(), number_parser<Number>(least_, most_), kNumberText);
}

template <typename Number>
void SettingField::take_optional(std::optional<Number>* target) {
  take(target, SettingKind::kNumber, numbers() + ", or unlimited",
       optional_parser<Number>(kUnlimited, number_parser<Number>(least_, most_)),
       optional_text(kUnlimited, kNumberText));
}

void SettingField::bind(std::uint64_t* target) { take_number(target, SettingKind::kWhole); }
void SettingField::bind(std::uint32_t* target) { take_number(target, SettingKind::kWhole); }
void SettingField::bind(double* target) { take_number(target, SettingKind::kNumber); }

void SettingField::bind(bool* target) {
  take(target, SettingKind::kFlag, std::string(kFlagRange), parse_flag, flag_text);
}
void SettingField::bind(Negated to) {
  const auto parse = [](std::string_view text) {
    const std::optional<bool> value = parse_flag(text);
    return value ? std::optional(!*value) : std::nullopt;
  };
  take(to.target, SettingKind::kFlag, std::string(kFlagRange), parse, [](bool value) { return flag_text(!value); });
}

void SettingField::bind(std::optional<std::uint64_t>* target) { take_optional(target); }
void SettingField::bind(std::optional<double>* target) { take_optional(target); }
void SettingField::bind(OptionalNumber to) {
  const auto parse = number_parser<double>(least_, most_);
  // A 0 that stands for no value is none however it is written.
  const auto parse_optional = [to, parse](std::string_view text) {
    std::optional<std::optional<double>> value;
    if (const std::optional<double> given = parse(text)) value.emplace(given);
    if (value && to.zero_is_absent && **value == 0) value->reset();
    return value;
  };
  take(to.target, SettingKind::kNumber, numbers(), parse_optional, optional_text("0", kNumberText));
}
void SettingField::bind(DurationIn to) {
  const double unit_s = to_seconds(to.unit);
  const auto parse = [unit_s, parse = number_parser<double>(least_, most_)](std::string_view text) {
    const std::optional<double> value = parse(text);
    return value ? std::optional(from_seconds(*value * unit_s)) : std::nullopt;
  };
  take(to.target, SettingKind::kNumber, numbers(), parse,
       [unit_s](Duration value) { return kNumberText(to_seconds(value) / unit_s); });
}

void SettingField::bind(ByteCount to) {
  take(to.target, SettingKind::kText, std::string(kBytesRange), parse_bytes, bytes_text);
}
void SettingField::bind(OptionalByteCount to) {
  take(to.target, SettingKind::kText, fmt::format("{}, or unlimited", kBytesRange),
       optional_parser<std::uint64_t>(kUnlimited, parse_bytes), optional_text(kUnlimited, bytes_text));
}
void SettingField::bind(Rate* target) {
  take(target, SettingKind::kText, std::string(kRateRange), parse_rate, rate_text);
}

void SettingField::bind(std::string* target) {
  take(target, SettingKind::kText, "any text", any_text, std::identity());
}
void SettingField::bind(std::filesystem::path* target) {
  take(target, SettingKind::kText, "any text", any_text,
       [](const std::filesystem::path& path) { return path.string(); });
}
void SettingField::bind(std::vector<std::string>* target) {
  take(
      target, SettingKind::kList, "a list of texts, separated by commas",
      [](std::string_view text) { return std::optional(split_items(text)); }, join_items);
}
void SettingField::bind(std::map<std::string, std::string>* target) {
  kind_ = SettingKind::kNamed;
  bounds_ = "NAME=VALUE";
  read_ = [target](std::string_view text) {
    const Result<Setting> named = parse_setting(text);
    if (named.has_value()) (*target)[named->name] = named->value;
    return named.has_value();
  };
  write_ = [target] {
    std::vector<std::string> items;
    for (const auto& [name, value] : *target) items.push_back(fmt::format("{}={}", name, value));
    return join_items(items);
  };
}

void SettingField::bind(Endpoint* target) {
  const auto parse = [](std::string_view text) { return text.empty() ? Endpoint() : Endpoint::parse(text); };
  take(target, SettingKind::kText, std::string(kEndpointRange), parse,
       [](const Endpoint& value) { return value.host.empty() ? std::string() : value.to_string(); });
}
void SettingField::bind(std::optional<Endpoint>* target) {
  take(target, SettingKind::kText, std::string(kEndpointRange), optional_parser<Endpoint>("", Endpoint::parse),
       optional_text("", [](const Endpoint& value) { return value.to_string(); }));
}

std::string SettingField::range() const {
  if (!choices_.empty()) return fmt::format("{}", fmt::join(choices_, ", "));
  return (kind_ == SettingKind::kWhole ? "a whole number, " : "") + bounds_;
}

Status SettingField::set(std::string_view value) const {
  if (read_(value)) return {};
  return refuse(choices_.empty() ? fmt::format("{} is '{}'; it is {}", name_, printable(cut_text(value, 80)), range())
                                 : unknown_name(name_, value, choices_));
}

Result<Setting> parse_setting(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos && equals > 0) {
    return Setting{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{}: it is NAME=VALUE", printable(cut_text(text, 80))));
}

Status check_is_set(std::string_view name, bool is_set) {
  return is_set ? Status() : refuse(std::string(name) + " is empty; set it");
}

Status apply_setting(std::span<const SettingField> fields, const Setting& setting) {
  const std::string_view name = setting.name;
  const auto outcome = [&]() -> Status {
    if (printable(name) != name || printable(setting.value) != setting.value) {
      return refuse(fmt::format("{} is '{}'; a configuration file holds UTF-8 without control characters",
                                printable(cut_text(name, 80)), printable(cut_text(setting.value, 80))));
    }
    std::vector<std::string_view> names;
    for (const SettingField& field : fields) {
      if (field.name() == name) return field.set(setting.value);
      if (field.kind() == SettingKind::kNamed && name.starts_with(std::string(field.name()) + '.')) {
        return field.set(fmt::format("{}={}", name.substr(field.name().size() + 1), setting.value));
      }
      names.push_back(field.name());
    }
    return refuse(fmt::format("'{}' is no key of the configuration; the nearest is '{}' (--print-config shows all)",
                              printable(cut_text(name, 80)), nearest_name(name, names)));
  }();
  if (outcome.has_value() || setting.where.empty()) return outcome;
  return refuse(fmt::format("{}: {}", setting.where, outcome.error().detail));
}

std::string settings_table(std::span<const SettingField> fields) {
  std::string table;
  for (const SettingField& field : fields) {
    table += fmt::format("| `{}` | {} | {} | {} |\n", field.name(), field.value(), field.range(), field.text());
  }
  return table;
}

std::string settings_text(std::span<const SettingField> fields) {
  std::string text;
  for (const SettingField& field : fields) text += toml_lines(field);
  return text;
}

}  // namespace weightcast
