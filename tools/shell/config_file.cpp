#include "tools/shell/config_file.h"

#include <fmt/format.h>

#include <algorithm>

// A setting's value is a text, or a list of texts: nothing lies deeper.
#define TOML_MAX_NESTED_VALUES 4
#define TOML_EXCEPTIONS 0
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
// A file reaches some of its assertions ("[" and nothing else). Without them the parser refuses that as an error.
#define TOML_ASSERT(condition) static_cast<void>(0)
#include <toml++/toml.h>

#include "base/files/posix_file_system.h"
#include "base/text.h"
#include "base/units.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kFileBytesMax = 256 * kKiB;
// Each part of a dotted key is a table in a table, and the parser does not bound them: to free a million of them would
// take more stack than there is.
constexpr std::ptrdiff_t kDotsPerLineMax = 512;

std::string place(const std::string& file, std::size_t line) {
  return fmt::format("{} line {}", printable(file), line);
}

Error refuse(const std::string& where, std::string_view why) {
  return fail(Errc::kInvalidArgument, Op::kConfigure, fmt::format("{}: {}", where, why));
}

/// Line `number`, which counts from 1; "" beyond the last one.
std::string_view line_of(std::string_view text, std::size_t number) {
  for (; number > 1; --number) {
    const std::size_t end = text.find('\n');
    text = end == std::string_view::npos ? "" : text.substr(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// The key that a line begins with; "" if it begins with none.
std::string_view key_of(std::string_view line) {
  const std::size_t equals = line.find('=');
  if (equals == std::string_view::npos) return "";
  line = line.substr(0, equals);
  const std::size_t begin = line.find_first_not_of(" \t");
  return begin == std::string_view::npos ? "" : line.substr(begin, line.find_last_not_of(" \t") + 1 - begin);
}

class Reader {
 public:
  explicit Reader(const std::string& file) : file_(file) {}

  Status read(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + std::string(key.str());
      if (const toml::table* const section = node.as_table()) {
        WC_TRY(read(*section, name + "."));
        continue;
      }
      const std::size_t line = node.source().begin.line;
      Setting setting{name, "", place(file_, line)};
      WC_ASSIGN(setting.value, node.is_array() ? array_text(*node.as_array(), setting) : text_of(node, setting));
      settings_.push_back({line, std::move(setting)});
    }
    return {};
  }

  std::vector<Setting> take() {
    std::ranges::stable_sort(settings_, {}, &Placed::line);
    std::vector<Setting> settings;
    for (Placed& placed : settings_) settings.push_back(std::move(placed.setting));
    return settings;
  }

 private:
  struct Placed {
    std::size_t line;
    Setting setting;
  };

  static Result<std::string> text_of(const toml::node& node, const Setting& setting) {
    if (const auto* text = node.as_string()) return text->get();
    if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
    if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
    if (const auto* flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
    return refuse(setting.where, fmt::format("the value of {} is no text, number, true or false, nor a list of them",
                                             printable(setting.name)));
  }

  static Result<std::string> array_text(const toml::array& array, const Setting& setting) {
    std::vector<std::string> items;
    for (const toml::node& node : array) {
      WC_ASSIGN(items.emplace_back(), text_of(node, setting));
    }
    return join_items(items);
  }

  const std::string& file_;
  std::vector<Placed> settings_;
};

}  // namespace

Result<std::vector<Setting>> parse_settings(std::string_view text, const std::string& file) {
  std::string_view rest = text;
  for (std::size_t number = 1; !rest.empty(); ++number) {
    const std::string_view line = line_of(rest, 1);
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    if (std::ranges::count(line, '.') > kDotsPerLineMax) {
      return refuse(place(file, number), fmt::format("more than {} dots in a line", kDotsPerLineMax));
    }
  }
  const toml::parse_result parsed = toml::parse(text);
  if (parsed.failed()) {
    const std::size_t line = parsed.error().source().begin.line;
    const std::string_view key = key_of(line_of(text, line));
    return refuse(place(file, line),
                  fmt::format("{}no TOML: {}{}", key.empty() ? "" : fmt::format("{} is ", printable(cut_text(key, 80))),
                              printable(parsed.error().description()), key.empty() ? "" : " (texts stand in quotes)"));
  }
  Reader reader(file);
  WC_TRY(reader.read(parsed.table(), ""));
  return reader.take();
}

Result<std::vector<Setting>> read_settings(const std::string& file) {
  PosixFileSystem files;
  const Result<std::string> text = read_file(files, file, kFileBytesMax);
  if (!text.has_value()) {
    return about(printable(file), fail(Errc::kInvalidArgument, Op::kConfigure, text.error().detail));
  }
  return parse_settings(*text, file);
}

}  // namespace weightcast
