#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weightcast {

/// Cuts text by a pattern, as a pre-tokeniser of tokenizer.json does: matches and what lies between them are pieces.
/// Patterns are Oniguruma's there and PCRE2's here; \s is made to mean the same. Any thread may use it.
class Splitter {
 public:
  /// Errors: kUnsupported, which gives the pattern and what is wrong with it.
  [[nodiscard]] static Result<Splitter> make(const std::string& pattern);
  ~Splitter();
  Splitter(Splitter&&) noexcept;
  Splitter& operator=(Splitter&&) noexcept;

  /// Appends the pieces of `text`, which is valid UTF-8; they are views of it, and together all of it.
  /// Errors: kInvalidArgument if matching takes too much.
  [[nodiscard]] Status split(std::string_view text, std::vector<std::string_view>& pieces) const;

 private:
  struct Pattern;
  explicit Splitter(std::unique_ptr<Pattern> pattern);

  std::unique_ptr<Pattern> pattern_;
};

}  // namespace weightcast
