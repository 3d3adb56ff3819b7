#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "base/settings/endpoint.h"
#include "base/settings/words.h"
#include "base/time.h"
#include "base/units.h"

namespace weightcast {

/// A setting as somebody gave it: in a configuration file, or as a flag.
struct Setting {
  std::string name;
  std::string value;       ///< of a list as join_items() writes it
  std::string where = {};  ///< "worker.toml line 3", or "": on the command line

  bool operator==(const Setting&) const = default;
};

/// Reads "name=value". Errors: kInvalidArgument.
[[nodiscard]] Result<Setting> parse_setting(std::string_view text);

/// A list as one text, with commas between its items, and \, for a comma in one. And back; empty items are left out.
[[nodiscard]] std::string join_items(std::span<const std::string> items);
[[nodiscard]] std::vector<std::string> split_items(std::string_view text);

// What a member of a configuration is, where its type alone does not say it.
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
  std::optional<Enum>* target;  ///< absent: it has to be set
};

enum class SettingKind {
  kFlag,    ///< true or false
  kWhole,   ///< number
  kNumber,  ///< or the word "unlimited", where its range says so
  kText,
  kList,  ///< of texts
  kNamed  ///< texts by their names: each is a setting of its own, FIELD.NAME, and NAME=VALUE as a flag
};

/// The one description of a setting: its name, what it may be, what it is for, and the member that has its value and at
/// first its default. Flags, keys of TOML files, --print-config, manual pages and the tables in docs/ come from it.
/// Whoever owns the member keeps it for as long as the description.
class SettingField {
 public:
  /// `target` is one of those that bind() takes. `least` and `most` are of a number.
  template <typename Target>
  SettingField(std::string_view name, Target target, std::string_view text, double least = 0, double most = 1e9)
      : name_(name), text_(text), least_(least), most_(most) {
    bind(target);
  }
  /// One of `choices`, or the empty text if that is the default.
  SettingField(std::string_view name, std::string* target, std::string_view text,
               std::span<const std::string_view> choices);

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
  /// Puts `value` into the member; NAME=VALUE into one of kNamed. Errors: kInvalidArgument, which names the setting,
  /// the value, and what it may be.
  [[nodiscard]] Status set(std::string_view value) const;

 private:
  void bind(bool* target);
  void bind(Negated to);
  void bind(std::uint64_t* target);
  void bind(std::uint32_t* target);
  void bind(double* target);
  void bind(std::optional<std::uint64_t>* target);
  void bind(std::optional<double>* target);
  void bind(OptionalNumber to);
  void bind(DurationIn to);
  void bind(ByteCount to);
  void bind(OptionalByteCount to);
  void bind(Rate* target);
  void bind(std::string* target);
  void bind(std::filesystem::path* target);
  void bind(std::vector<std::string>* target);
  void bind(std::map<std::string, std::string>* target);
  void bind(Endpoint* target);  ///< without a host: empty
  void bind(std::optional<Endpoint>* target);
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void bind(Enum* target) {
    choices_.assign(kWords<Enum>.begin(), kWords<Enum>.end());
    take(target, SettingKind::kText, "", find_word<Enum>,
         [](Enum value) { return std::string(to_string<Enum>(value)); });
  }
  template <typename Enum>
  void bind(OptionalWord<Enum> to) {
    choices_.assign(kWords<Enum>.begin(), kWords<Enum>.end());
    read_ = [to](std::string_view word) {
      *to.target = find_word<Enum>(word);
      return to.target->has_value() || word.empty();
    };
    write_ = [to] { return std::string(*to.target ? to_string<Enum>(**to.target) : ""); };
  }
  /// Reads by `parse`, which gives a Result or an optional, and writes by `print`.
  template <typename T, typename Parse, typename Print>
  void take(T* target, SettingKind kind, std::string bounds, Parse parse, Print print) {
    kind_ = kind;
    bounds_ = std::move(bounds);
    read_ = [target, parse](std::string_view text) {
      auto value = parse(text);
      if (value.has_value()) *target = *std::move(value);
      return value.has_value();
    };
    write_ = [target, print]() -> std::string { return print(*target); };
  }
  template <typename Number>
  void take_number(Number* target, SettingKind kind);
  template <typename Number>
  void take_optional(std::optional<Number>* target);
  [[nodiscard]] std::string numbers() const;

  std::string_view name_;
  std::string_view text_;
  double least_ = 0;
  double most_ = 0;
  SettingKind kind_ = SettingKind::kText;
  std::string bounds_;
  std::vector<std::string_view> choices_;
  std::function<bool(std::string_view)> read_;
  std::function<std::string()> write_;
};

/// Puts the value of `setting` where its field says. Errors: kInvalidArgument, which says where the setting stands,
/// names it, its value and its range, or the nearest name or choice. No setting has control characters or is no UTF-8:
/// a TOML file could not hold it.
[[nodiscard]] Status apply_setting(std::span<const SettingField> fields, const Setting& setting);

/// Refuses a setting that nobody has set. Errors: kInvalidArgument, which names it.
[[nodiscard]] Status check_is_set(std::string_view name, bool is_set);

/// Rows of a table in Markdown: name, default, values that it takes, meaning.
[[nodiscard]] std::string settings_table(std::span<const SettingField> fields);

/// As lines of a TOML file that give the same values again.
[[nodiscard]] std::string settings_text(std::span<const SettingField> fields);

}  // namespace weightcast
