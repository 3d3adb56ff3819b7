#include "base/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/text.h"

namespace weightcast {
namespace {

constexpr std::string_view kUnlimited = "unlimited";

std::string numbers(double least, double most) { return fmt::format("{:g} to {:g}", least, most); }

template <typename Number>
auto number_reader(Number* target, double least, double most) {
  return [=](std::string_view text) {
    const std::optional<Number> value = parse_number<Number>(text);
    // Written so that NaN is refused, too.
    if (!value || !(static_cast<double>(*value) >= least && static_cast<double>(*value) <= most)) return false;
    *target = *value;
    return true;
  };
}

template <typename Number>
auto optional_number_reader(std::optional<Number>* target, double least, double most) {
  return [=](std::string_view text) {
    Number value{};
    const bool is_unlimited = text == kUnlimited;
    if (!is_unlimited && !number_reader(&value, least, most)(text)) return false;
    *target = is_unlimited ? std::optional<Number>() : value;
    return true;
  };
}

/// The shortest text that reads back as the same number.
template <typename Number>
std::string text_of(Number value) {
  return fmt::format("{}", value);
}
std::string text_of(bool value) { return value ? "true" : "false"; }

template <typename Number>
std::string text_of(const std::optional<Number>& value) {
  return value ? text_of(*value) : std::string(kUnlimited);
}

template <typename T>
auto writer(const T* target) {
  return [target] { return text_of(*target); };
}

/// Puts what `parse` makes of a text into `target`.
template <typename T, typename Parse>
auto reader(T* target, Parse parse) {
  return [target, parse](std::string_view text) {
    auto value = parse(text);
    if (value.has_value()) *target = std::move(*value);
    return value.has_value();
  };
}

bool read_flag(bool* target, bool when_true, std::string_view text) {
  const bool value = text == "true";
  if (!value && text != "false") return false;
  *target = value == when_true;
  return true;
}

constexpr std::string_view kFlagRange = "true, false";
constexpr std::string_view kEndpointRange = "HOST:PORT, or empty";
constexpr std::string_view kRateRange = "a rate such as 300mbit, 1gbit, 12MiB/s or unlimited";
constexpr std::string_view kBytesRange = "a size such as 64MiB, 1GiB, 500kB or 4096";

/// What parse_rate() reads as the same again.
std::string text_of(Rate rate) {
  if (!rate.limited()) return std::string(kUnlimited);
  for (const auto& [unit, bits] : {std::pair("gbit", 1e9), std::pair("mbit", 1e6), std::pair("kbit", 1e3)}) {
    const std::string text = fmt::format("{}{}", rate.bits_per_s() / bits, unit);
    if (rate.bits_per_s() >= bits && parse_rate(text) == rate) return text;
  }
  return fmt::format("{}B/s", rate.bytes_per_s);
}

/// What parse_bytes() reads as the same again.
std::string bytes_text(std::uint64_t bytes) {
  for (const auto& [unit, scale] : {std::pair("GiB", kGiB), std::pair("MiB", kMiB), std::pair("KiB", kKiB)}) {
    if (bytes > 0 && bytes % scale == 0) return fmt::format("{}{}", bytes / scale, unit);
  }
  return text_of(bytes);
}

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) items.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return items;
}

}  // namespace

using Name = std::string_view;
using Text = std::string_view;

SettingField::SettingField(Name name, bool* target, Text text)
    : SettingField(
          name, text, SettingKind::kFlag, std::string(kFlagRange),
          [target](std::string_view value) { return read_flag(target, true, value); }, writer(target)) {}

SettingField::SettingField(Name name, Negated target, Text text)
    : SettingField(
          name, text, SettingKind::kFlag, std::string(kFlagRange),
          [to = target.target](std::string_view value) { return read_flag(to, false, value); },
          [to = target.target] { return text_of(!*to); }) {}

SettingField::SettingField(Name name, std::string* target, Text text, std::span<const std::string_view> choices)
    : SettingField(name, text, SettingKind::kText, "any text", {}, [target] { return *target; }) {
  choices_.assign(choices.begin(), choices.end());
  read_ = [target, all = choices_](std::string_view value) {
    if (!all.empty() && std::ranges::find(all, value) == all.end()) return false;
    *target = value;
    return true;
  };
}

SettingField::SettingField(Name name, std::filesystem::path* target, Text text)
    : SettingField(
          name, text, SettingKind::kText, "any text",
          [target](std::string_view value) {
            *target = value;
            return true;
          },
          [target] { return target->string(); }) {}

SettingField::SettingField(Name name, std::vector<std::string>* target, Text text)
    : SettingField(
          name, text, SettingKind::kList, "a list of texts, separated by commas",
          [target](std::string_view value) {
            *target = split(value);
            return true;
          },
          [target] { return fmt::format("{}", fmt::join(*target, ",")); }) {}

SettingField::SettingField(Name name, std::optional<std::uint64_t>* target, Text text, double least, double most)
    : SettingField(name, text, SettingKind::kNumber, numbers(least, most) + ", or unlimited",
                   optional_number_reader(target, least, most), writer(target)) {}

SettingField::SettingField(Name name, std::optional<double>* target, Text text, double least, double most)
    : SettingField(name, text, SettingKind::kNumber, numbers(least, most) + ", or unlimited",
                   optional_number_reader(target, least, most), writer(target)) {}

SettingField::SettingField(Name name, OptionalNumber to, Text text, double least, double most)
    : SettingField(
          name, text, SettingKind::kNumber, numbers(least, most),
          [=](std::string_view value) {
            double number = 0;
            if (!number_reader(&number, least, most)(value)) return false;
            *to.target = number;
            if (to.zero_is_absent && number == 0) to.target->reset();
            return true;
          },
          [to] { return text_of(to.target->value_or(0)); }) {}

SettingField::SettingField(Name name, DurationIn target, Text text, double least, double most)
    : SettingField(
          name, text, SettingKind::kNumber, numbers(least, most),
          [=](std::string_view value) {
            double number = 0;
            if (!number_reader(&number, least, most)(value)) return false;
            *target.target = from_seconds(number * to_seconds(target.unit));
            return true;
          },
          [target] { return text_of(to_seconds(*target.target) / to_seconds(target.unit)); }) {}

SettingField::SettingField(Name name, ByteCount target, Text text)
    : SettingField(name, text, SettingKind::kText, std::string(kBytesRange), reader(target.target, parse_bytes),
                   [to = target.target] { return bytes_text(*to); }) {}

SettingField::SettingField(Name name, OptionalByteCount target, Text text)
    : SettingField(
          name, text, SettingKind::kText, fmt::format("{}, or unlimited", kBytesRange),
          [to = target.target](std::string_view value) {
            if (value == kUnlimited) to->reset();
            return value == kUnlimited || reader(to, parse_bytes)(value);
          },
          [to = target.target] { return *to ? bytes_text(**to) : std::string(kUnlimited); }) {}

SettingField::SettingField(Name name, Rate* target, Text text)
    : SettingField(name, text, SettingKind::kText, std::string(kRateRange), reader(target, parse_rate),
                   [target] { return text_of(*target); }) {}

SettingField::SettingField(Name name, Endpoint* target, Text text)
    : SettingField(
          name, text, SettingKind::kText, std::string(kEndpointRange),
          [target](std::string_view value) {
            if (value.empty()) *target = {};
            return value.empty() || reader(target, Endpoint::parse)(value);
          },
          [target] { return target->host.empty() ? std::string() : target->to_string(); }) {}

SettingField::SettingField(Name name, std::optional<Endpoint>* target, Text text)
    : SettingField(
          name, text, SettingKind::kText, std::string(kEndpointRange),
          [target](std::string_view value) {
            if (value.empty()) target->reset();
            return value.empty() || reader(target, Endpoint::parse)(value);
          },
          [target] { return *target ? (*target)->to_string() : std::string(); }) {}

template <typename Number>
requires(std::is_arithmetic_v<Number> &&
         !std::is_same_v<Number, bool>) SettingField::SettingField(Name name, Number* target, Text text, double least,
                                                                   double most)
    : SettingField(name, text, std::is_integral_v<Number> ? SettingKind::kWhole : SettingKind::kNumber,
                   numbers(least, most), number_reader(target, least, most), writer(target)) {}
template SettingField::SettingField(Name, std::uint64_t*, Text, double, double);
template SettingField::SettingField(Name, std::uint32_t*, Text, double, double);
template SettingField::SettingField(Name, double*, Text, double, double);

std::string SettingField::range() const {
  if (!choices_.empty()) return fmt::format("{}", fmt::join(choices_, ", "));
  return (kind_ == SettingKind::kWhole ? "a whole number, " : "") + bounds_;
}

Status SettingField::set(std::string_view value) const {
  if (read_(value)) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              choices_.empty() ? fmt::format("{} is '{}'; it is {}", name_, printable(cut_text(value, 80)), range())
                               : unknown_name(name_, value, choices_));
}

std::string SettingField::toml_value() const {
  const std::string text = value();
  if (kind_ == SettingKind::kText || text == kUnlimited) return toml_string(text);
  if (kind_ != SettingKind::kList) return text;
  std::vector<std::string> items = split(text);
  std::ranges::transform(items, items.begin(), toml_string);
  return fmt::format("[{}]", fmt::join(items, ", "));
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
  if (is_set) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure, std::string(name) + " is empty; set it");
}

Status check_setting_value(const Setting& setting) {
  if (printable(setting.name) == setting.name && printable(setting.value) == setting.value) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{} is '{}'; a configuration file holds UTF-8 without control characters",
                          printable(cut_text(setting.name, 80)), printable(cut_text(setting.value, 80))));
}

Status apply_setting(std::span<const SettingField> fields, const Setting& setting,
                     std::span<const std::string_view> further_names) {
  const auto at = [&](Status status) -> Status {
    if (status.has_value() || setting.where.empty()) return status;
    Error error = std::move(status).error();
    error.detail = fmt::format("{}: {}", setting.where, error.detail);
    return tl::unexpected(std::move(error));
  };
  if (const Status status = check_setting_value(setting); !status.has_value()) return at(status);
  const auto field = std::ranges::find(fields, setting.name, &SettingField::name);
  if (field != fields.end()) return at(field->set(setting.value));
  std::vector<std::string_view> names(further_names.begin(), further_names.end());
  std::ranges::transform(fields, std::back_inserter(names), &SettingField::name);
  return at(fail(Errc::kInvalidArgument, Op::kConfigure,
                 fmt::format("'{}' is no key of the configuration; the nearest is '{}' (--print-config shows all)",
                             printable(cut_text(setting.name, 80)), nearest_name(setting.name, names))));
}

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

std::string settings_table(std::span<const SettingField> fields) {
  std::string table;
  for (const SettingField& field : fields) {
    table += fmt::format("| `{}` | {} | {} | {} |\n", field.name(), field.value(), field.range(), field.text());
  }
  return table;
}

std::string settings_text(std::span<const SettingField> fields) {
  std::string text;
  for (const SettingField& field : fields) text += fmt::format("{} = {}\n", field.name(), field.toml_value());
  return text;
}

}  // namespace weightcast
