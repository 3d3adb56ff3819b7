#include "tools/shell/completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace weightcast {
namespace {

struct Placed {
  std::string path;  ///< of the words that chose the command, each after a space; of the program ""
  const DescribedCommand* command = nullptr;
};

void flatten(const DescribedCommand& command, const std::string& path, std::vector<Placed>& out) {
  out.push_back({path, &command});
  for (const DescribedCommand& below : command.commands) flatten(below, path + " " + below.name, out);
}

std::vector<Placed> flatten(const DescribedCommand& program) {
  std::vector<Placed> out;
  flatten(program, "", out);
  return out;
}

/// A shell's function: letters, digits and _.
std::string function_of(const DescribedCommand& program) {
  std::string name = "_" + program.name;
  std::ranges::replace(name, '-', '_');
  return name;
}

std::string replace_all(std::string_view text, char what, std::string_view with) {
  std::string out;
  for (const char c : text) {
    if (c == what) {
      out += with;
    } else {
      out += c;
    }
  }
  return out;
}

std::string in_quotes(std::string_view text) { return "'" + replace_all(text, '\'', "'\\''") + "'"; }

/// The lines of a `case` that bash and zsh have alike.
std::string command_patterns(const std::vector<Placed>& commands) {
  std::vector<std::string> patterns;
  for (const Placed& one : commands) {
    if (!one.path.empty()) patterns.push_back(in_quotes(one.path));
  }
  return fmt::format("{}", fmt::join(patterns, "|"));
}

/// `choices` for each option of which those are known, and `files` for all others that take a value.
template <typename Choices>
std::string value_cases(const std::vector<Placed>& commands, Choices choices, std::string_view files) {
  std::string out;
  std::vector<std::string> others;
  for (const Placed& one : commands) {
    for (const DescribedOption& option : one.command->options) {
      if (option.value.empty()) continue;
      std::vector<std::string> patterns;
      for (const std::string& name : option.names) patterns.push_back(in_quotes(one.path + " " + name));
      if (option.choices.empty()) {
        others.insert(others.end(), patterns.begin(), patterns.end());
      } else {
        out += fmt::format("    {}) {}; return ;;\n", fmt::join(patterns, "|"), choices(option.choices));
      }
    }
  }
  if (!others.empty()) out += fmt::format("    {}) {}; return ;;\n", fmt::join(others, "|"), files);
  return out;
}

std::string bash(const DescribedCommand& program, const std::vector<Placed>& commands) {
  const std::string function = function_of(program);
  std::string out = fmt::format(R"(# bash completion of {0}
{1}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} path='' i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$path ${{COMP_WORDS[i]}}" in
      {2}) path="$path ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$path $before" in
)",
                                program.name, function, command_patterns(commands));
  out += value_cases(
      commands,
      [](const std::vector<std::string>& choices) {
        return fmt::format("COMPREPLY=($(compgen -W {} -- \"$word\"))", in_quotes(fmt::format("{}", fmt::join(choices, " "))));
      },
      "compopt -o default");
  out += "  esac\n  case \"$path\" in\n";
  for (const Placed& one : commands) {
    std::vector<std::string> words;
    for (const DescribedCommand& below : one.command->commands) words.push_back(below.name);
    for (const DescribedOption& option : one.command->options) {
      words.insert(words.end(), option.names.begin(), option.names.end());
    }
    out += fmt::format("    {}) COMPREPLY=($(compgen -W {} -- \"$word\")) ;;\n", in_quotes(one.path),
                       in_quotes(fmt::format("{}", fmt::join(words, " "))));
  }
  out += fmt::format(
      "  esac\n  ((${{#COMPREPLY[@]}} > 0)) || compopt -o default\n}}\ncomplete -F {} {}\n", function, program.name);
  return out;
}

std::string zsh(const DescribedCommand& program, const std::vector<Placed>& commands) {
  const std::string function = function_of(program);
  std::string out = fmt::format(R"(#compdef {0}
{1}() {{
  local chosen='' i
  local -a offered
  for ((i = 2; i < CURRENT; i++)); do
    case "$chosen ${{words[i]}}" in
      {2}) chosen="$chosen ${{words[i]}}" ;;
    esac
  done
  case "$chosen ${{words[CURRENT-1]}}" in
)",
                                program.name, function, command_patterns(commands));
  out += value_cases(
      commands,
      [](const std::vector<std::string>& choices) { return fmt::format("compadd -- {}", fmt::join(choices, " ")); },
      "_files");
  out += "  esac\n  case \"$chosen\" in\n";
  const auto entry = [](std::string_view name, std::string_view text) {
    return in_quotes(fmt::format("{}:{}", replace_all(name, ':', "\\:"), text));
  };
  for (const Placed& one : commands) {
    std::vector<std::string> entries;
    for (const DescribedCommand& below : one.command->commands) entries.push_back(entry(below.name, below.text));
    for (const DescribedOption& option : one.command->options) {
      for (const std::string& name : option.names) entries.push_back(entry(name, option.text));
    }
    out += fmt::format("    {}) offered=({}) ;;\n", in_quotes(one.path), fmt::join(entries, " "));
  }
  out += fmt::format("  esac\n  _describe {} offered || _files\n}}\n{} \"$@\"\n", program.name, function);
  return out;
}

std::string fish(const DescribedCommand& program, const std::vector<Placed>& commands) {
  const auto quote = [](std::string_view text) {
    return "'" + replace_all(replace_all(text, '\\', "\\\\"), '\'', "\\'") + "'";
  };
  const std::string function = "_" + function_of(program);
  std::vector<std::string> paths;
  for (const Placed& one : commands) {
    if (!one.path.empty()) paths.push_back(quote(one.path));
  }
  std::string out = fmt::format(R"(# fish completion of {0}
function {1}
    set -l chosen ''
    for word in (commandline -opc)[2..-1]
        switch "$chosen $word"
            case {2}
                set chosen "$chosen $word"
        end
    end
    string match -q -- $argv[1] $chosen
end
)",
                                program.name, function, fmt::join(paths, " "));
  for (const Placed& one : commands) {
    const std::string begin = fmt::format("complete -c {} -n {}", program.name,
                                          quote(fmt::format("{} {}", function, quote(one.path))));
    for (const DescribedCommand& below : one.command->commands) {
      out += fmt::format("{} -f -a {} -d {}\n", begin, below.name, quote(below.text));
    }
    for (const DescribedOption& option : one.command->options) {
      out += begin;
      for (const std::string& name : option.names) {
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (!option.choices.empty()) {
        out += " -x -a " + quote(fmt::format("{}", fmt::join(option.choices, " ")));
      } else if (!option.value.empty()) {
        out += " -r";
      }
      out += fmt::format(" -d {}\n", quote(option.text));
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const DescribedCommand& program, Shell shell) {
  const std::vector<Placed> commands = flatten(program);
  switch (shell) {
    case Shell::kBash:
      return bash(program, commands);
    case Shell::kZsh:
      return zsh(program, commands);
    case Shell::kFish:
      return fish(program, commands);
  }
  return "";
}

}  // namespace weightcast
