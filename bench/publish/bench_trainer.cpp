#include "bench/publish/bench_trainer.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/files/posix_file_system.h"
#include "patch/changes/change_names.h"

namespace weightcast::bench {

Result<BenchMemory> BenchMemory::make(std::uint64_t bytes) {
  const int fd = ::memfd_create("weightcast-bench", MFD_CLOEXEC);
  if (fd < 0) return fail_errno(errno, Op::kOpen, "shared memory");
  FileRef file(adopt_file(fd, "shared memory"));
  WC_TRY(file->truncate(bytes));
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return fail_errno(errno, Op::kOpen, "shared memory");
  return BenchMemory(std::move(file), {static_cast<std::byte*>(mapped), bytes});
}

BenchMemory::BenchMemory(BenchMemory&& other) noexcept
    : file_(std::move(other.file_)), bytes_(std::exchange(other.bytes_, {})) {}

BenchMemory::~BenchMemory() {
  if (!bytes_.empty()) ::munmap(bytes_.data(), bytes_.size());
}

Result<BenchTrainer> BenchTrainer::make(std::uint64_t tensor_bytes, std::size_t tensors, double changed_share) {
  if (tensor_bytes / 2 < tensors) {
    return fail(Errc::kInvalidArgument, Op::kConfigure,
                fmt::format("{} bytes are too few for {} BF16 tensors", tensor_bytes, tensors));
  }
  const std::uint64_t cells = tensor_bytes / 2 / tensors;
  std::vector<TensorInfo> infos;
  for (std::size_t i = 0; i < tensors; ++i) {
    infos.push_back({fmt::format("layers.{}.weight", i), "BF16", {cells}, 0, 2 * cells});
  }
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(infos));
  WC_ASSIGN(BenchMemory whole, BenchMemory::make(layout.file_bytes));
  std::memcpy(whole.bytes().data(), layout.header.data(), layout.header.size());
  // Room for all changes, and for a header of half a kilobyte for each tensor.
  const double room = 6 * 1.1 * changed_share * double(tensor_bytes / 2) + 65536;
  WC_ASSIGN(BenchMemory changes, BenchMemory::make(std::uint64_t(room) + 512 * tensors));
  BenchTrainer trainer(std::move(whole), std::move(changes), std::move(infos), layout.offsets_bytes, changed_share);
  trainer.fill();
  return trainer;
}

void BenchTrainer::choose() {
  changed_.assign(infos_.size(), {});
  std::geometric_distribution<std::uint64_t> gap(share_);
  for (std::size_t t = 0; t < infos_.size(); ++t) {
    const std::uint16_t* const cells = cells_of(t);
    for (std::uint64_t i = gap(random_); i < infos_[t].shape[0]; i += 1 + gap(random_)) {
      changed_[t].indices.push_back(std::uint32_t(i));
      changed_[t].values.push_back(std::uint16_t(cells[i] + (random_() % 2 == 0 ? 1 : -1)));
    }
  }
}

void BenchTrainer::apply() {
  // So many lines are on their way at once; more makes it no faster.
  constexpr std::size_t kAhead = 32;
  for (std::size_t t = 0; t < infos_.size(); ++t) {
    const Changed& changed = changed_[t];
    std::uint16_t* const cells = cells_of(t);
    const std::size_t count = changed.indices.size();
    for (std::size_t i = 0; i < count; ++i) {
      __builtin_prefetch(cells + changed.indices[std::min(i + kAhead, count - 1)], 1);
      cells[changed.indices[i]] = changed.values[i];
    }
  }
}

Status BenchTrainer::step() {
  choose();
  apply();
  std::vector<TensorInfo> infos;
  for (std::size_t t = 0; t < infos_.size(); ++t) {
    const std::uint64_t count = changed_[t].indices.size();
    infos.push_back({std::string(kIndicesPrefix) + infos_[t].name, "U32", {count}, 0, 4 * count});
    infos.push_back({std::string(kValuesPrefix) + infos_[t].name, "BF16", {count}, 0, 2 * count});
  }
  WC_ASSIGN(const SafetensorsLayout layout, lay_out_safetensors(infos));
  changes_bytes_ = layout.file_bytes;
  if (changes_bytes_ > changes_.bytes().size()) return fail(Errc::kTooLarge, Op::kEncode, "more changes than usual");
  std::byte* const at = changes_.bytes().data();
  std::memcpy(at, layout.header.data(), layout.header.size());
  for (std::size_t t = 0; t < infos_.size(); ++t) {
    const Changed& changed = changed_[t];
    std::memcpy(at + layout.offsets_bytes[2 * t], changed.indices.data(), 4 * changed.indices.size());
    std::memcpy(at + layout.offsets_bytes[2 * t + 1], changed.values.data(), 2 * changed.values.size());
  }
  return {};
}

Status BenchTrainer::check_copy(FileSystem& files, const std::filesystem::path& path) const {
  WC_ASSIGN(const auto file, files.open(path, {}));
  WC_ASSIGN(const FileInfo info, file->info());
  // Headers may differ: whoever published it has written that.
  const Bytes all = Bytes(whole_.bytes()).subspan(*std::ranges::min_element(offsets_));
  if (info.size_bytes < all.size()) return fail(Errc::kCorrupt, Op::kRead, path.native() + ": it is too short");
  std::vector<std::byte> piece(kMiB);
  for (std::uint64_t at = 0; at < all.size(); at += piece.size()) {
    const auto part = MutableBytes(piece).first(std::min<std::uint64_t>(piece.size(), all.size() - at));
    WC_TRY(read_fully(*file, info.size_bytes - all.size() + at, part, path.native()));
    const auto differs = std::ranges::mismatch(part, all.subspan(at, part.size())).in1;
    if (differs == part.end()) continue;
    return fail(Errc::kCorrupt, Op::kRead,
                fmt::format("{}: it is not what was published, from byte {} of its tensors on", path.native(),
                            at + std::uint64_t(differs - part.begin())));
  }
  return {};
}

// Few thousand of them differ.
void BenchTrainer::fill() {
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
    std::uint16_t* const cells = cells_of(t);
    for (std::uint64_t i = 0; i < infos_[t].shape[0]; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      cells[i] = some[state >> 48];
    }
  }
}

}  // namespace weightcast::bench
