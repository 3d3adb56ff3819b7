#include "trainer/publish/publisher.h"

#include <fmt/format.h>

#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;

// An origin that lives accepts within a millisecond; one that does not is asked again later.
constexpr wc::Milliseconds kAnswerTime = 1s;
constexpr wc::Milliseconds kPollTime = 2ms;  // a daemon that lives answers at once; no step waits for more
constexpr Duration kPause = 10s;
// An index of 4 bytes and a value of 2 or 4: beyond this share a list is no smaller than the weights.
constexpr double kSparseShareMax = 0.25;
constexpr std::uint64_t kFullPublications = 16;

}  // namespace

Publisher::Publisher(Options options, std::function<void(std::string)> warn)
    : options_(std::move(options)), warn_(std::move(warn)), new_model_(options_.new_model) {}
Publisher::~Publisher() = default;

void Publisher::connect() {
  if (!client_) client_ = std::make_unique<wc::Client>(options_.state_dir, kAnswerTime);
}

void Publisher::failed(const std::string& why) {
  base_.reset();
  if (!is_failing_) warn_(fmt::format("not published: {}; training goes on, and newer weights follow", why));
  is_failing_ = true;
}

std::optional<Version> Publisher::next_version() {
  try {
    connect();
    return Version{client_->next_version(kAnswerTime)};
  } catch (const wc::Error& error) {
    failed(error.what());
    return std::nullopt;
  }
}

PublishOutcome Publisher::publish(Instant now, Version version, const Weights& weights) {
  if (retry_at_ && now < *retry_at_) return PublishOutcome::kFailed;
  retry_at_.reset();
  try {
    connect();
    if (!publish_changes(version, weights)) publish_all(version, weights);
  } catch (const wc::Error& error) {
    if (error.code() == WC_ALREADY_EXISTS) {
      base_.reset();
      return PublishOutcome::kNumberTaken;
    }
    if (error.code() == WC_TIMED_OUT) {
      // What was begun may have been accepted; a new connection begins anew.
      client_.reset();
      retry_at_ = now + kPause;
    }
    failed(error.what());
    return PublishOutcome::kFailed;
  }
  if (is_failing_) warn_(fmt::format("published again: version {}", version.value));
  is_failing_ = false;
  base_ = version;
  state_.version = version;
  state_.payload_bytes = 0;
  state_.t_bcast_s.reset();
  return PublishOutcome::kAccepted;
}

bool Publisher::publish_changes(Version version, const Weights& weights) {
  const std::vector<PublishedTensor>& tensors = weights.tensors;
  if (!options_.sparse || !base_) return false;
  if (full_publications_ > 0) {
    // Changes keep collecting, so that a later list has all that changed since.
    --full_publications_;
    return false;
  }
  std::vector<ChangedCells> cells;
  std::uint64_t changed = 0, total = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    cells.push_back(weights.take_changes(i));
    changed += cells.back().indices.size();
    std::uint64_t elements = 1;
    for (const std::uint64_t length : tensors[i].shape) elements *= length;
    total += elements;
  }
  state_.changed_share = total == 0 ? 0 : static_cast<double>(changed) / static_cast<double>(total);
  if (state_.changed_share > kSparseShareMax) {
    full_publications_ = kFullPublications;
    return false;
  }
  std::vector<wc::Change> changes;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (cells[i].indices.empty()) continue;
    changes.push_back({.name = tensors[i].name,
                       .dtype = tensors[i].dtype,
                       .indices = cells[i].indices.data(),
                       .index_bytes = 4,
                       .values = cells[i].values.data(),
                       .count = cells[i].indices.size()});
  }
  try {
    client_->publish_sparse(base_->value, changes, {.version = version.value, .second_region = true}, kAnswerTime);
    return true;
  } catch (const wc::Error& error) {
    // Another program has published: the origin takes the whole.
    if (error.code() != WC_WRONG_BASE) throw;
    return false;
  }
}

void Publisher::publish_all(Version version, const Weights& weights) {
  std::vector<wc::Tensor> descriptions;
  for (const PublishedTensor& tensor : weights.tensors) {
    descriptions.push_back({.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape});
  }
  wc::PublishOptions options{.version = version.value, .second_region = true, .new_model = new_model_};
  if (!base_) {
    // The origin keeps them for the versions that follow.
    for (const auto& [name, text] : options_.files)
      options.files.push_back({name.c_str(), text.data(), text.size(), 0});
  }
  const std::vector<void*> places = client_->begin(descriptions, options, kAnswerTime);
  for (std::size_t i = 0; i < places.size(); ++i) {
    weights.read(i, {static_cast<std::byte*>(places[i]), weights.tensors[i].size_bytes});
  }
  try {
    client_->commit(kAnswerTime);
  } catch (const wc::Error&) {
    client_->abort();
    throw;
  }
}

void Publisher::poll() {
  if (!client_ || state_.version == kNoVersion || is_failing_ || state_.t_bcast_s) return;
  try {
    wc::WaitOptions all;
    all.fraction = 1;
    const wc::Outcome outcome = client_->wait(state_.version.value, all, kPollTime);
    new_model_ = false;
    if (outcome.payload != WC_UNDECIDED) state_.payload_bytes = outcome.payload_bytes;
    state_.t_bcast_s = outcome.t100_s;
  } catch (const wc::Error& error) {
    if (error.code() == WC_TIMED_OUT || error.code() == WC_NOT_FOUND) return;
    failed(error.what());
  }
}

void Publisher::finish(Duration limit) {
  if (!client_ || state_.version == kNoVersion || is_failing_) return;
  try {
    const auto limit_ms = std::chrono::duration_cast<wc::Milliseconds>(limit);
    if (!client_->wait(state_.version.value, {}, limit_ms).reached) failed("the origin has not taken it over yet");
  } catch (const wc::Error& error) {
    failed(error.what());
  }
}

}  // namespace weightcast
