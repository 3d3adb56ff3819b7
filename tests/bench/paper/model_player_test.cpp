#include "bench/paper/poker/model_player.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/files/posix_file_system.h"
#include "trainer/tasks/poker/poker_table.h"

namespace weightcast::bench {
namespace {

/// Random weights: what they say is nonsense, and follows from the turn.
std::shared_ptr<const ModelPlayer> player_of(const std::string& prompt_length = "256") {
  PosixFileSystem files;
  const LearnerConfig config = make_config(std::vector<Setting>{{"init_hidden_size", "16"},
                                                                {"init_intermediate_size", "16"},
                                                                {"init_num_hidden_layers", "1"},
                                                                {"init_num_attention_heads", "2"},
                                                                {"init_num_key_value_heads", "1"},
                                                                {"max_prompt_length", prompt_length},
                                                                {"max_new_tokens", "6"},
                                                                {"turns_max", "8"}})
                                   .value();
  return ModelPlayer::open(files, config).value();
}

std::vector<PokerTable> tables(std::size_t count) {
  std::vector<PokerTable> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(PokerTable::make(i, {2, PokerPrompt::kState}).value());
  return all;
}

std::vector<PokerTurn> turns_of(const std::vector<PokerTable>& all) {
  std::vector<PokerTurn> turns;
  for (const PokerTable& table : all) turns.push_back(table.turn());
  return turns;
}

TEST(ModelPlayer, AnAnswerFollowsFromItsTurnAlone) {
  std::vector<PokerTable> all = tables(5);
  const auto player = player_of(), other = player_of();
  for (int round = 0; round < 2; ++round) {
    const std::vector<PokerTurn> turns = turns_of(all);
    const std::vector<std::string> together = player->answers(turns).value();
    ASSERT_EQ(together.size(), all.size());
    EXPECT_GT((std::set<std::string>(together.begin(), together.end()).size()), 1u);
    for (std::size_t i = all.size(); i-- > 0;) {
      EXPECT_EQ(other->answers(std::span(&turns[i], 1)).value().at(0), together[i]);
    }
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_TRUE(all[i].handle_answer("Action: Call").has_value());
  }
}

TEST(ModelPlayer, AnswersThreadsThatAskAtOnce) {
  const std::vector<PokerTable> all = tables(24);
  const std::vector<PokerTurn> turns = turns_of(all);
  const auto player = player_of();
  const std::vector<std::string> expected = player_of()->answers(turns).value();
  std::vector<std::string> found(turns.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < turns.size(); ++i) {
    threads.emplace_back([&, i] { found[i] = player->answers(std::span(&turns[i], 1)).value().at(0); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(found, expected);
}

TEST(ModelPlayer, RefusesAConversationThatIsTooLongAndGoesOn) {
  const auto player = player_of("80");
  const std::vector<PokerTable> all = tables(1);
  const std::vector<ChatMessage> brief{{"user", "Hand"}}, far{{"user", std::string(100, 'x')}};
  PokerTurn turn = all[0].turn();
  turn.conversation = far;
  EXPECT_FALSE(player->answers(std::span(&turn, 1)).has_value());
  turn.conversation = brief;
  EXPECT_TRUE(player->answers(std::span(&turn, 1)).has_value());
}

}  // namespace
}  // namespace weightcast::bench
