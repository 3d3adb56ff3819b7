#include "bench/paper/poker/word_model.h"

#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "trainer/model/weights.h"
#include "trainer/update/policy.h"

namespace weightcast::bench {

std::string word_tokenizer_json(std::span<const std::string> words) {
  nlohmann::json json = parse_json(byte_tokenizer_json());
  nlohmann::json& added = json.at("added_tokens");
  nlohmann::json token = added.back();
  token["special"] = false;
  for (const std::string& word : words) {
    token["id"] = token["id"].get<std::size_t>() + 1;
    token["content"] = word;
    added.push_back(token);
  }
  return json_text(json, 1);
}

Status write_word_model(FileSystem& files, const std::filesystem::path& directory, const LearnerConfig& config,
                        std::span<const std::string> words) {
  if (exists(files, directory)) return {};
  LearnerConfig of_bytes = config;
  of_bytes.model.clear();
  WC_ASSIGN(InitialModel initial, make_initial_model(files, of_bytes));
  const std::string tokenizer_json = word_tokenizer_json(words);
  WC_ASSIGN(const Tokenizer tokenizer, Tokenizer::parse(tokenizer_json));
  nlohmann::json json = parse_json(initial.files.at("config.json"));
  json["vocab_size"] = tokenizer.vocab_size();
  const std::string config_json = json_text(json, 2) + "\n";
  WC_ASSIGN(const ModelConfig model, parse_model_config(config_json));
  WC_ASSIGN(const Decoder decoder, Decoder::random(model, config.seed, initial.decoder.options()));
  return write_new_weights(files, directory, decoder.parameters(),
                           {{"config.json", config_json}, {"tokenizer.json", tokenizer_json}});
}

}  // namespace weightcast::bench
