#include "trainer/model/tokenizer/splitter.h"

#include <fmt/format.h>

#include <ctime>
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

// Of a tokenizer.json that a person wrote it has some hundreds.
constexpr std::size_t kPatternBytesMax = std::size_t{64} << 10;
// Patterns as published models have them take 0.05 us a byte, or ten times that without PCRE2's compiler.
constexpr double kSecondsMin = 2;
constexpr double kSecondsPerByte = 5e-6;
constexpr std::size_t kMatchesPerLook = 16;

double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

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
  if (pattern.size() > kPatternBytesMax) {
    return refuse(fmt::format("it has {} bytes; at most {}", pattern.size(), kPatternBytesMax));
  }
  const auto written_out = with_spaces_written_out(pattern);
  if (!written_out) return refuse("\\S in a class is not supported");
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(written_out->data()), written_out->size(),
                                   // \C would cut characters in two, and PCRE2 would read behind a text's end.
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &at, nullptr);
  if (code == nullptr) return refuse(words_of(error));
  // Without it, where the processor or the kernel does not allow it, matching is slower and the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Splitter(std::make_unique<Pattern>(code));
}

Status Splitter::split(std::string_view text, std::vector<std::string_view>& pieces) const {
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(pattern_->code, nullptr));
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  // PCRE2 bounds the work of one match, and there are as many as the text has bytes.
  const double seconds_max = kSecondsMin + kSecondsPerByte * static_cast<double>(text.size());
  const double begun = thread_seconds();
  std::size_t end = 0, from = 0;
  for (std::size_t matches = 1; from < text.size(); ++matches) {
    if (matches % kMatchesPerLook == 0 && thread_seconds() - begun > seconds_max) {
      return fail(Errc::kInvalidArgument, Op::kParse,
                  fmt::format("tokenizer: a text of {} bytes cannot be split: its pattern took {:.0f} s of processor "
                              "time for the first {}; use a tokenizer.json whose patterns go back less",
                              text.size(), seconds_max, from));
    }
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
