#include "transport/node/payload/payload_producer.h"

#include <atomic>
#include <fstream>

#include "tests/transport/io/store/store_fixture.h"

namespace weightcast {
namespace {

enum class Step { kNone, kOpen, kAnnounce, kBegin, kProduce, kEnd, kFinish };

/// A version in memory, made by two jobs, the second half first, that fails at a step.
class MemorySnapshot final : public PayloadSource {
 public:
  MemorySnapshot(const Publication& version, Step fails) : version_(version), fails_(fails) {}

  Status open() override { return at(Step::kOpen); }

  Result<Announcement> announce() override {
    WC_TRY(at(Step::kAnnounce));
    Manifest manifest = version_.manifest;
    manifest.open = true;
    manifest.expected_bytes = std::exchange(manifest.payload_bytes, 0);
    manifest.part_digests.clear();
    manifest.part_chunks = 2;
    manifest.snapshot_digest = {};
    return Announcement{manifest, 1.0, {}};
  }

  void begin(Store& store, std::function<void(Status)> done) override {
    if (fails_ == Step::kBegin) return done(at(Step::kBegin));
    store.begin_import(version_.manifest.version, version_.manifest.files,
                       [this, done = std::move(done)](const Result<ImportTarget>& target) {
                         if (target.has_value()) directory_ = target->directory;
                         done(target.has_value() ? Status() : Status(target.error()));
                       });
  }

  [[nodiscard]] unsigned jobs() const override { return 2; }

  Status produce(const Report& report) override {
    const std::uint32_t half = version_.manifest.chunk_count() / 2;
    if (next_++ == 0) {
      write_files();
      WC_TRY(at(Step::kProduce));
      send(report, half, version_.manifest.chunk_count());
    } else {
      send(report, 0, half);
    }
    return {};
  }

  void stop() override { stopped = true; }

  Result<Checksum> end() override {
    WC_TRY(at(Step::kEnd));
    return version_.manifest.snapshot_digest;
  }

  void finish(Store& store, const MadePayload& made, std::function<void(Status)> done) override {
    MadePayload wrong = made;
    if (fails_ == Step::kFinish) wrong.chunk_digests.pop_back();
    store.finish_import(*made.manifest, wrong.chunk_digests,
                        [done = std::move(done)](const Result<StoredVersion>& stored) {
                          done(stored.has_value() ? Status() : Status(stored.error()));
                        });
  }

  static inline std::atomic<bool> stopped = false;

 private:
  [[nodiscard]] Status at(Step step) const {
    return fails_ == step ? Status(fail(Errc::kIo, Op::kRead, "as the test wants")) : Status();
  }
  void send(const Report& report, std::uint32_t first, std::uint32_t end) {
    std::uint64_t bytes = 0;
    for (std::uint32_t i = first; i < end; ++i) bytes += version_.manifest.chunk_size(ChunkIndex{i});
    report(first, std::span(version_.digests).subspan(first, end - first), bytes);
  }
  void write_files() {
    std::size_t offset = 0;
    for (const SnapshotFile& file : version_.manifest.files) {
      std::ofstream(directory_ / file.name, std::ios::binary | std::ios::in)
          << version_.stream.substr(offset, file.size_bytes);
      offset += file.size_bytes;
    }
  }

  const Publication& version_;
  const Step fails_;
  std::filesystem::path directory_;
  std::atomic<unsigned> next_ = 0;
};

class PayloadProducerTest : public OneStore {
 protected:
  struct Told {
    unsigned begun = 0;
    std::vector<std::uint32_t> grown_chunks;
    std::optional<Result<MadePayload>> done;
  };

  Told produce(const Publication& version, Step fails) {
    Told told;
    std::size_t reads = 0;
    PayloadObserver observer;
    observer.begun = [&](const std::shared_ptr<const Manifest>& manifest, double packed_share) {
      EXPECT_TRUE(manifest->open && manifest->part_digests.empty() && packed_share == 1);
      ++told.begun;
    };
    observer.grown = [&](const MadePayload& grown) {
      EXPECT_FALSE(told.done.has_value());
      told.grown_chunks.push_back(grown.manifest->chunk_count());
      // What is told can be read, unless it was taken back since.
      store_->read_chunk(version.manifest.version, ChunkIndex{0}, [&, fails](const Result<BufferRef>& chunk) {
        EXPECT_TRUE(chunk.has_value() || fails != Step::kNone);
        ++reads;
      });
    };
    observer.done = [&](Result<MadePayload> made) { told.done = std::move(made); };
    MemorySnapshot::stopped = false;
    std::make_shared<PayloadProducer>(jobs_, *store_, std::make_unique<MemorySnapshot>(version, fails), observer)
        ->start();
    EXPECT_TRUE(eventually([&] { return told.done.has_value() && reads == told.grown_chunks.size(); }));
    return told;
  }

  Jobs jobs_{loop_};
};

TEST_F(PayloadProducerTest, TellsHowFarAPayloadIsAndPutsItIntoTheStore) {
  open();
  const Publication version = publication(1);
  const Told told = produce(version, Step::kNone);
  ASSERT_TRUE(told.done->has_value()) << told.done->error().message();
  EXPECT_EQ(told.begun, 1u);
  EXPECT_TRUE(std::ranges::is_sorted(told.grown_chunks));
  EXPECT_FALSE((*told.done)->manifest->open);
  EXPECT_EQ((*told.done)->manifest->snapshot_digest, version.manifest.snapshot_digest);
  EXPECT_EQ((*told.done)->chunk_digests, version.digests);
  EXPECT_EQ(store_->current(), Version{1});
}

TEST_F(PayloadProducerTest, LeavesNothingWhicheverStepFails) {
  open();
  const Publication version = publication(1);
  for (const Step step : {Step::kOpen, Step::kAnnounce, Step::kBegin, Step::kProduce, Step::kEnd, Step::kFinish}) {
    const Told told = produce(version, step);
    EXPECT_FALSE(told.done->has_value()) << int(step);
    EXPECT_EQ(told.begun, step > Step::kAnnounce ? 1u : 0u) << int(step);
    EXPECT_EQ(MemorySnapshot::stopped, step == Step::kOpen || step == Step::kProduce) << int(step);
    EXPECT_EQ(store_->find(Version{1}), nullptr) << int(step);
    EXPECT_TRUE(store_->partial().empty()) << int(step);
    EXPECT_TRUE(eventually([&] { return !std::filesystem::exists(layout().incoming(Version{1})); })) << int(step);
  }
  EXPECT_TRUE(produce(version, Step::kNone).done->has_value());
}

TEST_F(PayloadProducerTest, SaysNothingOnceItsJobsAreStopped) {
  open();
  const Publication version = publication(1);
  bool told = false;
  PayloadObserver observer;
  observer.begun = [&](const std::shared_ptr<const Manifest>&, bool) { told = true; };
  observer.grown = [&](const MadePayload&) { told = true; };
  observer.done = [&](const Result<MadePayload>&) { told = true; };
  std::make_shared<PayloadProducer>(jobs_, *store_, std::make_unique<MemorySnapshot>(version, Step::kNone), observer)
      ->start();
  jobs_.stop();
  for (int i = 0; i < 3; ++i) {
    bool turned = false;
    loop_.post([&] { turned = true; });
    ASSERT_TRUE(eventually([&] { return turned; }));
  }
  EXPECT_FALSE(told);
}

}  // namespace
}  // namespace weightcast
