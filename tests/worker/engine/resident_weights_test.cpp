#include "worker/engine/resident_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tests/worker/engine/written_models.h"
#include "worker/engine/engine.h"

namespace weightcast {
namespace {

using testing::HasSubstr;

std::vector<float> answer_of(const std::shared_ptr<const EngineWeights>& weights) {
  const auto engine = Engine::make(weights, kNoVersion, {}).value();
  EngineRequest request;
  request.prompt = {1, 2, 3, 4, 5};
  request.tokens_max = 20;
  EXPECT_TRUE(engine->add(request).has_value());
  std::vector<float> log_probs;
  while (engine->busy()) {
    for (const EngineEvent& event : engine->step()) {
      for (const EngineToken& token : event.tokens) log_probs.push_back(token.log_prob);
    }
  }
  return log_probs;
}

class ResidentWeightsOf : public testing::TestWithParam<const char*> {};

TEST_P(ResidentWeightsOf, BecomeTheNextVersionByItsCells) {
  const TestDirectory directory;
  PosixFileSystem files;
  WrittenModel made;
  made.dtype = GetParam();
  write_model(directory / "1", made);
  const auto resident = ResidentWeights::read(ModelFiles::open(files, directory / "1").value()).value();
  EXPECT_EQ(answer_of(resident->weights()),
            answer_of(EngineWeights::open(ModelFiles::open(files, directory / "1").value()).value()));
  // Few cells, none, and so many that tensors are written whole.
  std::uint64_t seed = 2;
  for (const double share : {0.01, 0.0, 0.9, 0.1}) {
    made.changed_share = share;
    made.changed_seed = seed++;
    const std::string name = std::to_string(made.changed_seed);
    write_model(directory / name, made);
    const WeightChanges changes = resident->compare(ModelFiles::open(files, directory / name).value()).value();
    EXPECT_GT(changes.cells, 0u);
    resident->apply(changes);
    EXPECT_EQ(resident->compare(ModelFiles::open(files, directory / name).value())->cells, 0u);
    const auto mapped = EngineWeights::open(ModelFiles::open(files, directory / name).value()).value();
    EXPECT_EQ(answer_of(resident->weights()), answer_of(mapped)) << share;
    EXPECT_EQ(resident->weights()->bytes(), mapped->bytes());
  }
}

INSTANTIATE_TEST_SUITE_P(All, ResidentWeightsOf, testing::Values("BF16", "F32", "F16"));

TEST(ResidentWeights, ListFewCells) {
  const TestDirectory directory;
  PosixFileSystem files;
  WrittenModel made;
  write_model(directory / "1", made);
  made.changed_share = 0.02;
  write_model(directory / "2", made);
  const auto resident = ResidentWeights::read(ModelFiles::open(files, directory / "1").value()).value();
  const WeightChanges changes = resident->compare(ModelFiles::open(files, directory / "2").value()).value();
  EXPECT_EQ(changes.bytes, 2 * changes.cells);
  EXPECT_LT(changes.bytes, resident->weights()->bytes() / 10);
}

TEST(ResidentWeights, TakeAListWithoutACopyOfIt) {
  const TestDirectory directory;
  PosixFileSystem files;
  WrittenModel made;
  write_model(directory / "1", made);
  made.changed_share = 0.02;
  write_model(directory / "2", made);
  const auto resident = ResidentWeights::read(ModelFiles::open(files, directory / "1").value()).value();
  const MappedModel model = map_model(ModelFiles::open(files, directory / "1").value()).value();
  const auto compared = std::make_shared<const WeightChanges>(
      resident->compare(ModelFiles::open(files, directory / "2").value()).value());
  auto list = std::make_unique<VersionList>();
  list->owner = std::make_shared<int>();
  for (const WeightChanges::Tensor& changed : compared->tensors) {
    const NamedTensor& tensor = model.tensors[changed.index];
    list->tensors.push_back({tensor.name, tensor.dtype, changed.cells, 4, changed.values});
  }
  auto taken = std::make_unique<const WeightChanges>(resident->take(*list).value());
  EXPECT_EQ(taken->cells, compared->cells);
  ASSERT_EQ(taken->tensors.size(), compared->tensors.size());
  for (std::size_t i = 0; i < taken->tensors.size(); ++i) {
    EXPECT_EQ(taken->tensors[i].cells.data(), compared->tensors[i].cells.data());
    EXPECT_EQ(taken->tensors[i].values.data(), compared->tensors[i].values.data());
  }
  const std::weak_ptr<const void> owner = list->owner;
  list.reset();
  EXPECT_FALSE(owner.expired());
  resident->apply(*taken);
  EXPECT_EQ(resident->compare(ModelFiles::open(files, directory / "2").value())->cells, 0u);
  taken.reset();
  EXPECT_TRUE(owner.expired());
}

TEST(ResidentWeights, RefuseAnotherModelAndWhatIsNotFinite) {
  const TestDirectory directory;
  PosixFileSystem files;
  WrittenModel made;
  write_model(directory / "1", made);
  const auto resident = ResidentWeights::read(ModelFiles::open(files, directory / "1").value()).value();
  WrittenModel nan = made;
  nan.with_nan = true;
  write_model(directory / "nan", nan);
  EXPECT_THAT(resident->compare(ModelFiles::open(files, directory / "nan").value()).error().message(),
              HasSubstr("NaN or infinite"));
  WrittenModel deep = made;
  deep.layers = 3;
  write_model(directory / "deep", deep);
  EXPECT_THAT(resident->compare(ModelFiles::open(files, directory / "deep").value()).error().message(),
              HasSubstr("num_hidden_layers is 3"));
  WrittenModel wide = made;
  wide.dtype = "F32";
  write_model(directory / "wide", wide);
  EXPECT_THAT(resident->compare(ModelFiles::open(files, directory / "wide").value()).error().message(),
              HasSubstr("restart the worker"));
}

}  // namespace
}  // namespace weightcast
