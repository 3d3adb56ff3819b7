#include "trainer/learner/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>
#include <variant>

#include "base/nearest_name.h"
#include "base/text.h"
#include "trainer/learner/presets.h"

namespace weightcast {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kUnlimited = "unlimited";
constexpr std::string_view kPreset = "preset";
constexpr std::string_view kTaskOptions = "task_options.";
constexpr double kCountMax = 1e9;

constexpr std::array kDtypes{"float32"sv, "bfloat16"sv};
constexpr std::array kTemplates{"none"sv, "qwen"sv};
constexpr std::array kSources{"generator"sv, "files"sv};
constexpr std::array kLogprobs{"given"sv, "recompute"sv};
constexpr std::array kOrders{"oldest_first"sv, "newest_first"sv, "uniform"sv};
constexpr std::array kSchedules{"constant"sv, "linear"sv, "cosine"sv};
constexpr std::array kVariants{"ppo"sv,  "decoupled_ppo"sv, "tis"sv,       "cispo"sv,
                               "topr"sv, "weighted_topr"sv, "reinforce"sv, "echo2"sv};
constexpr std::array kAggregations{"token-mean"sv, "seq-mean-token-sum"sv, "seq-mean-token-mean"sv,
                                   "seq-mean-token-sum-norm"sv};
constexpr std::array kNorms{"std"sv, "none"sv, "rloo"sv, "batch"sv};
constexpr std::array kKlTypes{"k1"sv, "k2"sv, "k3"sv};
constexpr std::array kTasks{"arithmetic"sv, "gsm8k"sv, "knights_and_knaves"sv, "sokoban"sv};

using Target =
    std::variant<bool*, std::uint64_t*, double*, std::string*, std::optional<std::uint64_t>*, std::optional<double>*>;

struct Field {
  std::string_view name;
  Target target;
  std::string_view help;
  double least = 0;
  double most = kCountMax;
  std::span<const std::string_view> choices = {};  // of a text; empty: any
};

/// The one table of keys: reading, printing and checking all go through it.
std::vector<Field> fields_of(LearnerConfig& c) {
  return {
      {"output_dir", &c.output_dir, "where metrics, checkpoints and the configuration go"},
      {"seed", &c.seed, "of the first weights, prompts and samples", 0, 9e18},
      {"threads", &c.threads, "of LibTorch's operations", 1, 1024},
      {"dtype", &c.dtype, "of the weights that are trained with and published; their masters are float32", 0, 0,
       kDtypes},
      {"task", &c.task, "where prompts and rewards come from", 0, 0, kTasks},
      {"task_data", &c.task_data, "the task's file of problems"},
      {"model", &c.model, "a directory in Hugging Face's layout; empty: random weights of the sizes below"},
      {"init_hidden_size", &c.init_hidden_size, "of a model with random weights", 8, 65536},
      {"init_intermediate_size", &c.init_intermediate_size, "the same", 8, 262144},
      {"init_num_hidden_layers", &c.init_num_hidden_layers, "the same", 1, 512},
      {"init_num_attention_heads", &c.init_num_attention_heads, "the same", 1, 512},
      {"init_num_key_value_heads", &c.init_num_key_value_heads, "the same", 1, 512},
      {"chat_template", &c.chat_template, "how messages become text; none: one after the other", 0, 0, kTemplates},
      {"enable_thinking", &c.enable_thinking, "of the chat template"},
      {"rollout_source", &c.rollout_source, "the built-in generator, or files of trajectories", 0, 0, kSources},
      {"rollout_files", &c.rollout_files, "JSONL files of trajectories, separated by commas"},
      {"behaviour_logprobs", &c.behaviour_logprobs, "recompute: for files without log-probabilities", 0, 0, kLogprobs},
      {"generator_lag", &c.generator_lag, "how many publications the generator's weights are old", 0, 64},
      {"generator_batch_size", &c.generator_batch_size, "sequences that the generator decodes together", 1, 65536},
      {"temperature", &c.temperature, "of samples and of the loss", 0.01, 100},
      {"top_p", &c.top_p, "of samples; below 1 the loss sees another distribution than the sampler", 0.01, 1},
      {"max_prompt_length", &c.max_prompt_length, "in tokens; a longer prompt is an error", 1, 1e6},
      {"max_new_tokens", &c.max_new_tokens, "of a response", 1, 1e6},
      {"total_training_steps", &c.total_training_steps, "the run ends after so many", 0},
      {"rollout_batch_size", &c.rollout_batch_size, "rollouts of a training step, R", 1, 1e8},
      {"group_size", &c.group_size, "rollouts of a prompt, n", 1, 1e8},
      {"max_staleness", &c.max_staleness, "S: how many steps a rollout's oldest token may lag"},
      {"async_generation_ratio", &c.async_generation_ratio, "batches that may be started ahead", 0, 1000},
      {"sample_order", &c.sample_order, "which groups a batch takes first", 0, 0, kOrders},
      {"filter_equal_rewards", &c.filter_equal_rewards, "drop groups whose rewards are all equal"},
      {"updates_per_step", &c.updates_per_step, "optimiser updates over disjoint parts of a step's rollouts", 1, 1e6},
      {"ppo_epochs", &c.ppo_epochs, "times that a step goes over its rollouts", 1, 1000},
      {"micro_batch_tokens", &c.micro_batch_tokens, "tokens of one forward pass, at least one sequence", 1, 1e8},
      {"learning_rate", &c.learning_rate, "of the training steps, after the warm-up", 0, 1},
      {"lr_schedule", &c.lr_schedule, "after the warm-up, over all updates", 0, 0, kSchedules},
      {"lr_warmup_updates", &c.lr_warmup_updates, "updates until the full learning rate"},
      {"adam_beta1", &c.adam_beta1, "decay of the first moment", 0, 0.999999},
      {"adam_beta2", &c.adam_beta2, "decay of the second moment", 0, 0.999999},
      {"adam_epsilon", &c.adam_epsilon, "added to the root of the second moment", 1e-16, 1},
      {"weight_decay", &c.weight_decay, "of matrices", 0, 1},
      {"max_grad_norm", &c.max_grad_norm, "gradients are scaled down to it; 0: never", 0, 1e9},
      {"pg_variant", &c.pg_variant, "the policy-gradient loss", 0, 0, kVariants},
      {"clip_ratio_low", &c.clip_ratio_low, "how far below 1 a ratio counts", 0, 1},
      {"clip_ratio_high", &c.clip_ratio_high, "how far above 1 a ratio counts", 0, 1000},
      {"clip_ratio_c", &c.clip_ratio_c, "of dual clipping; 0: off", 0, 1000},
      {"loss_agg_mode", &c.loss_agg_mode, "how tokens' losses become one", 0, 0, kAggregations},
      {"advantage_norm", &c.advantage_norm, "how rewards become advantages", 0, 0, kNorms},
      {"kl_loss_coef", &c.kl_loss_coef, "of the KL to the reference model; 0: no such model", 0, 1000},
      {"kl_loss_type", &c.kl_loss_type, "its estimator", 0, 0, kKlTypes},
      {"entropy_coeff", &c.entropy_coeff, "of the entropy that is added to the objective", 0, 1000},
      {"tis_cap", &c.tis_cap, "of truncated importance sampling between sampler and learner; 0: off", 0, 1e6},
      {"ratio_low", &c.ratio_low, "bounds of tis, topr and echo2", 0, 1e6},
      {"ratio_high", &c.ratio_high, "the same", 0, 1e6},
      {"topr_positive_weight", &c.topr_positive_weight, "of weighted_topr", 0, 1e6},
      {"topr_negative_weight", &c.topr_negative_weight, "the same", 0, 1e6},
      {"sft_steps", &c.sft_steps, "updates of supervised fine-tuning before the first training step"},
      {"sft_data", &c.sft_data, "JSONL of {prompt, response}; empty: the task's own solutions"},
      {"sft_batch_size", &c.sft_batch_size, "examples of an update", 1, 1e6},
      {"sft_learning_rate", &c.sft_learning_rate, "of the warm-up", 0, 1},
      {"eval_interval", &c.eval_interval, "steps between evaluations; 0: none"},
      {"eval_prompts", &c.eval_prompts, "prompts of an evaluation, which training does not use", 1, 1e6},
      {"eval_samples", &c.eval_samples, "k of avg@k and pass@k", 1, 1e4},
      {"eval_temperature", &c.eval_temperature, "0: the most probable token", 0, 100},
      {"eval_top_p", &c.eval_top_p, "of the samples of evaluations", 0.01, 1},
      {"checkpoint_interval", &c.checkpoint_interval, "steps between checkpoints; 0: at the end only"},
      {"checkpoints_kept", &c.checkpoints_kept, "older ones are deleted", 1, 1e6},
      {"publish_state", &c.publish_state, "the state directory of the origin's daemon; empty: nothing is published"},
      {"publish_interval", &c.publish_interval, "kappa: steps between publications", 1},
      {"publish_sparse", &c.publish_sparse, "publish changed cells where those are few"},
      {"learner_price_per_hour", &c.learner_price_per_hour, "for cost_total", 0, 1e9},
  };
}

std::string range_of(const Field& field) {
  if (!field.choices.empty()) return fmt::format("{}", fmt::join(field.choices, ", "));
  return std::visit(
      [&](const auto* value) -> std::string {
        using Value = std::remove_cvref_t<decltype(*value)>;
        const std::string numbers = fmt::format("{:g} to {:g}", field.least, field.most);
        if constexpr (std::is_same_v<Value, bool>) return "true, false";
        if constexpr (std::is_same_v<Value, std::string>) return "any text";
        if constexpr (std::is_same_v<Value, std::uint64_t>) return "a whole number, " + numbers;
        if constexpr (std::is_same_v<Value, double>) return numbers;
        return numbers + ", or unlimited";
      },
      field.target);
}

Error refused(const Field& field, std::string_view value) {
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{} is '{}'; it is {}", field.name, printable(cut_text(value, 80)), range_of(field)));
}

bool parse(const Field&, std::string_view text, bool& out) {
  out = text == "true";
  return text == "true" || text == "false";
}

template <typename Number>
bool parse(const Field& field, std::string_view text, Number& out) requires std::is_arithmetic_v<Number> {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, out);
  // Written so that NaN is refused, too.
  return error == std::errc() && stop == end && static_cast<double>(out) >= field.least &&
         static_cast<double>(out) <= field.most;
}

bool parse(const Field& field, std::string_view text, std::string& out) {
  out = text;
  return field.choices.empty() || std::find(field.choices.begin(), field.choices.end(), text) != field.choices.end();
}

template <typename Number>
bool parse(const Field& field, std::string_view text, std::optional<Number>& out) {
  out.reset();
  return text == kUnlimited || parse(field, text, out.emplace());
}

/// config_text() must be able to write it, so that it comes back the same.
Status check_writable(std::string_view name, std::string_view value) {
  constexpr std::string_view kUnwritable = "#\"\\";
  const auto is_unwritable = [&](char c) {
    return static_cast<unsigned char>(c) < ' ' || c == '\x7f' || kUnwritable.find(c) != std::string_view::npos;
  };
  if (std::ranges::none_of(value, is_unwritable)) return {};
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("{} is '{}'; a configuration file cannot hold #, \", \\ and control characters in a value",
                          printable(cut_text(name, 80)), printable(cut_text(value, 80))));
}

Status apply(LearnerConfig& config, std::span<const Field> fields, const Setting& setting) {
  const auto& [name, value] = setting;
  WC_TRY(check_writable(name, value));
  if (name.starts_with(kTaskOptions)) {
    config.task_options[name.substr(kTaskOptions.size())] = value;
    return {};
  }
  const auto field = std::find_if(fields.begin(), fields.end(), [&](const Field& f) { return f.name == name; });
  if (field == fields.end()) {
    std::vector<std::string_view> names{kPreset};
    for (const Field& f : fields) names.push_back(f.name);
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("'{}' is no key of the configuration; the nearest is '{}' (--print-config shows all)",
                            printable(cut_text(name, 80)), nearest_name(name, names)));
  }
  if (std::visit([&](auto* target) { return parse(*field, value, *target); }, field->target)) return {};
  if (!field->choices.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, unknown_name(field->name, value, field->choices));
  }
  return refused(*field, value);
}

std::string text_of(bool value) { return value ? "true" : "false"; }
std::string text_of(std::uint64_t value) { return std::to_string(value); }
// The shortest text that reads back as the same number.
std::string text_of(double value) { return fmt::format("{}", value); }
std::string text_of(const std::string& value) { return value; }
template <typename Number>
std::string text_of(const std::optional<Number>& value) {
  return value ? text_of(*value) : std::string(kUnlimited);
}

Status wrong(std::string why) { return fail(Errc::kInvalidArgument, Op::kConfigure, std::move(why)); }

/// The generator's rollouts must be admissible until its next weights come.
Status check_lag(const LearnerConfig& c) {
  const std::uint64_t lag = c.publish_interval * (c.generator_lag + 1) - 1;
  const auto refuse = [&](std::string_view key, const std::string& value) {
    return wrong(fmt::format(
        "{} is {}; with publish_interval {} and generator_lag {} the generator's rollouts lag up to {} steps", key,
        value, c.publish_interval, c.generator_lag, lag));
  };
  if (c.max_staleness && lag > *c.max_staleness) return refuse("max_staleness", text_of(c.max_staleness));
  if (!c.async_generation_ratio) return {};
  const double ratio = *c.async_generation_ratio, steps = std::ceil(ratio), lag_steps = static_cast<double>(lag);
  // With a fractional ratio only a part of a batch may be as old as the oldest step.
  const bool is_partial = steps > ratio && c.generator_lag > 0;
  if (lag_steps > steps || (is_partial && lag_steps == steps)) {
    return refuse("async_generation_ratio", text_of(c.async_generation_ratio));
  }
  return {};
}

/// What no single key says.
Status check_together(const LearnerConfig& c) {
  if (c.rollout_batch_size % c.group_size != 0) {
    return wrong(fmt::format("rollout_batch_size is {}; it is a multiple of group_size ({})", c.rollout_batch_size,
                             c.group_size));
  }
  if (c.updates_per_step > c.rollout_batch_size) {
    return wrong(fmt::format("updates_per_step is {}; it is at most rollout_batch_size ({})", c.updates_per_step,
                             c.rollout_batch_size));
  }
  if (c.init_num_attention_heads % c.init_num_key_value_heads != 0 ||
      c.init_hidden_size % (2 * c.init_num_attention_heads) != 0) {
    return wrong(
        fmt::format("init_num_attention_heads is {}; it is a multiple of init_num_key_value_heads ({}), and "
                    "init_hidden_size ({}) a multiple of twice as many",
                    c.init_num_attention_heads, c.init_num_key_value_heads, c.init_hidden_size));
  }
  if (c.rollout_source == "files" && c.rollout_files.empty()) {
    return wrong("rollout_source is 'files', and rollout_files is empty; name at least one file");
  }
  if (c.rollout_source == "generator" && c.task == "sokoban") {
    return wrong(
        "task is 'sokoban', and rollout_source 'generator': the generator samples one turn, and the task has several; "
        "set rollout_source to 'files', and rollout_files to those of an agent that plays all turns");
  }
  if (c.rollout_source == "generator") WC_TRY(check_lag(c));
  if (!c.max_staleness && !c.async_generation_ratio && c.publish_interval > c.total_training_steps &&
      c.total_training_steps > 0) {
    return wrong(
        fmt::format("publish_interval is {} and total_training_steps {}, so nothing is ever published; that "
                    "needs a max_staleness",
                    c.publish_interval, c.total_training_steps));
  }
  WC_TRY(loss_options(c));
  WC_TRY(learning_rate_schedule(c));
  return {};
}

}  // namespace

Result<Setting> parse_setting(std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals != std::string_view::npos && equals > 0) {
    return Setting{std::string(text.substr(0, equals)), std::string(text.substr(equals + 1))};
  }
  return fail(Errc::kInvalidArgument, Op::kConfigure,
              fmt::format("--set {}: it is KEY=VALUE", printable(cut_text(text, 80))));
}

Result<LearnerConfig> make_config(std::span<const Setting> settings) {
  LearnerConfig config;
  const std::vector<Field> fields = fields_of(config);
  const auto preset =
      std::find_if(settings.rbegin(), settings.rend(), [](const Setting& s) { return s.first == kPreset; });
  if (preset != settings.rend()) {
    WC_ASSIGN(const std::vector<Setting> recipe, preset_settings(preset->second));
    for (const Setting& setting : recipe) WC_TRY(apply(config, fields, setting));
  }
  for (const Setting& setting : settings) {
    if (setting.first != kPreset) WC_TRY(apply(config, fields, setting));
  }
  WC_TRY(check_together(config));
  return config;
}

std::string config_table() {
  LearnerConfig defaults;
  std::string table;
  for (const Field& field : fields_of(defaults)) {
    const std::string value = std::visit([](const auto* v) { return text_of(*v); }, field.target);
    table += fmt::format("| `{}` | {} | {} | {} |\n", field.name, value, range_of(field), field.help);
  }
  return table;
}

std::string config_text(const LearnerConfig& config) {
  std::string text;
  LearnerConfig copy = config;
  const auto quoted = [](std::string_view value) { return fmt::format("\"{}\"", value); };
  for (const Field& field : fields_of(copy)) {
    const std::string value = std::visit([](const auto* v) { return text_of(*v); }, field.target);
    const bool is_text = std::holds_alternative<std::string*>(field.target) || value == kUnlimited;
    text += fmt::format("{} = {}\n", field.name, is_text ? quoted(value) : value);
  }
  if (config.task_options.empty()) return text;
  text += "\n[task_options]\n";
  for (const auto& [name, value] : config.task_options) text += fmt::format("{} = {}\n", name, quoted(value));
  return text;
}

Result<PolicyLossOptions> loss_options(const LearnerConfig& c) {
  PolicyLossOptions options;
  WC_ASSIGN(options.pg_variant, parse_pg_variant(c.pg_variant));
  WC_ASSIGN(options.loss_agg_mode, parse_loss_agg_mode(c.loss_agg_mode));
  WC_ASSIGN(options.kl_loss_type, parse_kl_type(c.kl_loss_type));
  options.clip_ratio_low = c.clip_ratio_low;
  options.clip_ratio_high = c.clip_ratio_high;
  if (c.clip_ratio_c > 0) options.clip_ratio_c = c.clip_ratio_c;
  options.ratio_low = c.ratio_low;
  options.ratio_high = c.ratio_high;
  options.topr_weight_positive = c.topr_positive_weight;
  options.topr_weight_negative = c.topr_negative_weight;
  if (c.tis_cap > 0) options.tis_cap = c.tis_cap;
  options.kl_loss_coef = c.kl_loss_coef;
  options.entropy_coeff = c.entropy_coeff;
  options.horizon = static_cast<double>(c.max_new_tokens);
  WC_TRY(validate(options));
  return options;
}

Result<LearningRateSchedule> learning_rate_schedule(const LearnerConfig& c) {
  LearningRateSchedule schedule;
  schedule.peak = c.learning_rate;
  WC_ASSIGN(schedule.decay, parse_learning_rate_decay(c.lr_schedule));
  schedule.warmup_updates = c.lr_warmup_updates;
  schedule.updates_total = c.total_training_steps * c.updates_per_step * c.ppo_epochs;
  // A run without a training step asks for no rate.
  if (c.total_training_steps > 0) WC_TRY(validate(schedule));
  return schedule;
}

ReplayOptions replay_options(const LearnerConfig& config) {
  ReplayOptions options;
  options.rollout_batch_size = config.rollout_batch_size;
  options.group_size = config.group_size;
  options.max_staleness = config.max_staleness;
  options.async_generation_ratio = config.async_generation_ratio;
  const auto order = parse_sample_order(config.sample_order);
  WC_CHECK(order.has_value());
  options.order = *order;
  options.filter_equal_rewards = config.filter_equal_rewards;
  options.seed = config.seed;
  // Room for a batch ahead of the one in need, of rollouts of the largest size.
  options.rollouts_max = std::max<std::uint64_t>(options.rollouts_max, 2 * config.rollout_batch_size);
  options.bytes_max = std::numeric_limits<std::uint64_t>::max() / 2;
  return options;
}

}  // namespace weightcast
