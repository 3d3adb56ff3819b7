#include "model/tokenizer/splitter.h"

#include <fmt/format.h>

#include <optional>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/text.h"

namespace weightcast {
namespace {

struct FreeMatch {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

/// Unicode's White_Space. PCRE2's own \s has U+180E, too.
constexpr std::string_view kSpaces =
    R"(\x09-\x0d\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

/// With \s and \S written out. Absent for a \S in a class, which has no such form.
std::optional<std::string> with_spaces_written_out(std::string_view pattern) {
  std::string result;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c != '\\' || i + 1 == pattern.size()) {
      if (c == '[') in_class = true;
      if (c == ']') in_class = false;
      result += c;
      continue;
    }
    const char escaped = pattern[++i];
    if (escaped == 's') {
      result.append(in_class ? "" : "[").append(kSpaces).append(in_class ? "" : "]");
    } else if (escaped == 'S') {
      if (in_class) return std::nullopt;
      result.append("[^").append(kSpaces).append("]");
    } else {
      result += c;
      result += escaped;
    }
  }
  return result;
}

std::string words_of(int error) {
  unsigned char words[256];
  return pcre2_get_error_message(error, words, sizeof words) < 0 ? "unknown error"
                                                                 : reinterpret_cast<const char*>(words);
}

}  // namespace

struct Splitter::Pattern {
  explicit Pattern(pcre2_code* compiled) : code(compiled) {}
  ~Pattern() { pcre2_code_free(code); }
  Pattern(const Pattern&) = delete;
  Pattern& operator=(const Pattern&) = delete;

  pcre2_code* code;
};

Splitter::Splitter(std::unique_ptr<Pattern> pattern) : pattern_(std::move(pattern)) {}
Splitter::~Splitter() = default;
Splitter::Splitter(Splitter&&) noexcept = default;
Splitter& Splitter::operator=(Splitter&&) noexcept = default;

Result<Splitter> Splitter::make(const std::string& pattern) {
  const auto refuse = [&](std::string_view why) {
    return fail(Errc::kUnsupported, Op::kParse,
                fmt::format("tokenizer: pattern {}: {}", printable(cut_text(pattern, 200)), why));
  };
  const auto written_out = with_spaces_written_out(pattern);
  if (!written_out) return refuse("\\S in a class is not supported");
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written_out->data()), written_out->size(),
                                   PCRE2_UTF | PCRE2_UCP, &error, &at, nullptr);
  if (code == nullptr) return refuse(words_of(error));
  // Without it, where the processor or the kernel does not allow it, matching is slower and the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Splitter(std::make_unique<Pattern>(code));
}

Status Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(pattern_->code, nullptr));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  std::size_t end = 0, from = 0;
  while (from < text.size()) {
    const int found = pcre2_match(pattern_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, match.get(), nullptr);
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found < 0) {
      return fail(Errc::kInvalidArgument, Op::kParse, "tokenizer: a text cannot be split: " + words_of(found));
    }
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match.get());
    if (offsets[1] == offsets[0]) {
      // An empty match cuts nothing; look on from the next character.
      from = offsets[1] + 1;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) ++from;
      continue;
    }
    if (offsets[0] > end) pieces.push_back(text.substr(end, offsets[0] - end));
    pieces.push_back(text.substr(offsets[0], offsets[1] - offsets[0]));
    end = from = offsets[1];
  }
  if (end < text.size()) pieces.push_back(text.substr(end));
  return {};
}

}  // namespace weightcast
