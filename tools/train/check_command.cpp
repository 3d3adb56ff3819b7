#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "base/settings/nearest_name.h"
#include "base/text.h"
#include "tools/train/train_commands.h"
#include "trainer/loss/advantages.h"
#include "trainer/loss/gae.h"
#include "trainer/model/tokenizer/tokenizer.h"
#include "trainer/tasks/registry.h"
#if defined(WEIGHTCAST_TORCH)
#include "trainer/loss/loss_check.h"
#endif

namespace weightcast {
namespace {

using Json = nlohmann::json;
using namespace std::string_view_literals;

constexpr std::uint64_t kInputBytesMax = std::uint64_t{256} << 20;

struct CheckFlags {
  std::string task, file, directory, text;
  std::vector<std::string> settings;
};

Error refuse_input(std::string why) { return fail(Errc::kInvalidArgument, Op::kParse, std::move(why)); }

void print(const Json& json) { std::printf("%s\n", json_text(json).c_str()); }

Result<Json> read_json(const std::string& path) {
  PosixFileSystem files;
  WC_ASSIGN(const std::string text, read_file(files, path, kInputBytesMax));
  Json json = parse_json(text);
  if (json.is_discarded()) {
    return refuse_input(fmt::format("{}: no JSON, or nested deeper than {} levels", printable(path), kJsonDepthMax));
  }
  return json;
}

/// `json[name]` of an object whose members are all in `known`.
Result<Json> required(const Json& json, const char* name, std::span<const std::string_view> known) {
  if (!json.is_object()) return refuse_input("the input is no JSON object");
  for (const auto& [found, value] : json.items()) {
    if (std::find(known.begin(), known.end(), found) == known.end()) {
      return refuse_input(unknown_name("member of the input", found, known));
    }
  }
  const auto found = json.find(name);
  if (found == json.end()) return refuse_input(fmt::format("the input has no '{}'", name));
  return *found;
}

Result<Score> score_of(const Task& task, const Json& item) {
  if (!item.is_object()) return refuse_input("an item is no JSON object");
  std::string response;
  Metadata metadata;
  for (const auto& [name, value] : item.items()) {
    if (!value.is_string()) return refuse_input(fmt::format("'{}' is no text", printable(cut_text(name, 40))));
    (name == "response" ? response : metadata[name]) = value.get<std::string>();
  }
  if (!item.contains("response")) return refuse_input("an item has no 'response'");
  return task.score(metadata, response);
}

Status check_reward(const CheckFlags& flags) {
  TaskOptions options;
  for (const std::string& setting : flags.settings) {
    const std::size_t equals = setting.find('=');
    if (equals == std::string::npos) {
      return refuse_input(fmt::format("--set {}: it is NAME=VALUE", printable(cut_text(setting, 40))));
    }
    options[setting.substr(0, equals)] = setting.substr(equals + 1);
  }
  WC_ASSIGN(const std::unique_ptr<Task> task, make_task(flags.task, options));
  WC_ASSIGN(const Json input, read_json(flags.file));
  if (!input.is_array()) {
    WC_ASSIGN(const Score score, score_of(*task, input));
    print({{"reward", score.reward}, {"success", score.success}});
    return {};
  }
  Json rewards = Json::array(), successes = Json::array();
  for (const Json& item : input) {
    WC_ASSIGN(const Score score, score_of(*task, item));
    rewards.push_back(score.reward);
    successes.push_back(score.success);
  }
  print({{"rewards", rewards}, {"successes", successes}});
  return {};
}

Status check_tokenize(const CheckFlags& flags) {
  PosixFileSystem files;
  WC_ASSIGN(const std::string json, read_file(files, flags.directory + "/tokenizer.json", kInputBytesMax));
  WC_ASSIGN(const Tokenizer tokenizer, Tokenizer::parse(json));
  WC_ASSIGN(const std::vector<TokenId> ids, tokenizer.encode(flags.text));
  print({{"ids", ids}});
  return {};
}

/// The numbers of `json`; null is not a number.
Result<std::vector<double>> numbers(const std::string& name, const Json& json) {
  if (!json.is_array()) return refuse_input(fmt::format("'{}' is no list", name));
  std::vector<double> values;
  for (const Json& value : json) {
    if (!value.is_number() && !value.is_null() && !value.is_boolean()) {
      return refuse_input(fmt::format("{}[{}] is no number", name, values.size()));
    }
    values.push_back(value.is_null()      ? std::numeric_limits<double>::quiet_NaN()
                     : value.is_boolean() ? (value.get<bool>() ? 1 : 0)
                                          : value.get<double>());
  }
  return values;
}

/// Of sequences: lists of rows in, lists of rows out.
Status check_gae(const Json& input) {
  constexpr std::array kMembers{"norm"sv, "rewards"sv, "values"sv, "response_mask"sv, "gamma"sv, "lambda"sv};
  WC_ASSIGN(const Json rewards, required(input, "rewards", kMembers));
  if (!rewards.is_array()) return refuse_input("'rewards' is no list of rows");
  GaeOptions options;
  for (const auto& [name, value] : {std::pair("gamma", &options.gamma), std::pair("lambda", &options.lambda)}) {
    if (!input.contains(name)) continue;
    if (!input[name].is_number()) return refuse_input(fmt::format("'{}' is no number", name));
    *value = input[name].get<double>();
  }
  // One row per sequence. Absent or null: there are none.
  const auto row_of = [&](const char* name, std::size_t row) -> Result<std::optional<std::vector<double>>> {
    const auto found = input.find(name);
    if (found == input.end() || found->is_null()) return std::optional<std::vector<double>>();
    if (!found->is_array() || found->size() != rewards.size()) {
      return refuse_input(fmt::format("'{}' is no list of {} rows, as 'rewards' is", name, rewards.size()));
    }
    WC_ASSIGN(std::vector<double> values, numbers(fmt::format("{}[{}]", name, row), (*found)[row]));
    return std::optional(std::move(values));
  };
  Json advantages = Json::array(), returns = Json::array();
  for (std::size_t i = 0; i < rewards.size(); ++i) {
    WC_ASSIGN(const std::vector<double> row, numbers(fmt::format("rewards[{}]", i), rewards[i]));
    WC_ASSIGN(const auto values, row_of("values", i));
    WC_ASSIGN(const auto mask, row_of("response_mask", i));
    std::vector<std::uint8_t> counted;
    for (const double slot : mask.value_or(std::vector<double>())) {
      // Written so that NaN is refused, too.
      if (!(slot == 0 || slot == 1)) {
        return refuse_input(fmt::format("response_mask[{}][{}] is {}; it is 0 or 1", i, counted.size(), slot));
      }
      counted.push_back(slot == 1 ? 1 : 0);
    }
    if (mask && counted.size() != row.size()) {
      return refuse_input(
          fmt::format("response_mask[{}] has {} slots, rewards[{}] has {}", i, counted.size(), i, row.size()));
    }
    WC_ASSIGN(const Gae result,
              gae(row, values ? std::optional(std::span<const double>(*values)) : std::nullopt, counted, options));
    advantages.push_back(result.advantages);
    returns.push_back(result.returns);
  }
  print({{"advantages", advantages}, {"returns", returns}});
  return {};
}

Status check_advantages(const CheckFlags& flags) {
  constexpr std::array kMembers{"rewards"sv, "group_ids"sv, "norm"sv};
  WC_ASSIGN(const Json input, read_json(flags.file));
  if (input.is_object() && input.value("norm", Json()) == "gae") return check_gae(input);
  WC_ASSIGN(const Json rewards, required(input, "rewards", kMembers));
  WC_ASSIGN(const Json group_ids, required(input, "group_ids", kMembers));
  WC_ASSIGN(const Json norm, required(input, "norm", kMembers));
  if (!norm.is_string()) return refuse_input("'norm' is no text");
  WC_ASSIGN(const AdvantageNorm chosen, parse_word<AdvantageNorm>("norm of advantages", norm.get<std::string>()));
  if (!rewards.is_array() || !group_ids.is_array()) return refuse_input("'rewards' and 'group_ids' are arrays");
  std::vector<double> values;
  std::vector<std::size_t> groups;
  for (const Json& reward : rewards) {
    if (!reward.is_number()) return refuse_input(fmt::format("rewards[{}] is no number", values.size()));
    values.push_back(reward.get<double>());
  }
  // Ids may be numbers or names; only which are equal counts.
  std::map<Json, std::size_t> ids;
  for (const Json& id : group_ids) groups.push_back(ids.try_emplace(id, ids.size()).first->second);
  WC_ASSIGN(const std::vector<double> result, advantages(values, groups, chosen));
  print({{"advantages", result}});
  return {};
}

#if defined(WEIGHTCAST_TORCH)
Status check_loss_of(const CheckFlags& flags) {
  WC_ASSIGN(const Json input, read_json(flags.file));
  WC_ASSIGN(const Json result, check_loss(input));
  print(result);
  return {};
}
#endif

}  // namespace

void add_check_commands(const Commands& commands) {
  CLI::App* app = commands.app.add_subcommand("check", "Compare with another framework: JSON in, JSON out");
  app->require_subcommand(1);
  const Commands check{*app, commands.selected};

  const auto [reward, of_reward] = add_command<CheckFlags>(check, "reward", "The reward of responses", check_reward);
  reward->add_option("TASK", of_reward->task, fmt::format("{}", fmt::join(task_names(), ", ")))->required();
  reward->add_option("FILE", of_reward->file, "{response, and the task's metadata, such as answer}, or a list of those")
      ->required();
  reward->add_option("--set", of_reward->settings, "An option of the task, NAME=VALUE; may be given several times");

  const auto [tokenize, of_text] = add_command<CheckFlags>(check, "tokenize", "The ids of a text", check_tokenize);
  tokenize->add_option("DIR", of_text->directory, "A model's directory, with tokenizer.json")->required();
  tokenize->add_option("--text", of_text->text, "The text; special tokens in it are themselves")->required();

#ifdef WEIGHTCAST_TORCH
  add_check_logits(check);
#endif

  const auto [adv, of_adv] =
      add_command<CheckFlags>(check, "advantages", "The advantages of rewards", check_advantages);
  adv->add_option("FILE", of_adv->file,
                  "{rewards, group_ids, norm: std | none | rloo | batch}, or {norm: gae, rewards, values, "
                  "response_mask, gamma, lambda}, which are lists of rows and two numbers")
      ->required();

#if defined(WEIGHTCAST_TORCH)
  const auto [loss, of_loss] =
      add_command<CheckFlags>(check, "loss", "The policy loss of log-probabilities, and its gradient", check_loss_of);
  loss->add_option("FILE", of_loss->file, "{pg_variant, log_probs, advantages, ...}: see below")->required();
  loss->footer(loss_check_help());
#endif
}

}  // namespace weightcast
