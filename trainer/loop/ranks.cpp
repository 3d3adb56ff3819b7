#include "trainer/loop/ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/exception_error.h"
#include "base/text.h"
#include "trainer/update/batch_bytes.h"
#include "trainer/update/policy.h"
#include "trainer/update/updates.h"

namespace weightcast {
namespace {

/// Keys in which ranks may differ: where they are, and what rank 0 alone does.
constexpr auto kOwnKeys =
    std::to_array<std::string_view>({"preset", "device", "rank", "rendezvous", "output_dir", "threads", "model",
                                     "task_data", "publish_state", "rollout_source", "rollout_files", "rollout_listen",
                                     "rollout_keys", "rollout_insecure", "log-format", "http", "http-token"});

std::string shared_lines(LearnerConfig config) {
  std::string shared;
  for (const SettingField& field : config_fields(config)) {
    if (std::ranges::find(kOwnKeys, field.name()) != kOwnKeys.end()) continue;
    shared += fmt::format("{} = {}\n", field.name(), field.value());
  }
  // Each rank has a GPU of its own, but all have one or none has.
  shared.append(uses_cuda(config) ? "device = \"cuda\"\n" : "device = \"cpu\"\n");
  return shared;
}

/// "" if they are the same; else the first line of `mine` that differs.
std::string first_difference(std::string_view mine, std::string_view theirs) {
  while (!mine.empty() || !theirs.empty()) {
    const std::string_view one = mine.substr(0, mine.find('\n')), other = theirs.substr(0, theirs.find('\n'));
    if (one != other) return fmt::format("'{}', and rank 0 '{}'", printable(one), printable(other));
    mine.remove_prefix(std::min(mine.size(), one.size() + 1));
    theirs.remove_prefix(std::min(theirs.size(), other.size() + 1));
  }
  return "";
}

class Follower final : public Learner {
 public:
  Follower(const LearnerConfig& config, std::unique_ptr<ProcessGroup> group)
      : config_(config), group_(std::move(group)) {}

  Status build(FileSystem& files) {
    WC_ASSIGN(InitialModel model, make_initial_model(files, config_));
    WC_ASSIGN(policy_, Policy::make(std::move(model.decoder), config_, group_.get()));
    return {};
  }

  /// Rank 0 says when to stop.
  Status run(const std::atomic<bool>&) override {
    Status status;
    try {
      status = serve();
    } catch (const std::exception& exception) {
      status = exception_error(exception, fmt::format("rank {}: a library says", group_->rank()),
                               "memory is short: lower micro_batch_tokens");
    }
    if (!status.has_value()) group_->leave(status.error().message());
    return status;
  }

 private:
  Status serve() {
    for (;;) {
      WC_ASSIGN(const std::string text, group_->next_command());
      const auto json = nlohmann::json::parse(text, nullptr, false);
      if (!json.is_object()) return fail(Errc::kCorrupt, Op::kReceive, "a command of rank 0: no JSON object");
      const auto command = static_cast<Command>(json.value("command", -1));
      const std::uint64_t number = json.value("number", std::uint64_t{0});
      TrainingBatch batch;
      if (json.contains("batch_bytes")) {
        std::string bytes(json.value("batch_bytes", std::size_t{0}), '\0');
        WC_TRY(group_->broadcast(std::as_writable_bytes(std::span(bytes)), 0));
        WC_ASSIGN(batch, unpack_batch(bytes));
      }
      if (command == Command::kStop) {
        // So that rank 0 knows. Then it may be gone sooner than this is over.
        (void)gather_texts(*group_, "");
        return {};
      }
      WC_TRY(perform(command, number, batch, json.value("config", std::string())));
    }
  }

  Status perform(Command command, std::uint64_t number, const TrainingBatch& batch, const std::string& config) {
    switch (command) {
      case Command::kBegin: {
        const std::string difference = first_difference(shared_lines(config_), config);
        if (difference.empty()) return policy_->share();
        return fail(Errc::kInvalidArgument, Op::kConfigure,
                    fmt::format("rank {} has {}; all ranks need the same configuration", group_->rank(), difference));
      }
      case Command::kWarmUp: {
        WC_ASSIGN(const Metrics metrics, warm_up_update(*policy_, batch.samples, config_, number));
        return {};
      }
      case Command::kReset: return policy_->reset_optimiser();
      case Command::kReference: {
        WC_ASSIGN(reference_, twin_of(policy_->decoder()));
        return set_weights(*reference_, copy_weights(policy_->decoder()));
      }
      case Command::kLoad: return policy_->receive();
      case Command::kLoadReference: {
        WC_ASSIGN(reference_, twin_of(policy_->decoder()));
        return share_weights(*group_, *reference_);
      }
      case Command::kStep: {
        const Decoder* reference = reference_ ? &*reference_ : nullptr;
        WC_ASSIGN(const Metrics metrics, train_step(*policy_, reference, batch, config_, number));
        return {};
      }
      case Command::kSave: {
        Checkpoint nothing;
        return policy_->save(nothing);
      }
      case Command::kStop: break;
    }
    return fail(Errc::kUnsupported, Op::kReceive, "rank 0 tells what this build does not know; use one build for all");
  }

  const LearnerConfig config_;
  const std::unique_ptr<ProcessGroup> group_;
  std::optional<Policy> policy_;
  std::optional<Decoder> reference_;
};

}  // namespace

Status tell(ProcessGroup* group, Command command, std::uint64_t number, const TrainingBatch* batch) {
  if (group == nullptr) return {};
  nlohmann::json json{{"command", static_cast<int>(command)}, {"number", number}};
  if (batch == nullptr) return group->send_command(json.dump());
  std::string bytes = pack_batch(*batch);
  json["batch_bytes"] = bytes.size();
  WC_TRY(group->send_command(json.dump()));
  return group->broadcast(std::as_writable_bytes(std::span(bytes)), 0);
}

Status tell_stop(ProcessGroup& group) {
  WC_TRY(tell(&group, Command::kStop));
  WC_ASSIGN(const std::vector<std::string> heard, gather_texts(group, ""));
  return {};
}

Status tell_begin(ProcessGroup* group, const LearnerConfig& config) {
  if (group == nullptr) return {};
  return group->send_command(
      nlohmann::json{{"command", static_cast<int>(Command::kBegin)}, {"config", shared_lines(config)}}.dump());
}

Result<std::unique_ptr<ProcessGroup>> join_ranks(const LearnerConfig& config) {
  if (config.world_size == 1) return std::unique_ptr<ProcessGroup>();
  ProcessGroupOptions options;
  options.rank = static_cast<std::uint32_t>(config.rank);
  options.world_size = static_cast<std::uint32_t>(config.world_size);
  options.rendezvous = config.rendezvous;
  options.use_nccl = uses_cuda(config);
  return join_process_group(options);
}

Result<std::unique_ptr<Learner>> make_follower(FileSystem& files, const LearnerConfig& config) {
  WC_ASSIGN(std::unique_ptr<ProcessGroup> group, join_ranks(config));
  ProcessGroup& joined = *group;
  auto follower = std::make_unique<Follower>(config, std::move(group));
  if (Status built = follower->build(files); !built.has_value()) {
    joined.leave(built.error().message());
    return std::move(built).error();
  }
  return std::unique_ptr<Learner>(std::move(follower));
}

}  // namespace weightcast
