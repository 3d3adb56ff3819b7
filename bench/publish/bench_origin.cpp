#include "bench/publish/bench_origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <utility>

#include "bench/fleet/interrupt.h"
#include "bench/times.h"
#include "transport/node/payload/make_patch.h"
#include "transport/node/takeover/takeover.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience(120);

std::uint32_t chunk_bytes(std::uint64_t) { return 256 * kKiB; }

}  // namespace

Result<std::unique_ptr<BenchStore>> BenchStore::open(const std::filesystem::path& directory, unsigned threads) {
  auto node = std::make_unique<BenchStore>(threads);
  StoreOptions options;
  options.directory = directory;
  options.versions_kept = 1;
  WC_ASSIGN(node->store_, Store::open(node->loop_, node->files_, options));
  return node;
}

BenchStore::~BenchStore() {
  jobs_.stop();
  store_.reset();
}

Status BenchStore::wait(const std::function<bool()>& holds) {
  const auto limit = Clock::now() + kPatience;
  while (!holds()) {
    WC_TRY(check_interrupt());
    if (Clock::now() > limit) return fail(Errc::kTimedOut, Op::kPublish, "the node does not get on");
    loop_.run_until(loop_.now() + std::chrono::milliseconds(1));
  }
  return {};
}
Result<MadePayload> BenchStore::await(const std::function<void(PayloadObserver)>& begin) {
  std::optional<Result<MadePayload>> done;
  PayloadObserver observer;
  observer.begun = [](const std::shared_ptr<const Manifest>&, double) {};
  observer.grown = [](const MadePayload&) {};
  observer.done = [&](Result<MadePayload> made) { done = std::move(made); };
  begin(std::move(observer));
  WC_TRY(wait([&] { return done.has_value(); }));
  return *std::move(done);
}

Result<std::unique_ptr<BenchOrigin>> BenchOrigin::open(const std::filesystem::path& directory, unsigned threads) {
  WC_ASSIGN(std::unique_ptr<BenchStore> node, BenchStore::open(directory, threads));
  return std::unique_ptr<BenchOrigin>(new BenchOrigin(std::move(node)));
}

Result<std::shared_ptr<const PublishedSnapshot>> BenchOrigin::open_whole(const BenchTrainer& trainer,
                                                                         Version base) const {
  SnapshotOrder order{.region = trainer.whole().file(), .region_bytes = trainer.whole().bytes().size()};
  if (const StoredVersion* before = node_->store().find(base); before != nullptr) {
    order.before = base;
    order.before_path = before->path;
    order.before_files = before->manifest.files;
  }
  WC_ASSIGN(PublishedSnapshot snapshot, PublishedSnapshot::open(node_->files(), order));
  return std::make_shared<const PublishedSnapshot>(std::move(snapshot));
}

Result<PublicationCost> BenchOrigin::publish(const BenchTrainer& trainer, PublishBy way, bool makes_patch,
                                             std::uint64_t& patch_bytes) {
  Store& store = node_->store();
  const Version base = version_;
  version_ = Version{base.value + 1};
  PublicationCost cost;
  const double cpu_before = process_cpu_s();
  const auto start = Clock::now();
  cost.in_place = way != PublishBy::kTakingOver && store.spare() != kNoVersion;
  std::shared_ptr<const PublishedSnapshot> snapshot;
  if (way != PublishBy::kListing) {
    WC_ASSIGN(snapshot, open_whole(trainer, base));
  }
  WC_ASSIGN(const MadePayload published, node_->await([&](PayloadObserver observer) {
    const bool lists = way == PublishBy::kListing;
    if (lists || (way == PublishBy::kComparing && is_worth_comparing(*snapshot))) {
      ChangesRequest request;
      request.version = version_;
      request.base = base;
      request.changes = lists ? listed_changes(trainer.changes().file(), trainer.changes_bytes(), true)
                              : compared_snapshot(snapshot, true);
      request.choose_chunk_bytes = chunk_bytes;
      apply_changes(node_->jobs(), node_->files(), store, std::move(request), std::move(observer));
    } else {
      TakeoverRequest request;
      request.version = version_;
      request.snapshot = snapshot;
      request.choose_chunk_bytes = chunk_bytes;
      take_over(node_->jobs(), store, std::move(request), std::move(observer));
    }
  }));
  cost.copied_s = seconds_since(start);
  if (published.manifest->kind == PayloadKind::kPatch) {
    patch_bytes = published.manifest->payload_bytes;
  } else if (makes_patch) {
    const PayloadId patch = patch_of(version_, base);
    WC_ASSIGN(const MadePayload made, node_->await([&](PayloadObserver observer) {
      make_patch(node_->jobs(), node_->files(), store, {patch, "", chunk_bytes}, std::move(observer));
    }));
    patch_bytes = made.manifest->payload_bytes;
  }
  cost.encoded_s = seconds_since(start);
  cost.cpu_s = process_cpu_s() - cpu_before;
  WC_TRY(node_->wait([&] { return store.find(version_)->durable; }));
  // The version before goes, and its files are the next one's.
  store.retain({version_});
  // Not before the disk knows that they are: a step that comes sooner is written to new files, which is another
  // measurement. A busy disk takes seconds.
  WC_TRY(node_->wait([&] { return store.versions().size() == 1 && (base == kNoVersion || store.spare() == base); }));
  return cost;
}

Result<MadePayload> BenchOrigin::pack() {
  node_->store().retain({version_, packed_of(version_)});
  return node_->await([&](PayloadObserver observer) {
    make_patch(node_->jobs(), node_->files(), node_->store(), {packed_of(version_), "", chunk_bytes},
               std::move(observer));
  });
}

Status BenchOrigin::check(const BenchTrainer& trainer) {
  return trainer.check_copy(node_->files(), node_->store().find(version_)->path / "model.safetensors");
}

}  // namespace weightcast::bench
