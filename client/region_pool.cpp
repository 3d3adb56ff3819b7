#include "client/region_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace weightcast::client {
namespace {

// Tensors then begin where caches and copy engines like them to, as far as the sizes before them allow.
constexpr std::size_t kAlignmentBytes = 64;

Error refuse(std::size_t index, std::string_view why) {
  return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("tensor {} of those given: {}", index, why));
}

Status check_pointers(std::span<const wc_tensor> tensors) {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const wc_tensor& tensor = tensors[i];
    if (tensor.name == nullptr || tensor.dtype == nullptr) return refuse(i, "its name or its dtype is NULL");
    if (tensor.shape == nullptr && tensor.rank > 0) return refuse(i, "its shape is NULL and its rank is not 0");
    if (tensor.rank > kTensorRankMax) return refuse(i, fmt::format("it has more than {} dimensions", kTensorRankMax));
    if (tensor.reserved[0] != 0 || tensor.reserved[1] != 0) return refuse(i, "its reserved members are not 0");
  }
  return {};
}

bool same(const wc_tensor& tensor, const TensorInfo& info) {
  return info.name == tensor.name && info.dtype == tensor.dtype && info.shape.size() == tensor.rank &&
         std::equal(info.shape.begin(), info.shape.end(), tensor.shape) &&
         (tensor.size_bytes == 0 || tensor.size_bytes == info.size_bytes);
}

Result<TensorInfo> info_of(const wc_tensor& tensor, std::size_t index) {
  TensorInfo info;
  info.name = tensor.name;
  info.dtype = tensor.dtype;
  info.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  const Result<std::uint64_t> bytes = tensor_bytes(info.dtype, info.shape);
  if (!bytes.has_value()) {
    return fail(bytes.error().code, Op::kPublish,
                fmt::format("tensor {}: {}", quoted_name(info.name), bytes.error().detail));
  }
  if (tensor.size_bytes != 0 && tensor.size_bytes != *bytes) {
    return refuse(index, fmt::format("{} is said to have {} bytes; dtype and shape say {}", quoted_name(info.name),
                                     tensor.size_bytes, *bytes));
  }
  info.size_bytes = *bytes;
  return info;
}

}  // namespace

Status RegionPool::lay_out(std::span<const wc_tensor> tensors) {
  WC_TRY(check_pointers(tensors));
  // Without an allocation where nothing has changed, which is so at every step of a training run but the first.
  if (tensors.size() == tensors_.size() && !tensors.empty() &&
      std::equal(tensors.begin(), tensors.end(), tensors_.begin(), same)) {
    return {};
  }
  if (tensors.empty()) return fail(Errc::kInvalidArgument, Op::kPublish, "no tensors were given");
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    WC_ASSIGN(TensorInfo info, info_of(tensors[i], i));
    infos.push_back(std::move(info));
  }
  return lay_out(std::move(infos));
}

Status RegionPool::lay_out(std::vector<TensorInfo> tensors) {
  WC_ASSIGN(layout_, lay_out_safetensors(tensors, {}, kAlignmentBytes));
  tensors_ = std::move(tensors);
  return {};
}

Result<RegionPool::Held*> RegionPool::add() {
  const std::uint64_t bytes = layout_.file_bytes;
  WC_ASSIGN(std::shared_ptr<Region> region, Region::create(fit_ == Fit::kExact ? bytes : bytes + bytes / 4));
  return &held_.emplace_back(Held{std::move(region)});
}

void RegionPool::drop_misfits() {
  std::erase_if(held_, [&](const Held& held) { return held.state == State::kFree && !fits(held); });
}

Result<Region*> RegionPool::take(bool second, std::uint32_t parts) {
  drop_misfits();
  auto found = std::find_if(held_.begin(), held_.end(), [](const Held& held) { return held.state == State::kFree; });
  Held* held = found != held_.end() ? &*found : nullptr;
  if (held == nullptr) {
    if (held_.size() >= (second ? kRegionsMax : 1)) return nullptr;
    WC_ASSIGN(held, add());
  }
  WC_ASSIGN(held->publication, fresh_id());
  WC_TRY(held->region->expect_parts(parts));
  held->state = State::kTaken;
  held->region->set_content_bytes(layout_.file_bytes);
  held->region->set_publication(held->publication);
  std::memcpy(held->region->data(), layout_.header.data(), layout_.header.size());
  return held->region.get();
}

Status RegionPool::reserve(std::size_t count) {
  drop_misfits();
  for (const Held& held : held_) {
    if (fits(held)) continue;
    return fail(Errc::kBusy, Op::kPublish,
                "a region for other tensors is in use; wait until it has been taken over, or abort it");
  }
  while (held_.size() < count) WC_TRY(add());
  for (Held& held : held_) {
    if (held.state == State::kFree) WC_TRY(held.region->populate());
  }
  return {};
}

RegionPool::Held& RegionPool::find(const Region& region) {
  const auto found =
      std::find_if(held_.begin(), held_.end(), [&](const Held& held) { return held.region.get() == &region; });
  WC_CHECK(found != held_.end());
  return *found;
}

void RegionPool::hand_over(Region& region) {
  region.set_publication(0);
  find(region).state = State::kSent;
}

void RegionPool::take_back(Region& region) {
  Held& held = find(region);
  held.state = State::kTaken;
  region.set_publication(held.publication);
}

void RegionPool::release_taken() {
  for (Held& held : held_) {
    if (held.state == State::kTaken) release(*held.region);
  }
}

void RegionPool::release(Region& region) {
  region.set_publication(0);
  find(region).state = State::kFree;
}

void RegionPool::abandon_sent() {
  std::erase_if(held_, [](const Held& held) { return held.state == State::kSent; });
}

}  // namespace weightcast::client
