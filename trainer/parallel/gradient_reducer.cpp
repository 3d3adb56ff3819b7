#include "trainer/parallel/gradient_reducer.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <functional>
#include <mutex>
#include <optional>

namespace weightcast {

struct GradientReducer::State {
  struct Bucket {
    std::size_t first = 0;  // tensors first to last - 1
    std::size_t last = 0;
    std::size_t waits_for = 0;  // tensors of it whose gradients are not final
    torch::Tensor received;     // [ranks, own cells of the bucket]
    std::unique_ptr<ProcessGroup::Pending> pending;
  };

  ProcessGroup& group;
  std::vector<torch::Tensor> tensors;
  std::vector<std::vector<Shard>> shards;
  std::vector<torch::Tensor> sums;  // FP32; undefined: no gradient yet
  std::vector<Bucket> buckets;      // in the order in which they are sent
  std::mutex mutex;                 // hooks may run on threads of autograd
  std::size_t sent = 0;
  bool is_last_pass = false;
  std::optional<Error> failure;

  State(ProcessGroup& of, std::vector<torch::Tensor> leaves, std::vector<std::vector<Shard>> parts)
      : group(of), tensors(std::move(leaves)), shards(std::move(parts)), sums(tensors.size()) {}

  void handle_gradient(std::size_t index) {
    const std::lock_guard lock(mutex);
    torch::Tensor& gradient = tensors[index].mutable_grad();
    if (gradient.defined()) {
      const at::NoGradGuard no_grad;
      if (sums[index].defined()) {
        sums[index].add_(gradient);
      } else {
        sums[index] = gradient.to(at::kFloat);
      }
      gradient.reset();
    }
    if (!is_last_pass) return;
    for (Bucket& bucket : buckets) {
      if (index < bucket.first || index >= bucket.last || bucket.waits_for == 0) continue;
      --bucket.waits_for;
    }
    while (sent < buckets.size() && buckets[sent].waits_for == 0 && !failure) send_next();
  }

  void send_next() {
    const at::NoGradGuard no_grad;
    Bucket& bucket = buckets[sent++];
    std::vector<torch::Tensor> flat;
    for (std::size_t i = bucket.first; i < bucket.last; ++i) {
      flat.push_back(sums[i].defined() ? sums[i].reshape({-1})
                                       : at::zeros({tensors[i].numel()}, tensors[i].options().dtype(at::kFloat)));
    }
    std::vector<std::int64_t> send_cells;
    for (const auto& of_rank : shards) {
      send_cells.push_back(static_cast<std::int64_t>(cells_between(of_rank, bucket.first, bucket.last)));
    }
    const std::int64_t own = send_cells[group.rank()], ranks = group.world_size();
    const torch::Tensor all = at::cat(flat);
    bucket.received = at::empty({ranks, own}, all.options());
    Result<std::unique_ptr<ProcessGroup::Pending>> pending =
        group.exchange(all, bucket.received.view({-1}), std::move(send_cells),
                       std::vector<std::int64_t>(static_cast<std::size_t>(ranks), own));
    if (pending.has_value()) {
      bucket.pending = std::move(*pending);
    } else {
      failure = std::move(pending).error();
    }
  }

  void rewind() {
    sent = 0;
    is_last_pass = false;
    for (Bucket& bucket : buckets) {
      bucket.waits_for = bucket.last - bucket.first;
      bucket.received.reset();
      bucket.pending.reset();
    }
    for (torch::Tensor& sum : sums) sum.reset();
  }
};

namespace {

struct Hook final : torch::autograd::FunctionPostHook {
  explicit Hook(std::function<void()> what) : body(std::move(what)) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                            const torch::autograd::variable_list&) override {
    body();
    return outputs;
  }
  std::function<void()> body;
};

}  // namespace

GradientReducer::GradientReducer(ProcessGroup& group, std::vector<torch::Tensor> tensors,
                                 std::vector<std::vector<Shard>> shards, std::size_t bucket_cells)
    : state_(std::make_shared<State>(group, std::move(tensors), std::move(shards))) {
  // The backward pass begins at the end of the model, so the last tensors go first.
  std::size_t last = state_->tensors.size(), cells = 0;
  for (std::size_t i = last; i-- > 0;) {
    cells += static_cast<std::size_t>(state_->tensors[i].numel());
    if (cells < bucket_cells && i > 0) continue;
    state_->buckets.push_back({i, last, 0, {}, nullptr});
    last = i;
    cells = 0;
  }
  state_->rewind();
  for (std::size_t i = 0; i < state_->tensors.size(); ++i) {
    accumulators_.push_back(torch::autograd::impl::gradient_edge(state_->tensors[i]));
    accumulators_.back().function->add_post_hook(std::make_unique<Hook>([weak = std::weak_ptr(state_), i] {
      if (const auto state = weak.lock()) state->handle_gradient(i);
    }));
  }
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::begin_last_pass() {
  const std::lock_guard lock(state_->mutex);
  state_->is_last_pass = true;
}

Result<GradientReducer::Sums> GradientReducer::finish() {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  while (state.sent < state.buckets.size() && !state.failure) state.send_next();
  if (state.failure) return *state.failure;

  const auto ranks = static_cast<std::size_t>(state.group.world_size()), tensors = state.tensors.size();
  const torch::Tensor flags =
      at::empty({static_cast<std::int64_t>(ranks), static_cast<std::int64_t>(tensors)}, at::TensorOptions(at::kByte));
  const torch::Tensor all_flags = at::empty_like(flags);
  for (std::size_t r = 0; r < ranks; ++r) {
    for (std::size_t i = 0; i < tensors; ++i) {
      flags.data_ptr<std::uint8_t>()[r * tensors + i] = state.sums[i].defined() ? 1 : 0;
    }
  }
  const std::vector<std::int64_t> each(ranks, static_cast<std::int64_t>(tensors));
  WC_ASSIGN(const auto flags_pending, state.group.exchange(flags.view({-1}), all_flags.view({-1}), each, each));
  WC_TRY(flags_pending->wait());

  Sums result;
  result.has_some.assign(tensors, 0);
  for (std::size_t i = 0; i < ranks * tensors; ++i) {
    result.has_some[i % tensors] |= all_flags.data_ptr<std::uint8_t>()[i];
  }
  const std::vector<Shard>& own = state.shards[state.group.rank()];
  result.cells = at::empty({static_cast<std::int64_t>(cells_of(own))}, at::TensorOptions(at::kFloat));
  for (State::Bucket& bucket : state.buckets) {
    WC_TRY(bucket.pending->wait());
    // In the order of the ranks, so that the result does not depend on which came first.
    torch::Tensor sum = bucket.received[0].clone();
    for (std::int64_t r = 1; r < bucket.received.size(0); ++r) sum.add_(bucket.received[r]);
    const auto offset = static_cast<std::int64_t>(cells_between(own, 0, bucket.first));
    result.cells.narrow(0, offset, sum.numel()).copy_(sum);
  }
  state.rewind();
  return result;
}

}  // namespace weightcast
