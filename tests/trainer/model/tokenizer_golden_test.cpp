// What the tokenizers library makes of strings: tests/oracles/hf_tokens.py.
#include <gtest/gtest.h>

#include <map>

#include "tests/golden_lines.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "trainer/model/tokenizer/unicode_text.h"

namespace weightcast {
namespace {

nlohmann::json json_of(const std::string& name) {
  std::ifstream file(WEIGHTCAST_MODEL_DATA "/" + name);
  return nlohmann::json::parse(file);
}

TEST(TokenizerGolden, IdsAreThoseOfTheTokenizersLibrary) {
  std::map<std::string, Tokenizer> tokenizers;
  const nlohmann::json variants = json_of("tokenizer_variants.json");
  for (const auto& [name, variant] : variants.items()) {
    nlohmann::json json = json_of(variant["file"]);
    json.update(variant["changes"]);
    Result<Tokenizer> tokenizer = Tokenizer::parse(json.dump());
    ASSERT_TRUE(tokenizer.has_value()) << name << ": " << tokenizer.error().message();
    tokenizers.emplace(name, *std::move(tokenizer));
  }
  for (const auto& line : golden_lines(WEIGHTCAST_MODEL_GOLDEN "/hf_tokens.jsonl")) {
    const auto name = line["tokenizer"].get<std::string>();
    const Tokenizer& tokenizer = tokenizers.at(name);
    const auto text = line["text"].get<std::string>();
    const auto ids = tokenizer.encode(text);
    ASSERT_TRUE(ids.has_value()) << line;
    EXPECT_EQ(*ids, line["ids"].get<std::vector<TokenId>>()) << line;
    auto surrounded = line["before"].get<std::vector<TokenId>>();
    surrounded.insert(surrounded.end(), ids->begin(), ids->end());
    EXPECT_EQ(*tokenizer.encode(text, {.surround = true}), surrounded) << line;
    EXPECT_EQ(*tokenizer.decode(*ids), line["decoded"].get<std::string>()) << line;
    // In parts the text is the same, but for what a beginning leaves out.
    std::string parts;
    for (const TokenId id : *ids) parts += tokenizer.decode(std::span(&id, 1), {.begins = false}).value();
    EXPECT_TRUE(parts.ends_with(*tokenizer.decode(*ids))) << line;
    if (name == "qwen" || name == "llama3") {
      EXPECT_EQ(parts, name == "qwen" ? to_nfc(text) : text) << line;
      EXPECT_EQ(*tokenizer.decode(*tokenizer.encode(text, {.normalize = false})), text) << line;
    }
  }
}

}  // namespace
}  // namespace weightcast
