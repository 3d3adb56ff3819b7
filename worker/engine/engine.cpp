#include "worker/engine/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <list>
#include <map>
#include <unordered_map>

#include "base/random.h"
#include "base/settings/nearest_name.h"
#include "patch/snapshot/tensor.h"
#include "trainer/model/config.h"
#include "worker/engine/block_pool.h"
#include "worker/engine/cpu_model.h"
#include "worker/engine/request_check.h"
#include "worker/engine/sampling/stop_strings.h"

namespace weightcast {
namespace {

// How many waiting requests one step looks at, beyond those that it takes.
constexpr std::size_t kSkippedMax = 64;

std::size_t blocks_of(std::size_t positions) { return (positions + kBlockPositions - 1) / kBlockPositions; }

std::uint64_t hash_of(std::span<const TokenId> tokens) {
  std::uint64_t hash = tokens.size();
  for (const TokenId token : tokens) hash = Random(hash ^ static_cast<std::uint64_t>(token)).next();
  return hash;
}

struct Client;

/// A request while it waits or runs.
/// Invariant: computed < tokens.size(), and the blocks hold the keys and values of the first `computed` tokens.
struct Sequence {
  Sequence(RequestId request_id, EngineRequest asked, Client& of)
      : id(request_id),
        client(of),
        request(std::move(asked)),
        prompt_hash(hash_of(request.prompt)),
        tokens(request.prompt),
        random(request.seed),
        stops(request.stop_strings) {}

  [[nodiscard]] std::size_t pending() const { return tokens.size() - computed; }
  [[nodiscard]] std::size_t answered() const { return tokens.size() - request.prompt.size(); }
  [[nodiscard]] bool scores() const { return request.prompt_log_probs && !scored; }
  [[nodiscard]] bool has_prompt_of(const Sequence& other) const {
    return prompt_hash == other.prompt_hash && request.prompt == other.request.prompt;
  }

  const RequestId id;
  Client& client;
  const EngineRequest request;
  const std::uint64_t prompt_hash;
  std::vector<TokenId> tokens;  // prompt and answer
  std::size_t computed = 0;
  std::vector<BlockId> blocks;
  // What the whole blocks so far are called; nothing if they were computed with several versions of the weights.
  std::optional<PrefixId> prefix = 0;
  std::size_t remembered = 0;  // whole blocks that the pool knows
  Random random;
  StopStrings stops;
  std::vector<PromptToken> prompt;  // with log-probabilities, as far as they are known
  bool scored = false;              // they have been handed out
  bool planned = false;             // in the step that is being made
  bool runs = false;
};

using Sequences = std::list<Sequence>;

/// Who has requests here.
struct Client {
  std::size_t running = 0;
  Sequences waiting;  // in the order of arrival, but for those that ran before, which come first
};

class BatchingEngine final : public Engine {
 public:
  BatchingEngine(std::unique_ptr<EngineModel> model, Version version, const EngineOptions& options)
      : options_(options), model_(std::move(model)), version_(version), pool_(model_->blocks()) {
    const auto positions = static_cast<std::size_t>(config().cached_positions_max());
    context_max_ = std::min({options_.context_max == 0 ? positions : options_.context_max, positions,
                             std::size_t{model_->blocks()} * kBlockPositions});
  }

  Version version() const override { return version_; }
  std::size_t context_max() const override { return context_max_; }
  bool busy() const override { return !running_.empty() || waiting_ > 0 || !events_.empty(); }
  Result<RequestId> add(EngineRequest request) override;
  Status abort(RequestId id) override;
  std::vector<EngineEvent> step() override;
  Status set_weights(Version version, std::shared_ptr<const EngineWeights> weights) override;
  EngineStatus status() const override;

 private:
  /// What a step does for a sequence.
  struct Planned {
    Sequences::iterator sequence;
    std::size_t count = 0;  // of new tokens
    bool samples = false;
    std::optional<SampledToken> sampled;
    bool diverged = false;
  };

  [[nodiscard]] const ModelConfig& config() const { return model_->config(); }
  void plan(std::size_t& budget, bool decoding);
  void plan_waiting(std::size_t& budget);
  /// Where there is no room, one of the client that runs most makes it for one that runs less. Of one client's requests
  /// none does.
  void share_room();
  /// Gives `sequence` the blocks for `count` more tokens; others that are not planned yet make room. If those do not
  /// suffice, the sequence itself waits again.
  [[nodiscard]] bool make_room(Sequences::iterator sequence, std::size_t count);
  [[nodiscard]] bool is_prompt_under_way(const Sequence& waiting) const;
  /// Gives a waiting sequence what others have computed of it, if its blocks fit in.
  [[nodiscard]] bool begin(Sequences::iterator sequence);
  void share_last_block(Sequence& sequence);
  void free_blocks(Sequence& sequence);
  void preempt(Sequences::iterator sequence);

  void compute();
  void take_logits(Planned& planned, std::size_t position, std::span<float> logits);
  void advance(Planned& planned);
  [[nodiscard]] std::optional<FinishReason> reason_to_finish(Sequence& sequence, EngineEvent& event) const;
  [[nodiscard]] static EngineEvent event_of(const Sequence& sequence);

  const EngineOptions options_;
  std::unique_ptr<EngineModel> model_;
  Version version_;
  BlockPool pool_;
  std::size_t context_max_ = 0;
  Sampler sampler_;
  std::uint64_t next_id_ = 1;
  std::map<std::string, Client> clients_;  // those that have requests, and some that had
  std::size_t waiting_ = 0;                // requests of all of them
  bool lacks_blocks_ = false;              // for the one that was to begin in the last step
  Sequences running_;                      // in the order in which they began
  std::vector<Planned> plan_;
  std::vector<EngineEvent> events_;  // of the next step
  EngineStatus counts_;
};

Result<RequestId> BatchingEngine::add(EngineRequest request) {
  WC_TRY(check_request(request, options_, config(), context_max_));
  if (waiting_ >= options_.waiting_max) {
    return fail(Errc::kBusy, Op::kConfigure, fmt::format("request: {} others wait already; try again later", waiting_));
  }
  Client& client = clients_[request.client];
  // As much as is left to the others: one alone may have half, and leaves room for those that come.
  if (!request.client.empty() && client.waiting.size() >= options_.waiting_max - waiting_) {
    return fail(Errc::kBusy, Op::kConfigure,
                fmt::format("request: {} others of this client wait already; try again later", client.waiting.size()));
  }
  const RequestId id{next_id_++};
  client.waiting.emplace_back(id, std::move(request), client);
  ++waiting_;
  return id;
}

EngineEvent BatchingEngine::event_of(const Sequence& sequence) {
  EngineEvent event;
  event.id = sequence.id;
  event.tag = sequence.request.tag;
  return event;
}

Status BatchingEngine::abort(RequestId id) {
  const auto end = [&](Sequences& list) {
    const auto found = std::find_if(list.begin(), list.end(), [id](const Sequence& s) { return s.id == id; });
    if (found == list.end()) return false;
    free_blocks(*found);
    events_.push_back(event_of(*found));
    events_.back().finished = FinishReason::kAborted;
    (found->runs ? found->client.running : waiting_) -= 1;
    list.erase(found);
    return true;
  };
  if (end(running_)) return {};
  for (auto& [name, client] : clients_) {
    if (end(client.waiting)) return {};
  }
  return fail(Errc::kNotFound, Op::kConfigure, fmt::format("request {}: it has ended, or never was", id.value));
}

void BatchingEngine::free_blocks(Sequence& sequence) {
  // The last ones first: a beginning is worth more than what follows it, and is kept longer.
  for (std::size_t i = sequence.blocks.size(); i-- > 0;) pool_.remove_user(sequence.blocks[i]);
  sequence.blocks.clear();
  sequence.computed = 0;
  sequence.prefix = 0;
  sequence.remembered = 0;
  if (!sequence.scored) sequence.prompt.clear();
}

void BatchingEngine::preempt(Sequences::iterator sequence) {
  free_blocks(*sequence);
  sequence->runs = false;
  Client& client = sequence->client;
  --client.running;
  ++waiting_;
  client.waiting.splice(client.waiting.begin(), running_, sequence);
}

bool BatchingEngine::make_room(Sequences::iterator sequence, std::size_t count) {
  const std::size_t wanted = blocks_of(sequence->computed + count);
  while (sequence->blocks.size() < wanted) {
    if (const auto block = pool_.allocate()) {
      sequence->blocks.push_back(*block);
      continue;
    }
    // Who began last gives way, of the client that runs most.
    auto victim = running_.end();
    for (auto other = running_.end(); other != running_.begin();) {
      --other;
      const bool is_first = victim == running_.end();
      if (!other->planned && (is_first || other->client.running > victim->client.running)) victim = other;
    }
    if (victim == running_.end()) victim = sequence;
    ++counts_.preemptions;
    const bool is_itself = victim == sequence;
    preempt(victim);
    if (is_itself) return false;
  }
  return true;
}

void BatchingEngine::plan(std::size_t& budget, bool decoding) {
  std::vector<Sequences::iterator> chosen;
  for (auto sequence = running_.begin(); sequence != running_.end(); ++sequence) {
    if (!sequence->planned && (sequence->pending() == 1) == decoding) chosen.push_back(sequence);
  }
  for (const auto& sequence : chosen) {
    if (budget == 0) return;
    if (!sequence->runs) continue;  // it made room for one of those before
    const std::size_t count = std::min(budget, sequence->pending());
    if (!make_room(sequence, count)) continue;
    sequence->planned = true;
    plan_.push_back({sequence, count, false, std::nullopt, false});
    budget -= count;
  }
}

bool BatchingEngine::is_prompt_under_way(const Sequence& waiting) const {
  return std::any_of(running_.begin(), running_.end(), [&](const Sequence& other) {
    return other.prefix && other.computed + 1 < other.request.prompt.size() && other.has_prompt_of(waiting);
  });
}

void BatchingEngine::share_last_block(Sequence& sequence) {
  if (sequence.answered() > 0) return;
  const std::size_t whole = sequence.blocks.size();
  const std::size_t positions = sequence.request.prompt.size() - 1 - whole * kBlockPositions;
  if (positions == 0 || positions >= kBlockPositions) return;
  const auto donor = std::find_if(running_.begin(), running_.end(), [&](const Sequence& other) {
    return other.prefix && other.computed + 1 >= other.request.prompt.size() && other.has_prompt_of(sequence);
  });
  if (donor == running_.end()) return;
  // A copy, because both go on to write there.
  const auto block = pool_.allocate();
  if (!block) return;
  model_->copy_block(donor->blocks[whole], *block, positions);
  sequence.blocks.push_back(*block);
  sequence.computed += positions;
}

bool BatchingEngine::begin(Sequences::iterator sequence) {
  if (!sequence->scores()) {
    // The last token is computed in any case, for the logits after it.
    auto known = pool_.match(std::span(sequence->tokens).first(sequence->tokens.size() - 1));
    sequence->blocks = std::move(known.blocks);
    sequence->prefix = known.id;
    sequence->remembered = sequence->blocks.size();
    sequence->computed = sequence->blocks.size() * kBlockPositions;
  }
  if (pool_.available() < blocks_of(sequence->tokens.size()) - sequence->blocks.size()) {
    free_blocks(*sequence);
    return false;
  }
  if (!sequence->scores()) share_last_block(*sequence);
  counts_.shared_tokens += sequence->computed;
  sequence->runs = true;
  return true;
}

void BatchingEngine::plan_waiting(std::size_t& budget) {
  struct Place {
    Client* client = nullptr;
    Sequences::iterator next;
  };
  std::vector<Place> places;
  for (auto& [name, client] : clients_) places.push_back({&client, client.waiting.begin()});
  for (std::size_t skipped = 0; budget > 0 && running_.size() < options_.running_max && skipped < kSkippedMax;) {
    std::erase_if(places, [](const Place& place) { return place.next == place.client->waiting.end(); });
    // Who runs least is next, and of those who came first.
    const auto first = std::ranges::min_element(
        places, {}, [](const Place& place) { return std::pair(place.client->running, place.next->id); });
    if (first == places.end()) return;
    const auto sequence = first->next++;
    if (!sequence->scores() && is_prompt_under_way(*sequence)) {
      ++skipped;
      continue;
    }
    if (!begin(sequence)) {
      lacks_blocks_ = true;
      return;
    }
    running_.splice(running_.end(), first->client->waiting, sequence);
    ++first->client->running;
    --waiting_;
    const std::size_t count = std::min(budget, sequence->pending());
    if (!make_room(sequence, count)) return;
    sequence->planned = true;
    plan_.push_back({sequence, count, false, std::nullopt, false});
    budget -= count;
  }
}

// One a step: the place goes to the other in the same step. Its answer takes the same tokens later, as after any
// preemption.
void BatchingEngine::share_room() {
  const bool is_full = running_.size() >= options_.running_max || std::exchange(lacks_blocks_, false);
  if (!is_full || clients_.size() < 2) return;
  const Client* most = nullptr;
  const Client* least = nullptr;
  for (const auto& [name, client] : clients_) {
    if (most == nullptr || client.running > most->running) most = &client;
    if (!client.waiting.empty() && (least == nullptr || client.running < least->running)) least = &client;
  }
  // Beyond a difference of one the place would go back and forth.
  if (least == nullptr || most->running < least->running + 2) return;
  auto last = std::prev(running_.end());
  while (&last->client != most) --last;
  ++counts_.preemptions;
  preempt(last);
}

void BatchingEngine::take_logits(Planned& planned, std::size_t position, std::span<float> logits) {
  Sequence& sequence = *planned.sequence;
  const EngineRequest& request = sequence.request;
  if (position + 1 < request.prompt.size()) {
    const auto scored = sampler_.score(logits, request.prompt[position + 1], request.top);
    planned.diverged = planned.diverged || !scored;
    if (scored) sequence.prompt.push_back({scored->token, scored->log_prob, scored->top});
    return;
  }
  if (position + 1 < sequence.tokens.size()) return;
  planned.samples = true;
  planned.sampled = sampler_.sample(logits, request.sampling, sequence.tokens, sequence.random.unit(), request.top);
  planned.diverged = planned.diverged || !planned.sampled;
}

void BatchingEngine::compute() {
  std::vector<SequenceStep> steps;
  for (Planned& planned : plan_) {
    Sequence& sequence = *planned.sequence;
    SequenceStep step;
    step.ids = std::span(sequence.tokens).subspan(sequence.computed, planned.count);
    step.first_position = sequence.computed;
    step.blocks = sequence.blocks;
    const bool ends = planned.count == sequence.pending();
    step.logits = ends ? SequenceStep::Logits::kLast : SequenceStep::Logits::kNone;
    if (sequence.scores()) {
      if (sequence.computed == 0) sequence.prompt.push_back({sequence.tokens.front(), 0, {}});
      step.logits = SequenceStep::Logits::kAll;
    }
    steps.push_back(step);
  }
  model_->forward(steps, [this](std::size_t index, std::size_t token, std::span<float> logits) {
    take_logits(plan_[index], plan_[index].sequence->computed + token, logits);
  });
}

std::optional<FinishReason> BatchingEngine::reason_to_finish(Sequence& sequence, EngineEvent& event) const {
  const TokenId token = sequence.tokens.back();
  const auto has = [token](const std::vector<TokenId>& list) {
    return std::find(list.begin(), list.end(), token) != list.end();
  };
  if (has(sequence.request.stop_tokens)) return FinishReason::kStopToken;
  if (!sequence.request.ignore_end && has(options_.end_tokens)) return FinishReason::kStopToken;
  if (!sequence.stops.empty()) {
    if (const auto found = sequence.stops.append(options_.token_bytes(token))) {
      event.stop = StopStringFound{found->string, found->text_bytes};
      return FinishReason::kStopString;
    }
  }
  if (sequence.answered() >= sequence.request.tokens_max || sequence.tokens.size() >= context_max_) {
    return FinishReason::kLength;
  }
  return std::nullopt;
}

void BatchingEngine::advance(Planned& planned) {
  Sequence& sequence = *planned.sequence;
  sequence.planned = false;
  const bool decoded = planned.count == 1 && planned.samples && sequence.answered() > 0;
  if (!decoded) counts_.prompt_tokens += planned.count;
  sequence.computed += planned.count;
  for (; sequence.prefix && (sequence.remembered + 1) * kBlockPositions <= sequence.computed; ++sequence.remembered) {
    sequence.prefix =
        pool_.remember(sequence.blocks[sequence.remembered], *sequence.prefix,
                       std::span(sequence.tokens).subspan(sequence.remembered * kBlockPositions, kBlockPositions));
  }
  if (!planned.samples && !planned.diverged) return;

  EngineEvent event = event_of(sequence);
  if (planned.diverged) {
    event.finished = FinishReason::kFailed;
    event.failure = fmt::format("the logits of version {} are not finite: its weights have diverged", version_.value);
  } else {
    if (sequence.scores()) {
      event.prompt = std::move(sequence.prompt);
      sequence.scored = true;
    }
    SampledToken& sampled = *planned.sampled;
    sequence.tokens.push_back(sampled.token);
    event.tokens.push_back({sampled.token, sampled.log_prob, version_, std::move(sampled.top)});
    ++counts_.answer_tokens;
    event.finished = reason_to_finish(sequence, event);
  }
  if (event.finished) {
    free_blocks(sequence);
    --sequence.client.running;
    running_.erase(planned.sequence);
  }
  events_.push_back(std::move(event));
}

std::vector<EngineEvent> BatchingEngine::step() {
  if (!running_.empty() || waiting_ > 0) {
    ++counts_.steps;
    share_room();
    std::size_t budget = options_.step_tokens_max;
    plan(budget, true);
    plan(budget, false);
    plan_waiting(budget);
    counts_.step_sequences += plan_.size();
    for (const Planned& planned : plan_) counts_.step_tokens += planned.count;
    if (!plan_.empty()) compute();
    for (Planned& planned : plan_) advance(planned);
    plan_.clear();
    std::erase_if(clients_, [](const auto& one) { return one.second.running == 0 && one.second.waiting.empty(); });
  }
  return std::exchange(events_, {});
}

Status BatchingEngine::set_weights(Version version, std::shared_ptr<const EngineWeights> weights) {
  WC_TRY(model_->set_weights(std::move(weights)));
  version_ = version;
  ++counts_.versions_set;
  // Before sequences give their blocks back: nothing of the old weights may be found again.
  pool_.forget_content();
  if (options_.in_flight == InFlight::kKeep) {
    for (Sequence& sequence : running_) sequence.prefix.reset();
    return {};
  }
  while (!running_.empty()) preempt(std::prev(running_.end()));
  if (options_.in_flight == InFlight::kRecompute) return {};
  for (auto& [name, client] : clients_) {
    for (Sequence& sequence : client.waiting) {
      if (sequence.answered() == 0) continue;
      sequence.tokens.resize(sequence.request.prompt.size());
      sequence.random = Random(sequence.request.seed);
      sequence.stops.clear();
      sequence.scored = false;
      events_.push_back(event_of(sequence));
      events_.back().restarted = true;
    }
  }
  return {};
}

EngineStatus BatchingEngine::status() const {
  EngineStatus status = counts_;
  status.running = running_.size();
  status.waiting = waiting_;
  status.blocks = pool_.blocks();
  status.blocks_used = pool_.used();
  status.block_bytes = model_->block_bytes();
  status.weight_bytes = model_->weight_bytes();
  return status;
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::make(std::unique_ptr<EngineModel> model, Version version,
                                             const EngineOptions& options) {
  WC_TRY(check_options(options, model->config()));
  return std::unique_ptr<Engine>(std::make_unique<BatchingEngine>(std::move(model), version, options));
}

Result<std::unique_ptr<Engine>> Engine::make(std::shared_ptr<const EngineWeights> weights, Version version,
                                             const EngineOptions& options) {
  WC_TRY(check_options(options, weights->config()));
  const ModelConfig& config = weights->config();
  const bool bfloat16_cache = options.cache_dtype == CacheDtype::kBfloat16;
  const std::uint64_t block_bytes = cache_block_bytes(config, bfloat16_cache);
  const auto positions = static_cast<std::uint64_t>(config.cached_positions_max());
  const std::uint64_t context =
      options.context_max == 0 ? positions : std::min<std::uint64_t>(options.context_max, positions);
  // More than all sequences could use would be of no use but for beginnings that others share.
  const std::uint64_t useful = std::max<std::uint64_t>(64, 2 * options.running_max * blocks_of(context));
  const std::uint64_t blocks = std::min(
      {options.cache_bytes_max / block_bytes, useful, std::uint64_t{std::numeric_limits<std::int32_t>::max()}});
  if (blocks == 0) {
    return fail(Errc::kTooLarge, Op::kConfigure,
                fmt::format("engine: cache_bytes_max is {}, and keys and values of {} positions take {}",
                            options.cache_bytes_max, kBlockPositions, block_bytes));
  }
  CpuModelOptions model_options;
  model_options.blocks = static_cast<std::uint32_t>(blocks);
  model_options.bfloat16_cache = bfloat16_cache;
  model_options.threads = options.threads;
  WC_ASSIGN(std::unique_ptr<EngineModel> model, make_cpu_model(std::move(weights), model_options));
  return make(std::move(model), version, options);
}

}  // namespace weightcast
