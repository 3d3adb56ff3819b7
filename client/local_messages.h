#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace weightcast::client {

// The messages of proto/local.proto as plain structs: what they mean stands there. The library that programs load must
// fit beside any other, so it brings no protobuf; protozero, which is header-only, writes and reads the same bytes.
// fields() lists a message's fields with their numbers, for both directions.

struct PublishRequest {
  static constexpr std::uint32_t kNumber = 1;
  std::uint64_t version = 0;
  std::string path;
  bool allow_nonfinite = false, region = false;
  std::uint64_t region_bytes = 0, files_bytes = 0;
  bool new_model = false, file_tree = false;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version), f(2, m.path), f(7, m.allow_nonfinite), f(8, m.region), f(9, m.region_bytes);
    f(10, m.files_bytes), f(11, m.new_model), f(12, m.file_tree);
  }
};

struct PublishChangesRequest {
  static constexpr std::uint32_t kNumber = 20;
  std::uint64_t version = 0, base_version = 0;
  bool allow_nonfinite = false;
  std::uint64_t changes_bytes = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version), f(2, m.base_version), f(3, m.allow_nonfinite), f(4, m.changes_bytes);
  }
};

struct PublishTaken {
  static constexpr std::uint32_t kNumber = 2;
  std::uint64_t version = 0, snapshot_bytes = 0;
  double seconds = 0;
  std::string notice;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version), f(2, m.snapshot_bytes), f(3, m.seconds), f(4, m.notice);
  }
};

struct WorkerProgress {
  std::string name;
  std::uint32_t chunks_verified = 0, chunks_total = 0;
  double receive_bytes_per_s = 0;
  bool installed = false;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.name), f(2, m.chunks_verified), f(3, m.chunks_total), f(4, m.receive_bytes_per_s), f(5, m.installed);
  }
};

struct PublishProgress {
  static constexpr std::uint32_t kNumber = 3;
  std::vector<WorkerProgress> workers;
  double elapsed_s = 0;
  std::uint64_t payload_bytes = 0, version = 0;
  std::uint32_t workers_total = 0, installed = 0;
  double received = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.workers), f(2, m.elapsed_s), f(3, m.payload_bytes), f(4, m.version), f(5, m.workers_total);
    f(6, m.installed), f(7, m.received);
  }
};

struct PublishResult {
  static constexpr std::uint32_t kNumber = 4;
  std::uint64_t version = 0;
  std::uint32_t kind = 0;  // wire.PayloadKind
  std::uint64_t payload_bytes = 0;
  std::uint32_t workers = 0, installed = 0;
  std::optional<double> t50_s, t90_s, t100_s;
  bool reached = false;
  std::string topology;
  double predicted_s = 0;
  std::uint64_t origin_egress_bytes = 0;
  std::vector<std::string> missing;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version), f(2, m.kind), f(3, m.payload_bytes), f(4, m.workers), f(5, m.installed), f(6, m.t50_s);
    f(7, m.t90_s), f(8, m.t100_s), f(9, m.reached), f(10, m.topology), f(11, m.predicted_s);
    f(12, m.origin_egress_bytes), f(13, m.missing);
  }
};

struct StatusRequest {
  static constexpr std::uint32_t kNumber = 5;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

struct Refusals {
  std::string reason;
  std::uint64_t count = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.reason), f(2, m.count);
  }
  bool operator==(const Refusals&) const = default;
};

struct UnreachedNode {
  std::string name, address, why;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.name), f(2, m.address), f(3, m.why);
  }
  bool operator==(const UnreachedNode&) const = default;
};

struct PhaseBucket {
  double at_most_s = 0;
  std::uint64_t count = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.at_most_s), f(2, m.count);
  }
  bool operator==(const PhaseBucket&) const = default;
};

struct PhaseTimes {
  std::string phase;
  std::uint64_t count = 0;
  double sum_s = 0;
  std::vector<PhaseBucket> buckets;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.phase), f(2, m.count), f(3, m.sum_s), f(4, m.buckets);
  }
  bool operator==(const PhaseTimes&) const = default;
};

struct Traffic {
  std::string direction, kind;
  std::uint64_t bytes = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.direction), f(2, m.kind), f(3, m.bytes);
  }
  bool operator==(const Traffic&) const = default;
};

struct NodeStatus {
  std::string name, role;
  std::uint64_t version = 0;
  std::string parent;
  std::vector<std::string> children;
  double score = 0;
  std::string address, state;
  std::uint64_t receiving_version = 0;
  std::uint32_t chunks_verified = 0, chunks_total = 0;
  double receive_bytes_per_s = 0, uplink_bytes_per_s = 0, downlink_bytes_per_s = 0;
  std::uint64_t bytes_received = 0, bytes_sent = 0;
  std::uint32_t peer_id = 0;
  std::string last_error, standing;
  double transfer_s = 0, finish_s = 0, switch_s = 0, encode_s = 0;
  std::string payload;
  std::uint64_t payload_bytes = 0;
  double first_sent_s = 0;
  std::uint64_t keys_expire_unix_s = 0;
  bool earlier_run = false;
  std::vector<Refusals> refused;
  std::uint64_t manifests_refused = 0;
  std::string offence;
  std::uint32_t complaints = 0;
  std::uint32_t complains = 0;
  std::string versions_in, versions_in_why;
  std::uint64_t disk_bytes_written = 0;
  std::uint64_t archive_bytes = 0;
  std::string archive_trouble;
  std::vector<UnreachedNode> cannot_reach;
  std::vector<PhaseTimes> phases;
  std::vector<Traffic> traffic;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.name), f(2, m.role), f(3, m.version), f(4, m.parent), f(5, m.children), f(6, m.score), f(7, m.address);
    f(8, m.state), f(9, m.receiving_version), f(10, m.chunks_verified), f(11, m.chunks_total);
    f(12, m.receive_bytes_per_s), f(13, m.uplink_bytes_per_s), f(14, m.downlink_bytes_per_s), f(15, m.bytes_received);
    f(16, m.bytes_sent), f(17, m.peer_id), f(18, m.last_error), f(19, m.standing), f(20, m.transfer_s);
    f(21, m.finish_s), f(22, m.switch_s), f(23, m.encode_s), f(24, m.payload), f(25, m.payload_bytes);
    f(26, m.first_sent_s), f(27, m.keys_expire_unix_s), f(28, m.earlier_run), f(29, m.refused);
    f(30, m.manifests_refused);
    f(31, m.offence), f(32, m.complaints), f(33, m.complains), f(34, m.versions_in), f(35, m.disk_bytes_written);
    f(36, m.versions_in_why), f(37, m.archive_bytes), f(38, m.archive_trouble);
    f(50, m.cannot_reach), f(51, m.phases), f(52, m.traffic);
  }
  bool operator==(const NodeStatus&) const = default;
};

struct StatusReply {
  static constexpr std::uint32_t kNumber = 6;
  std::vector<NodeStatus> nodes;
  std::uint64_t latest_version = 0;
  std::string topology, model_id;
  double predicted_s = 0;
  bool last = false;
  std::string run_id;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.nodes), f(2, m.latest_version), f(3, m.topology), f(4, m.model_id), f(5, m.predicted_s), f(6, m.last);
    f(7, m.run_id);
  }
};

struct VersionsRequest {
  static constexpr std::uint32_t kNumber = 7;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

struct VersionEntry {
  std::uint64_t version = 0;
  std::string kind;
  std::uint64_t snapshot_bytes = 0, payload_bytes = 0;
  std::string digest, path;
  bool current = false, durable = false;
  std::int64_t published_unix_ms = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version), f(2, m.kind), f(3, m.snapshot_bytes), f(4, m.payload_bytes), f(5, m.digest), f(6, m.path);
    f(7, m.current), f(8, m.durable), f(9, m.published_unix_ms);
  }
  bool operator==(const VersionEntry&) const = default;
};

struct VersionsReply {
  static constexpr std::uint32_t kNumber = 8;
  std::vector<VersionEntry> versions;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.versions);
  }
};

struct SubscribeRequest {
  static constexpr std::uint32_t kNumber = 9;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

struct VersionInstalled {
  static constexpr std::uint32_t kNumber = 10;
  std::uint64_t version = 0;
  std::string path, digest;
  std::uint32_t run = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version), f(2, m.path), f(3, m.digest), f(4, m.run);
  }
};

struct ErrorReply {
  static constexpr std::uint32_t kNumber = 11;
  std::uint32_t code = 0;
  std::string detail;
  std::uint32_t op = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.code), f(2, m.detail), f(3, m.op);
  }
};

struct VersionPreparing {
  static constexpr std::uint32_t kNumber = 12;
  std::uint64_t version = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version);
  }
};

struct PublishAccepted {
  static constexpr std::uint32_t kNumber = 14;
  std::uint64_t version = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version);
  }
};

struct WaitRequest {
  static constexpr std::uint32_t kNumber = 15;
  std::uint64_t version = 0;
  double fraction = 0, timeout_s = 0;
  bool progress = false;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version), f(2, m.fraction), f(3, m.timeout_s), f(4, m.progress);
  }
};

struct NextVersionRequest {
  static constexpr std::uint32_t kNumber = 16;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

struct NextVersionReply {
  static constexpr std::uint32_t kNumber = 17;
  std::uint64_t version = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version);
  }
};

struct AcquireRequest {
  static constexpr std::uint32_t kNumber = 18;
  std::uint64_t version = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version);
  }
};

struct ReleaseRequest {
  static constexpr std::uint32_t kNumber = 19;
  std::uint64_t version = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version);
  }
};

struct ReadyRequest {
  static constexpr std::uint32_t kNumber = 30;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

struct ReadyReply {
  static constexpr std::uint32_t kNumber = 31;
  bool ready = false;
  std::string why;
  std::uint64_t version = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.ready), f(2, m.why), f(3, m.version);
  }
};

struct ServeRequest {
  static constexpr std::uint32_t kNumber = 32;
  std::string name;
  bool serves = false, provisions = false;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.name), f(2, m.serves), f(3, m.provisions);
  }
};

struct ServeReply {
  static constexpr std::uint32_t kNumber = 33;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

struct ForgetRequest {
  static constexpr std::uint32_t kNumber = 40;
  std::string name;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.name);
  }
};

struct ForgetReply {
  static constexpr std::uint32_t kNumber = 41;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

struct ReloadRequest {
  static constexpr std::uint32_t kNumber = 42;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

struct ReloadReply {
  static constexpr std::uint32_t kNumber = 43;
  std::vector<std::string> changes;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.changes);
  }
};

struct ChangesRequest {
  static constexpr std::uint32_t kNumber = 50;
  std::uint64_t base_version = 0, version = 0;
  std::string base_digest;
  bool old_values = false;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.base_version), f(2, m.version), f(3, m.base_digest), f(4, m.old_values);
  }
};

struct ChangesReply {
  static constexpr std::uint32_t kNumber = 51;
  std::uint64_t bytes = 0, elements = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.bytes), f(2, m.elements);
  }
};

struct HistoryRequest {
  static constexpr std::uint32_t kNumber = 60;
  std::uint64_t version = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version);
  }
};

struct PublicationEntry {
  std::uint64_t version = 0;
  std::int64_t published_unix_ms = 0;
  std::string state, kind;
  std::uint64_t snapshot_bytes = 0, payload_bytes = 0, sent_bytes = 0;
  std::optional<double> t50_s, t90_s, t100_s;
  double predicted_s = 0;
  std::string topology;
  std::uint32_t workers = 0, installed = 0;
  double take_over_s = 0, encode_s = 0, pack_s = 0, elapsed_s = 0;
  std::string slowest, cause, why;
  std::optional<double> take_over_at_s, encode_at_s, pack_at_s;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.version), f(2, m.published_unix_ms), f(3, m.state), f(4, m.kind), f(5, m.snapshot_bytes);
    f(6, m.payload_bytes), f(7, m.sent_bytes), f(8, m.t50_s), f(9, m.t90_s), f(10, m.t100_s), f(11, m.predicted_s);
    f(12, m.topology), f(13, m.workers), f(14, m.installed), f(15, m.take_over_s), f(16, m.encode_s);
    f(17, m.pack_s), f(18, m.elapsed_s), f(19, m.slowest), f(20, m.cause), f(21, m.why);
    f(22, m.take_over_at_s), f(23, m.encode_at_s), f(24, m.pack_at_s);
  }
  bool operator==(const PublicationEntry&) const = default;
};

struct WorkerCourse {
  std::string name, payload;
  std::optional<double> joined_s, told_s, installed_s;
  std::string failure;
  bool has_phases = false;
  double waiting_s = 0, asking_s = 0, receiving_s = 0, storing_s = 0, applying_s = 0, switching_s = 0;
  double disk_behind_s = 0, interrupted_s = 0;
  std::uint32_t parents_left = 0;
  std::uint64_t bytes = 0;
  std::string fed_by;
  std::uint64_t fed_bytes = 0;
  double given_up_s = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.name), f(2, m.payload), f(3, m.joined_s), f(4, m.told_s), f(5, m.installed_s), f(6, m.failure);
    f(7, m.has_phases), f(8, m.waiting_s), f(9, m.asking_s), f(10, m.receiving_s), f(11, m.storing_s);
    f(12, m.applying_s), f(13, m.switching_s), f(14, m.disk_behind_s), f(15, m.interrupted_s), f(16, m.parents_left);
    f(17, m.bytes), f(18, m.fed_by), f(19, m.fed_bytes), f(20, m.given_up_s);
  }
};

struct HistoryReply {
  static constexpr std::uint32_t kNumber = 61;
  std::vector<PublicationEntry> publications;
  std::vector<WorkerCourse> workers;
  std::uint32_t workers_total = 0;
  template <typename M, typename F>
  static void fields(M& m, F&& f) {
    f(1, m.publications), f(2, m.workers), f(3, m.workers_total);
  }
};

/// local.proto's Message. `kind` is empty for one that this release does not know.
struct Message {
  static constexpr std::uint32_t kRequestIdNumber = 13;
  using Kind = std::variant<std::monostate, PublishRequest, PublishTaken, PublishProgress, PublishResult, StatusRequest,
                            StatusReply, VersionsRequest, VersionsReply, SubscribeRequest, VersionInstalled, ErrorReply,
                            VersionPreparing, PublishAccepted, WaitRequest, NextVersionRequest, NextVersionReply,
                            AcquireRequest, ReleaseRequest, PublishChangesRequest, ReadyRequest, ReadyReply,
                            ServeRequest, ServeReply, ForgetRequest, ForgetReply, ReloadRequest, ReloadReply,
                            ChangesRequest, ChangesReply, HistoryRequest, HistoryReply>;
  Kind kind;
  std::uint64_t request_id = 0;

  template <typename T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&kind);
  }
};

[[nodiscard]] std::string encode(const Message& message);
/// Unknown fields, and known ones of another type, are passed over. Errors: kCorrupt (not a protobuf message).
[[nodiscard]] Result<Message> decode(std::string_view bytes);

}  // namespace weightcast::client
