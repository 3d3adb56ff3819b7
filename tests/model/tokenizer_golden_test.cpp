// What the tokenizers library makes of strings: tests/oracles/hf_tokens.py.
#include <gtest/gtest.h>

#include <sstream>

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/unicode_text.h"
#include "tests/golden_lines.h"

namespace weightcast {
namespace {

TEST(TokenizerGolden, IdsAreThoseOfTheTokenizersLibrary) {
  std::ifstream file(WEIGHTCAST_MODEL_DATA "/trained_tokenizer.json");
  std::stringstream content;
  content << file.rdbuf();
  const auto tokenizer = Tokenizer::parse(content.str());
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message();
  for (const auto& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_tokens.jsonl")) {
    const auto text = line["text"].get<std::string>();
    const auto ids = tokenizer->encode(text);
    ASSERT_TRUE(ids.has_value());
    EXPECT_EQ(*ids, line["ids"].get<std::vector<TokenId>>()) << line;
    EXPECT_EQ(*tokenizer->decode(*ids), to_nfc(text)) << line;
    EXPECT_EQ(*tokenizer->decode(*tokenizer->encode(text, {.normalize = false})), text) << line;
  }
}

}  // namespace
}  // namespace weightcast
