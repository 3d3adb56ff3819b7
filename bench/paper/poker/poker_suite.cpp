#include "bench/paper/poker/poker_suite.h"

#include "base/json_of.h"

namespace weightcast::bench {
namespace {

nlohmann::json json_of(const PokerWarmUp& warm_up) {
  nlohmann::json players = nlohmann::json::array();
  for (const PokerRule rule : warm_up.players) players.push_back(to_string(rule));
  return {{"players", std::move(players)},
          {"tables", warm_up.tables},
          {"updates", warm_up.updates},
          {"seed", warm_up.seed}};
}

}  // namespace

nlohmann::json to_json(const PokerSuite& suite) {
  nlohmann::json cases = nlohmann::json::array();
  for (const PokerCase& c : suite.cases) cases.push_back({{"name", c.name}, {"settings", settings_json(c.settings)}});
  return merged(WC_JSON_OF(suite.words, suite.table.hands, suite.seeds, suite.steps, suite.deals, suite.match_seed),
                {{"settings", settings_json(suite.settings)},
                 {"training", settings_json(suite.training)},
                 {"prompt", to_string(suite.table.prompt)},
                 {"base", json_of(suite.base)},
                 {"opponent", json_of(suite.opponent)},
                 {"cases", std::move(cases)}});
}

std::optional<PokerCell> poker_cell(const nlohmann::json& json) {
  try {
    return json.get<PokerCell>();
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

}  // namespace weightcast::bench
