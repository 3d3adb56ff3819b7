#include "bench/paper/poker/word_model.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/files/posix_file_system.h"
#include "bench/paper/paper_bench.h"
#include "tests/patch/temp_dir.h"
#include "trainer/model/model_files.h"
#include "trainer/model/tokenizer/tokenizer.h"

namespace weightcast::bench {
namespace {

TEST(WordModel, WordsAreTokensAndAllElseIsBytes) {
  const Tokenizer tokenizer =
      Tokenizer::parse(word_tokenizer_json(std::vector<std::string>{"Ah", "A", "hand"})).value();
  const auto ids = [&](std::string_view text) { return tokenizer.encode(text, {.special_tokens = false}).value(); };
  EXPECT_EQ(tokenizer.vocab_size(), 262);
  EXPECT_EQ(ids("xAhA"), (std::vector<TokenId>{'x', 259, 260})) << "the longer of two counts";
  EXPECT_EQ(tokenizer.decode(ids("a hand of Ah\xff")).value(), "a hand of Ah\xff");
  EXPECT_EQ(tokenizer.added_token("<|endoftext|>"), 256);
}

TEST(WordModel, ATurnOfPokerIsSomeFortyTokens) {
  const PokerSuite suite = *paper_item("echo2-table7")->poker;
  const Tokenizer tokenizer = Tokenizer::parse(word_tokenizer_json(suite.words)).value();
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    PokerTable table = PokerTable::make(seed, suite.table).value();
    for (std::uint64_t turn = 0; !table.is_over(); ++turn) {
      const std::string& question = table.turn().conversation.back().content;
      const std::vector<TokenId> ids = tokenizer.encode(question).value();
      EXPECT_LE(ids.size(), 45u) << question;
      EXPECT_EQ(tokenizer.decode(ids).value(), question);
      ASSERT_TRUE(table.handle_answer(turn % 7 == 6 ? "nothing" : "Action: Call").has_value());
    }
  }
  EXPECT_EQ(tokenizer.encode("Action: Call")->size(), 1u);
  EXPECT_EQ(tokenizer.encode("Action: Raise 50")->size(), 3u);
}

TEST(WordModel, IsADirectoryThatTheLearnerReads) {
  const TempDir dir;
  PosixFileSystem files;
  const std::vector<std::string> words{"one", "two"};
  const auto config_of = [](const std::string& seed) {
    return make_config(std::vector<Setting>{{"init_hidden_size", "16"},
                                            {"init_intermediate_size", "16"},
                                            {"init_num_hidden_layers", "1"},
                                            {"init_num_attention_heads", "2"},
                                            {"init_num_key_value_heads", "1"},
                                            {"seed", seed}})
        .value();
  };
  const auto weights = [&](const std::string& seed) {
    const std::filesystem::path path = dir.file("seed-" + seed);
    EXPECT_TRUE(write_word_model(files, path, config_of(seed), words).has_value());
    EXPECT_TRUE(write_word_model(files, path, config_of("9"), words).has_value()) << "it stays as it is";
    EXPECT_EQ(ModelFiles::open(files, path)->config.vocab_size, 261u);
    EXPECT_EQ(read_file(files, path / "tokenizer.json", 1 << 20).value(), word_tokenizer_json(words));
    return read_file(files, path / "model.safetensors", 1 << 20).value();
  };
  EXPECT_NE(weights("1"), weights("2"));
}

}  // namespace
}  // namespace weightcast::bench
