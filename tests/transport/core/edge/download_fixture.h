#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "tests/transport/core/payload_fixture.h"
#include "transport/core/edge/download.h"

namespace weightcast {

/// One download, whose parents the test plays: peer N is dialled at port 1000 + N, the origin at port 1.
struct DownloadTest : testing::Test {
  static constexpr Version kVersion{3};
  static constexpr std::uint32_t kChunks = 100;
  static constexpr PeerId kSelf{5};

  /// For each stripe the parent, then its ancestors.
  static Assignment assignment(std::uint64_t epoch, const std::vector<std::vector<std::uint32_t>>& stripes) {
    Assignment plan;
    plan.epoch = Epoch{epoch};
    plan.payload = kVersion;
    for (const auto& ancestors : stripes) {
      StripeSource& source = plan.stripes.emplace_back();
      for (const std::uint32_t peer : ancestors) {
        source.ancestors.push_back({PeerId{peer}, "", "host", static_cast<std::uint16_t>(1000 + peer)});
      }
      plan.stripe_weights.push_back(1);
    }
    return plan;
  }

  explicit DownloadTest(std::shared_ptr<const Manifest> manifest = manifest_of(kVersion, kChunks),
                        std::uint32_t streams = 1)
      : holding(std::move(manifest)), download(timeouts, streams, holding, links, queue) {}

  Timeouts timeouts;
  ActionQueue queue;
  ConnIds ids;
  Links links{ids, queue};
  Holding holding;
  Download download;
  Instant now{std::chrono::hours(1)};
  std::vector<action::Connect> dialled;

  void SetUp() override { links.set_origin("origin", 1); }

  std::vector<Action> actions() {
    auto all = drain([&] { return queue.poll(); });
    for (const auto& connect : only<action::Connect>(all)) dialled.push_back(connect);
    return all;
  }
  /// Assigns, and makes the connections that it asks for.
  void start(const Assignment& plan) {
    ASSERT_TRUE(download.assign(now, kSelf, plan).has_value());
    download.handle_storage_ready(now);
    open_all();
  }
  void open_all() {
    const std::size_t from = dialled.size();
    (void)actions();
    for (std::size_t i = from; i < dialled.size(); ++i) {
      links.handle_connected(now, dialled[i].conn);
      download.handle_open(now, dialled[i].conn);
    }
  }
  ConnId conn_to(std::uint32_t peer) {
    for (auto c = dialled.rbegin(); c != dialled.rend(); ++c) {
      if (c->port == (peer == 0 ? 1 : 1000 + peer)) return c->conn;
    }
    return ConnId{};
  }
  Status take_part(std::uint32_t peer, const wire::DigestPart& part) {
    return download.handle_digest_part(now, conn_to(peer), part.part(), std::as_bytes(std::span(part.digests())));
  }
  /// But for the words of a child that gets nothing and stays: starvations().
  std::vector<wire::FaultKind> fault_kinds() {
    std::vector<wire::FaultKind> kinds;
    for (const auto& fault : take_faults()) {
      if (!is_starvation(fault)) kinds.push_back(fault.kind);
    }
    return kinds;
  }
  static bool is_starvation(const ParentFault& fault) { return fault.starving > Duration::zero(); }
  std::vector<ParentFault> take_faults() { return download.take_faults(); }
};

}  // namespace weightcast
