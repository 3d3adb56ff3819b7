// The trainer of a world: what it publishes, and whether everybody has it in the end.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "base/files/memory_file.h"
#include "sim/whole/world_run.h"

namespace weightcast::sim {
namespace {

constexpr Duration kRetry = std::chrono::milliseconds(500);
// After the faults: until somebody could publish, and from then on until everybody has it. What a worker is busy with
// when it is told of the last version may take the first half.
constexpr Duration kPublishLimit = std::chrono::seconds(90);
constexpr Duration kCatchUpLimit = std::chrono::seconds(180);

std::string state_of(Host& host) {
  if (!host.runs()) return "it does not run";
  const local::NodeStatus self = host.node->status().nodes.front();
  return fmt::format("{}, has {} of {} chunks of version {} from {}, last error: {}", self.state, self.chunks_verified,
                     self.chunks_total, self.receiving_version, self.parent, self.last_error);
}

/// Puts the files where the trainer keeps its latest; what to publish.
std::filesystem::path write_source(FileSystem& disk, const SnapshotFiles& files) {
  const std::filesystem::path directory = "/trainer";
  static_cast<void>(make_directories(disk, directory));
  for (const std::string& old : disk.list(directory).value_or(std::vector<std::string>{})) {
    static_cast<void>(disk.remove(directory / old));
  }
  for (const auto& [name, content] : files) {
    const auto made = disk.open(directory / name, {.write = true, .create = Create::kEmpty});
    WC_CHECK(made.has_value());
    WC_CHECK(write_fully(**made, 0, std::as_bytes(std::span(content)), name).has_value());
  }
  return files.size() == 1 ? directory / files.begin()->first : directory;
}

}  // namespace

void WorldRun::publish() {
  Host& origin = *hosts_[0];
  if (publishing_ || over()) return;
  if (!origin.runs() || origin.stopping) return;
  const bool again = free_number_.has_value();
  const Version version = again ? *free_number_ : Version{last_number_.value + 1};
  last_number_ = version;
  free_number_.reset();
  refused_.erase({run_, version});
  if (options_.reshaped_share > 0 && random_.chance(options_.reshaped_share)) {
    weights_.resize(options_.snapshot_bytes / 2 + random_.below(options_.snapshot_bytes));
  } else {
    weights_.step(options_.changed_share);
  }
  const SnapshotFiles snapshot = weights_.files();
  published_[version][run_] = digests_of(snapshot);
  const bool sparse = is_sparse();
  PublishOrder order;
  if (sparse) {
    const std::string changes = weights_.changes_since(published_cells_);
    order.changes = true;
    order.changes_bytes = changes.size();
    order.base = last_published_;
    const auto region = std::make_shared<MemoryFile>(changes.size());
    std::ranges::copy(std::as_bytes(std::span(changes)), region->bytes().begin());
    order.region = region;
  } else {
    order.path = origin.disk->observe([&](FileSystem& disk) { return write_source(disk, snapshot); });
  }
  order.version = version;
  order.new_model = true;  // of any shape
  publishing_ = true;
  say(origin, fmt::format("is asked to publish version {}{}", version.value, sparse ? " as changes" : ""));
  origin.node->publish(std::move(order), [this, version, again, sparse, run = run_, cells = weights_.cells(), &origin,
                                          process = origin.process](const Result<TakenOver>& taken) {
    if (process != origin.process) return violate(origin, "a publication called back after its process had ended");
    publishing_ = false;
    if (taken.has_value()) {
      ++result_.counts.published;
      result_.counts.sparse += sparse ? 1 : 0;
      last_published_ = version;
      published_cells_ = cells;
      whole_next_ = false;
      say(origin, fmt::format("has published version {}", version.value));
    } else {
      ++result_.counts.refused;
      refused_.insert({run, version});
      whole_next_ = true;
      if (options_.reuses_numbers && !again) free_number_ = version;
      say(origin, fmt::format("refused version {}: {}", version.value, taken.error().message()));
    }
  });
}

// The origin may have lost the version that the trainer knows as the last one: then it refuses, and gets all weights.
bool WorldRun::is_sparse() {
  return options_.sparse_share > 0 && !whole_next_ && published_cells_.size() == weights_.cells().size() &&
         random_.chance(options_.sparse_share);
}

void WorldRun::publish_last(unsigned tries) {
  if (over()) return;
  const Version before = last_published_;
  std::function<void()> again = [&] {
    if (last_published_ != before || over()) return;
    publish();
    clock_.at(clock_.now() + kRetry, again);
  };
  // What was under way when the faults ended may end first.
  clock_.at(clock_.now() + kRetry, again);
  if (!run_until(clock_.now() + kPublishLimit, [&] { return last_published_ != before; })) {
    if (!over()) violate(*hosts_[0], "nothing can be published after the faults have ended");
    return;
  }
  const Version last = last_published_;
  const auto everybody = [&] {
    return std::ranges::all_of(hosts_, [&](const auto& host) {
      return host->config.standby ||
             (host->runs() && hosts_[0]->runs() && host->node->store().run().id == hosts_[0]->node->store().run().id &&
              host->node->store().current() == last);
    });
  };
  // A bit that rotted before may have gone on to this version: the origin withdraws it, and the trainer publishes
  // again.
  const auto withdrawn = [&] {
    return hosts_[0]->rotten_somewhere && hosts_[0]->runs() && hosts_[0]->node->store().current() < last;
  };
  const bool reached = run_until(clock_.now() + kCatchUpLimit, [&] { return everybody() || withdrawn(); });
  again = nullptr;
  if (reached && withdrawn() && tries > 0) return publish_last(tries - 1);
  if (reached || over()) return;
  for (const auto& host : hosts_) {
    if (host->config.standby) continue;
    const Version has = host->runs() ? host->node->store().current() : kNoVersion;
    if (has == last) continue;
    violate(*host, fmt::format("has version {} and not {}, long after the faults have ended: {}", has.value, last.value,
                               state_of(*host)));
    return;
  }
}

}  // namespace weightcast::sim
