#include "trainer/loss/loss_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/settings/nearest_name.h"
#include "base/text.h"
#include "trainer/loss/policy_loss.h"

namespace weightcast {
namespace {

using Json = nlohmann::json;
using torch::Tensor;
using namespace std::string_view_literals;

constexpr std::array kKeys{"pg_variant"sv,    "clip_ratio_low"sv,    "clip_ratio_high"sv, "clip_ratio_c"sv,
                           "ratio_low"sv,     "ratio_high"sv,        "ratio_level"sv,     "topr_weights"sv,
                           "tis_cap"sv,       "tis_level"sv,         "loss_agg_mode"sv,   "horizon"sv,
                           "kl_loss_type"sv,  "kl_loss_coef"sv,      "entropy_coeff"sv,   "log_probs"sv,
                           "old_log_probs"sv, "rollout_log_probs"sv, "ref_log_probs"sv,   "entropy"sv,
                           "advantages"sv,    "response_mask"sv,     "scores"sv};

struct VariantKeys {
  std::string_view variant;
  std::string_view keys;
};
constexpr std::array kVariantKeys{
    VariantKeys{"ppo", "old_log_probs, clip_ratio_low, clip_ratio_high, clip_ratio_c"},
    VariantKeys{"decoupled_ppo", "old_log_probs, rollout_log_probs, clip_ratio_low, clip_ratio_high, clip_ratio_c"},
    VariantKeys{"tis", "rollout_log_probs, ratio_low (0), ratio_high (1), ratio_level"},
    VariantKeys{"cispo", "rollout_log_probs, clip_ratio_low, clip_ratio_high, ratio_level"},
    VariantKeys{"topr", "rollout_log_probs, scores, ratio_low (0), ratio_high (1), ratio_level"},
    VariantKeys{"weighted_topr", "as topr, and topr_weights: [of positives, of negatives] ([1, 1])"},
    VariantKeys{"reinforce", "nothing more"},
    VariantKeys{"echo2", "rollout_log_probs, clip_ratio_low, clip_ratio_high, ratio_high (C)"},
};

Error refuse_input(std::string why) {
  return fail(Errc::kInvalidArgument, Op::kParse, "check loss: " + std::move(why));
}

/// Reads the members of one input. The first error stays.
class Reader {
 public:
  explicit Reader(const Json& input) : input_(input) {}

  [[nodiscard]] const Status& status() const { return status_; }

  void number(const char* key, std::optional<double>& value) {
    const auto found = input_.find(key);
    if (found == input_.end()) return;
    if (!found->is_number()) return refuse(fmt::format("'{}' is no number", key));
    value = found->get<double>();
  }
  void number(const char* key, double& value) {
    std::optional<double> given;
    number(key, given);
    if (given) value = *given;
  }

  template <typename Value>
  void name(const char* key, Value& value) {
    name(key, value, [key](std::string_view word) { return parse_word<Value>(key, word); });
  }
  template <typename Value, typename Parse>
  void name(const char* key, Value& value, Parse parse) {
    const auto found = input_.find(key);
    if (found == input_.end()) return;
    if (!found->is_string()) return refuse(fmt::format("'{}' is no text", key));
    auto parsed = parse(found->get_ref<const std::string&>());
    if (!parsed) return fail_with(std::move(parsed).error());
    value = *parsed;
  }

  void topr_weights(PolicyLossOptions& options) {
    const auto found = input_.find("topr_weights");
    if (found == input_.end()) return;
    if (!found->is_array() || found->size() != 2 || !(*found)[0].is_number() || !(*found)[1].is_number()) {
      return refuse("'topr_weights' is no list of two numbers: the weights of positives and of negatives");
    }
    options.topr_weight_positive = (*found)[0].get<double>();
    options.topr_weight_negative = (*found)[1].get<double>();
  }

  /// Undefined if absent.
  Tensor matrix(const char* key) {
    const auto found = input_.find(key);
    if (found == input_.end()) return {};
    std::vector<double> cells;
    std::size_t columns = 0;
    if (!found->is_array() || found->empty()) return refused(fmt::format("'{}' is no list of rows", key));
    for (std::size_t row = 0; row < found->size(); ++row) {
      const Json& line = (*found)[row];
      if (!line.is_array()) return refused(fmt::format("{}[{}] is no list", key, row));
      if (row == 0) columns = line.size();
      if (line.size() != columns) {
        return refused(fmt::format("{}[{}] has {} numbers, {}[0] has {}", key, row, line.size(), key, columns));
      }
      if (!append(fmt::format("{}[{}]", key, row), line, cells)) return {};
    }
    return tensor_of(cells).reshape({static_cast<std::int64_t>(found->size()), static_cast<std::int64_t>(columns)});
  }

  Tensor list(const char* key) {
    const auto found = input_.find(key);
    if (found == input_.end()) return {};
    std::vector<double> cells;
    if (!found->is_array()) return refused(fmt::format("'{}' is no list", key));
    if (!append(key, *found, cells)) return {};
    const auto missing = std::find_if(cells.begin(), cells.end(), [](double cell) { return std::isnan(cell); });
    if (missing == cells.end()) return tensor_of(cells);
    return refused(fmt::format("{}[{}] is not a number", key, missing - cells.begin()));
  }

  /// 1 or true: the slot counts.
  Tensor mask(const char* key) {
    const Tensor cells = matrix(key);
    if (!cells.defined()) return {};
    if (!((cells == 0) | (cells == 1)).all().item<bool>())
      refuse(fmt::format("'{}' has other values than 0 and 1", key));
    return cells == 1;
  }

 private:
  void refuse(std::string why) { fail_with(refuse_input(std::move(why))); }
  /// In place of a tensor.
  Tensor refused(std::string why) {
    refuse(std::move(why));
    return {};
  }
  void fail_with(Error error) {
    if (status_) status_ = std::move(error);
  }
  static Tensor tensor_of(const std::vector<double>& cells) {
    return torch::tensor(at::ArrayRef<double>(cells), torch::kDouble);
  }
  bool append(const std::string& where, const Json& line, std::vector<double>& cells) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      const Json& cell = line[i];
      if (cell.is_null()) {
        cells.push_back(std::numeric_limits<double>::quiet_NaN());
      } else if (cell.is_boolean()) {
        cells.push_back(cell.get<bool>() ? 1 : 0);
      } else if (cell.is_number()) {
        cells.push_back(cell.get<double>());
      } else {
        refuse(fmt::format("{}[{}] is no number", where, i));
        return false;
      }
    }
    return true;
  }

  const Json& input_;
  Status status_;
};

Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json rows_of(const Tensor& matrix) {
  const Tensor cells = matrix.detach().contiguous();
  const auto at = cells.accessor<double, 2>();
  Json rows = Json::array();
  for (std::int64_t i = 0; i < cells.size(0); ++i) {
    Json row = Json::array();
    for (std::int64_t j = 0; j < cells.size(1); ++j) row.push_back(number_json(at[i][j]));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

Result<Json> check_loss(const Json& input) {
  if (!input.is_object()) return refuse_input("the input is no JSON object");
  for (const auto& [found, value] : input.items()) {
    if (std::find(kKeys.begin(), kKeys.end(), found) == kKeys.end()) {
      return refuse_input(unknown_name("key of the input", printable(cut_text(found, 40)), kKeys));
    }
  }
  if (!input.contains("pg_variant")) {
    return refuse_input(fmt::format("the input has no 'pg_variant' (one of {})", fmt::join(kWords<PgVariant>, ", ")));
  }
  Reader reader(input);
  PolicyLossOptions options;
  reader.name("pg_variant", options.pg_variant, parse_pg_variant);
  reader.number("clip_ratio_low", options.clip_ratio_low);
  reader.number("clip_ratio_high", options.clip_ratio_high);
  reader.number("clip_ratio_c", options.clip_ratio_c);
  reader.number("ratio_low", options.ratio_low);
  reader.number("ratio_high", options.ratio_high);
  reader.name("ratio_level", options.ratio_level);
  reader.topr_weights(options);
  reader.number("tis_cap", options.tis_cap);
  reader.name("tis_level", options.tis_level);
  reader.name("loss_agg_mode", options.loss_agg_mode);
  reader.number("horizon", options.horizon);
  reader.name("kl_loss_type", options.kl_loss_type);
  reader.number("kl_loss_coef", options.kl_loss_coef);
  reader.number("entropy_coeff", options.entropy_coeff);
  PolicyLossInput tensors;
  tensors.log_probs = reader.matrix("log_probs");
  tensors.old_log_probs = reader.matrix("old_log_probs");
  tensors.rollout_log_probs = reader.matrix("rollout_log_probs");
  tensors.ref_log_probs = reader.matrix("ref_log_probs");
  tensors.entropy = reader.matrix("entropy");
  tensors.advantages = reader.matrix("advantages");
  tensors.response_mask = reader.mask("response_mask");
  tensors.scores = reader.list("scores");
  WC_TRY(reader.status());

  if (tensors.log_probs.defined()) tensors.log_probs.set_requires_grad(true);
  WC_ASSIGN(const PolicyLoss result, policy_loss(options, tensors));
  result.loss.backward();
  Json metrics = Json::object();
  for (const PolicyLossMetric& metric : result.metrics) {
    metrics[std::string(metric.name)] = number_json(metric.value.item<double>());
  }
  return Json{{"loss", number_json(result.loss.item<double>())},
              {"per_token", rows_of(result.per_token)},
              {"grad_log_probs", rows_of(tensors.log_probs.grad())},
              {"metrics", std::move(metrics)}};
}

std::string loss_check_help() {
  std::string text =
      "FILE is a JSON object. Matrices are lists of rows, null is not a number, and what is absent is off.\n"
      "All variants need log_probs and advantages, and read response_mask, loss_agg_mode (token-mean), horizon, "
      "ref_log_probs with kl_loss_type (k3) and kl_loss_coef, and entropy with entropy_coeff. ppo, decoupled_ppo and "
      "reinforce read tis_cap with tis_level, old_log_probs and rollout_log_probs; the others refuse it, as they "
      "correct "
      "that mismatch already. Without rollout_log_probs old_log_probs stand for them.\n";
  text += fmt::format("loss_agg_mode: {}. kl_loss_type: {}. tis_level, ratio_level: {}.\n",
                      fmt::join(kWords<LossAggMode>, ", "), fmt::join(kWords<KlType>, ", "),
                      fmt::join(kWords<RatioLevel>, ", "));
  text +=
      "per_token is what loss_agg_mode aggregates: the policy's term with KL and entropy.\n\npg_variant and the keys "
      "that it reads besides:\n";
  for (const auto& [variant, keys] : kVariantKeys) text += fmt::format("  {:14} {}\n", variant, keys);
  text += "dpo is refused: its loss takes pairs of responses, not rewards.";
  return text;
}

}  // namespace weightcast
