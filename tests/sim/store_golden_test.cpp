// State directories of each form that was ever written, opened by today's recovery; and whether today's store still
// writes the latest of them, byte for byte. HACKING.md, "The form of state directories", says what to do when not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <vector>

#include "tests/result_matchers.h"
#include "tests/sim/describe_store.h"
#include "tests/sim/state_archive.h"
#include "tests/sim/store_host.h"

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

const fs::path kGolden = WEIGHTCAST_STORE_GOLDEN;
const fs::path kPayloads = "/payloads";

/// What is expected is written anew instead of compared.
bool writes_golden() { return std::getenv("WEIGHTCAST_WRITE_GOLDEN") != nullptr; }

fs::path latest_form() { return kGolden / fmt::format("form_{}", kRecordForm); }

std::string read_whole(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_whole(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// ---- The generator. A seed and these functions determine every byte.

/// Six chunks in three parts. BF16 cells with few exponents, so that a packed payload is smaller.
Publication golden_snapshot(std::uint64_t version) {
  Publication made =
      publication(version, {{"config.json", 0}, {"model-1.safetensors", 17'000}, {"model-2.safetensors", 4'000}});
  for (std::size_t i = 1; i < made.stream.size(); i += 2) made.stream[i] = static_cast<char>(0x3c + i % 3);
  made.manifest.part_chunks = 2;
  made.manifest.run = RunId{0xa};
  made.manifest.signature = {std::string(kSignatureBytesMax, 's'), "certificate"};
  made.manifest.published_unix_ms = 1'700'000'000'000 + static_cast<std::int64_t>(version);
  made.digest();
  return made;
}

/// Several chunks: every cell has changed.
Publication golden_patch(std::uint64_t version) {
  return weightcast::patch_of(golden_snapshot(version - 1), golden_snapshot(version), 8192);
}

Publication golden_packed(std::uint64_t version) {
  Publication made = packed_payload(golden_snapshot(version), 8192);
  made.digest_chunks();
  return made;
}

/// `p` arrives as far as these parts and chunks.
Status receive_partly(StoreHost& host, const Publication& p, const std::vector<std::uint32_t>& parts,
                      const std::vector<std::uint32_t>& chunks) {
  WC_TRY(host.begin(p.manifest));
  for (const std::uint32_t part : parts) host.store->put_digest_part(p.manifest.id(), part, p.digests_of(part));
  WC_TRY(host.write(p, chunks));
  // What was handed to other threads ends.
  host.pass(std::chrono::seconds(1));
  return {};
}

Status make_origin(StoreHost& host) {
  WC_TRY(host.import(golden_snapshot(1)));
  WC_TRY(host.import(golden_snapshot(2)));
  const PayloadId second = golden_patch(2).manifest.id(), third = golden_patch(3).manifest.id();
  WC_TRY(host.make_patch(golden_patch(2)));
  WC_TRY(host.await_durable(Version{2}));
  WC_TRY(host.import(golden_snapshot(3)));
  WC_TRY(host.make_patch(golden_patch(3)));
  WC_TRY(host.make_patch(golden_packed(3)));
  host.store->retain({second, third, packed_of(Version{3})});
  WC_TRY(host.await_durable(Version{3}));
  // An import that ends in the middle.
  WC_ASSIGN(const ImportTarget target, host.await<ImportTarget>([&](auto done) {
    host.store->begin_import(Version{4}, golden_snapshot(4).manifest.files, std::move(done));
  }));
  return write_stream(*target.files, 0, golden_snapshot(4).bytes().first(9000));
}

Status make_worker_full(StoreHost& host) {
  WC_TRY(host.receive_durably(golden_snapshot(1)));
  return receive_partly(host, golden_snapshot(2), {0, 1}, {0, 1, 3});
}

Status make_worker_patch(StoreHost& host) {
  WC_TRY(host.receive_durably(golden_snapshot(1)));
  WC_TRY(host.receive_durably(golden_patch(2)));
  WC_TRY(host.receive_durably(golden_patch(3)));
  return receive_partly(host, golden_patch(4), {0}, {0, 1});
}

Status make_worker_packed(StoreHost& host) {
  WC_TRY(host.receive_durably(golden_packed(1)));
  return receive_partly(host, golden_packed(2), {0}, {0});
}

/// The newest version was complete, and not durable yet.
Status make_worker_not_synced(StoreHost& host) {
  WC_TRY(host.receive_durably(golden_snapshot(1)));
  return host.receive(golden_snapshot(2));
}

Status make_in_place(StoreHost& host) {
  host.store_options.single_copy = true;
  if (!host.start()) return *host.open_error;
  WC_TRY(host.receive_durably(golden_snapshot(1)));
  return host.receive(golden_patch(2));
}

/// It follows its second run, and has nothing whole of that.
Status make_worker_second_run(StoreHost& host) {
  WC_TRY(host.follow_run(0xa, false));
  WC_TRY(host.receive_durably(golden_snapshot(2)));
  WC_TRY(host.follow_run(0xb, true));
  if (!host.start()) return *host.open_error;
  return receive_partly(host, golden_snapshot(1), {0, 1}, {0, 3});
}

/// Whether the only copy has some bytes of either version.
bool half_made_in_place(StoreHost& host) {
  return host.files.observe([&](FileSystem& files) {
    const fs::path file = kState / "incoming" / "000000000002" / "model-1.safetensors";
    const std::string now = read_file(files, file, kGiB).value_or("");
    return !now.empty() && now != golden_snapshot(1).stream.substr(0, now.size()) &&
           now != golden_snapshot(2).stream.substr(0, now.size());
  });
}

struct GoldenState {
  std::function<Status(StoreHost&)> make;
  std::vector<Publication> resumed;                       ///< payloads that are partly there
  std::function<bool(StoreHost&)> killed_when = nullptr;  ///< the first moment after which this is so; else the end
};

const std::map<std::string, GoldenState>& states() {
  static const std::map<std::string, GoldenState> all{
      {"origin", {make_origin, {}}},
      {"worker_full", {make_worker_full, {golden_snapshot(2)}}},
      {"worker_patch", {make_worker_patch, {golden_patch(4)}}},
      {"worker_packed", {make_worker_packed, {golden_packed(2)}}},
      {"worker_second_run", {make_worker_second_run, {golden_snapshot(1)}}},
      {"worker_not_synced", {make_worker_not_synced, {}}},
      {"in_place_half_made", {make_in_place, {}, half_made_in_place}},
      {"in_place_not_synced", {make_in_place, {}}},
  };
  return all;
}

/// The disk of a process that was killed before change `change`, or at the end.
std::unique_ptr<StoreHost> host_of(const GoldenState& state, std::optional<std::uint64_t> change) {
  auto host = std::make_unique<StoreHost>(1);
  if (change) host->files.kill_before_change(*change);
  EXPECT_TRUE(host->start() || change);
  const Status made = host->store ? state.make(*host) : Status();
  EXPECT_TRUE(made.has_value() || change) << made.error().message();
  host->files.kill();
  host->end_process();
  host->files.restart();
  return host;
}

/// What a golden file holds: the state directory, and beside it the payloads that are partly in it, whole.
std::string generate(const GoldenState& state) {
  std::unique_ptr<StoreHost> host = host_of(state, std::nullopt);
  const std::uint64_t changes = host->files.changes();
  for (std::uint64_t change = 1; state.killed_when; ++change) {
    host = host_of(state, change);
    if (state.killed_when(*host)) break;
    if (change == changes) {
      ADD_FAILURE() << "that never happens";
      return "";
    }
  }
  const auto packed = host->files.observe([&](FileSystem& files) -> Result<std::string> {
    WC_TRY(make_directories(files, kPayloads));
    for (const Publication& p : state.resumed) {
      const fs::path path = kPayloads / StoreLayout(files, kState).record(p.manifest.id()).filename();
      WC_ASSIGN(const std::unique_ptr<File> file, files.open(path, {.write = true, .create = Create::kNew}));
      WC_TRY(write_fully(*file, 0, p.bytes(), path.native()));
    }
    return pack_directory(files, "/");
  });
  EXPECT_TRUE(packed.has_value());
  return packed.value_or("");
}

TEST(StoreGolden, TodaysStoreWritesTheLatestForm) {
  for (const auto& [name, state] : states()) {
    SCOPED_TRACE(name);
    const fs::path path = latest_form() / (name + ".state");
    const std::string made = generate(state);
    EXPECT_EQ(made, generate(state)) << "the generator is not deterministic";
    if (writes_golden()) write_whole(path, made);
    EXPECT_TRUE(made == read_whole(path)) << "state directories have another form than " << path
                                          << "; HACKING.md, \"The form of state directories\", says what to do";
  }
}

// ---- Opened by the real recovery, on the host's file system.

std::vector<fs::path> golden_files() {
  std::vector<fs::path> found;
  if (!fs::exists(kGolden)) return found;
  for (const auto& entry : fs::recursive_directory_iterator(kGolden)) {
    if (entry.path().extension() == ".state") found.push_back(entry.path());
  }
  std::sort(found.begin(), found.end());
  return found;
}

class StoreGoldenState : public OneStore, public testing::WithParamInterface<fs::path> {
 protected:
  std::string describe_now() {
    if (store_->current() != kNoVersion) {
      EXPECT_EQ(fs::canonical(directory() / "current"), fs::canonical(store_->find(store_->current())->path));
    }
    return describe(*store_, real_files());
  }

  /// The rest of a payload arrives.
  void resume(const PartialVersion& partial) {
    Publication p;
    p.manifest = partial.manifest;
    p.stream = read_whole(fs::path(temp_.path()) / "payloads" / layout().record(partial.manifest.id()).filename());
    p.digest_chunks();
    ASSERT_EQ(p.manifest, partial.manifest) << "the payload beside the state directory is another";
    const Result<PartialVersion> begun = begin(p);
    ASSERT_TRUE(begun.has_value()) << begun.error().message();
    EXPECT_EQ(begun->held.count(), partial.held.count());
    ASSERT_TRUE(put(p).has_value());
    ASSERT_THAT(finish(p), Succeeds());
  }
};

TEST_P(StoreGoldenState, IsOpenedWithAllThatIsInIt) {
  ASSERT_THAT(unpack_directory(real_files(), read_whole(GetParam()), temp_.path()), Succeeds());
  ASSERT_EQ(directory(), fs::path(temp_.path()) / kState.relative_path());
  options_.backend = DiskBackend::kThreadPool;
  open();
  std::string text = describe_now();
  const std::vector<PartialVersion> found = store_->partial();
  for (const PartialVersion& partial : found) resume(partial);
  ASSERT_TRUE(eventually([&] {
    const auto versions = store_->versions();
    return std::ranges::all_of(versions, [](const StoredVersion& stored) { return stored.durable; });
  }));
  open();
  text += "resumed and opened again:\n" + describe_now();
  fs::path expected = GetParam();
  expected.replace_extension(".txt");
  if (writes_golden()) write_whole(expected, text);
  EXPECT_EQ(text, read_whole(expected));
}

INSTANTIATE_TEST_SUITE_P(, StoreGoldenState, testing::ValuesIn(golden_files()), [](const auto& golden) {
  return golden.param.parent_path().filename().string() + "_" + golden.param.stem().string();
});

}  // namespace
}  // namespace weightcast::sim
