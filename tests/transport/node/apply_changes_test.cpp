#include "transport/node/takeover/apply_changes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"
#include "tests/damage_file.h"
#include "tests/patch/cells.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/result_matchers.h"
#include "tests/sanitizers.h"
#include "tests/transport/io/store/store_fixture.h"
#include "transport/node/takeover/takeover.h"

namespace weightcast {
namespace {

/// A tensor with its bytes before and after a step.
struct Tensor {
  std::string name, dtype;
  std::vector<std::byte> before, after;
  std::uint64_t elements = 0;

  [[nodiscard]] std::size_t width() const { return dtype_bits(dtype) / 8; }
};

std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

Tensor tensor(std::string name, std::string dtype, std::size_t elements, test::Structure structure, double density,
              std::uint64_t seed) {
  Tensor made{std::move(name), std::move(dtype), {}, {}, elements};
  const CellKind kind = cell_kind_of(made.dtype);
  const std::size_t cells = elements * made.width() / geometry_of(kind).bytes;
  test::CellPair pair = test::make_cells(kind, cells, structure, density, seed);
  made.before = std::move(pair.before);
  made.after = std::move(pair.after);
  return made;
}

/// The tensors of some files, by the files' names.
using Model = std::map<std::string, std::vector<Tensor>>;

/// A safetensors file of the tensors in that order. `padding` spaces behind the header move them to any address.
std::string file_of(const std::vector<Tensor>& tensors, bool after, std::size_t padding) {
  std::string header = "{", data;
  for (const Tensor& tensor : tensors) {
    if (header.size() > 1) header += ",";
    const std::string bytes = text_of(after ? tensor.after : tensor.before);
    header += "\"" + tensor.name + "\":{\"dtype\":\"" + tensor.dtype + "\",\"shape\":[" +
              std::to_string(tensor.elements) + "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
              std::to_string(data.size() + bytes.size()) + "]}";
    data += bytes;
  }
  return safetensors_bytes(header + "}" + std::string(padding, ' '), data);
}

/// What differs, and of the rest every `extra`-th element.
std::string changes_of(const Model& model, std::size_t extra, bool wide) {
  std::vector<TensorInfo> infos;
  std::vector<std::string> bytes;
  for (const auto& [file, tensors] : model) {
    for (const Tensor& tensor : tensors) {
      std::string indices, values;
      std::uint64_t count = 0;
      for (std::uint64_t i = 0; i < tensor.elements; ++i) {
        const Bytes before = Bytes(tensor.before).subspan(i * tensor.width(), tensor.width());
        const Bytes after = Bytes(tensor.after).subspan(i * tensor.width(), tensor.width());
        if (std::ranges::equal(before, after) && i % extra != extra - 1) continue;
        ++count;
        indices.append(reinterpret_cast<const char*>(&i), wide ? 8 : 4);
        values += text_of(after);
      }
      if (count == 0 && extra % 2 == 0) continue;
      infos.push_back({std::string(kIndicesPrefix) + tensor.name, wide ? "U64" : "U32", {count}, 0, indices.size()});
      bytes.push_back(indices);
      infos.push_back({std::string(kValuesPrefix) + tensor.name, tensor.dtype, {count}, 0, values.size()});
      bytes.push_back(values);
    }
  }
  const auto layout = lay_out_safetensors(infos);
  EXPECT_TRUE(layout.has_value());
  std::string out = layout->header;
  for (const std::size_t i : layout->order) out += bytes[i];
  return out;
}

/// The next step of the same tensors.
void step(Model& model, double density, std::mt19937& random) {
  for (auto& [name, tensors] : model) {
    for (Tensor& tensor : tensors) {
      tensor.before = tensor.after;
      std::geometric_distribution<std::uint64_t> gap(density);
      for (std::uint64_t i = gap(random); i < tensor.elements; i += 1 + gap(random)) {
        tensor.after[i * tensor.width()] ^= std::byte{1};
      }
    }
  }
}

/// Two origins: one that is given whole snapshots, and one that is given changes.
class ApplyChangesTest : public OneStore {
 protected:
  explicit ApplyChangesTest(unsigned threads = 2) : OneStore(threads) {
    open();
    StoreOptions options;
    options.directory = directory() / "whole";
    std::filesystem::create_directories(options.directory);
    auto opened = Store::open(loop_, real_files(), options);
    EXPECT_TRUE(opened.has_value());
    whole_ = std::move(*opened);
  }
  ~ApplyChangesTest() override {
    jobs_.stop();
    whole_.reset();
  }

  std::string write_model(const Model& model, bool after, std::size_t padding) {
    const std::filesystem::path path = std::filesystem::path(temp_.path()) / (after ? "after" : "before");
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
    std::string map;
    for (const auto& [name, tensors] : model) {
      std::ofstream(path / name, std::ios::binary) << file_of(tensors, after, padding);
      for (const Tensor& tensor : tensors) {
        map += (map.empty() ? "\"" : ",\"") + tensor.name + "\":\"" + name + "\"";
      }
    }
    if (model.size() > 1) {
      std::ofstream(path / "model.safetensors.index.json") << "{\"weight_map\":{" << map << "}}";
      std::ofstream(path / "config.json") << "{}";
    }
    return path.string();
  }

  Result<MadePayload> publish(Store& store, Version version, const std::string& path) {
    Result<PublishedSnapshot> snapshot = PublishedSnapshot::open(real_files(), {.version = version, .path = path});
    if (!snapshot.has_value()) return snapshot.error();
    TakeoverRequest request;
    request.version = version;
    request.snapshot = std::make_shared<const PublishedSnapshot>(std::move(*snapshot));
    request.model_id = "m";
    request.allow_nonfinite = true;
    request.choose_chunk_bytes = [this](std::uint64_t) { return chunk_bytes_; };
    std::optional<Result<MadePayload>> made;
    PayloadObserver observer;
    observer.begun = [](const std::shared_ptr<const Manifest>&, double) {};
    observer.grown = [](const MadePayload&) {};
    observer.done = [&made](Result<MadePayload> done) { made = std::move(done); };
    take_over(jobs_, store, std::move(request), std::move(observer));
    return await(made);
  }
  ChangesRequest request_of(const std::string& changes) {
    const std::string path = temp_.file("changes");
    std::ofstream(path, std::ios::binary) << changes;
    ChangesRequest request;
    request.version = Version{2};
    request.base = Version{1};
    request.changes = listed_changes(FileRef(std::move(*real_files().open(path, {}))), changes.size(), false);
    request.model_id = "m";
    request.choose_chunk_bytes = [this](std::uint64_t) { return chunk_bytes_; };
    return request;
  }
  /// All of the snapshot at `path`, to be compared with the base.
  ChangesRequest compared(Version base, Version version, const std::string& path, bool finite_only = false) {
    SnapshotOrder order{.version = version, .path = path, .before = base};
    order.before_path = store_->find(base)->path;
    order.before_files = store_->find(base)->manifest.files;
    auto snapshot = PublishedSnapshot::open(real_files(), order);
    EXPECT_TRUE(snapshot.has_value());
    EXPECT_TRUE(snapshot->changed_share);
    ChangesRequest request;
    request.version = version;
    request.base = base;
    request.changes = compared_snapshot(std::make_shared<const PublishedSnapshot>(std::move(*snapshot)), finite_only);
    request.model_id = "m";
    request.choose_chunk_bytes = [this](std::uint64_t) { return chunk_bytes_; };
    return request;
  }
  Result<MadePayload> apply(ChangesRequest request) {
    std::optional<Result<MadePayload>> made;
    told_.clear();
    PayloadObserver observer;
    observer.begun = [&](std::shared_ptr<const Manifest> manifest, double) { told_.push_back(std::move(manifest)); };
    observer.grown = [&](const MadePayload& grown) { told_.push_back(grown.manifest); };
    observer.withdrawn = [&](const Error& why) {
      EXPECT_EQ(why.code, Errc::kTooLarge);
      EXPECT_FALSE(told_.empty());
      told_.clear();
    };
    observer.done = [&](Result<MadePayload> done) { made = std::move(done); };
    apply_changes(jobs_, real_files(), *store_, std::move(request), std::move(observer));
    Result<MadePayload> result = await(made);
    // Whoever followed it from its beginning has the payload that was made.
    for (std::size_t i = 1; i < told_.size(); ++i) EXPECT_TRUE(continues(*told_[i - 1], *told_[i]));
    if (!result.has_value()) return result;
    EXPECT_EQ(told_.empty(), result->manifest->kind == PayloadKind::kFull);
    EXPECT_TRUE(told_.empty() || continues(*told_.back(), *result->manifest));
    return result;
  }

  static std::string content(const std::filesystem::path& path) {
    return read_file(real_files(), path, kGiB).value_or("cannot be read");
  }
  static std::string stream_of(const std::filesystem::path& directory, const Manifest& manifest) {
    std::string stream;
    for (const SnapshotFile& file : manifest.files) stream += content(directory / file.name);
    return stream;
  }

  /// The version that was made of changes is `expected`, and its payload is what a worker can use: the patch leads from
  /// `before` to it, or the chunks are its own.
  void expect_version(const MadePayload& made, const Manifest& expected, const std::string& before,
                      const std::string& after) {
    const Manifest& manifest = *made.manifest;
    EXPECT_EQ(manifest.snapshot_digest, expected.snapshot_digest);
    EXPECT_EQ(manifest.files, expected.files);
    EXPECT_FALSE(manifest.open);
    ASSERT_NE(store_->find(manifest.version), nullptr);
    EXPECT_TRUE(stream_of(store_->find(manifest.version)->path, manifest) == after);
    std::string payload = after;
    if (manifest.kind == PayloadKind::kPatch) {
      payload = content(layout().patch(manifest.id()) / kPatchFileName);
      std::vector<std::byte> result(after.size());
      ASSERT_THAT(test::apply_patch(as_bytes(payload), as_bytes(before), result), Succeeds());
      EXPECT_TRUE(std::ranges::equal(result, as_bytes(after)));
      EXPECT_TRUE(std::ranges::any_of(
          store_->patches(), [&](const StoredPatch& stored) { return stored.manifest.id() == manifest.id(); }));
    }
    ASSERT_EQ(payload.size(), manifest.payload_bytes);
    for (std::uint32_t chunk = 0; chunk < manifest.chunk_count(); ++chunk) {
      const Bytes bytes =
          as_bytes(payload).subspan(manifest.chunk_offset(ChunkIndex{chunk}), manifest.chunk_size(ChunkIndex{chunk}));
      EXPECT_EQ(made.chunk_digests[chunk], content_digest_of(bytes)) << chunk;
    }
    EXPECT_EQ(part_digests_of(made.chunk_digests, manifest.part_chunks), manifest.part_digests);
  }

  /// Publishes the step as a list, compared with the base, and whole, and compares what becomes of it.
  void expect_the_same(const Model& model, std::size_t padding, std::size_t extra, bool wide) {
    const std::string before = write_model(model, false, padding), after = write_model(model, true, padding);
    const Result<MadePayload> base = publish(*store_, Version{1}, before);
    ASSERT_TRUE(base.has_value()) << base.error().message();
    chunk_bytes_ *= 2;  // the base may have other chunks
    const Result<MadePayload> whole = publish(*whole_, Version{2}, after);
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    const Result<MadePayload> sparse = apply(request_of(changes_of(model, extra, wide)));
    ASSERT_TRUE(sparse.has_value()) << sparse.error().message();
    expect_version(*sparse, *whole->manifest, stream_of(before, *base->manifest), stream_of(after, *whole->manifest));
    was_patched_ = sparse->manifest->kind == PayloadKind::kPatch;
    const Result<MadePayload> found = apply(compared(Version{1}, Version{3}, after));
    ASSERT_TRUE(found.has_value()) << found.error().message();
    expect_version(*found, *whole->manifest, stream_of(before, *base->manifest), stream_of(after, *whole->manifest));
  }

  Jobs jobs_{loop_};
  std::unique_ptr<Store> whole_;
  std::uint32_t chunk_bytes_ = 16 * kKiB;
  std::vector<std::shared_ptr<const Manifest>> told_;  // of the last payload, before it was whole
  bool was_patched_ = false;
};

TEST_F(ApplyChangesTest, WithoutAnyGiveACopyOfTheBase) {
  Model model;
  model["model.safetensors"] = {tensor("w", "BF16", 1'000'000, test::Structure::kNone, 0, 1)};
  expect_the_same(model, 0, std::size_t{1} << 40, true);
  EXPECT_TRUE(was_patched_);
}

TEST_F(ApplyChangesTest, OfAllCellsGiveWhatPublishingTheWholeGives) {
  Model model;
  model["model.safetensors"] = {tensor("w", "BF16", 600'000, test::Structure::kAnything, 0, 1)};
  expect_the_same(model, 0, 1, true);
}

/// Steps that are published one after another, by an origin that keeps one version.
class ChainOfChangesTest : public ApplyChangesTest {
 protected:
  ChainOfChangesTest() {
    options_.versions_kept = 1;
    open();
    const std::size_t cells = test::kUnderThreadSanitizer ? 700'000 : 5'000'000;
    model_["model-1.safetensors"] = {tensor("a", "BF16", cells, test::Structure::kNone, 0, 1),
                                     tensor("b", "F32", 100'001, test::Structure::kNone, 0, 2)};
    model_["model-2.safetensors"] = {tensor("c", "BF16", 1'000'001, test::Structure::kNone, 0, 3)};
    EXPECT_TRUE(publish(*store_, Version{1}, write_model(model_, true, 5)).has_value());
    await_spare(Version{1});
  }

  /// The files of the version before are spare, and can be reused.
  void await_spare(Version version) {
    EXPECT_TRUE(eventually([&] { return store_->find(version)->durable && store_->versions().size() == 1; }));
    if (version > Version{1}) {
      EXPECT_TRUE(eventually([&] { return store_->spare() == Version{version.value - 1}; }));
    }
  }

  /// Publishes a step as changes or compared with the base, and compares what becomes of it with the whole.
  void go_on(std::size_t extra = 1000, bool lists = true) {
    step(model_, 0.01, random_);
    const Version base = version_;
    version_ = Version{base.value + 1};
    const std::string before = write_model(model_, false, 5), after = write_model(model_, true, 5);
    ChangesRequest request = lists ? request_of(changes_of(model_, extra, false)) : compared(base, version_, after);
    request.base = base;
    request.version = version_;
    store_->retain({base, version_, patch_of(version_, base)});
    const Result<MadePayload> made = apply(std::move(request));
    ASSERT_TRUE(made.has_value()) << made.error().message();
    const Result<MadePayload> expected = publish(*whole_, version_, after);
    ASSERT_TRUE(expected.has_value());
    EXPECT_EQ(made->manifest->kind, PayloadKind::kPatch);
    expect_version(*made, *expected->manifest, stream_of(before, *expected->manifest),
                   stream_of(after, *expected->manifest));
    store_->retain({version_});
    await_spare(version_);
  }

  /// A step from the version in use, as a list.
  ChangesRequest next_request() {
    step(model_, 0.01, random_);
    ChangesRequest request = request_of(changes_of(model_, 1000, false));
    request.base = version_;
    request.version = Version{version_.value + 1};
    return request;
  }
  std::filesystem::path spare_file() {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(layout().spare())) {
      if (entry.path().filename() == "model-1.safetensors") return entry.path();
    }
    ADD_FAILURE() << "there is no spare version";
    return {};
  }

  Model model_;
  std::mt19937 random_{1};
  Version version_{1};
};

TEST_F(ChainOfChangesTest, BringsTheSpareFilesUpToDateWhereTheyAre) {
  for (const std::size_t extra : {1000u, 1000u, 3u, 1000u}) go_on(extra);
}

TEST_F(ChainOfChangesTest, FindsTheChangesOfAWholeSnapshot) {
  for (const bool lists : {true, false, false, true, false}) go_on(1000, lists);
}

// Else the patch would lead members elsewhere, whose files are as they should be.
TEST_F(ChainOfChangesTest, DoesNotCompareWithFilesThatHaveRotted) {
  go_on();
  go_on();
  flip_bit(spare_file(), 1'000'000);
  step(model_, 0.01, random_);
  const std::string after = write_model(model_, true, 5);
  const Version next{version_.value + 1};
  EXPECT_THAT(apply(compared(version_, next, after)), FailsWith(Errc::kCorrupt));
  EXPECT_EQ(store_->find(next), nullptr);
  ASSERT_THAT(publish(*store_, next, after), Succeeds());
  EXPECT_TRUE(content(store_->find(next)->path / "model-1.safetensors") ==
              content(std::filesystem::path(after) / "model-1.safetensors"));
}

// The files of the version before last hold more than lists tell of: they are not read, so whatever stands there stays.
TEST_F(ChainOfChangesTest, WritesTheChangedCellsAlone) {
  go_on();
  const std::filesystem::path file = spare_file();
  constexpr std::uint64_t kInHeader = 40;  // which no list changes
  flip_bit(file, kInHeader);
  const Result<MadePayload> made = apply(next_request());
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const std::filesystem::path installed = store_->find(made->manifest->version)->path / "model-1.safetensors";
  flip_bit(installed, kInHeader);
  EXPECT_TRUE(content(installed) ==
              content(std::filesystem::path(write_model(model_, true, 5)) / "model-1.safetensors"));
}

TEST_F(ChainOfChangesTest, NoticesABaseThatIsDamagedWhereItIsCopied) {
  go_on();
  ChangesRequest request = next_request();
  std::filesystem::remove_all(layout().spare());
  std::filesystem::create_directories(layout().spare());
  flip_bit(store_->find(version_)->path / "model-1.safetensors", 1'000'000);
  EXPECT_THAT(apply(std::move(request)),
              FailsWith(Errc::kCorrupt, "is damaged on this disk (its bytes are not those of its digest)"));
}

struct BothWays : ApplyChangesTest {
  explicit BothWays(unsigned threads) : ApplyChangesTest(threads) {}
  using ApplyChangesTest::expect_the_same;
  using ApplyChangesTest::was_patched_;
  void TestBody() override {}
};

// Several threads and spans, segments that begin and end inside of leaves, leaves inside of segments.
TEST(ApplyChanges, OfALargeSnapshotGiveWhatPublishingTheWholeGives) {
  Model model;
  model["model.safetensors"] = {
      tensor("embed", "BF16", 4'500'000, test::Structure::kIndependent, 0.01, 1),
      tensor("norm", "F32", 5'001, test::Structure::kIndependent, 0.1, 2),
      tensor("head", "BF16", 3'000'003, test::Structure::kIndependent, 0.003, 3),
      tensor("frozen", "BF16", 1'000'000, test::Structure::kNone, 0, 4),
      tensor("rows", "F16", 700'000, test::Structure::kRows, 0.1, 5),
      tensor("last", "U8", 777, test::Structure::kIndependent, 0.5, 6),
  };
  for (const unsigned threads : {1u, 2u, 5u}) {
    BothWays both(threads);
    both.expect_the_same(model, 3, 1001, false);
    EXPECT_TRUE(both.was_patched_) << threads;
  }
}

// Dtypes, sizes, empty tensors, several files, any alignment, any density, any number of threads.
TEST(ApplyChanges, OfAnyModelGiveWhatPublishingTheWholeGives) {
  for (int i = 0; i < 20 && !testing::Test::HasFailure(); ++i) {
    const unsigned seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    constexpr const char* kDtypes[] = {"BF16", "BF16", "F16", "F32",  "F64", "F8_E4M3",
                                       "U8",   "I64",  "C64", "BOOL", "I16"};
    Model model;
    const std::size_t files = 1 + (random() % 3 == 0 ? random() % 3 : 0);
    for (std::size_t f = 0; f < files; ++f) {
      const std::string name = files == 1 ? "model.safetensors" : "model-" + std::to_string(f) + ".safetensors";
      for (std::size_t t = 0, count = 1 + random() % 5; t < count; ++t) {
        const std::size_t elements = random() % 5 == 0 ? 0 : random() % 20 == 0 ? 1'000'000 : random() % 20'000;
        model[name].push_back(tensor("t" + std::to_string(f) + "." + std::to_string(t), kDtypes[random() % 11],
                                     elements, test::kAllStructures[random() % 5],
                                     std::array{0.0005, 0.01, 0.3}[random() % 3], random()));
      }
    }
    BothWays both(1 + unsigned(random() % 6));
    both.expect_the_same(model, random() % 9, std::array<std::size_t, 4>{1, 10, 1000, 1'000'001}[random() % 4],
                         random() % 2 == 0);
  }
}

TEST_F(ApplyChangesTest, DoNotTurnADamagedBaseIntoAnotherVersion) {
  Model model;
  model["model.safetensors"] = {tensor("w", "BF16", 6'000'000, test::Structure::kIndependent, 0.01, 1)};
  ASSERT_TRUE(publish(*store_, Version{1}, write_model(model, false, 0)).has_value());
  await_durable(Version{1});
  const std::string changes = changes_of(model, 1000, false);
  const std::filesystem::path file = store_->find(Version{1})->path / "model.safetensors";
  const std::uint64_t bytes = std::filesystem::file_size(file);
  for (const std::uint64_t at : {std::uint64_t{0}, bytes / 2, bytes - 1}) {
    flip_bit(file, at);
    const Result<MadePayload> made = apply(request_of(changes));
    ASSERT_FALSE(made.has_value()) << at;
    if (at > 0) {
      EXPECT_THAT(made, FailsWith(Errc::kCorrupt, "is damaged on this disk"));
    }
    EXPECT_EQ(store_->find(Version{2}), nullptr);
    flip_bit(file, at);
  }
  EXPECT_TRUE(apply(request_of(changes)).has_value()) << "after all of these";
}

TEST_F(ApplyChangesTest, ThatAreRefusedLeaveNothing) {
  Model model;
  model["model.safetensors"] = {tensor("w", "F32", 100'000, test::Structure::kIndependent, 0.01, 1)};
  ASSERT_TRUE(publish(*store_, Version{1}, write_model(model, false, 0)).has_value());
  const std::string good = changes_of(model, 1000, false);
  ChangesRequest absent = request_of(good);
  absent.base = Version{7};
  EXPECT_EQ(apply(std::move(absent)).error().code, Errc::kNotFound);
  // The last index, which is found when most of it is made.
  std::string bad = good;
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bad.data(), sizeof header_bytes);
  const auto header = parse_safetensors_header(as_bytes(bad).first(8 + header_bytes), bad.size(), "changes");
  for (const TensorInfo& info : header->tensors) {
    if (info.name == "indices/w") std::memset(bad.data() + info.offset_bytes + info.size_bytes - 4, 0xff, 4);
  }
  EXPECT_THAT(apply(request_of(bad)),
              FailsWith(Errc::kInvalidArgument, "index 4294967295 is not one of its 100000 elements"));
  EXPECT_EQ(store_->find(Version{2}), nullptr);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(layout().incoming(Version{2})); }));
  EXPECT_TRUE(apply(request_of(good)).has_value());
}

// A disk that refuses the last step: the version is not there, and can be published again.
TEST_F(ApplyChangesTest, ThatTheDiskRefusesAtTheEndLeaveNothing) {
  Model model;
  model["model.safetensors"] = {tensor("w", "F32", 100'000, test::Structure::kIndependent, 0.01, 1)};
  ASSERT_TRUE(publish(*store_, Version{1}, write_model(model, false, 0)).has_value());
  const std::string changes = changes_of(model, 1000, false);
  const std::filesystem::path patches = layout().patches(), aside = patches.native() + "-aside";
  std::filesystem::rename(patches, aside);
  std::ofstream(patches) << "not a directory";
  EXPECT_FALSE(apply(request_of(changes)).has_value());
  EXPECT_EQ(store_->find(Version{2}), nullptr);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(layout().incoming(Version{2})); }));
  EXPECT_FALSE(std::filesystem::exists(layout().complete(Version{2})));
  EXPECT_EQ(layout().read_current()->version, Version{1});
  std::filesystem::remove(patches);
  std::filesystem::rename(aside, patches);
  ASSERT_THAT(apply(request_of(changes)), Succeeds());
  EXPECT_EQ(layout().read_current()->version, Version{2});
}

TEST_F(ApplyChangesTest, RefuseWhatIsNotFinite) {
  Model model;
  model["model.safetensors"] = {tensor("w", "BF16", 3'000'000, test::Structure::kNone, 0, 1),
                                tensor("v", "F32", 300'000, test::Structure::kNone, 0, 2)};
  for (auto& tensor : model["model.safetensors"]) {
    std::ranges::fill(tensor.before, std::byte{1});
    tensor.after = tensor.before;
  }
  ASSERT_TRUE(publish(*store_, Version{1}, write_model(model, false, 0)).has_value());
  std::vector<std::byte>& cells = model["model.safetensors"][1].after;
  std::fill_n(cells.begin() + 4 * 200'000, 4, std::byte{0xff});
  const std::string after = write_model(model, true, 0);
  EXPECT_THAT(apply(compared(Version{1}, Version{2}, after, true)),
              FailsWith(Errc::kInvalidArgument, "1 elements of 1 tensors are NaN or infinite, the first in 'v'"));
  EXPECT_EQ(store_->find(Version{2}), nullptr);
  EXPECT_TRUE(apply(compared(Version{1}, Version{2}, after, false)).has_value());
}

}  // namespace
}  // namespace weightcast
