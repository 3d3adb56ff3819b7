#include "transport/node/apply_changes.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <random>

#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"
#include "tests/patch/cells.h"
#include "tests/patch/safetensors_bytes.h"
#include "tests/transport/io/store/store_fixture.h"
#include "transport/node/takeover.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

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

struct Made {
  std::optional<Result<MadePayload>> done;
  ByProducts by_products;
};

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

  PayloadObserver observer(Made& made) {
    PayloadObserver observer;
    observer.begun = [](const std::shared_ptr<const Manifest>&, double) {};
    observer.grown = [](const MadePayload&) {};
    observer.done = [&made](Result<MadePayload> done) { made.done = std::move(done); };
    return observer;
  }

  Result<MadePayload> publish(Store& store, Version version, const std::string& path) {
    TakeoverRequest request;
    request.version = version;
    request.path = path;
    request.model_id = "m";
    request.allow_nonfinite = true;
    request.choose_chunk_bytes = [this](std::uint64_t) { return chunk_bytes_; };
    Made made;
    take_over(jobs_, real_files(), store, std::move(request), observer(made));
    return await(made.done);
  }
  ChangesRequest request_of(const std::string& changes) {
    const std::string path = temp_.file("changes");
    std::ofstream(path, std::ios::binary) << changes;
    ChangesRequest request;
    request.version = Version{2};
    request.base = Version{1};
    request.changes = FileRef(std::move(*real_files().open(path, {})));
    request.changes_bytes = changes.size();
    request.model_id = "m";
    request.allow_nonfinite = true;
    request.choose_chunk_bytes = [this](std::uint64_t) { return chunk_bytes_; };
    return request;
  }
  Made apply(ChangesRequest request) {
    Made made;
    apply_changes(jobs_, real_files(), *store_, std::move(request), observer(made),
                  [&](ByProducts by_products) { made.by_products = std::move(by_products); });
    static_cast<void>(await(made.done));
    return made;
  }
  Result<MadePayload> patch(Store& store, std::shared_ptr<const EncodedPatch> encoded,
                            PayloadId id = patch_of(Version{2}, Version{1})) {
    Made made;
    make_patch(jobs_, real_files(), store, {id, "m", [](std::uint64_t) { return kChunkBytesMin; }, std::move(encoded)},
               observer(made));
    return await(made.done);
  }

  static void expect_same(Manifest a, Manifest b) {
    a.published_unix_ms = b.published_unix_ms;
    EXPECT_EQ(a, b);
  }
  static std::string content(const std::filesystem::path& path) {
    return read_file(real_files(), path, kGiB).value_or("cannot be read");
  }

  /// Publishes the step both ways, and compares all that becomes of it.
  void expect_the_same(const Model& model, std::size_t padding, std::size_t extra, bool wide) {
    const std::string before = write_model(model, false, padding), after = write_model(model, true, padding);
    ASSERT_TRUE(publish(*store_, Version{1}, before).has_value());
    ASSERT_TRUE(publish(*whole_, Version{1}, before).has_value());
    chunk_bytes_ *= 2;  // the base may have other chunks
    const Result<MadePayload> whole = publish(*whole_, Version{2}, after);
    ASSERT_TRUE(whole.has_value()) << whole.error().message();
    const Made sparse = apply(request_of(changes_of(model, extra, wide)));
    ASSERT_TRUE(sparse.done->has_value()) << sparse.done->error().message();
    expect_same(*(*sparse.done)->manifest, *whole->manifest);
    EXPECT_EQ((*sparse.done)->chunk_digests, whole->chunk_digests);
    for (const SnapshotFile& file : whole->manifest->files) {
      EXPECT_EQ(content(store_->find(Version{2})->path / file.name), content(std::filesystem::path(after) / file.name));
    }
    const Result<MadePayload> compared = patch(*whole_, nullptr);
    const Result<MadePayload> encoded = patch(*store_, sparse.by_products.encoded);
    ASSERT_EQ(compared.has_value(), encoded.has_value());
    if (!compared.has_value()) return;
    was_patched_ = sparse.by_products.encoded != nullptr;
    expect_same(*encoded->manifest, *compared->manifest);
    const std::filesystem::path name = std::filesystem::path("patches") / "000000000002-000000000001" / "patch";
    EXPECT_EQ(content(directory() / name), content(directory() / "whole" / name));
  }

  Jobs jobs_{loop_};
  std::unique_ptr<Store> whole_;
  std::uint32_t chunk_bytes_ = 16 * kKiB;
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
    model_["model-1.safetensors"] = {tensor("a", "BF16", 5'000'000, test::Structure::kNone, 0, 1),
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

  /// Publishes a step as changes, and compares what becomes of it with the whole. Whether it was made in place.
  bool go_on(
      std::size_t extra = 1000, const std::function<void()>& before_it = [] {}) {
    step(model_, 0.01, random_);
    const Version base = version_;
    version_ = Version{base.value + 1};
    ChangesRequest request = request_of(changes_of(model_, extra, false));
    request.base = base;
    request.version = version_;
    request.earlier = applied_;
    before_it();
    const Made made = apply(std::move(request));
    EXPECT_TRUE(made.done->has_value()) << made.done->error().message();
    if (!made.done->has_value()) return false;
    const std::string before = write_model(model_, false, 5), after = write_model(model_, true, 5);
    const WholeOrigin whole(*this, "whole-" + std::to_string(version_.value));
    EXPECT_TRUE(publish(*whole.store, base, before).has_value());
    const Result<MadePayload> expected = publish(*whole.store, version_, after);
    expect_same(*(*made.done)->manifest, *expected->manifest);
    EXPECT_EQ((*made.done)->chunk_digests, expected->chunk_digests);
    for (const SnapshotFile& file : expected->manifest->files) {
      EXPECT_EQ(content(store_->find(version_)->path / file.name), content(std::filesystem::path(after) / file.name));
    }
    EXPECT_TRUE(patch(*whole.store, nullptr, patch_of(version_, base)).has_value());
    std::string frames;
    if (!made.by_products.encoded) throw std::runtime_error("no patch was encoded");
    for (const EncodedSegment& segment : made.by_products.encoded->segments) frames += text_of(segment.frame);
    const StoreLayout there(real_files(), whole.directory);
    EXPECT_NE(content(there.patch(patch_of(version_, base)) / kPatchFileName).find(frames), std::string::npos);
    applied_ = {*made.by_products.applied};
    await_spare(version_);
    return made.by_products.was_in_place;
  }

  /// An origin that is given the whole of a step.
  struct WholeOrigin {
    WholeOrigin(ChainOfChangesTest& test, const std::string& name)
        : directory(std::filesystem::path(test.temp_.path()) / name) {
      std::filesystem::create_directories(directory);
      StoreOptions options;
      options.directory = directory;
      auto opened = Store::open(test.loop_, real_files(), options);
      EXPECT_TRUE(opened.has_value());
      store = std::move(*opened);
    }
    std::filesystem::path directory;
    std::unique_ptr<Store> store;
  };

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
  std::vector<AppliedChanges> applied_;
};

TEST_F(ChainOfChangesTest, BringsTheSpareFilesUpToDateWhereTheyAre) {
  EXPECT_FALSE(go_on()) << "there are no files to reuse yet";
  EXPECT_TRUE(go_on());
  EXPECT_TRUE(go_on(3)) << "a third of the cells is listed";
}

TEST_F(ChainOfChangesTest, CopiesTheBaseOverSpareFilesThatAreNotWhatTheyShouldBe) {
  EXPECT_FALSE(go_on());
  EXPECT_FALSE(go_on(1000, [&] {
    std::fstream damage(spare_file(), std::ios::binary | std::ios::in | std::ios::out);
    damage.seekg(1'000'000);
    const char was = char(damage.get());
    damage.seekp(1'000'000);
    damage.put(char(was ^ 1));
  }));
  EXPECT_TRUE(go_on());
  applied_[0].from = Version{77};
  EXPECT_FALSE(go_on()) << "nobody knows what has changed";
  // A list that leads elsewhere.
  Model other = model_;
  step(other, 0.01, random_);
  const ChangesRequest wrong = request_of(changes_of(other, 1000, false));
  applied_[0].list = wrong.changes;
  applied_[0].bytes = wrong.changes_bytes;
  EXPECT_FALSE(go_on());
}

TEST_F(ChainOfChangesTest, NoticesABaseThatIsDamagedSinceItWasMade) {
  EXPECT_FALSE(go_on());
  ASSERT_NE(applied_[0].leaves, nullptr);
  step(model_, 0.01, random_);
  ChangesRequest request = request_of(changes_of(model_, 1000, false));
  request.base = version_;
  request.version = Version{version_.value + 1};
  request.earlier = applied_;
  request.earlier[0].from = Version{77};  // else the spare files are brought up to date, and the base is not read
  std::fstream damage(store_->find(version_)->path / "model-1.safetensors",
                      std::ios::binary | std::ios::in | std::ios::out);
  damage.seekg(3'000'000);
  const char was = char(damage.get());
  damage.seekp(3'000'000);
  damage.put(char(was ^ 1)).flush();
  const Made made = apply(std::move(request));
  ASSERT_FALSE(made.done->has_value());
  EXPECT_EQ(made.done->error().code, Errc::kCorrupt);
  EXPECT_THAT(made.done->error().message(), HasSubstr("is damaged on this disk (block 0 of it)"));
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
    std::fstream damage(file, std::ios::binary | std::ios::in | std::ios::out);
    damage.seekg(std::streamoff(at));
    const char was = char(damage.get());
    damage.seekp(std::streamoff(at));
    damage.put(char(was ^ 1)).flush();
    const Made made = apply(request_of(changes));
    ASSERT_FALSE(made.done->has_value()) << at;
    if (at > 0) {
      EXPECT_EQ(made.done->error().code, Errc::kCorrupt);
      EXPECT_THAT(made.done->error().message(), HasSubstr("is damaged on this disk"));
    }
    EXPECT_EQ(store_->find(Version{2}), nullptr);
    damage.seekp(std::streamoff(at));
    damage.put(was).flush();
  }
  EXPECT_TRUE(apply(request_of(changes)).done->has_value()) << "after all of these";
}

TEST_F(ApplyChangesTest, ThatAreRefusedLeaveNothing) {
  Model model;
  model["model.safetensors"] = {tensor("w", "F32", 100'000, test::Structure::kIndependent, 0.01, 1)};
  ASSERT_TRUE(publish(*store_, Version{1}, write_model(model, false, 0)).has_value());
  const std::string good = changes_of(model, 1000, false);
  ChangesRequest absent = request_of(good);
  absent.base = Version{7};
  EXPECT_EQ(apply(absent).done->error().code, Errc::kNotFound);
  // The last index, which is found when most of it is made.
  std::string bad = good;
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bad.data(), sizeof header_bytes);
  const auto header = parse_safetensors_header(as_bytes(bad).first(8 + header_bytes), bad.size(), "changes");
  for (const TensorInfo& info : header->tensors) {
    if (info.name == "indices/w") std::memset(bad.data() + info.offset_bytes + info.size_bytes - 4, 0xff, 4);
  }
  const Made made = apply(request_of(bad));
  EXPECT_EQ(made.done->error().code, Errc::kInvalidArgument);
  EXPECT_THAT(made.done->error().message(), HasSubstr("index 4294967295 is not one of its 100000 elements"));
  EXPECT_EQ(store_->find(Version{2}), nullptr);
  EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(layout().incoming(Version{2})); }));
  EXPECT_TRUE(apply(request_of(good)).done->has_value());
}

}  // namespace
}  // namespace weightcast
