#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/files/posix_file_system.h"
#include "base/json_of.h"
#include "base/random.h"
#include "base/units.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/fleet/interrupt.h"
#include "bench/fleet/scratch.h"
#include "bench/times.h"
#include "trainer/model/model_files.h"
#include "worker/engine/engine.h"
#include "worker/engine/resident_weights.h"

namespace weightcast::bench {
namespace {

struct InstallBenchOptions {
  std::uint64_t weight_bytes = std::uint64_t{256} << 20;  ///< about; BF16
  std::uint32_t repetitions = 5;
  std::string json_path;
};

/// Versions of an engine that generates for 8 requests. Medians.
struct InstallBenchResult {
  std::uint64_t weight_bytes = 0;
  std::uint64_t changed_cells = 0;
  std::uint64_t written_bytes = 0;
  double open_s = 0;             ///< mapped: reading and checking, beside the engine
  double switch_s = 0;           ///< mapped: the pause
  double compare_s = 0;          ///< resident: reading, checking and comparing, beside the engine
  double list_s = 0;             ///< resident: checking a daemon's list of the same changes instead
  double write_s = 0;            ///< resident: the pause for the changed cells
  double resident_switch_s = 0;  ///< and for the rest
};

// Of the cells, from one version to the next.
constexpr double kChangedShare = 0.03;

ModelConfig model_of(const InstallBenchOptions& options) {
  ModelConfig config;
  config.vocab_size = 512;
  config.hidden_size = 1024;
  config.intermediate_size = 3072;
  config.num_attention_heads = 16;
  config.num_key_value_heads = 8;
  config.head_dim = 128;
  config.qk_norm = true;
  config.tie_word_embeddings = true;
  for (config.num_hidden_layers = 1;
       2 * static_cast<std::uint64_t>(model_size(config).parameters) < options.weight_bytes;) {
    ++config.num_hidden_layers;
  }
  return config;
}

/// A version: the same numbers as in others, but for its own share of cells.
Status write_version(FileSystem& files, const std::filesystem::path& directory, const ModelConfig& config,
                     double changed_share, std::uint64_t seed) {
  std::vector<TensorInfo> tensors;
  for (const TensorSpec& spec : tensor_specs(config)) {
    TensorInfo info;
    info.name = spec.name;
    info.dtype = "BF16";
    info.shape.assign(spec.shape.begin(), spec.shape.end());
    info.size_bytes = 2 * static_cast<std::uint64_t>(spec.elements());
    tensors.push_back(std::move(info));
  }
  Random numbers(1);
  Random changes(seed);
  std::vector<std::byte> bytes;
  const auto draw = [](Random& random) {
    const auto value = static_cast<float>(0.04 * (random.unit() - 0.5));
    std::uint32_t bits = 0;
    std::memcpy(&bits, &value, 4);
    return static_cast<std::uint16_t>(bits >> 16);
  };
  return write_new_model(files, directory, tensors,
                         [&](const TensorInfo& info) -> Result<Bytes> {
                           bytes.resize(info.size_bytes);
                           for (std::size_t i = 0; i < bytes.size(); i += 2) {
                             std::uint16_t cell = draw(numbers);
                             if (changes.chance(changed_share)) cell = draw(changes);
                             std::memcpy(bytes.data() + i, &cell, 2);
                           }
                           return Bytes(bytes);
                         },
                         {});
}

Result<std::unique_ptr<Engine>> busy_engine(std::shared_ptr<const EngineWeights> weights) {
  WC_ASSIGN(auto engine, Engine::make(std::move(weights), Version{1}, {}));
  for (std::uint64_t i = 0; i < 8; ++i) {
    EngineRequest request;
    request.prompt.assign(32, static_cast<TokenId>(i));
    request.tokens_max = 1000;
    WC_TRY(engine->add(std::move(request)));
  }
  static_cast<void>(engine->step());
  return engine;
}

/// The changes as a daemon lists them. `tensors` are those of the weights, in their order.
VersionList list_of(const WeightChanges& changes, const std::vector<NamedTensor>& tensors) {
  VersionList list{{}, changes.owner};
  for (const WeightChanges::Tensor& changed : changes.tensors) {
    const NamedTensor& tensor = tensors[changed.index];
    list.tensors.push_back({tensor.name, tensor.dtype, changed.cells, sizeof(std::uint32_t), changed.values});
  }
  return list;
}

/// Errors: those of writing and reading the versions.
Result<InstallBenchResult> measure(const InstallBenchOptions& options) {
  PosixFileSystem files;
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  const ModelConfig config = model_of(options);
  const std::filesystem::path first = scratch.path() / "1", second = scratch.path() / "2";
  WC_TRY(write_version(files, first, config, 0, 1));
  WC_TRY(write_version(files, second, config, kChangedShare, 2));
  const auto open = [&](const std::filesystem::path& directory) { return ModelFiles::open(files, directory, config); };
  const auto map = [&](const std::filesystem::path& directory) -> Result<std::shared_ptr<const EngineWeights>> {
    WC_ASSIGN(ModelFiles opened, open(directory));
    return EngineWeights::open(std::move(opened));
  };

  InstallBenchResult result;
  std::vector<Times> opens, switches, compares, lists, writes, resident_switches;
  WC_ASSIGN(auto mapped, map(first));
  result.weight_bytes = mapped->bytes();
  std::shared_ptr<const EngineWeights> in_use = mapped;
  WC_ASSIGN(const auto engine, busy_engine(std::move(mapped)));
  for (std::uint32_t i = 0; i < options.repetitions; ++i) {
    WC_TRY(check_interrupt());
    WC_ASSIGN(auto next, timed(opens, [&] { return map(i % 2 == 0 ? second : first); }));
    // As VersionFollower does: the old weights go elsewhere.
    const auto old_weights = std::exchange(in_use, next);
    WC_TRY(timed(switches, [&] { return engine->set_weights(Version{i + 2}, std::move(next)); }));
    static_cast<void>(engine->step());
  }

  WC_ASSIGN(ModelFiles named_files, open(first));
  WC_ASSIGN(const MappedModel names, map_model(std::move(named_files)));
  WC_ASSIGN(ModelFiles resident_files, open(first));
  WC_ASSIGN(const auto resident, ResidentWeights::read(std::move(resident_files)));
  WC_ASSIGN(const auto resident_engine, busy_engine(resident->weights()));
  for (std::uint32_t i = 0; i < options.repetitions; ++i) {
    WC_TRY(check_interrupt());
    const auto compare = [&]() -> Result<WeightChanges> {
      WC_ASSIGN(ModelFiles found, open(i % 2 == 0 ? second : first));
      return resident->compare(std::move(found));
    };
    WC_ASSIGN(WeightChanges changes, timed(compares, compare));
    const VersionList list = list_of(changes, names.tensors);
    WC_ASSIGN(changes, timed(lists, [&] { return resident->take(list); }));
    result.changed_cells = changes.cells;
    result.written_bytes = changes.bytes;
    writes.push_back(times_of([&] { resident->apply(changes); }));
    WC_TRY(timed(resident_switches, [&] { return resident_engine->set_weights(Version{i + 2}, resident->weights()); }));
    static_cast<void>(resident_engine->step());
  }
  result.open_s = median(opens, &Times::wall_s);
  result.switch_s = median(switches, &Times::wall_s);
  result.compare_s = median(compares, &Times::wall_s);
  result.list_s = median(lists, &Times::wall_s);
  result.write_s = median(writes, &Times::wall_s);
  result.resident_switch_s = median(resident_switches, &Times::wall_s);
  return result;
}

nlohmann::json to_json(const InstallBenchResult& result) {
  return WC_JSON_OF(result.weight_bytes, result.changed_cells, result.written_bytes, result.open_s, result.switch_s,
                    result.compare_s, result.list_s, result.write_s, result.resident_switch_s);
}

Status run(const InstallBenchOptions& options) {
  hold_interrupts();
  WC_ASSIGN(const InstallBenchResult result, measure(options));
  fmt::print(
      "{:.1f} MiB of bfloat16 weights, {} cells changed; mapped: prepared in {:.1f} ms, switched in {:.3f} ms; "
      "resident: prepared in {:.1f} ms, or by a list in {:.1f} ms, {:.1f} MiB written in {:.2f} ms, switched in {:.3f} "
      "ms\n",
      static_cast<double>(result.weight_bytes) / kMiB, result.changed_cells, 1e3 * result.open_s, 1e3 * result.switch_s,
      1e3 * result.compare_s, 1e3 * result.list_s, static_cast<double>(result.written_bytes) / kMiB,
      1e3 * result.write_s, 1e3 * result.resident_switch_s);
  return write_json(options.json_path, to_json(result));
}

}  // namespace

void add_install_command(CLI::App& app) {
  const auto [command, options] =
      add_bench<const InstallBenchOptions>(app, "install", "How long the engine pauses for a version", run);
  command->add_option("--weights", options->weight_bytes, "About so many bytes of weights")
      ->transform(CLI::AsSizeValue(false));
  command->add_option("--repeat", options->repetitions, "Versions of each kind")->check(CLI::Range(1u, 1000u));
  command->add_option("--json", options->json_path, "Write the result to this file; - is stdout");
}

}  // namespace weightcast::bench
