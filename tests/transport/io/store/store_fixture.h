#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "patch/snapshot/snapshot_digest.h"
#include "proto/limits.h"
#include "tests/patch/temp_dir.h"
#include "tests/real_files.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/files/version_record.h"
#include "transport/io/store/store.h"
#include "transport/io/store/store_layout.h"
#include "transport/io/uv_loop.h"

namespace weightcast {

/// A version to be stored, with all of its bytes.
struct Publication {
  Manifest manifest;
  std::vector<ContentDigest> digests;
  std::string stream;

  /// The digests of what `stream` holds, chunk by chunk.
  void digest_chunks() {
    digests.clear();
    for (std::uint32_t i = 0; i < manifest.chunk_count(); ++i) {
      const ChunkIndex index{i};
      digests.push_back(content_digest_of(bytes().subspan(manifest.chunk_offset(index), manifest.chunk_size(index))));
    }
    manifest.part_digests = part_digests_of(digests, manifest.part_chunks);
  }

  /// The digest of the snapshot that `stream` is.
  void digest_snapshot() {
    SnapshotDigest digest(*FileTable::make(manifest.files));
    digest.add(0, bytes());
    manifest.snapshot_digest = digest.root();
  }

  /// Both.
  void digest() {
    digest_chunks();
    digest_snapshot();
  }

  [[nodiscard]] Bytes bytes() const { return std::as_bytes(std::span(stream)); }

  [[nodiscard]] std::vector<ContentDigest> digests_of(std::uint32_t part) const {
    const auto first = digests.begin() + std::ptrdiff_t{part} * manifest.part_chunks;
    return {first, first + manifest.part_size(part)};
  }

  [[nodiscard]] BufferRef chunk(ChunkIndex index) const {
    auto buffer = std::make_shared<Buffer>(manifest.chunk_size(index));
    buffer->set_size(manifest.chunk_size(index));
    stream.copy(reinterpret_cast<char*>(buffer->data()), buffer->size(), manifest.chunk_offset(index));
    return buffer;
  }
};

/// `files` with bytes that differ by version and place.
inline Publication publication(std::uint64_t version, std::vector<SnapshotFile> files,
                               std::uint32_t chunk_bytes = kChunkBytesMin) {
  Publication made;
  Manifest& m = made.manifest;
  m.model_id = "test";
  m.version = Version{version};
  m.chunk_bytes = chunk_bytes;
  m.files = std::move(files);
  m.payload_bytes = m.snapshot_bytes();
  std::uint64_t state = version * 0x9E3779B97F4A7C15u;
  made.stream.reserve(m.payload_bytes);
  while (made.stream.size() < m.payload_bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    made.stream.push_back(static_cast<char>(state >> 56));
  }
  made.digest();
  return made;
}

/// Chunks of 4 KiB straddle the borders; empty files stand at the front, between and at the end.
inline Publication publication(std::uint64_t version) {
  return publication(version,
                     {{"empty-first", 0}, {"a", 10'000}, {"tiny", 1}, {"empty", 0}, {"b", 70'001}, {"empty-last", 0}});
}

/// One directory, one loop, and a store that is opened and closed as the test says.
class OneStore : public testing::Test {
 protected:
  /// `threads`: that the loop gives one piece of work.
  explicit OneStore(unsigned threads = 2) : loop_(threads) {
    options_.directory = directory();
    options_.scrub_share = 0;  // tests damage what nobody is to read
  }
  ~OneStore() override { store_.reset(); }

  [[nodiscard]] std::filesystem::path directory() const { return std::filesystem::path(temp_.path()) / "state"; }
  [[nodiscard]] StoreLayout layout() const {
    return StoreLayout(real_files(), directory(), options_.place.memory_directory);
  }

  void open() {
    store_.reset();
    Result<std::unique_ptr<Store>> opened = Store::open(loop_, real_files(), options_);
    ASSERT_TRUE(opened.has_value()) << opened.error().message();
    store_ = std::move(*opened);
  }

  /// Turns the loop until `value` is there.
  template <typename T>
  T await(const std::optional<T>& value) {
    if (!eventually([&] { return value.has_value(); })) throw std::runtime_error("nothing called back");
    return *value;
  }

  /// What `call` calls back with.
  template <typename T>
  T called(const std::function<void(std::function<void(T)>)>& call) {
    std::optional<T> result;
    call([&](T said) { result = std::move(said); });
    return await(result);
  }

  Result<PartialVersion> begin(const Publication& p) {
    return called<Result<PartialVersion>>([&](auto done) { store_->begin(p.manifest, std::move(done)); });
  }

  void put_digests(const Publication& p) {
    for (std::uint32_t part = 0; part < p.manifest.part_count(); ++part) {
      store_->put_digest_part(p.manifest.id(), part, p.digests_of(part));
    }
  }

  /// Writes chunks [first, end) and waits for all of them; the first error is the result.
  Status write(const Publication& p, std::uint32_t first, std::uint32_t end) {
    std::uint32_t left = end - first;
    Status status;
    std::optional<bool> all;
    for (std::uint32_t i = first; i < end; ++i) {
      store_->write_chunk(p.manifest.id(), ChunkIndex{i}, p.chunk(ChunkIndex{i}), [&](Status s) {
        if (!s.has_value() && status.has_value()) status = s;
        if (--left == 0) all = true;
      });
    }
    if (left > 0) await(all);
    return status;
  }
  Status write(const Publication& p) { return write(p, 0, p.manifest.chunk_count()); }

  /// Puts all digests and writes chunks [first, end).
  Status put(const Publication& p, std::uint32_t first, std::uint32_t end) {
    put_digests(p);
    return write(p, first, end);
  }
  Status put(const Publication& p) { return put(p, 0, p.manifest.chunk_count()); }
  /// Begins it, and puts chunks [first, end) or all.
  Status arrive(const Publication& p, std::uint32_t first, std::uint32_t end) {
    WC_TRY(begin(p));
    return put(p, first, end);
  }
  Status arrive(const Publication& p) { return arrive(p, 0, p.manifest.chunk_count()); }

  Result<BufferRef> read(PayloadId payload, std::uint32_t chunk) {
    return called<Result<BufferRef>>(
        [&](auto done) { store_->read_chunk(payload, ChunkIndex{chunk}, std::move(done)); });
  }

  Result<StoredVersion> finish(const Publication& p) {
    return called<Result<StoredVersion>>([&](auto done) { store_->finish(p.manifest.id(), std::move(done)); });
  }

  Result<StoredVersion> install(const Publication& p) {
    WC_TRY(arrive(p));
    return finish(p);
  }

  Result<ImportTarget> begin_import(const Publication& p) {
    return called<Result<ImportTarget>>(
        [&](auto done) { store_->begin_import(p.manifest.version, p.manifest.files, std::move(done)); });
  }
  Result<StoredVersion> finish_import(const Manifest& manifest, const std::vector<ContentDigest>& digests = {}) {
    return called<Result<StoredVersion>>([&](auto done) { store_->finish_import(manifest, digests, std::move(done)); });
  }
  Status add_full(const Manifest& manifest, const std::vector<ContentDigest>& digests) {
    return called<Status>([&](auto done) { store_->add_full_manifest(manifest, digests, std::move(done)); });
  }

  /// Whether it comes true, in the end.
  [[nodiscard]] bool eventually(const std::function<bool()>& holds) {
    const Instant limit = loop_.now() + std::chrono::seconds(60);
    while (!holds()) {
      if (loop_.now() >= limit) return false;
      loop_.run_until(loop_.now() + std::chrono::milliseconds(5));
    }
    return true;
  }

  void await_durable(Version version) {
    if (!options_.place.memory_directory.empty()) return;  // no version there is
    ASSERT_TRUE(eventually([&] { return store_->find(version)->durable; }));
  }

  /// Whether the files under `path` are exactly those of `p`.
  static bool holds(const std::filesystem::path& path, const Publication& p) {
    std::string stream;
    for (const SnapshotFile& file : p.manifest.files) {
      Result<std::string> content = read_file(real_files(), path / file.name, kGiB);
      if (!content.has_value() || content->size() != file.size_bytes) return false;
      stream += *content;
    }
    const auto count = std::distance(std::filesystem::directory_iterator(path), {});
    return stream == p.stream && static_cast<std::size_t>(count) == p.manifest.files.size();
  }

  TempDir temp_;
  std::shared_ptr<void> outlives_loop_;  ///< for a test: what callbacks that never run may still hold
  UvLoop loop_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
};

/// The same once for each backend that this kernel has.
class StoreBackendFixture : public OneStore, public testing::WithParamInterface<DiskBackend> {
 protected:
  void SetUp() override {
    options_.backend = GetParam();
    if (GetParam() == DiskBackend::kIoUring && !Disk::open(loop_, GetParam()).has_value()) {
      GTEST_SKIP() << "this kernel refuses io_uring";
    }
  }
};

inline const auto kBackends = testing::Values(DiskBackend::kIoUring, DiskBackend::kThreadPool);

inline std::string backend_name(const testing::TestParamInfo<DiskBackend>& info) {
  return info.param == DiskBackend::kIoUring ? "IoUring" : "ThreadPool";
}

}  // namespace weightcast
