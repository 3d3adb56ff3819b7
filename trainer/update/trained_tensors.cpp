#include "trainer/update/trained_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <numeric>
#include <unordered_map>

#include "trainer/model/weights.h"

namespace weightcast {
namespace {

const std::string kCounters = "updates";  // applied, skipped

/// "model.norm.weight.exp_avg": as others name what AdamW keeps.
std::string part_name(const std::string& parameter, AdamW::StatePart::Kind kind) {
  switch (kind) {
    case AdamW::StatePart::Kind::kMaster: return parameter + ".master";
    case AdamW::StatePart::Kind::kMoment1: return parameter + ".exp_avg";
    case AdamW::StatePart::Kind::kMoment2: return parameter + ".exp_avg_sq";
    case AdamW::StatePart::Kind::kChanged: return parameter + ".changed";
  }
  return parameter;
}

/// What AdamW keeps of each cell of such tensors, in FP32.
std::vector<AdamW::StatePart::Kind> kinds_of(const std::vector<Parameter>& tensors) {
  using Kind = AdamW::StatePart::Kind;
  const bool has_masters = !tensors.empty() && tensors.front().tensor.scalar_type() == at::kBFloat16;
  return has_masters ? std::vector{Kind::kMaster, Kind::kMoment1, Kind::kMoment2}
                     : std::vector{Kind::kMoment1, Kind::kMoment2};
}

/// Tensors of a file by their names: models with experts have thousands.
class TensorsByName {
 public:
  explicit TensorsByName(std::span<const StoredTensor> tensors) {
    for (const StoredTensor& tensor : tensors) by_name_.emplace(tensor.info.name, &tensor);
  }

  [[nodiscard]] Status copy(const std::string& name, MutableBytes into) const {
    const auto found = by_name_.find(name);
    if (found == by_name_.end() || found->second->bytes.size() != into.size()) {
      return fail(Errc::kCorrupt, Op::kRead,
                  fmt::format("checkpoint: tensor {} is missing or of another size", quoted_name(name)));
    }
    std::memcpy(into.data(), found->second->bytes.data(), into.size());
    return {};
  }

 private:
  std::unordered_map<std::string_view, const StoredTensor*> by_name_;
};

std::size_t words_for(std::size_t cells) { return (cells + 63) / 64; }

std::size_t state_bytes(AdamW::StatePart::Kind kind, std::size_t cells) {
  return kind == AdamW::StatePart::Kind::kChanged ? 8 * words_for(cells) : sizeof(float) * cells;
}

torch::Tensor as_tensor(std::span<std::byte> bytes) {
  return torch::from_blob(bytes.data(), {static_cast<std::int64_t>(bytes.size())}, at::TensorOptions(at::kByte));
}

/// Copies `from` into `into`, and sets the bit of each cell of `cell_bytes` that differs, from `first` on.
void copy_marking(MutableBytes into, Bytes from, std::size_t cell_bytes, std::size_t first,
                  std::vector<std::uint64_t>& changed) {
  for (std::size_t i = 0; i * cell_bytes < from.size(); ++i) {
    if (std::memcmp(into.data() + i * cell_bytes, from.data() + i * cell_bytes, cell_bytes) == 0) continue;
    changed[(first + i) / 64] |= std::uint64_t{1} << ((first + i) % 64);
  }
  std::memcpy(into.data(), from.data(), from.size());
}

}  // namespace

MutableBytes bytes_of(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.nbytes())};
}

std::vector<std::uint64_t> shape_of(const torch::Tensor& tensor) {
  return {tensor.sizes().begin(), tensor.sizes().end()};
}

Result<TrainedTensors> TrainedTensors::make(std::vector<Parameter> tensors, std::vector<double> weight_decay,
                                            const AdamWOptions& options, ProcessGroup* group) {
  std::vector<std::size_t> cells;
  for (const Parameter& parameter : tensors) {
    cells.push_back(static_cast<std::size_t>(parameter.tensor.numel()));
    parameter.tensor.set_requires_grad(true);
  }
  TrainedTensors result(std::move(tensors), std::move(weight_decay), options, group,
                        make_shards(cells, group == nullptr ? 1 : group->world_size(), AdamW::kBlockCells));
  WC_TRY(result.reset());
  return result;
}

TrainedTensors::TrainedTensors(std::vector<Parameter> tensors, std::vector<double> weight_decay,
                               const AdamWOptions& options, ProcessGroup* group, std::vector<std::vector<Shard>> shards)
    : tensors_(std::move(tensors)),
      weight_decay_(std::move(weight_decay)),
      options_(options),
      group_(group),
      shards_(std::move(shards)),
      accumulated_(tensors_.size()) {
  for (const Parameter& parameter : tensors_) {
    const torch::Tensor tensor = parameter.tensor.detach();
    learning_.push_back({parameter.name, group_ == nullptr ? tensor : tensor.to(at::kCPU)});
  }
  if (group_ != nullptr) {
    std::vector<torch::Tensor> leaves;
    for (const Parameter& parameter : tensors_) leaves.push_back(parameter.tensor);
    reducer_ = std::make_unique<GradientReducer>(*group_, std::move(leaves), shards_);
    for (const Parameter& parameter : tensors_) {
      changed_.emplace_back(words_for(static_cast<std::size_t>(parameter.tensor.numel())), 0);
    }
    return;
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const torch::Tensor& tensor = tensors_[i].tensor;
    if (tensor.scalar_type() == at::kFloat) continue;
    accumulated_[i] = at::zeros(tensor.sizes(), tensor.options().dtype(at::kFloat).requires_grad(false));
  }
}

Status TrainedTensors::reset() {
  std::vector<LearningCells> parts;
  bool on_host = true;
  for (const Shard& shard : own()) {
    const torch::Tensor cells = learning_[shard.tensor].tensor.view({-1}).narrow(
        0, static_cast<std::int64_t>(shard.first), static_cast<std::int64_t>(shard.cells));
    on_host = on_host && cells.device() == at::kCPU;
    parts.push_back({cells, weight_decay_[shard.tensor], shard.tensor, shard.first});
  }
  WC_ASSIGN(optimiser_, on_host ? make_host_optimiser(options_, std::move(parts))
                                : make_device_optimiser(options_, std::move(parts)));
  for (std::vector<std::uint64_t>& words : changed_) std::fill(words.begin(), words.end(), 0);
  return {};
}

void TrainedTensors::begin_last_pass() {
  if (reducer_) reducer_->begin_last_pass();
}

void TrainedTensors::handle_backward() {
  if (reducer_) return;  // its hooks have taken them
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (!accumulated_[i].defined()) continue;  // FP32: autograd adds up by itself
    torch::Tensor& gradient = tensors_[i].tensor.mutable_grad();
    if (!gradient.defined()) continue;
    accumulated_[i].add_(gradient);
    gradient.reset();
  }
}

Result<AdamWUpdate> TrainedTensors::update(double learning_rate) {
  std::vector<torch::Tensor> gradients;
  if (reducer_) {
    WC_ASSIGN(const GradientReducer::Sums sums, reducer_->finish());
    std::int64_t first = 0;
    for (const Shard& shard : own()) {
      const auto cells = static_cast<std::int64_t>(shard.cells);
      gradients.push_back(sums.has_some[shard.tensor] != 0 ? sums.cells.narrow(0, first, cells) : torch::Tensor());
      first += cells;
    }
    return update_own(learning_rate, gradients);
  }
  for (const Shard& shard : own()) {  // whole tensors
    const std::size_t i = shard.tensor;
    const torch::Tensor gradient = accumulated_[i].defined() ? accumulated_[i] : tensors_[i].tensor.grad();
    gradients.push_back(gradient.defined() ? gradient.contiguous().view({-1}) : gradient);
  }
  WC_ASSIGN(const AdamWUpdate update, update_own(learning_rate, gradients));
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    if (accumulated_[i].defined()) {
      accumulated_[i].zero_();
    } else {
      tensors_[i].tensor.mutable_grad().reset();
    }
  }
  return update;
}

Result<AdamWUpdate> TrainedTensors::update_own(double learning_rate, std::span<const torch::Tensor> gradients) {
  std::optional<double> norm;
  if (group_ != nullptr) {
    WC_ASSIGN(const std::vector<double> own_sums, optimiser_->sums_of_squares(gradients));
    std::vector<std::int64_t> counts;
    std::int64_t total = 0;
    for (const std::vector<Shard>& of_rank : shards_) {
      std::int64_t blocks = 0;
      for (const Shard& shard : of_rank) {
        blocks += static_cast<std::int64_t>((shard.cells + AdamW::kBlockCells - 1) / AdamW::kBlockCells);
      }
      counts.push_back(blocks);
      total += blocks;
    }
    const torch::Tensor send = at::tensor(own_sums, at::kDouble).repeat({static_cast<std::int64_t>(counts.size())});
    const torch::Tensor all = at::empty({total}, at::TensorOptions(at::kDouble));
    WC_ASSIGN(const auto pending,
              group_->exchange(send, all, std::vector<std::int64_t>(counts.size(), counts[rank()]), counts));
    WC_TRY(pending->wait());
    // The blocks of all ranks in the order that one process has, so that the norm is the same to the bit.
    const double* sums = all.data_ptr<double>();
    norm = std::sqrt(std::accumulate(sums, sums + total, 0.0));
  }
  WC_ASSIGN(const AdamWUpdate update, optimiser_->update(learning_rate, gradients, norm));
  if (!update.applied) return update;
  if (group_ != nullptr) WC_TRY(share_shards());
  handle_learning_changed();
  return update;
}

Status TrainedTensors::share_shards() {
  for (std::uint32_t from = 0; from < shards_.size(); ++from) {
    const auto place_of = [&](const Shard& shard) {
      const torch::Tensor& tensor = learning_[shard.tensor].tensor;
      const auto cell = static_cast<std::size_t>(tensor.element_size());
      return bytes_of(tensor).subspan(shard.first * cell, shard.cells * cell);
    };
    std::vector<std::byte> packed;
    for (const Shard& shard : shards_[from]) {
      const MutableBytes place = place_of(shard);
      packed.insert(packed.end(), place.begin(), place.end());
    }
    WC_TRY(group_->broadcast(packed, from));
    if (from == rank()) continue;
    std::size_t offset = 0;
    for (const Shard& shard : shards_[from]) {
      const MutableBytes place = place_of(shard);
      const Bytes bytes = Bytes(packed).subspan(offset, place.size());
      offset += place.size();
      if (rank() == 0) {
        copy_marking(place, bytes, static_cast<std::size_t>(learning_[shard.tensor].tensor.element_size()), shard.first,
                     changed_[shard.tensor]);
      } else {
        std::memcpy(place.data(), bytes.data(), bytes.size());
      }
    }
  }
  return {};
}

Status TrainedTensors::share() {
  if (group_ == nullptr) return {};
  for (const Parameter& parameter : learning_) WC_TRY(group_->broadcast(bytes_of(parameter.tensor), 0));
  handle_learning_changed();
  return {};
}

ChangedCells TrainedTensors::take_changes(std::size_t index) {
  ChangedCells result;
  const torch::Tensor& tensor = learning_[index].tensor;
  const auto cell = static_cast<std::size_t>(tensor.element_size());
  for (std::uint32_t of = 0; of < shards_.size(); ++of) {
    for (std::size_t i = 0; i < shards_[of].size(); ++i) {
      const Shard& shard = shards_[of][i];
      if (shard.tensor != index) continue;
      if (of == rank()) {
        const ChangedCells mine = optimiser_->take_changes(i);
        for (const std::uint32_t at : mine.indices) {
          result.indices.push_back(static_cast<std::uint32_t>(shard.first + at));
        }
        result.values.insert(result.values.end(), mine.values.begin(), mine.values.end());
        continue;
      }
      for (std::size_t word = shard.first / 64; word < words_for(shard.first + shard.cells); ++word) {
        for (std::uint64_t bits = changed_[index][word]; bits != 0; bits &= bits - 1) {
          const std::size_t at = 64 * word + static_cast<std::size_t>(std::countr_zero(bits));
          result.indices.push_back(static_cast<std::uint32_t>(at));
          const MutableBytes value = bytes_of(tensor).subspan(at * cell, cell);
          result.values.insert(result.values.end(), value.begin(), value.end());
        }
        changed_[index][word] = 0;
      }
    }
  }
  return result;
}

void TrainedTensors::handle_learning_changed() {
  const at::NoGradGuard no_grad;
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const torch::Tensor& learning = learning_[i].tensor;
    if (tensors_[i].tensor.device() != learning.device()) tensors_[i].tensor.copy_(learning);
  }
}

Result<std::vector<std::byte>> TrainedTensors::gather(AdamW::StatePart::Kind kind) {
  std::vector<std::byte> own_bytes = optimiser_->read_state(kind);
  if (group_ == nullptr) return own_bytes;
  std::vector<std::int64_t> to(shards_.size(), 0), from(shards_.size(), 0);
  to[0] = static_cast<std::int64_t>(own_bytes.size());
  std::size_t total = 0;
  for (std::size_t r = 0; rank() == 0 && r < shards_.size(); ++r) {
    for (const Shard& shard : shards_[r]) from[r] += static_cast<std::int64_t>(state_bytes(kind, shard.cells));
    total += static_cast<std::size_t>(from[r]);
  }
  std::vector<std::byte> all(total);
  WC_ASSIGN(const auto pending, group_->exchange(as_tensor(own_bytes), as_tensor(all), to, from));
  WC_TRY(pending->wait());
  return all;
}

Status TrainedTensors::scatter(AdamW::StatePart::Kind kind, std::vector<std::byte> all) {
  std::vector<std::byte> own_bytes;
  if (group_ == nullptr) {
    own_bytes = std::move(all);
  } else {
    std::vector<std::int64_t> to(shards_.size(), 0), from(shards_.size(), 0);
    for (std::size_t r = 0; r < shards_.size(); ++r) {
      std::int64_t bytes = 0;
      for (const Shard& shard : shards_[r]) bytes += static_cast<std::int64_t>(state_bytes(kind, shard.cells));
      if (rank() == 0) to[r] = bytes;
      if (rank() == r) from[0] = bytes;
    }
    own_bytes.resize(static_cast<std::size_t>(from[0]));
    WC_ASSIGN(const auto pending, group_->exchange(as_tensor(all), as_tensor(own_bytes), to, from));
    WC_TRY(pending->wait());
  }
  optimiser_->write_state(kind, own_bytes);
  return {};
}

Result<std::vector<StoredTensor>> TrainedTensors::save_optimiser() {
  std::vector<StoredTensor> parts;
  for (const AdamW::StatePart::Kind kind : kinds_of(tensors_)) {
    WC_ASSIGN(const std::vector<std::byte> all, gather(kind));
    if (rank() != 0) continue;
    std::size_t offset = 0;
    for (const Parameter& parameter : tensors_) {
      const std::size_t bytes = state_bytes(kind, static_cast<std::size_t>(parameter.tensor.numel()));
      parts.push_back({{part_name(parameter.name, kind), "F32", {bytes / 4}, 0, bytes},
                       {all.begin() + static_cast<std::ptrdiff_t>(offset),
                        all.begin() + static_cast<std::ptrdiff_t>(offset + bytes)}});
      offset += bytes;
    }
  }
  if (rank() != 0) return parts;
  // The bits of its own shards, and of others' as it saw them come.
  std::vector<std::vector<std::uint64_t>> changed = changed_;
  changed.resize(tensors_.size());
  const std::vector<std::byte> own_changed = optimiser_->read_state(AdamW::StatePart::Kind::kChanged);
  std::size_t next = 0;
  for (const Shard& shard : own()) {
    std::vector<std::uint64_t>& words = changed[shard.tensor];
    words.resize(words_for(static_cast<std::size_t>(tensors_[shard.tensor].tensor.numel())), 0);
    const std::size_t bytes = state_bytes(AdamW::StatePart::Kind::kChanged, shard.cells);
    std::memcpy(words.data() + shard.first / 64, own_changed.data() + next, bytes);
    next += bytes;
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    const auto bytes = std::as_bytes(std::span(changed[i]));
    parts.push_back(
        {{part_name(tensors_[i].name, AdamW::StatePart::Kind::kChanged), "I64", {changed[i].size()}, 0, bytes.size()},
         {bytes.begin(), bytes.end()}});
  }
  const AdamWCounters counters = optimiser_->counters();
  const std::uint64_t values[] = {counters.applied, counters.skipped};
  const auto bytes = std::as_bytes(std::span(values));
  parts.push_back({{kCounters, "I64", {std::size(values)}, 0, bytes.size()}, {bytes.begin(), bytes.end()}});
  return parts;
}

Status TrainedTensors::load_optimiser(std::span<const StoredTensor> parts) {
  const TensorsByName stored(parts);
  for (const AdamW::StatePart::Kind kind : kinds_of(tensors_)) {
    std::vector<std::byte> all;
    for (const Parameter& parameter : tensors_) {
      if (rank() != 0) break;
      const std::size_t offset = all.size();
      all.resize(offset + state_bytes(kind, static_cast<std::size_t>(parameter.tensor.numel())));
      WC_TRY(stored.copy(part_name(parameter.name, kind), MutableBytes(all).subspan(offset)));
    }
    WC_TRY(scatter(kind, std::move(all)));
  }
  std::uint64_t values[2] = {};
  if (rank() == 0) {
    std::vector<std::vector<std::uint64_t>> changed;
    for (const Parameter& parameter : tensors_) {
      changed.emplace_back(words_for(static_cast<std::size_t>(parameter.tensor.numel())));
      WC_TRY(stored.copy(part_name(parameter.name, AdamW::StatePart::Kind::kChanged),
                         std::as_writable_bytes(std::span(changed.back()))));
    }
    std::vector<std::byte> own_changed;
    for (const Shard& shard : own()) {
      const auto words = std::span(changed[shard.tensor]).subspan(shard.first / 64, words_for(shard.cells));
      const auto bytes = std::as_bytes(words);
      own_changed.insert(own_changed.end(), bytes.begin(), bytes.end());
      std::fill(words.begin(), words.end(), 0);
    }
    optimiser_->write_state(AdamW::StatePart::Kind::kChanged, own_changed);
    if (group_ != nullptr) changed_ = std::move(changed);
    WC_TRY(stored.copy(kCounters, std::as_writable_bytes(std::span(values))));
  }
  if (group_ != nullptr) WC_TRY(group_->broadcast(std::as_writable_bytes(std::span(values)), 0));
  optimiser_->restore_counters({values[0], values[1]});
  return {};
}

std::vector<StoredTensor> copy_tensors(std::span<const Parameter> tensors) {
  std::vector<StoredTensor> copies;
  for (const Parameter& parameter : tensors) {
    const torch::Tensor host = parameter.tensor.detach().to(at::kCPU).contiguous();
    const MutableBytes bytes = bytes_of(host);
    copies.push_back({{parameter.name, std::string(dtype_name(host.scalar_type())), shape_of(host), 0, bytes.size()},
                      {bytes.begin(), bytes.end()}});
  }
  return copies;
}

Status set_tensors(std::span<const Parameter> tensors, std::span<const StoredTensor> stored) {
  const at::NoGradGuard no_grad;
  const TensorsByName by_name(stored);
  for (const Parameter& parameter : tensors) {
    if (parameter.tensor.device() == at::kCPU) {
      WC_TRY(by_name.copy(parameter.name, bytes_of(parameter.tensor)));
      continue;
    }
    const torch::Tensor host = at::empty(parameter.tensor.sizes(), parameter.tensor.options().device(at::kCPU));
    WC_TRY(by_name.copy(parameter.name, bytes_of(host)));
    parameter.tensor.copy_(host);
  }
  return {};
}

}  // namespace weightcast
