#include "transport/node/payload/verify_version.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/damage_file.h"
#include "tests/result_matchers.h"
#include "tests/transport/io/store/store_patch_fixture.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/node/payload/signed_manifests.h"

namespace weightcast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// A store with version 1, which came whole, and version 2, which a patch made of it.
class VerifyVersionTest : public OneStore {
 protected:
  void SetUp() override {
    open();
    sign(first_);
    ASSERT_THAT(install_both(), Succeeds());
  }

  Status install_both() {
    WC_TRY(install(first_));
    Publication step = patch_of(first_, second_);
    step.manifest.snapshot_tree = second_.manifest.tree_of_snapshot();
    sign(step);
    WC_TRY(install(step));
    return {};
  }

  void sign(Publication& p) const {
    p.manifest.published_unix_ms = 1000 * cluster_.now_unix_s;
    ManifestAuthor{RunId{0xa}, signer_}.sign(p.manifest);
  }

  [[nodiscard]] Result<ProvenVersion> verify(std::uint64_t version) const { return verify(version, keys_, {}); }
  [[nodiscard]] Result<ProvenVersion> verify(std::uint64_t version, const NodeKeys& keys,
                                             const Revocations& revocations) const {
    return verify_version(real_files(), layout().complete(Version{version}), keys, revocations, 2);
  }
  [[nodiscard]] std::string error(std::uint64_t version) const {
    const auto verified = verify(version);
    return verified.has_value() ? "" : verified.error().detail;
  }

  /// The record of a version with another manifest.
  void rewrite(std::uint64_t version, const std::function<void(Manifest&)>& change) const {
    const std::filesystem::path path = layout().record(Version{version});
    Result<VersionRecord> record = read_record(real_files(), path);
    ASSERT_TRUE(record.has_value());
    change(record->manifest);
    ASSERT_TRUE(rewrite_record(real_files(), path, *record).has_value());
  }

  ClusterKeys cluster_;
  NodeKeys keys_ = cluster_.origin();
  std::shared_ptr<const ManifestSigner> signer_ = std::make_shared<SigningKey>(keys_);
  Publication first_ = publication(1, {{"config.json", 100}, {"model.safetensors", kBytes}});
  Publication second_ = next_of(first_, 2);
};

TEST_F(VerifyVersionTest, ProvesWhatCameWholeAndWhatAPatchMade) {
  for (const std::uint64_t version : {1, 2}) {
    const auto proven = verify(version);
    ASSERT_TRUE(proven.has_value()) << proven.error().message();
    EXPECT_EQ(proven->manifest.version, Version{version});
    EXPECT_EQ(proven->manifest.run, RunId{0xa});
    EXPECT_EQ(proven->signer.use, KeyUse::kSigning);
  }
}

TEST_F(VerifyVersionTest, FindsEachChangedByte) {
  for (const std::uint64_t version : {1, 2}) {
    for (const std::uint64_t offset : {std::uint64_t{0}, kBytes / 2, kBytes - 1}) {
      const std::filesystem::path file = layout().complete(Version{version}) / "model.safetensors";
      flip_bit(file, offset);
      EXPECT_THAT(error(version), HasSubstr("not those that were published")) << version << " at " << offset;
      flip_bit(file, offset);
      EXPECT_EQ(error(version), "");
    }
  }
}

TEST_F(VerifyVersionTest, FindsFilesThatAreMissingOrCutOrOfNobody) {
  const std::filesystem::path directory = layout().complete(Version{2});
  std::ofstream(directory / "modeling.py") << "import os";
  EXPECT_THAT(error(2), HasSubstr("'modeling.py' is no file of the published version"));
  std::filesystem::remove(directory / "modeling.py");
  std::filesystem::resize_file(directory / "config.json", 99);
  EXPECT_NE(error(2), "");
  std::filesystem::remove(directory / "config.json");
  EXPECT_NE(error(2), "");
}

// Who may write to the disk can make all checksums match, and is found all the same.
TEST_F(VerifyVersionTest, FindsARecordThatWasMadeToFit) {
  const std::filesystem::path file = layout().complete(Version{1}) / "model.safetensors";
  flip_bit(file, 5);
  Publication forged = first_;
  forged.stream[105] = static_cast<char>(forged.stream[105] ^ 4);
  forged.digest();
  rewrite(1, [&](Manifest& m) {
    m.part_digests = forged.manifest.part_digests;
    m.snapshot_digest = forged.manifest.snapshot_digest;
  });
  EXPECT_THAT(error(1), HasSubstr("its signature is not the origin's"));

  rewrite(2, [](Manifest& m) { m.version = Version{1}, m.base_version = kNoVersion, m.kind = PayloadKind::kPacked; });
  EXPECT_THAT(error(2), HasSubstr("the record of another version"));
  rewrite(2, [](Manifest& m) { m.version = Version{2}; });
  EXPECT_NE(error(2), "");
}

TEST_F(VerifyVersionTest, BelievesOneClusterAloneAndNoRevokedKey) {
  const ClusterKeys others;
  const NodeKeys stranger = others.origin();
  EXPECT_THAT(verify(1, stranger, {}), FailsWith(Errc::kNotAllowed, "another cluster's"));

  const auto signer = read_certificate(keys_.signing_certificate.get());
  const PemContents authority = cluster_.authority();
  const Revocations revoked = Revocations::make({{signer->serial}}, 1, cluster_.now_unix_s, keys_.authority.get(),
                                                authority.keys.front().get());
  EXPECT_THAT(verify(1, keys_, revoked).error().detail, HasSubstr("is revoked"));

  rewrite(1, [](Manifest& m) { m.signature = {}; });
  EXPECT_THAT(error(1), HasSubstr("it is not signed"));
  rewrite(1, [](Manifest& m) { m.signature = {std::string(64, 'x'), "no certificate"}; });
  EXPECT_EQ(verify(1).error().code, Errc::kNotAllowed);
}

/// After those two, versions 3 to 5, each published by its patch alone: nobody has signed their SHA-256.
class VerifyPatchedTest : public VerifyVersionTest {
 protected:
  void SetUp() override {
    VerifyVersionTest::SetUp();
    store_->pin({Version{2}});
    Publication before = second_;
    for (std::uint64_t version = 3; version <= 5; ++version) {
      Publication after = next_of(before, version);
      Publication step = patch_of(before, after);
      sign(step);
      ASSERT_TRUE(install(step).has_value());
      before = std::move(after);
    }
    // It goes once newer ones are durable.
    ASSERT_TRUE(eventually([&] { return !std::filesystem::exists(layout().complete(Version{1})); }));
  }
  [[nodiscard]] std::filesystem::path model(std::uint64_t version) const {
    return layout().complete(Version{version}) / "model.safetensors";
  }
};

TEST_F(VerifyPatchedTest, AreProvenByAnEarlierVersionAndTheSignedPatchesFromThere) {
  for (const std::uint64_t version : {4, 5}) {
    const auto proven = verify(version);
    ASSERT_TRUE(proven.has_value()) << proven.error().message();
    EXPECT_EQ(proven->by, Version{2});
    EXPECT_EQ(proven->patches, version - 2);
  }
  // Version 2, too, is somewhere on the way only.
  std::filesystem::remove_all(layout().complete(Version{2}));
  EXPECT_THAT(error(5), HasSubstr("go back to version 1, which")) << "where nothing is";
  std::filesystem::create_directories(layout().complete(Version{1}));
  for (const auto& [name, begin, size] :
       {std::tuple{"config.json", std::size_t{0}, std::size_t{100}}, {"model.safetensors", 100, kBytes}}) {
    std::ofstream(layout().complete(Version{1}) / name) << first_.stream.substr(begin, size);
  }
  ASSERT_TRUE(write_record(real_files(), layout().record(Version{1}),
                           {first_.manifest, ChunkDigests(first_.manifest, first_.digests)})
                  .has_value());
  const auto proven = verify(5);
  ASSERT_TRUE(proven.has_value()) << proven.error().message();
  EXPECT_EQ(proven->by, Version{2}) << "the nearest that is proven is what patches make of it";
  EXPECT_EQ(proven->patches, 3u);
  flip_bit(layout().complete(Version{1}) / "model.safetensors", 7);
  EXPECT_THAT(error(5), HasSubstr(layout().complete(Version{1}).native() + ": its bytes are not those"));
}

TEST_F(VerifyPatchedTest, ADamagedByteIsFoundWhereverItIs) {
  const std::filesystem::path patch = layout().patch(weightcast::patch_of(Version{4}, Version{3}));
  const auto patch_bytes = std::filesystem::file_size(patch / kPatchFileName);
  ASSERT_EQ(error(5), "");
  for (const double share : {0.0, 0.3, 0.999}) {
    const auto offset = static_cast<std::uint64_t>(share * kBytes);
    flip_bit(model(5), offset);
    EXPECT_THAT(error(5), HasSubstr(fmt::format("{}: byte {} is not what", model(5).native(), offset)));
    EXPECT_EQ(error(4), "");
    flip_bit(model(5), offset);

    flip_bit(model(2), offset);
    EXPECT_THAT(error(5), HasSubstr(layout().complete(Version{2}).native() + ": its bytes are not those"));
    flip_bit(model(2), offset);

    const auto in_patch = static_cast<std::uint64_t>(share * static_cast<double>(patch_bytes));
    flip_bit(patch / kPatchFileName, in_patch);
    EXPECT_THAT(error(5), HasSubstr(fmt::format("{}: its chunk {} is not what was signed", patch.native(),
                                                in_patch / kChunkBytesMin)));
    flip_bit(patch / kPatchFileName, in_patch);
    ASSERT_EQ(error(5), "");
  }
}

TEST_F(VerifyPatchedTest, APatchThatNobodySignedProvesNothing) {
  const std::filesystem::path path = layout().record(weightcast::patch_of(Version{4}, Version{3}));
  const Result<VersionRecord> record = read_record(real_files(), path);
  ASSERT_TRUE(record.has_value());
  VersionRecord forged = *record;
  forged.manifest.signature = {};
  ASSERT_TRUE(rewrite_record(real_files(), path, forged).has_value());
  EXPECT_THAT(error(5), AllOf(HasSubstr(path.native()), HasSubstr("it is not signed")));
  // One of another run has nothing to do with it.
  forged.manifest.run = RunId{0xb};
  ASSERT_TRUE(rewrite_record(real_files(), path, forged).has_value());
  EXPECT_THAT(error(5), HasSubstr("go back to version 4, which has none either"));
  std::filesystem::remove_all(layout().patches());
  EXPECT_THAT(error(5), HasSubstr("go back to version 5, which has none either"));
}

TEST_F(VerifyVersionTest, VersionThatWasPublishedByItsPatchIsProvenOnceItsOwnDigestsAreThere) {
  Publication third = next_of(second_, 3);
  Manifest by_patch = patch_of(second_, third).manifest;
  by_patch.published_unix_ms = 1000 * cluster_.now_unix_s;
  ManifestAuthor{RunId{0xa}, signer_}.sign(by_patch);
  const Result<ImportTarget> target = begin_import(third);
  ASSERT_TRUE(target.has_value());
  ASSERT_TRUE(write_stream(*target->files, 0, third.bytes()).has_value());
  ASSERT_TRUE(finish_import(by_patch).has_value());
  EXPECT_THAT(error(3), HasSubstr("nothing here proves its bytes"));

  sign(third);
  ASSERT_TRUE(add_full(third.manifest, third.digests).has_value());
  EXPECT_EQ(error(3), "");
  flip_bit(layout().complete(Version{3}) / "model.safetensors", kBytes / 2);
  EXPECT_THAT(error(3), HasSubstr("not those that were published"));
}

TEST_F(VerifyVersionTest, FindsTheVersionsOfAStateDirectory) {
  const auto all = versions_below(real_files(), directory());
  ASSERT_TRUE(all.has_value());
  EXPECT_EQ(*all, (std::vector{layout().complete(Version{1}), layout().complete(Version{2})}));
  EXPECT_EQ(*versions_below(real_files(), directory() / ""), *all);
  EXPECT_EQ(*versions_below(real_files(), all->front()), std::vector{all->front()});
  EXPECT_EQ(versions_below(real_files(), temp_.path()).error().code, Errc::kNotFound);
  EXPECT_EQ(verify_version(real_files(), temp_.path(), keys_, {}, 1).error().code, Errc::kNotFound);
}

}  // namespace
}  // namespace weightcast
