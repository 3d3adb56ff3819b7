#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/endpoint.h"
#include "base/result.h"
#include "base/time.h"
#include "base/units.h"
#include "base/words.h"

namespace weightcast {

/// A setting as somebody gave it: in a configuration file, or as a flag.
struct Setting {
  std::string name;
  std::string value;       ///< items of a list are separated by commas
  std::string where = {};  ///< "worker.toml line 3", or "": on the command line

  bool operator==(const Setting&) const = default;
};

/// Reads "name=value". Errors: kInvalidArgument.
[[nodiscard]] Result<Setting> parse_setting(std::string_view text);

/// What a member of a configuration is, where its type alone does not say it.
struct Negated {
  bool* target;  ///< the setting is true where this is false: "no-pace"
};
struct ByteCount {
  std::uint64_t* target;  ///< "64MiB"
};
struct OptionalByteCount {
  std::optional<std::uint64_t>* target;  ///< the same, or "unlimited": absent
};
struct DurationIn {
  Duration* target;
  Duration unit;  ///< that the number counts
};

struct OptionalNumber {
  std::optional<double>* target;
  bool zero_is_absent = false;  ///< 0 stands for no value
};
template <typename Enum>
struct OptionalWord {
  std::optional<Enum>* target;
  std::string_view absent;  ///< the word of no value; "": what has to be set
};

enum class SettingKind {
  kFlag,    ///< true or false
  kWhole,   ///< number
  kNumber,  ///< or the word "unlimited", where its range says so
  kText,
  kList  ///< of texts
};

/// The one description of a setting: its name, what it may be, what it is for, and the member that has its value and at
/// first its default. Flags, keys of TOML files, --print-config, manual pages and the tables in docs/ come from it.
/// Whoever owns the member keeps it for as long as the description.
class SettingField {
 public:
  SettingField(std::string_view name, bool* target, std::string_view text);
  SettingField(std::string_view name, Negated target, std::string_view text);
  SettingField(std::string_view name, std::string* target, std::string_view text,
               std::span<const std::string_view> choices = {});
  SettingField(std::string_view name, std::filesystem::path* target, std::string_view text);
  SettingField(std::string_view name, std::vector<std::string>* target, std::string_view text);
  SettingField(std::string_view name, std::optional<std::uint64_t>* target, std::string_view text, double least = 0,
               double most = 1e9);
  SettingField(std::string_view name, std::optional<double>* target, std::string_view text, double least = 0,
               double most = 1e9);
  SettingField(std::string_view name, OptionalNumber target, std::string_view text, double least, double most);
  SettingField(std::string_view name, DurationIn target, std::string_view text, double least, double most);
  SettingField(std::string_view name, ByteCount target, std::string_view text);
  SettingField(std::string_view name, OptionalByteCount target, std::string_view text);
  SettingField(std::string_view name, Rate* target, std::string_view text);
  /// Empty is absent: an endpoint without a host.
  SettingField(std::string_view name, Endpoint* target, std::string_view text);
  SettingField(std::string_view name, std::optional<Endpoint>* target, std::string_view text);
  /// std::uint64_t, std::uint32_t or double, from `least` to `most`.
  template <typename Number>
  requires(std::is_arithmetic_v<Number> && !std::is_same_v<Number, bool>)
      SettingField(std::string_view name, Number* target, std::string_view text, double least = 0, double most = 1e9);
  /// One of the words of an enum (base/words.h).
  template <typename Enum>
  requires std::is_enum_v<Enum> SettingField(std::string_view name, Enum* target, std::string_view text)
      : name_(name), text_(text), kind_(SettingKind::kText), choices_(words<Enum>()) {
    read_ = [target](std::string_view word) {
      const std::optional<Enum> value = find_word<Enum>(word);
      if (value) *target = *value;
      return value.has_value();
    };
    write_ = [target] { return std::string(to_string<Enum>(*target)); };
  }
  template <typename Enum>
  SettingField(std::string_view name, OptionalWord<Enum> to, std::string_view text)
      : name_(name), text_(text), kind_(SettingKind::kText), choices_(words<Enum>()) {
    if (!to.absent.empty()) choices_.insert(choices_.begin(), to.absent);
    read_ = [to](std::string_view word) {
      *to.target = find_word<Enum>(word);
      return to.target->has_value() || word == to.absent;
    };
    write_ = [to] { return std::string(*to.target ? to_string<Enum>(**to.target) : to.absent); };
  }

  [[nodiscard]] std::string_view name() const { return name_; }
  [[nodiscard]] std::string_view text() const { return text_; }
  [[nodiscard]] SettingKind kind() const { return kind_; }
  /// Of a text that is one of a list; else empty.
  [[nodiscard]] std::span<const std::string_view> choices() const { return choices_; }
  /// What it may be, in words: "a whole number, 1 to 64".
  [[nodiscard]] std::string range() const;
  /// The same without what the kind says: "1 to 64".
  [[nodiscard]] const std::string& bounds() const { return bounds_; }
  /// As the setting's value that gives the member's value again.
  [[nodiscard]] std::string value() const { return write_(); }
  /// The same as a value of TOML.
  [[nodiscard]] std::string toml_value() const;
  /// Puts `value` into the member. Errors: kInvalidArgument, which names the setting, the value, and what it may be.
  [[nodiscard]] Status set(std::string_view value) const;

 private:
  using Read = std::function<bool(std::string_view)>;
  using Write = std::function<std::string()>;
  SettingField(std::string_view name, std::string_view text, SettingKind kind, std::string bounds, Read read,
               Write write)
      : name_(name),
        text_(text),
        kind_(kind),
        bounds_(std::move(bounds)),
        read_(std::move(read)),
        write_(std::move(write)) {}

  std::string_view name_;
  std::string_view text_;
  SettingKind kind_;
  std::string bounds_;
  std::vector<std::string_view> choices_;
  Read read_;
  Write write_;
};

/// Puts the value of `setting` where its field says. `further_names` are settings that the caller reads itself; they
/// count when the nearest name is looked for. Errors: kInvalidArgument, which says where the setting stands, names it,
/// its value and its range, or the nearest name or choice.
[[nodiscard]] Status apply_setting(std::span<const SettingField> fields, const Setting& setting,
                                   std::span<const std::string_view> further_names = {});

/// Refuses a setting that nobody has set. Errors: kInvalidArgument, which names it.
[[nodiscard]] Status check_is_set(std::string_view name, bool is_set);

/// Refuses a setting that no TOML file can hold: control characters, and what is not UTF-8. Errors: kInvalidArgument.
[[nodiscard]] Status check_setting_value(const Setting& setting);

/// `text` as a string of TOML, with its quotes; and as a key, with quotes where it needs them.
[[nodiscard]] std::string toml_string(std::string_view text);
[[nodiscard]] std::string toml_key(std::string_view text);

/// Rows of a table in Markdown: name, default, values that it takes, meaning.
[[nodiscard]] std::string settings_table(std::span<const SettingField> fields);

/// As lines of a TOML file that give the same values again.
[[nodiscard]] std::string settings_text(std::span<const SettingField> fields);

}  // namespace weightcast
