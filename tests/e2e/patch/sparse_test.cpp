// Publications of changed cells: what arrives at workers, and what becomes of lists that a program should not send.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/mman.h>

#include <cstring>
#include <random>
#include <thread>

#include "base/units.h"
#include "client/local_channel.h"
#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"
#include "tests/client/code_of.h"
#include "tests/e2e/fleet/cluster.h"
#include "tests/e2e/fleet/offered_region.h"
#include "weightcast/weightcast.hpp"

namespace weightcast {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

constexpr std::size_t kCells = 3'000'000;

/// A trainer with two BF16 tensors that knows which cells it has changed.
struct SparseTest : testing::Test {
  Cluster cluster;
  std::mt19937 random{1};
  std::vector<std::uint16_t> cells[2] = {weights(), weights()};
  std::vector<std::uint32_t> indices[2];
  std::vector<std::uint16_t> values[2];

  std::vector<std::uint16_t> weights() {
    std::vector<std::uint16_t> made(kCells);
    for (std::uint16_t& cell : made) cell = std::uint16_t(0x3c00 + (random() & 0x80ff));
    return made;
  }
  void step() {
    for (int t = 0; t < 2; ++t) {
      indices[t].clear();
      values[t].clear();
      for (std::size_t i = random() % 200; i < kCells; i += 1 + random() % 200) {
        indices[t].push_back(std::uint32_t(i));
        values[t].push_back(++cells[t][i]);
      }
    }
  }
  std::vector<wc::Tensor> tensors() {
    std::vector<wc::Tensor> made(2);
    for (int t = 0; t < 2; ++t) {
      made[t] = {.name = name(t), .dtype = "BF16", .shape = {kCells}, .data = cells[t].data(), .size_bytes = 0};
    }
    return made;
  }
  std::vector<wc::Change> changes() {
    std::vector<wc::Change> made(2);
    for (int t = 0; t < 2; ++t) {
      made[t] = {.name = name(t),
                 .dtype = "BF16",
                 .indices = indices[t].data(),
                 .index_bytes = 4,
                 .values = values[t].data(),
                 .count = indices[t].size()};
    }
    return made;
  }
  static std::string name(int t) { return t == 0 ? "first" : "second"; }

  /// Whether a node has installed what the trainer has.
  testing::AssertionResult holds_weights(const std::string& node) {
    const std::string file = read_file(cluster.state(node) + "/current/model.safetensors");
    const auto header = parse_safetensors_header(std::as_bytes(std::span(file)), file.size(), node);
    if (!header.has_value()) return testing::AssertionFailure() << header.error().message();
    for (const TensorInfo& tensor : header->tensors) {
      const auto& mine = cells[tensor.name == name(0) ? 0 : 1];
      if (std::memcmp(file.data() + tensor.offset_bytes, mine.data(), 2 * kCells) != 0) {
        return testing::AssertionFailure() << tensor.name << " of " << node << " differs";
      }
    }
    return testing::AssertionSuccess();
  }
  wc::Outcome wait(wc::Client& trainer, std::uint64_t version) {
    return trainer.wait(version, {.fraction = 1, .on_progress = {}}, 60s);
  }
};

TEST_F(SparseTest, WorkersInstallThemByPatchBitForBit) {
  cluster.start_fleet({"a", "b"});
  wc::Client trainer(cluster.state("origin"));
  trainer.publish(tensors(), {}, 30s);
  EXPECT_TRUE(wait(trainer, 1).reached);
  for (std::uint64_t v = 2; v <= 5; ++v) {
    step();
    EXPECT_EQ(trainer.publish_sparse(v - 1, changes(), {}, 30s), v);
    const wc::Outcome outcome = wait(trainer, v);
    EXPECT_TRUE(outcome.reached);
    EXPECT_EQ(outcome.payload, WC_PATCH);
    EXPECT_LT(outcome.payload_bytes, kCells / 10);
    for (const char* node : {"origin", "a", "b"}) EXPECT_TRUE(holds_weights(node)) << v;
  }
  // A whole one follows, and one more after that: the chain of versions is the same.
  step();
  EXPECT_EQ(trainer.publish(tensors(), {}, 30s), 6u);
  step();
  EXPECT_EQ(trainer.publish_sparse(6, changes(), {}, 30s), 7u) << "before the one before is taken over";
  EXPECT_TRUE(wait(trainer, 7).reached);
  for (const char* node : {"origin", "a", "b"}) EXPECT_TRUE(holds_weights(node));
}

TEST_F(SparseTest, ATrainerThatIsAheadOfItsOriginHearsOfItAndPublishesTheWhole) {
  cluster.start_fleet({"a"});
  wc::Client trainer(cluster.state("origin"));
  const auto code = [&](std::uint64_t base) {
    return code_of([&] { return trainer.publish_sparse(base, changes(), {}, 30s); });
  };
  step();
  EXPECT_EQ(code(1), WC_WRONG_BASE) << "there is none";
  trainer.publish(tensors(), {}, 30s);
  EXPECT_EQ(code(2), WC_WRONG_BASE);
  EXPECT_EQ(code(0), WC_WRONG_BASE);
  // The base is refused at its turn, and so is what is made against it.
  std::vector<std::uint16_t> nan{0x7fc0};
  std::vector<std::uint32_t> at{5};
  trainer.publish_sparse(
      1, {{.name = "first", .dtype = "BF16", .indices = at.data(), .index_bytes = 4, .values = nan.data(), .count = 1}},
      {}, 30s);
  std::uint64_t second = 0;
  try {
    second = trainer.publish_sparse(2, changes(), {.second_region = true}, 30s);
  } catch (const wc::Error& error) {
    EXPECT_EQ(error.code(), WC_WRONG_BASE) << "refused before it was sent";
  }
  if (second != 0) {
    EXPECT_EQ(code_of([&] { return trainer.wait(second, {}, 30s); }), WC_WRONG_BASE) << "its base was never published";
  }
  trainer.publish(tensors(), {}, 30s);
  EXPECT_TRUE(wait(trainer, 0).reached);
  EXPECT_TRUE(holds_weights("a"));
}

// A program of the same user may send anything. The daemon refuses it, and goes on.
TEST_F(SparseTest, WhatAreNoChangesIsRefusedAndTheOriginGoesOn) {
  cluster.start_origin();
  wc::Client trainer(cluster.state("origin"));
  trainer.publish(tensors(), {}, 30s);
  trainer.wait(1, {}, 30s);
  const auto offer = [&](std::string_view bytes, std::uint64_t changes_bytes) {
    local::PublishChangesRequest request;
    request.base_version = 1;
    request.changes_bytes = changes_bytes;
    return offer_region(cluster.state("origin"), request, bytes, 100'000);
  };
  const auto file = [](const std::string& json, const std::string& data) {
    const std::uint64_t length = json.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof length) + json + data;
  };
  const std::string pair = R"({"indices/first":{"dtype":"U32","shape":[1],"data_offsets":[0,4]},)"
                           R"("values/first":{"dtype":"BF16","shape":[1],"data_offsets":[4,6]}})";
  EXPECT_THAT(offer("", 100'000), HasSubstr("the changes")) << "all zero";
  EXPECT_THAT(offer("", ~std::uint64_t{0}), HasSubstr("the changes")) << "more than there is";
  const std::string outside = file(pair, std::string("\xff\xff\xff\xff\0\0", 6));
  EXPECT_THAT(offer(outside, outside.size()), HasSubstr("index 4294967295 is not one of its 3000000 elements"));
  const std::string nan = file(pair, std::string("\1\0\0\0\xc0\x7f", 6));
  EXPECT_THAT(offer(nan, nan.size()), HasSubstr("WC_ALLOW_NONFINITE"));
  EXPECT_EQ(cluster.version("origin"), 1u);
  const std::string good = file(pair, std::string("\1\0\0\0\x81\x3f", 6));
  EXPECT_EQ(offer(good, good.size()), "taken over");
  cells[0][1] = 0x3f81;
  EXPECT_TRUE(holds_weights("origin"));
}

// Its owner may write to a list while it is read. Whatever is taken over is a version, and the origin lives.
TEST_F(SparseTest, AListThatChangesWhileItIsReadHarmsNobody) {
  cluster.start_fleet({"a"});
  wc::Client trainer(cluster.state("origin"));
  trainer.publish(tensors(), {}, 30s);
  EXPECT_TRUE(wait(trainer, 1).reached);
  std::vector<TensorInfo> infos{{std::string(kIndicesPrefix) + "first", "U32", {kCells / 2}, 0, 2 * kCells},
                                {std::string(kValuesPrefix) + "first", "BF16", {kCells / 2}, 0, kCells}};
  const auto layout = lay_out_safetensors(infos);
  ASSERT_TRUE(layout.has_value());
  const int fd = ::memfd_create("restless", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::ftruncate(fd, off_t(layout->file_bytes)), 0);
  ASSERT_EQ(::fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  auto* const memory =
      static_cast<char*>(::mmap(nullptr, layout->file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  ASSERT_NE(static_cast<void*>(memory), MAP_FAILED);
  std::memcpy(memory, layout->header.data(), layout->header.size());
  for (std::uint32_t i = 0; i < kCells / 2; ++i) {
    const std::uint32_t index = 2 * i;
    std::memcpy(memory + layout->offsets_bytes[0] + 4 * i, &index, sizeof index);
  }
  std::atomic<bool> over{false};
  std::thread vandal([&] {
    for (std::uint32_t state = 1; !over;) {
      state = state * 1664525 + 1013904223;
      const std::uint64_t i = (state >> 8) % (kCells / 2);
      // Now and then an index: nearly all of the reads find the list in order.
      const bool index = state % 64 == 0;
      char* const at = memory + (index ? layout->offsets_bytes[0] + 4 * i : layout->offsets_bytes[1] + 2 * i);
      std::memcpy(at, &state, index ? 4 : 1);
      if (index) {
        const std::uint32_t right = std::uint32_t(2 * i);
        std::memcpy(at, &right, sizeof right);
      }
    }
  });
  const client::Cancellation cancellation;
  for (std::uint64_t round = 0; round < 4; ++round) {
    const client::Deadline deadline = client::deadline_after(60'000);
    auto channel = client::LocalChannel::open(cluster.state("origin"), deadline, cancellation);
    local::PublishChangesRequest request;
    request.base_version = cluster.version("origin");
    request.allow_nonfinite = true;
    request.changes_bytes = layout->file_bytes;
    ASSERT_TRUE((*channel)->send({.kind = request}, deadline, std::span(&fd, 1)).has_value());
    for (;;) {
      const auto answer = (*channel)->receive(deadline);
      ASSERT_TRUE(answer.has_value()) << answer.error().message();
      if (answer->get<local::PublishTaken>() != nullptr) break;
      if (const auto* error = answer->get<local::ErrorReply>()) {
        EXPECT_EQ(static_cast<Errc>(error->code), Errc::kInvalidArgument) << error->detail;
        break;
      }
    }
  }
  over = true;
  vandal.join();
  ::munmap(memory, layout->file_bytes);
  ::close(fd);
  const std::uint64_t last = cluster.version("origin");
  EXPECT_TRUE(Cluster::eventually([&] { return cluster.version("a") == last; }));
  EXPECT_EQ(read_file(cluster.state("a") + "/current/model.safetensors"),
            read_file(cluster.state("origin") + "/current/model.safetensors"));
}

}  // namespace
}  // namespace weightcast
