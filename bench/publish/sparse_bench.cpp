#include "bench/publish/sparse_bench.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <optional>
#include <random>
#include <vector>

#include "base/posix_file_system.h"
#include "bench/fleet/scratch.h"
#include "bench/times.h"
#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"
#include "transport/io/uv_loop.h"
#include "transport/node/apply_changes.h"
#include "transport/node/takeover.h"

namespace weightcast::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Cost = SparseBenchResult::Cost;

constexpr std::chrono::seconds kPatience(120);
constexpr std::uint32_t kChunkBytes = 256 * kKiB;

/// Memory that a trainer hands over: filled by it, read by the origin.
class Memory {
 public:
  static Result<Memory> make(std::uint64_t bytes) {
    const int fd = ::memfd_create("weightcast-bench", MFD_CLOEXEC);
    if (fd < 0) return fail_errno(errno, Op::kOpen, "shared memory");
    FileRef file(adopt_file(fd, "shared memory"));
    WC_TRY(file->truncate(bytes));
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) return fail_errno(errno, Op::kOpen, "shared memory");
    return Memory(std::move(file), {static_cast<std::byte*>(mapped), bytes});
  }
  Memory(Memory&& other) noexcept : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}
  Memory& operator=(Memory&&) = delete;
  ~Memory() {
    if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
  }
  [[nodiscard]] const FileRef& file() const { return file_; }
  [[nodiscard]] MutableBytes bytes() const { return bytes_; }

 private:
  Memory(FileRef file, MutableBytes bytes) : file_(std::move(file)), bytes_(bytes) {}
  FileRef file_;
  MutableBytes bytes_;
};

/// BF16 tensors in a region, and their changes in another.
class Trainer {
 public:
  static Result<Trainer> make(const SparseBenchOptions& options) {
    const std::uint64_t cells = options.tensor_bytes / 2 / options.tensors;
    std::vector<TensorInfo> infos;
    for (std::size_t i = 0; i < options.tensors; ++i) {
      infos.push_back({fmt::format("layers.{}.weight", i), "BF16", {cells}, 0, 2 * cells});
    }
    WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(infos));
    WC_ASSIGN(Memory whole, Memory::make(layout.file_bytes));
    std::memcpy(whole.bytes().data(), layout.header.data(), layout.header.size());
    // Room for all changes, and for a header of half a kilobyte for each tensor.
    const double room = 6 * 1.1 * options.changed_share * double(options.tensor_bytes / 2) + 65536;
    WC_ASSIGN(Memory changes, Memory::make(std::uint64_t(room) + 512 * options.tensors));
    std::memset(changes.bytes().data(), 0, changes.bytes().size());
    Trainer trainer(std::move(whole), std::move(changes), std::move(infos), layout.offsets_bytes,
                    options.changed_share);
    trainer.fill();
    return trainer;
  }

  /// Changes about the wanted share of the cells by one step up or down, and writes the list of it.
  Status step() {
    std::vector<TensorInfo> infos;
    std::vector<std::vector<std::uint32_t>> indices(infos_.size());
    std::vector<std::vector<std::uint16_t>> values(infos_.size());
    std::geometric_distribution<std::uint64_t> gap(share_);
    for (std::size_t t = 0; t < infos_.size(); ++t) {
      auto* const cells = reinterpret_cast<std::uint16_t*>(whole_.bytes().data() + offsets_[t]);
      for (std::uint64_t i = gap(random_); i < infos_[t].shape[0]; i += 1 + gap(random_)) {
        cells[i] = std::uint16_t(cells[i] + (random_() % 2 == 0 ? 1 : -1));
        indices[t].push_back(std::uint32_t(i));
        values[t].push_back(cells[i]);
      }
      const std::uint64_t count = indices[t].size();
      infos.push_back({std::string(kIndicesPrefix) + infos_[t].name, "U32", {count}, 0, 4 * count});
      infos.push_back({std::string(kValuesPrefix) + infos_[t].name, "BF16", {count}, 0, 2 * count});
    }
    WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(infos));
    changes_bytes_ = layout.file_bytes;
    if (changes_bytes_ > changes_.bytes().size()) return fail(Errc::kTooLarge, Op::kEncode, "more changes than usual");
    std::byte* const at = changes_.bytes().data();
    std::memcpy(at, layout.header.data(), layout.header.size());
    for (std::size_t t = 0; t < infos_.size(); ++t) {
      std::memcpy(at + layout.offsets_bytes[2 * t], indices[t].data(), 4 * indices[t].size());
      std::memcpy(at + layout.offsets_bytes[2 * t + 1], values[t].data(), 2 * values[t].size());
    }
    return {};
  }

  [[nodiscard]] const Memory& whole() const { return whole_; }
  [[nodiscard]] const Memory& changes() const { return changes_; }
  [[nodiscard]] std::uint64_t changes_bytes() const { return changes_bytes_; }

 private:
  Trainer(Memory whole, Memory changes, std::vector<TensorInfo> infos, std::vector<std::uint64_t> offsets, double share)
      : whole_(std::move(whole)),
        changes_(std::move(changes)),
        infos_(std::move(infos)),
        offsets_(std::move(offsets)),
        share_(share) {}

  // Weights with a standard deviation of 0.02, of which few thousand differ.
  void fill() {
    std::vector<std::uint16_t> some(1 << 16);
    std::normal_distribution<float> normal(0, 0.02f);
    for (std::uint16_t& cell : some) {
      const float value = normal(random_);
      std::uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      cell = std::uint16_t(bits >> 16);
    }
    std::uint64_t state = 1;
    for (std::size_t t = 0; t < infos_.size(); ++t) {
      auto* const cells = reinterpret_cast<std::uint16_t*>(whole_.bytes().data() + offsets_[t]);
      for (std::uint64_t i = 0; i < infos_[t].shape[0]; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        cells[i] = some[state >> 48];
      }
    }
  }

  Memory whole_, changes_;
  const std::vector<TensorInfo> infos_;
  const std::vector<std::uint64_t> offsets_;
  const double share_;
  std::uint64_t changes_bytes_ = 0;
  std::mt19937_64 random_{1};
};

/// The parts of an origin that a publication takes.
class Origin {
 public:
  static Result<std::unique_ptr<Origin>> open(const std::filesystem::path& directory) {
    auto origin = std::make_unique<Origin>();
    StoreOptions options;
    options.directory = directory;
    options.versions_kept = 1;
    WC_ASSIGN(origin->store_, Store::open(origin->loop_, origin->files_, options));
    return origin;
  }
  ~Origin() {
    jobs_.stop();
    store_.reset();
  }

  /// Publishes the trainer's weights as the next version, makes the patch to it, and waits until it is durable.
  Result<Cost> publish(const Trainer& trainer, bool sparse, bool makes_patch, std::uint64_t& patch_bytes) {
    const Version base = version_;
    version_ = Version{base.value + 1};
    Cost cost;
    const double cpu_before = process_cpu_s();
    const auto start = Clock::now();
    ByProducts by_products;
    WC_TRY(await([&](PayloadObserver observer) {
      const auto choose = [](std::uint64_t) { return kChunkBytes; };
      if (sparse) {
        ChangesRequest request;
        request.version = version_;
        request.base = base;
        request.changes = trainer.changes().file();
        request.changes_bytes = trainer.changes_bytes();
        request.earlier = applied_;
        request.choose_chunk_bytes = choose;
        apply_changes(jobs_, files_, *store_, std::move(request), std::move(observer),
                      [&](ByProducts made) { by_products = std::move(made); });
      } else {
        TakeoverRequest request;
        request.version = version_;
        request.region = trainer.whole().file();
        request.region_bytes = trainer.whole().bytes().size();
        request.choose_chunk_bytes = choose;
        take_over(jobs_, files_, *store_, std::move(request), std::move(observer));
      }
    }));
    cost.copied_s = seconds_since(start);
    if (makes_patch) {
      const PayloadId patch = patch_of(version_, base);
      WC_ASSIGN(const MadePayload made, await([&](PayloadObserver observer) {
                  make_patch(jobs_, files_, *store_,
                             {patch, "", [](std::uint64_t) { return kChunkBytes; }, std::move(by_products.encoded)},
                             std::move(observer));
                }));
      patch_bytes = made.manifest->payload_bytes;
    }
    cost.encoded_s = seconds_since(start);
    cost.cpu_s = process_cpu_s() - cpu_before;
    cost.in_place = by_products.was_in_place;
    WC_TRY(wait([&] { return store_->find(version_)->durable; }));
    applied_.clear();
    if (by_products.applied) applied_.push_back(std::move(*by_products.applied));
    // The version before goes, and its files are the next one's.
    store_->retain({version_});
    // Not before the disk knows that they are: a step that comes sooner is written to new files, which is another
    // measurement. A busy disk takes seconds.
    WC_TRY(wait([&] { return store_->versions().size() == 1 && (base == kNoVersion || store_->spare() == base); }));
    return cost;
  }

  /// Whether the latest version is what the trainer has.
  Status check(const Trainer& trainer) {
    WC_ASSIGN(const auto file, files_.open(store_->find(version_)->path / "model.safetensors", {}));
    std::vector<std::byte> piece(kMiB);
    const Bytes all = trainer.whole().bytes();
    for (std::uint64_t at = 0; at < all.size(); at += piece.size()) {
      const auto part = MutableBytes(piece).first(std::min<std::uint64_t>(piece.size(), all.size() - at));
      WC_TRY(read_fully(*file, at, part, "the copy"));
      if (std::memcmp(part.data(), all.data() + at, part.size()) != 0) {
        return fail(Errc::kCorrupt, Op::kRead, fmt::format("version {}: it is not what was published", version_.value));
      }
    }
    return {};
  }

 private:
  Status wait(const std::function<bool()>& holds) {
    const auto limit = Clock::now() + kPatience;
    while (!holds()) {
      if (Clock::now() > limit) return fail(Errc::kTimedOut, Op::kPublish, "the origin does not get on");
      loop_.run_until(loop_.now() + std::chrono::milliseconds(1));
    }
    return {};
  }
  template <typename Begin>
  Result<MadePayload> await(const Begin& begin) {
    std::optional<Result<MadePayload>> done;
    PayloadObserver observer;
    observer.begun = [](const std::shared_ptr<const Manifest>&, double) {};
    observer.grown = [](const MadePayload&) {};
    observer.done = [&](Result<MadePayload> made) { done = std::move(made); };
    begin(std::move(observer));
    WC_TRY(wait([&] { return done.has_value(); }));
    return *std::move(done);
  }

  PosixFileSystem files_;
  UvLoop loop_;
  Jobs jobs_{loop_};
  std::unique_ptr<Store> store_;
  Version version_{};
  std::vector<AppliedChanges> applied_;
};

Cost medians(const std::vector<Cost>& costs) {
  return {median(costs, &Cost::copied_s), median(costs, &Cost::encoded_s), median(costs, &Cost::cpu_s), false};
}

double copy_seconds(Bytes from) {
  std::vector<std::byte> to(from.begin(), from.end());
  const auto start = Clock::now();
  std::memcpy(to.data(), from.data(), from.size());
  return seconds_since(start);
}

}  // namespace

Result<SparseBenchResult> run_sparse_bench(const SparseBenchOptions& options) {
  if (options.tensor_bytes / 2 < options.tensors) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} bytes are too few for {} BF16 tensors", options.tensor_bytes, options.tensors));
  }
  WC_ASSIGN(const Scratch scratch, Scratch::make(options.scratch));
  WC_ASSIGN(Trainer trainer, Trainer::make(options));
  // Each is given every step.
  WC_ASSIGN(const std::unique_ptr<Origin> by_whole, Origin::open(scratch.path() / "whole"));
  WC_ASSIGN(const std::unique_ptr<Origin> by_changes, Origin::open(scratch.path() / "changes"));
  SparseBenchResult result;
  result.tensor_bytes = options.tensor_bytes;
  result.memory_floor_s = copy_seconds(trainer.whole().bytes());
  // The first steps make the files that all others reuse.
  constexpr std::uint32_t kFirst = 3;
  std::vector<Cost> whole, sparse;
  for (std::uint32_t i = 0; i < kFirst + options.repetitions; ++i) {
    if (i > 0) WC_TRY(trainer.step());
    for (const bool is_sparse : {i % 2 == 0, i % 2 == 1}) {
      Origin& origin = is_sparse ? *by_changes : *by_whole;
      WC_ASSIGN(const Cost cost, origin.publish(trainer, is_sparse && i > 0, i > 0, result.patch_bytes));
      WC_TRY(origin.check(trainer));
      if (i >= kFirst) (is_sparse ? sparse : whole).push_back(cost);
    }
  }
  result.changes_bytes = trainer.changes_bytes();
  for (const Cost& cost : sparse) result.in_place += cost.in_place ? 1 : 0;
  result.whole = medians(whole);
  result.sparse = medians(sparse);
  return result;
}

nlohmann::json to_json(const SparseBenchResult& result) {
  const auto costs = [](const Cost& of) {
    return nlohmann::json{{"copied_s", of.copied_s}, {"encoded_s", of.encoded_s}, {"cpu_s", of.cpu_s}};
  };
  return {{"tensor_bytes", result.tensor_bytes},     {"changes_bytes", result.changes_bytes},
          {"patch_bytes", result.patch_bytes},       {"whole", costs(result.whole)},
          {"sparse", costs(result.sparse)},          {"in_place", result.in_place},
          {"memory_floor_s", result.memory_floor_s}, {"ratio", result.ratio()}};
}

}  // namespace weightcast::bench
