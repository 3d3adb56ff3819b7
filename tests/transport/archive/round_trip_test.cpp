// Archives of a real store, and what is fetched from them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <functional>

#include "base/text.h"
#include "tests/damage_file.h"
#include "tests/result_matchers.h"
#include "tests/sanitizers.h"
#include "tests/transport/io/store/store_patch_fixture.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/archive/archive_plan.h"
#include "transport/archive/archive_target.h"
#include "transport/archive/archived_payloads.h"
#include "transport/archive/archiver.h"
#include "transport/archive/fetch_version.h"
#include "transport/node/payload/signed_manifests.h"

namespace weightcast {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr std::uint64_t kObject = 4 * kMiB;
constexpr std::uint64_t kModelBytes = 10'000'000;

/// Objects of a directory behind a connection that fails when it is told to.
class FailingObjects final : public ObjectStore {
 public:
  explicit FailingObjects(const fs::path& directory) : objects_(open_objects(real_files(), directory).value()) {}

  /// After so many more calls all fail.
  void fail_after(std::size_t calls) { left_ = calls; }
  /// After so many more bytes of ranges all calls fail.
  void fail_after_bytes(std::uint64_t bytes) { bytes_left_ = bytes; }
  std::uint64_t range_bytes = 0;
  std::uint64_t written_bytes = 0;

  std::string place_of(const std::string& name) const override { return objects_->place_of(name); }
  Result<std::optional<std::uint64_t>> size_of(const std::string& name) override {
    WC_TRY(step());
    return objects_->size_of(name);
  }
  Result<std::string> read(const std::string& name, std::uint64_t bytes_max) override {
    WC_TRY(step());
    return objects_->read(name, bytes_max);
  }
  Status read_range(const std::string& name, std::uint64_t object_bytes, std::uint64_t offset, std::uint64_t size,
                    const Sink& sink) override {
    WC_TRY(step());
    return objects_->read_range(name, object_bytes, offset, size, [&](Bytes bytes) -> Status {
      const Bytes given = bytes.first(std::min<std::uint64_t>(bytes.size(), bytes_left_));
      bytes_left_ -= given.size();
      range_bytes += given.size();
      WC_TRY(sink(given));
      if (given.size() < bytes.size()) return broken();
      return {};
    });
  }
  Status write(const std::string& name, Bytes bytes) override {
    WC_TRY(step());
    written_bytes += bytes.size();
    return objects_->write(name, bytes);
  }

 private:
  static Error broken() { return fail(Errc::kIo, Op::kReceive, "the test's connection is broken"); }
  Status step() {
    if (left_ == 0 || bytes_left_ == 0) return broken();
    --left_;
    return {};
  }

  const std::unique_ptr<ObjectStore> objects_;
  std::size_t left_ = SIZE_MAX;
  std::uint64_t bytes_left_ = UINT64_MAX;
};

/// A store with version 1 whole and versions 2 to 5 by signed patches; the origin has signed the SHA-256 of version 4.
class RoundTrip : public OneStore {
 protected:
  void SetUp() override {
    options_.versions_kept = 10;
    open();
    published_.push_back(publication(1, {{"config.json", 100}, {"model.safetensors", kModelBytes}}, 64 * 1024));
    sign(published_.back());
    ASSERT_TRUE(install(published_.back()).has_value());
    for (std::uint64_t version = 2; version <= 5; ++version) add_version(version);
  }

  void add_version(std::uint64_t version) {
    const Publication& before = published_.back();
    Publication after = next_of(before, version);
    Publication step = patch_of(before, after);
    if (version == 4) step.manifest.snapshot_tree = after.manifest.tree_of_snapshot();
    sign(step);
    ASSERT_TRUE(install(step).has_value());
    published_.push_back(std::move(after));
  }
  void sign(Publication& p) const {
    p.manifest.published_unix_ms = 1000 * cluster_.now_unix_s;
    ManifestAuthor{run_, signer_}.sign(p.manifest);
  }

  [[nodiscard]] fs::path place() const { return fs::path(memory_.path()) / "archive"; }
  [[nodiscard]] std::unique_ptr<ObjectStore> objects() const { return open_objects(real_files(), place()).value(); }
  [[nodiscard]] fs::path output() const { return fs::path(memory_.path()) / "out"; }

  [[nodiscard]] fs::path work() const { return fs::path(memory_.path()) / "out.fetch"; }

  /// Archives all that counts.
  Status archive(ObjectStore& objects, std::uint64_t every = 2) const {
    WC_ASSIGN(Archiver archiver,
              Archiver::open(real_files(), objects,
                             {.state = directory(), .every = every, .connections = 1, .object_bytes = kObject}));
    for (;;) {
      WC_ASSIGN(const auto next, archiver.archive_next(Instant{}));
      if (!next) return {};
    }
  }
  Status archive(std::uint64_t every = 2) const { return archive(*objects(), every); }
  Result<FetchedVersion> fetch(ObjectStore& objects, std::uint64_t version, const NodeKeys* keys) const {
    return fetch_version(real_files(), objects, keys, {},
                         {.version = Version{version}, .output = output(), .connections = 1, .threads = 2});
  }
  Result<FetchedVersion> fetch(std::uint64_t version) const { return fetch(*objects(), version, &keys_); }
  /// Whether that version is fetched and is what was published; the output is removed.
  testing::AssertionResult is_there(std::uint64_t version) const {
    const auto fetched = fetch(version);
    if (!fetched.has_value()) return testing::AssertionFailure() << fetched.error().message();
    const bool right = holds(output(), published_.at(version - 1));
    fs::remove_all(output());
    if (fs::exists(work())) return testing::AssertionFailure() << "something is left";
    return right ? testing::AssertionSuccess() : testing::AssertionFailure() << "other bytes";
  }
  /// Why that version is not to be had, with nothing of it here.
  [[nodiscard]] std::string refusal(std::uint64_t version) const {
    fs::remove_all(work());
    const auto fetched = fetch(version);
    EXPECT_FALSE(fs::exists(output()));
    return fetched.has_value() ? "" : fetched.error().detail;
  }
  [[nodiscard]] fs::path object(const std::string& suffix) const {
    for (const auto& entry : fs::directory_iterator(place())) {
      if (entry.path().native().ends_with(suffix)) return entry.path();
    }
    return {};
  }

  TempDir memory_{TempDir::in_memory()};  // where nobody waits for syncs
  RunId run_{0xa};
  ClusterKeys cluster_;
  NodeKeys keys_ = cluster_.origin();
  std::shared_ptr<const ManifestSigner> signer_ = std::make_shared<SigningKey>(keys_);
  std::vector<Publication> published_;
};

TEST_F(RoundTrip, EachVersionComesBack) {
  ASSERT_TRUE(archive().has_value());
  for (std::uint64_t version = 1; version <= 5; ++version) EXPECT_TRUE(is_there(version)) << version;
  const auto newest = fetch(0);
  ASSERT_TRUE(newest.has_value()) << newest.error().message();
  EXPECT_EQ(newest->manifest.version, Version{5});
  EXPECT_EQ(newest->whole, Version{4}) << "the nearest";
  EXPECT_EQ(newest->patches, 1u);
  EXPECT_EQ(newest->signer->use, KeyUse::kSigning);
  EXPECT_EQ(fetch(5).error().code, Errc::kAlreadyExists);
}

TEST_F(RoundTrip, GoesOnWhereItWas) {
  ASSERT_TRUE(archive().has_value());
  FailingObjects objects(place());
  ASSERT_TRUE(archive(objects).has_value());
  EXPECT_EQ(objects.written_bytes, 0u);
  add_version(6);
  ASSERT_TRUE(archive(objects).has_value());
  EXPECT_LT(objects.written_bytes, kModelBytes / 2);
  EXPECT_TRUE(is_there(6));
}

// Whatever is the last call that succeeds, the index names what is there, and the next process sends the rest.
TEST_F(RoundTrip, AnArchiveThatIsInterruptedAnywhereIsGoodAndGoesOn) {
  FailingObjects whole(place());
  ASSERT_TRUE(archive(whole).has_value());
  for (std::size_t calls = 0;; ++calls) {
    SCOPED_TRACE(calls);
    ASSERT_LT(calls, 200u);
    if (test::kUnderThreadSanitizer && calls % 8 != 0) continue;
    fs::remove_all(place());
    FailingObjects objects(place());
    objects.fail_after(calls);
    if (archive(objects).has_value()) break;
    if (fs::exists(place() / kIndexObject)) {
      const auto index = parse_index(*read_file(real_files(), place() / kIndexObject, kMiB));
      ASSERT_TRUE(index.has_value());
      EXPECT_TRUE(calls % 4 != 0 || is_there(newest_in(*index).value));
    }
    FailingObjects next(place());
    ASSERT_TRUE(archive(next).has_value());
    // Of what is small, records and digests are written again, and the index each time.
    EXPECT_LE(objects.written_bytes + next.written_bytes, whole.written_bytes + 100'000);
    EXPECT_TRUE(calls % 8 != 0 || is_there(5));
  }
}

TEST_F(RoundTrip, AFetchThatIsInterruptedAnywhereGoesOnWithoutABytesTwice) {
  ASSERT_TRUE(archive().has_value());
  FailingObjects whole(place());
  ASSERT_TRUE(fetch(whole, 3, &keys_).has_value());
  fs::remove_all(output());
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{65'536}, std::uint64_t{5'000'000},
                                    kModelBytes + 100, whole.range_bytes - 1}) {
    SCOPED_TRACE(bytes);
    FailingObjects objects(place());
    objects.fail_after_bytes(bytes);
    ASSERT_FALSE(fetch(objects, 3, &keys_).has_value());
    EXPECT_FALSE(fs::exists(output()));
    FailingObjects next(place());
    ASSERT_TRUE(fetch(next, 3, &keys_).has_value());
    EXPECT_TRUE(holds(output(), published_[2]));
    // But for the chunk that was on its way.
    EXPECT_LE(objects.range_bytes + next.range_bytes, whole.range_bytes + 64 * 1024);
    fs::remove_all(output());
  }
}

TEST_F(RoundTrip, WhatIsLeftOfAnotherVersionDoesNotMatter) {
  ASSERT_TRUE(archive().has_value());
  FailingObjects objects(place());
  objects.fail_after_bytes(kModelBytes + 200);
  ASSERT_FALSE(fetch(objects, 5, &keys_).has_value());
  EXPECT_TRUE(is_there(2));
}

TEST_F(RoundTrip, DamagedObjectsAreRefused) {
  ASSERT_TRUE(archive().has_value());
  for (const char* suffix :
       {"-000000000001.00000", "-000000000001.00002", "-000000000001.digests", "-000000000001.record",
        "-000000000002-000000000001.00000", "-000000000002-000000000001.record"}) {
    SCOPED_TRACE(suffix);
    const fs::path path = object(suffix);
    ASSERT_FALSE(path.empty());
    const std::uint64_t size = fs::file_size(path);
    for (const std::uint64_t at : {std::uint64_t{0}, size / 2, size - 1}) {
      flip_bit(path, at);
      EXPECT_THAT(refusal(2), HasSubstr(path.filename().native())) << at;
      flip_bit(path, at);
    }
    fs::resize_file(path, size - 1);
    EXPECT_THAT(refusal(2), HasSubstr(path.filename().native()));
    flip_bit(path, 0);
    fs::rename(path, path.native() + ".away");
    EXPECT_THAT(refusal(2), HasSubstr(path.filename().native()));
    fs::rename(path.native() + ".away", path);
    fs::resize_file(path, size);
    fs::remove_all(place());
    ASSERT_TRUE(archive().has_value());
  }
  EXPECT_TRUE(is_there(2));
}

TEST_F(RoundTrip, OneClusterAloneIsBelieved) {
  ASSERT_TRUE(archive().has_value());
  const ClusterKeys others;
  const NodeKeys stranger = others.origin();
  EXPECT_EQ(fetch(*objects(), 5, &stranger).error().code, Errc::kNotAllowed);
  EXPECT_TRUE(fetch(*objects(), 5, nullptr).has_value()) << "nobody asked who signed it";
}

// Whoever writes to the storage can make all sums of the archive fit, and is found all the same.
TEST_F(RoundTrip, DigestsThatWereMadeToFitAreRefused) {
  ASSERT_TRUE(archive().has_value());
  const fs::path data = object("-000000000001.00000");
  flip_bit(data, 5);
  const std::string bytes = *read_file(real_files(), data, kGiB);
  const fs::path digests = object("-000000000001.digests");
  const ContentDigest forged = content_digest_of(std::as_bytes(std::span(bytes)).first(64 * 1024));
  std::fstream(digests, std::ios::in | std::ios::out | std::ios::binary)
      .write(reinterpret_cast<const char*>(forged.bytes.data()), ContentDigest::kBytes);
  EXPECT_THAT(refusal(1), HasSubstr("not those of the version's record"));
}

TEST_F(RoundTrip, AnIndexThatSaysOtherwiseIsRefused) {
  ASSERT_TRUE(archive().has_value());
  const std::string good = *read_file(real_files(), place() / kIndexObject, kMiB);
  const auto rewritten = [&](const std::function<void(ArchiveIndex&)>& change) {
    ArchiveIndex index = *parse_index(good);
    change(index);
    memory_.write("archive/index.json", to_json(index));
  };
  rewritten([](ArchiveIndex& index) { index.run = RunId{0xb}; });
  EXPECT_THAT(refusal(1), HasSubstr("000000000000000b-")) << "its objects have other names";
  rewritten([](ArchiveIndex& index) { index.model_id = "other"; });
  EXPECT_THAT(refusal(1), HasSubstr("not the record of version 1"));
  rewritten([](ArchiveIndex& index) { index.payloads[0].bytes += 1; });
  EXPECT_THAT(refusal(1), HasSubstr("not the record of version 1"));
  rewritten([](ArchiveIndex& index) { index.payloads[0].chunk_bytes *= 2; });
  EXPECT_NE(refusal(1), "");
  memory_.write("archive/index.json", good.substr(0, good.size() / 2));
  EXPECT_THAT(refusal(1), HasSubstr("index.json"));
  EXPECT_THAT(archive().error().detail, HasSubstr("index.json"));
}

TEST_F(RoundTrip, AnotherRunHasToGoElsewhere) {
  ASSERT_TRUE(archive().has_value());
  const std::string before = *read_file(real_files(), place() / kIndexObject, kMiB);
  store_.reset();
  fs::remove_all(directory());
  run_ = RunId{0xb};
  published_.clear();
  SetUp();
  const Status refused = archive();
  ASSERT_FALSE(refused.has_value());
  EXPECT_THAT(refused.error().detail, HasSubstr("000000000000000b"));
  EXPECT_EQ(*read_file(real_files(), place() / kIndexObject, kMiB), before);
}

TEST_F(RoundTrip, DamageOfTheNodesDiskIsNotSent) {
  flip_bit(layout().complete(Version{1}) / "model.safetensors", kModelBytes / 2);
  EXPECT_THAT(archive(), FailsWith(Errc::kCorrupt, "000000000001"));
  EXPECT_FALSE(fs::exists(place() / kIndexObject));
  flip_bit(layout().complete(Version{1}) / "model.safetensors", kModelBytes / 2);
  ASSERT_TRUE(archive().has_value());
  EXPECT_TRUE(is_there(1));
}

// What the store deletes while it is read can still be read.
TEST_F(RoundTrip, ANodeThatDeletesMeanwhileChangesNothing) {
  const auto log = read_node_log(real_files(), directory());
  ASSERT_TRUE(log.has_value());
  ASSERT_EQ(log->front().id, PayloadId(Version{1}));
  auto held = HeldPayload::open(real_files(), log->front());
  ASSERT_TRUE(held.has_value());
  fs::remove_all(layout().complete(Version{1}));
  std::string stream(held->size_bytes(), 0);
  ASSERT_TRUE(held->read(0, std::as_writable_bytes(std::span(stream))).has_value());
  EXPECT_EQ(stream, published_[0].stream);
  EXPECT_EQ(HeldPayload::open(real_files(), log->front()).error().code, Errc::kNotFound);
}

TEST_F(RoundTrip, ADirectoryThatIsNoNodesIsNamed) {
  EXPECT_THAT(read_node_log(real_files(), temp_.path()), FailsWith(Errc::kNotFound, "--state"));
}

/// The same archive, as a worker's daemon reads it.
struct ReadByWorker : RoundTrip {
  void SetUp() override {
    RoundTrip::SetUp();
    ASSERT_TRUE(archive().has_value());
  }
  [[nodiscard]] std::string object_of(const std::string& end) const {
    for (const auto& each : fs::directory_iterator(place())) {
      if (each.path().native().ends_with(end)) return each.path().native();
    }
    return "";
  }
  std::unique_ptr<PayloadArchive> payloads = open_archived_payloads(real_files(), place()).value();
};

TEST_F(ReadByWorker, HasTheDigestsAndTheBytesOfAWholeVersion) {
  for (const std::uint64_t version : {1, 4}) {
    const Manifest& manifest = published_.at(version - 1).manifest;
    const auto digests = payloads->find(manifest);
    ASSERT_TRUE(digests.has_value()) << digests.error().message();
    EXPECT_EQ(part_digests_of(*digests, manifest.part_chunks), manifest.part_digests);
    // Over the border of two objects.
    const std::uint64_t begin = kObject - 100'000;
    std::vector<std::byte> got;
    const Status read = payloads->read(manifest, begin, 200'000, [&](Bytes bytes) -> Status {
      got.insert(got.end(), bytes.begin(), bytes.end());
      return {};
    });
    ASSERT_TRUE(read.has_value()) << read.error().message();
    const Bytes all = published_.at(version - 1).bytes();
    EXPECT_TRUE(std::ranges::equal(got, all.subspan(begin, 200'000)));
  }
}

TEST_F(ReadByWorker, SaysWhatItDoesNotHave) {
  const auto why_not = [&](const Manifest& manifest) {
    const auto found = payloads->find(manifest);
    return found.has_value() ? Error{} : found.error();
  };
  const Error patched = why_not(published_[1].manifest);
  EXPECT_EQ(patched.code, Errc::kNotFound);
  EXPECT_THAT(patched.message(), HasSubstr("does not have version 2 whole, and leads to version 5"));
  Manifest other_run = published_[0].manifest;
  other_run.run = RunId{77};
  EXPECT_EQ(why_not(other_run).code, Errc::kNotFound);
  Manifest other_chunks = published_[0].manifest;
  other_chunks.chunk_bytes *= 2;
  EXPECT_EQ(why_not(other_chunks).code, Errc::kCorrupt);
  fs::resize_file(object_of("0001.digests"), 32);
  EXPECT_EQ(why_not(published_[0].manifest).code, Errc::kCorrupt);
  EXPECT_FALSE(payloads->read(published_[2].manifest, 0, 1, [](Bytes) { return Status(); }).has_value());
}

}  // namespace
}  // namespace weightcast
