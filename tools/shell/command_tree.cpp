#include "tools/shell/command_tree.h"

#include <cstddef>
#include <string_view>

namespace weightcast {
namespace {

/// CLI11 names a kind and what its checks say of it: "TEXT:{auto,never}", "UINT:UINT in [1 - 1000]".
void read_type_name(std::string_view type_name, DescribedOption& option) {
  const std::size_t colon = type_name.find(':');
  option.value = type_name.substr(0, colon);
  if (colon == std::string_view::npos) return;
  std::string_view check = type_name.substr(colon + 1);
  if (const std::size_t range = check.find(" in ["); range != std::string_view::npos) {
    option.range = check.substr(range + 4);
  }
  const std::size_t begin = check.find('{'), end = check.find('}');
  if (begin == std::string_view::npos || end == std::string_view::npos || end < begin) return;
  check = check.substr(begin + 1, end - begin - 1);
  for (;;) {
    const std::size_t comma = check.find(',');
    option.choices.emplace_back(check.substr(0, comma));
    if (comma == std::string_view::npos) return;
    check.remove_prefix(comma + 1);
  }
}

DescribedOption describe_option(const CLI::Option& from) {
  DescribedOption option;
  if (from.get_positional()) {
    option.names = {from.get_name(true)};
  } else {
    for (const std::string& name : from.get_snames()) option.names.push_back("-" + name);
    for (const std::string& name : from.get_lnames()) option.names.push_back("--" + name);
  }
  const bool is_flag = from.get_items_expected_max() == 0;
  if (!is_flag) read_type_name(from.get_type_name(), option);
  option.default_value = from.get_default_str();
  option.text = from.get_description();
  option.required = from.get_required();
  option.repeated = from.get_items_expected_max() > 1;
  return option;
}

/// A group of options is a command without a name, and with a --help of its own that nobody can ask for.
void collect(const CLI::App& app, DescribedCommand& command) {
  const CLI::Option* const hidden = app.get_name().empty() ? app.get_help_ptr() : nullptr;
  const auto is_shown = [&](const CLI::Option* one) { return one != hidden && !one->get_group().empty(); };
  for (const CLI::Option* const option : app.get_options(is_shown)) {
    (option->get_positional() ? command.positionals : command.options).push_back(describe_option(*option));
  }
  for (const CLI::App* const below : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    if (below->get_name().empty()) {
      collect(*below, command);
    } else {
      command.commands.push_back(weightcast::describe(*below));
    }
  }
}

}  // namespace

DescribedCommand describe(const CLI::App& app) {
  DescribedCommand command;
  command.name = app.get_name();
  command.text = app.get_description();
  collect(app, command);
  return command;
}

}  // namespace weightcast
