#include "tools/shell/manual.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

namespace weightcast {
namespace {

/// man(7): a backslash begins an escape, a dot or an apostrophe at the beginning of a line a macro; a plain hyphen may
/// be set as another character, which cannot be pasted into a shell.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
    if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else {
      out += c;
    }
  }
  return out;
}

std::string capital(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) { return 'a' <= c && c <= 'z' ? char(c - 'a' + 'A') : c; });
  return text;
}

std::string sentence(std::string text) {
  if (!text.empty() && text.back() != '.') text += '.';
  return text;
}

void add_option(const DescribedOption& option, std::string& out) {
  out += ".TP\n";
  for (std::size_t i = 0; i < option.names.size(); ++i) {
    out += fmt::format("{}\\fB{}\\fR", i == 0 ? "" : ", ", roff(option.names[i]));
  }
  if (!option.value.empty()) {
    out += fmt::format(" \\fI{}\\fR{}", roff(option.value), option.repeated ? " ..." : "");
  }
  out += "\n" + roff(sentence(option.text));
  if (option.required) out += " Required.";
  if (!option.choices.empty()) out += roff(fmt::format(" One of {}.", fmt::join(option.choices, ", ")));
  if (!option.range.empty()) out += roff(fmt::format(" In {}.", option.range));
  if (!option.default_value.empty()) out += roff(fmt::format(" Default: {}.", option.default_value));
  out += "\n";
}

std::string synopsis(const DescribedCommand& command, const std::string& words) {
  std::string out = fmt::format("\\fB{}\\fR", roff(words));
  if (!command.options.empty()) out += " [\\fIOPTIONS\\fR]";
  for (const DescribedOption& positional : command.positionals) {
    const std::string name =
        fmt::format("\\fI{}\\fR{}", roff(positional.names.front()), positional.repeated ? "..." : "");
    out += positional.required ? " " + name : " [" + name + "]";
  }
  if (!command.commands.empty()) out += " \\fICOMMAND\\fR";
  return out;
}

bool is_help(const DescribedOption& option) { return std::ranges::count(option.names, "--help") > 0; }

void add_command(const DescribedCommand& command, const std::string& words, std::string& out) {
  out += fmt::format(".SS {}\n{}\n", synopsis(command, words), roff(sentence(command.text)));
  for (const DescribedOption& positional : command.positionals) add_option(positional, out);
  for (const DescribedOption& option : command.options) {
    if (!is_help(option)) add_option(option, out);
  }
  for (const DescribedCommand& below : command.commands) add_command(below, words + " " + below.name, out);
}

}  // namespace

std::string manual_page(const DescribedCommand& program, const std::string& version) {
  // "weightcast: what it is for" stands in the help of each program.
  std::string purpose = program.text;
  if (purpose.starts_with(program.name + ": ")) purpose.erase(0, program.name.size() + 2);
  std::string out = fmt::format(".TH {} 1 \"\" \"{} {}\"\n.SH NAME\n{} \\- {}\n.SH SYNOPSIS\n{}\n",
                                roff(capital(program.name)), roff(program.name), roff(version), roff(program.name),
                                roff(purpose), synopsis(program, program.name));
  out += ".SH OPTIONS\n";
  for (const DescribedOption& option : program.options) add_option(option, out);
  if (!program.commands.empty()) out += ".SH COMMANDS\n";
  for (const DescribedCommand& command : program.commands) add_command(command, program.name + " " + command.name, out);
  out +=
      ".SH EXIT STATUS\n.TP\n0\nIt has done what it was asked for.\n.TP\n1\nIt has failed. The last line of the standard "
      "error says why.\n.TP\n2\nThe options or the configuration are wrong. The same call fails again.\n"
      ".SH SEE ALSO\n\\fBweightcast\\fR(1), \\fBweightcast\\-train\\fR(1), \\fBweightcast\\-worker\\fR(1)\n";
  return out;
}

}  // namespace weightcast
