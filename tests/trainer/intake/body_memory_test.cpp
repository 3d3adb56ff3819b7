// What a hostile body costs, by counting each allocation of the process.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "base/units.h"
#include "tests/trainer/tasks/trajectory_fixture.h"
#include "trainer/intake/rollout_bodies.h"
#include "trainer/tasks/trajectory/trajectory_json.h"
#include "trainer/tasks/trajectory/trajectory_wire.h"

namespace {

std::atomic<std::size_t> live_bytes = 0, peak_bytes = 0;

void* counted(void* block) {
  if (block == nullptr) throw std::bad_alloc();
  const std::size_t now = live_bytes += ::malloc_usable_size(block);
  for (std::size_t peak = peak_bytes; now > peak && !peak_bytes.compare_exchange_weak(peak, now);) continue;
  return block;
}
void discount(void* block) {
  if (block == nullptr) return;
  live_bytes -= ::malloc_usable_size(block);
  std::free(block);
}

}  // namespace

void* operator new(std::size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void* operator new[](std::size_t size) { return counted(std::malloc(size == 0 ? 1 : size)); }
void operator delete(void* block) noexcept { discount(block); }
void operator delete[](void* block) noexcept { discount(block); }
void operator delete(void* block, std::size_t) noexcept { discount(block); }
void operator delete[](void* block, std::size_t) noexcept { discount(block); }

namespace weightcast {
namespace {

constexpr std::size_t kBodyBytes = 8 * kMiB;
constexpr TrajectoryLimits kLimits{.tokens_max = 32768, .metadata_bytes_max = 65536};
constexpr const char *kJson = "application/json", *kProtobuf = "application/x-protobuf";

/// Reads all rollouts of a body. Returns the most memory that took beyond the body.
std::size_t cost_of(const std::string& type, const std::string& body) {
  const std::size_t before = live_bytes;
  peak_bytes = before;
  if (auto bodies = RolloutBodies::open(type, body, kLimits); bodies.has_value()) {
    while (const auto next = bodies->next()) static_cast<void>(next->has_value());
  }
  return peak_bytes - before;
}

std::string repeated(std::string_view unit) {
  std::string text;
  text.reserve(kBodyBytes + unit.size());
  while (text.size() < kBodyBytes) text += unit;
  return text;
}
std::string varint(std::size_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}
std::string batch_of(const std::string& rollout) { return "\x12" + varint(rollout.size()) + rollout; }

void expect_small(const std::string& name, const std::string& type, const std::string& body) {
  const std::size_t cost = cost_of(type, body);
  testing::Test::RecordProperty(name,
                                fmt::format("{:.3f}", static_cast<double>(cost) / static_cast<double>(body.size())));
  EXPECT_LE(cost, 3 * body.size()) << name << ": with the body more than four times its size";
}

TEST(BodyMemory, OfProtobufIsWithinFourBodies) {
  const auto is_small = [](const std::string& name, const std::string& body) { expect_small(name, kProtobuf, body); };
  is_small("empty rollouts", repeated(std::string_view("\x12\0", 2)));
  is_small("empty versions", batch_of(repeated(std::string_view("\x52\0", 2))));
  is_small("empty turns", batch_of(repeated(std::string_view("\x6a\0", 2))));
  is_small("empty metadata", batch_of(repeated(std::string_view("\x72\0", 2))));
  is_small("tokens one by one", batch_of(repeated(std::string_view("\x38\0", 2))));
  const std::string zeros(kBodyBytes, '\0');
  for (const char tag : {'\x0a', '\x3a', '\x42', '\x4a'}) {
    is_small(fmt::format("field {}", tag >> 3), batch_of(tag + varint(zeros.size()) + zeros));
  }
  is_small("run", "\x0a" + varint(zeros.size()) + zeros);
  std::string entries;
  for (std::uint32_t i = 0; entries.size() < kBodyBytes; ++i) {
    entries += std::string_view("\x72\x06\x0a\x04", 4);
    entries.append(reinterpret_cast<const char*>(&i), sizeof i);
  }
  is_small("metadata", batch_of(entries));
}

TEST(BodyMemory, OfJsonIsWithinFourBodies) {
  const auto is_small = [](const std::string& name, const std::string& begin, std::string_view unit,
                           const std::string& end) {
    expect_small(name, kJson, "{\"rollouts\": [" + begin + repeated(unit) + end);
  };
  is_small("numbers for rollouts", "", "0,", "0]}");
  is_small("tokens", "{\"tokens\": [", "0,", "0]}]}");
  is_small("logprobs", "{\"logprobs\": [", "0,", "0]}]}");
  is_small("versions", "{\"version_runs\": [", "[0,0],", "[0,0]]}]}");
  is_small("empty turns", "{\"turns\": [", "[],", "[]]}]}");
  is_small("unknown member", "{\"x\": [", "0,", "0]}]}");
  is_small("same members", "{", "\"task\":\"\",", "\"task\":\"\"}]}");
  is_small("entries of metadata", "{\"metadata\": {", "\"\":\"\",", "\"\":\"\"}}]}");
  is_small("a text", "\"", "x", "\"]}");
  is_small("an escaped text", "\"", "\\u0001", "\"]}");
  is_small("a number", "", "1", "]}");
  is_small("deep", "", "[", "");
  is_small("deep objects", "", "{\"a\":", "");
  is_small("space", "", " ", "]}");
  is_small("space and no JSON", "", " ", "");
  is_small("brackets and no JSON", "", "[],", "");
  is_small("texts and no JSON", "", "\"\",", "");
  is_small("not in the rollouts", "], \"more\": [", "{},", "{}]}");
}

/// The bounds hold on what a learner wants, too: four thousand rollouts of ours in one body.
TEST(BodyMemory, OfGoodRolloutsIsThatOfOne) {
  Trajectory t = valid_trajectory();
  t.tokens.assign(2000, 7);
  t.response_mask.assign(2000, 1);
  t.logprobs.assign(2000, -0.5F);
  std::string json = "{\"rollouts\": [" + write_trajectory(t);
  std::vector<std::string> encoded;
  for (int i = 0; i < 300; ++i) {
    json += "," + write_trajectory(t);
    encoded.push_back(encode_trajectory(t));
  }
  json += "]}";
  EXPECT_LE(cost_of(kJson, json), 200 * kKiB);
  EXPECT_LE(cost_of(kProtobuf, encode_batch("", encoded)), 100 * kKiB);
}

}  // namespace
}  // namespace weightcast
