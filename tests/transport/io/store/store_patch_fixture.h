#pragma once

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "patch/codec/codec.h"
#include "tests/damage_file.h"
#include "tests/transport/io/store/store_fixture.h"

namespace weightcast {

inline constexpr std::uint64_t kBytes = 3'000'000;

/// `base` with some of its 2-byte cells moved by one, as version `version`; whole.
inline Publication next_of(const Publication& base, std::uint64_t version) {
  Publication made = base;
  std::mt19937 random(static_cast<unsigned>(version));
  for (std::size_t i = 0; i + 1 < made.stream.size(); i += 2 + 2 * (random() % 100)) made.stream[i] ^= 1;
  made.manifest.version = Version{version};
  made.digest();
  return made;
}

/// A payload of `bytes` that claims to lead from `base` to `result`.
inline Publication payload_of(const Publication& base, const Publication& result, std::string bytes) {
  Publication made;
  made.manifest = result.manifest;
  Manifest& m = made.manifest;
  m.kind = PayloadKind::kPatch;
  m.base_version = base.manifest.version;
  m.payload_bytes = bytes.size();
  m.chunk_bytes = kChunkBytesMin;
  while (m.payload_bytes / m.chunk_bytes > 64) m.chunk_bytes *= 2;  // a test that stores one after the other waits
  made.stream = std::move(bytes);
  made.digest_chunks();
  return made;
}

/// The code that leads from `base`, which may be empty, to `result`. Each is one tensor.
inline std::string code_of(const Publication& base, const Publication& result, std::uint32_t segment_bytes,
                           SparseForm form) {
  const auto layout_of = [](const Publication& p) {
    SnapshotLayout layout;
    layout.size_bytes = p.stream.size();
    if (p.stream.empty()) return layout;
    TensorInfo tensor;
    tensor.name = "weight";
    tensor.dtype = "BF16";
    tensor.shape = {p.stream.size() / 2};
    tensor.size_bytes = p.stream.size() / 2 * 2;
    layout.tensors.push_back(tensor);
    return layout;
  };
  const PatchIdentity identity{"test", base.manifest.version, result.manifest.version, base.manifest.snapshot_digest,
                               result.manifest.snapshot_digest};
  const Result<PatchHead> head = make_head(identity, layout_of(base), layout_of(result), segment_bytes);
  WC_CHECK(head.has_value());
  std::string bytes;
  const MemorySource before(base.bytes()), after(result.bytes());
  const auto summary = encode_patch(*head, before, after, {.sparse_form = form}, [&](Bytes some) -> Status {
    bytes.append(reinterpret_cast<const char*>(some.data()), some.size());
    return {};
  });
  WC_CHECK(summary.has_value());
  return bytes;
}

/// The patch from `base` to `result`, of several segments.
inline Publication patch_of(const Publication& base, const Publication& result,
                            std::uint32_t segment_bytes = 256 * 1024, SparseForm form = SparseForm::kModelled) {
  return payload_of(base, result, code_of(base, result, segment_bytes, form));
}

/// ... which lists the changed cells, as origins make them.
inline Publication listed_patch(const Publication& base, const Publication& result) {
  return patch_of(base, result, 256 * 1024, SparseForm::kListed);
}

/// `base` with other bytes, all of them, as version `version`; whole.
inline Publication other_than(const Publication& base, std::uint64_t version) {
  Publication made = base;
  std::mt19937 random(static_cast<unsigned>(version));
  for (char& byte : made.stream) byte = static_cast<char>(random());
  made.manifest.version = Version{version};
  made.digest();
  return made;
}

/// `result` packed, in several segments.
inline Publication packed_payload(const Publication& result, std::uint32_t segment_bytes = 256 * 1024) {
  const Publication nothing;
  Publication made = payload_of(nothing, result, code_of(nothing, result, segment_bytes, SparseForm::kModelled));
  made.manifest.kind = PayloadKind::kPacked;
  return made;
}

class StorePatchTest : public StoreBackendFixture {
 protected:
  void SetUp() override {
    StoreBackendFixture::SetUp();
    if (IsSkipped()) return;
    open();
    ASSERT_TRUE(install(one).has_value());
  }

  PayloadId id() const { return patch.manifest.id(); }

  Result<std::filesystem::path> begin_patch() {
    return called<Result<std::filesystem::path>>([&](auto done) { store_->begin_patch(id(), std::move(done)); });
  }
  Status finish_patch(const Publication& p) {
    return called<Status>([&](auto done) { store_->finish_patch(p.manifest, p.digests, std::move(done)); });
  }
  /// Whether half of `to`'s bytes stand in the files that are made of a payload which is not complete.
  [[nodiscard]] bool eventually_half_made(const Publication& to) {
    return eventually([&] {
      const std::string target =
          *read_file(real_files(), layout().incoming(to.manifest.version) / "model.safetensors", kGiB);
      const auto equal = std::mismatch(target.begin(), target.end(), to.stream.begin()).first - target.begin();
      return equal > std::ptrdiff_t(kBytes / 2);
    });
  }
  /// Installs it, and lets the store do what follows.
  void install_and_settle(const Publication& p) {
    const Result<StoredVersion> stored = install(p);
    ASSERT_TRUE(stored.has_value()) << stored.error().message();
    await_durable(p.manifest.version);
    settle();
  }
  /// Lets the store do what it put off: until no job has run for a while.
  void settle() {
    constexpr int kQuietTurns = 25;
    for (int quiet = 0; quiet < kQuietTurns;) {
      loop_.run_until(loop_.now() + std::chrono::milliseconds(2));
      quiet = loop_.jobs_under_way() == 0 ? quiet + 1 : 0;
    }
  }

  const Publication one = publication(1, {{"model.safetensors", kBytes}});
  const Publication two = next_of(one, 2);
  const Publication patch = patch_of(one, two);
};

/// A store on a file system of its own, which can be filled.
class SmallDiskTest : public StorePatchTest {
 protected:
  void SetUp() override {
    StoreBackendFixture::SetUp();
    if (IsSkipped()) return;
    std::filesystem::create_directories(directory());
    mounted_ = ::mount("none", directory().c_str(), "tmpfs", 0, "size=16m") == 0;
    if (!mounted_) GTEST_SKIP() << "needs root, to mount a tmpfs";
    open();
    ASSERT_TRUE(install(one).has_value());
    await_durable(Version{1});
  }
  void TearDown() override {
    store_.reset();
    loop_.run_until(loop_.now());
    if (mounted_) ::umount2(directory().c_str(), MNT_DETACH);
  }

  void fill() {
    const FileRef filler =
        *real_files().open(directory() / "filler", {.write = true, .create = Create::kIfMissing, .append = true});
    const std::string page(4096, 'x');
    while (filler->append(std::as_bytes(std::span(page))).has_value()) continue;
  }
  void make_room() { std::filesystem::remove(directory() / "filler"); }

 private:
  bool mounted_ = false;
};

}  // namespace weightcast
