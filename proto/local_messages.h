#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace weightcast::local {

// The local API on DIR/api.sock: the command line, trainers and inference engines speak it, in the frames of the wire.
// Each struct is a message in Protobuf's encoding (proto3), and fields() gives the numbers of its fields: std::string
// is `bytes`, and a std::vector `repeated`. A number that a release has used is never used for anything else. The
// client library must fit beside any other, so it brings no Protobuf; protozero, which is header-only, writes and reads
// it.

/// Defines fields(): what is in brackets calls `f` with the number of each field of the message `m`, and the field.
#define WC_FIELDS(...)              \
  template <typename M, typename F> \
  static void fields(M& m, F&& f) { \
    __VA_ARGS__;                    \
  }

/// A message without fields.
template <std::uint32_t number>
struct Empty {
  static constexpr std::uint32_t kNumber = number;
  template <typename M, typename F>
  static void fields(M&, F&&) {}
};

/// Answered by PublishAccepted, then by PublishTaken; or by an ErrorReply instead of either. Numbers 3 to 6 are taken.
struct PublishRequest {
  static constexpr std::uint32_t kNumber = 1;
  std::uint64_t version = 0;  ///< 0: the origin numbers it
  std::string path = {};      ///< a safetensors file or a directory
  bool allow_nonfinite = false;
  bool region = false;             ///< instead of a path: the memory whose descriptor came with this message
  std::uint64_t region_bytes = 0;  ///< of that memory, from its beginning; 0: all of it
  /// Of the memory whose descriptor came with this message, after the region's: files that accompany the weights, as a
  /// safetensors file with a U8 tensor of each file's name. 0: none came, and those of the version before are kept.
  std::uint64_t files_bytes = 0;
  bool new_model = false;  ///< the tensors may have other names, dtypes and shapes than those of the version before
  bool file_tree = false;  ///< the path is a directory of any files, published whole
  WC_FIELDS(f(1, m.version), f(2, m.path), f(7, m.allow_nonfinite), f(8, m.region), f(9, m.region_bytes),
            f(10, m.files_bytes), f(11, m.new_model), f(12, m.file_tree))
};

/// The version that cells of the last one change to; see patch/changes/change_names.h. Answered as a PublishRequest is.
struct PublishChangesRequest {
  static constexpr std::uint32_t kNumber = 20;
  std::uint64_t version = 0;       ///< 0: the origin numbers it
  std::uint64_t base_version = 0;  ///< the last version, to which the changes are made
  bool allow_nonfinite = false;
  std::uint64_t changes_bytes = 0;  ///< of the memory whose descriptor came with this message, from its beginning
  WC_FIELDS(f(1, m.version), f(2, m.base_version), f(3, m.allow_nonfinite), f(4, m.changes_bytes))
};

/// The origin holds its own copy now: the source may be changed or reused.
struct PublishTaken {
  static constexpr std::uint32_t kNumber = 2;
  std::uint64_t version = 0, snapshot_bytes = 0;
  double seconds = 0;
  std::string notice = {};  ///< what whoever published should know of it, in one line; mostly nothing
  WC_FIELDS(f(1, m.version), f(2, m.snapshot_bytes), f(3, m.seconds), f(4, m.notice))
};

struct WorkerProgress {
  std::string name = {};
  std::uint32_t chunks_verified = 0, chunks_total = 0;
  double receive_bytes_per_s = 0;
  bool installed = false;
  WC_FIELDS(f(1, m.name), f(2, m.chunks_verified), f(3, m.chunks_total), f(4, m.receive_bytes_per_s), f(5, m.installed))
};

struct PublishProgress {
  static constexpr std::uint32_t kNumber = 3;
  std::vector<WorkerProgress> workers = {};  ///< of a large fleet some, those that have not installed it first
  double elapsed_s = 0;
  std::uint64_t payload_bytes = 0, version = 0;
  std::uint32_t workers_total = 0, installed = 0;
  double received = 0;  ///< 0 to 1: the mean over all workers
  WC_FIELDS(f(1, m.workers), f(2, m.elapsed_s), f(3, m.payload_bytes), f(4, m.version), f(5, m.workers_total),
            f(6, m.installed), f(7, m.received))
};

struct PublishResult {
  static constexpr std::uint32_t kNumber = 4;
  std::uint64_t version = 0;
  std::uint32_t kind = 0;  ///< a PayloadKind of proto/wire.proto
  std::uint64_t payload_bytes = 0;
  std::uint32_t workers = 0, installed = 0;
  std::optional<double> t50_s = {}, t90_s = {}, t100_s = {};
  bool reached = false;
  std::string topology = {};
  double predicted_s = 0;
  std::uint64_t origin_egress_bytes = 0;
  std::vector<std::string> missing = {};  ///< workers that had not installed it, a few of them
  std::string hopeless = {};  ///< why what is waited for does not come: "w2: the disk is full"; "": it may still come
  WC_FIELDS(f(1, m.version), f(2, m.kind), f(3, m.payload_bytes), f(4, m.workers), f(5, m.installed), f(6, m.t50_s),
            f(7, m.t90_s), f(8, m.t100_s), f(9, m.reached), f(10, m.topology), f(11, m.predicted_s),
            f(12, m.origin_egress_bytes), f(13, m.missing), f(14, m.hopeless))
};

/// Answered by one StatusReply or several.
struct StatusRequest : Empty<5> {};

struct Refusals {
  std::string reason = {};
  std::uint64_t count = 0;
  WC_FIELDS(f(1, m.reason), f(2, m.count))
  bool operator==(const Refusals&) const = default;
};

/// Another node that a node cannot dial.
struct UnreachedNode {
  std::string name = {}, address = {};
  std::string why = {};  ///< in a few words
  WC_FIELDS(f(1, m.name), f(2, m.address), f(3, m.why))
  bool operator==(const UnreachedNode&) const = default;
};

/// Of one histogram's bucket: what was at most so long, and longer than the bucket before has.
struct PhaseBucket {
  double at_most_s = 0;
  std::uint64_t count = 0;
  WC_FIELDS(f(1, m.at_most_s), f(2, m.count))
  bool operator==(const PhaseBucket&) const = default;
};

/// How long publications stayed in one of their phases: transport/node/node_meters.h.
struct PhaseTimes {
  std::string phase = {};  ///< "take", "encode", "transfer", "apply", "switch", "engine"
  std::uint64_t count = 0;
  double sum_s = 0;
  std::vector<PhaseBucket> buckets = {};
  WC_FIELDS(f(1, m.phase), f(2, m.count), f(3, m.sum_s), f(4, m.buckets))
  bool operator==(const PhaseTimes&) const = default;
};

/// Bytes of chunks that went over the network.
struct Traffic {
  std::string direction = {};  ///< "sent", "received"
  std::string kind = {};       ///< of payload: "full", "packed", "patch"
  std::uint64_t bytes = 0;
  WC_FIELDS(f(1, m.direction), f(2, m.kind), f(3, m.bytes))
  bool operator==(const Traffic&) const = default;
};

/// A node, as it sees itself or as the origin sees it.
struct NodeStatus {
  std::string name = {};
  std::string role = {};  ///< "origin", "worker"
  std::uint64_t version = 0;
  std::string parent = {};
  std::vector<std::string> children = {};  ///< on a worker, a thousand at most; at the origin the parents tell
  double score = 0;
  std::string address = {};
  std::string state = {};  ///< "idle", "receiving", "stale", "lost", ...
  std::uint64_t receiving_version = 0;
  std::uint32_t chunks_verified = 0, chunks_total = 0;
  double receive_bytes_per_s = 0, uplink_bytes_per_s = 0, downlink_bytes_per_s = 0;
  std::uint64_t bytes_received = 0, bytes_sent = 0;
  std::uint32_t peer_id = 0;
  std::string last_error = {};
  std::string standing = {};  ///< "seed", "tail", "rollout-only"
  // Of the version that was installed last, by the worker's own word to a local client.
  double transfer_s = 0;  ///< from the first chunk to the last one stored
  double finish_s = 0;    ///< from there until it was installed: what was left of applying, and checking the whole
  double switch_s = 0;    ///< of that, making `current` point to it
  double encode_s = 0;    ///< at the origin: comparing two versions or packing one, the last time
  /// How a worker came to its version: "full", or by patches: "direct", "folded" over several versions, "chain" of
  /// several in turn. A worker itself cannot tell these apart: "patch". "" where it is not known.
  std::string payload = {};
  std::uint64_t payload_bytes = 0;  ///< of the last payload
  double first_sent_s = 0;          ///< at the origin: from the last publication's beginning until a chunk had left
  std::uint64_t keys_expire_unix_s = 0;  ///< when its certificate ends; 0: it has none, or is not connected
  bool earlier_run = false;  ///< on a worker: `version` is of the run before, and in use until this one's first is here
  /// Peers that this node has turned away since its start, by reason (docs/SECURITY.md). Of itself alone.
  std::vector<Refusals> refused = {};
  std::uint64_t manifests_refused = 0;  ///< by a worker, since its start: announcements and growths of versions
  std::string offence = {};             ///< at the origin: the last thing that it holds against this worker
  std::uint32_t complaints = 0;         ///< at the origin: how many workers complain of it as a relay
  std::uint32_t complains = 0;          ///< at the origin: of how many relays it complains
  // Where the versions are that engines read, "disk" or "memory", and why; "auto" until the first one decides. And what
  // this process has caused to be written to disks since its start. Of itself alone.
  std::string versions_in = {}, versions_in_why = {};
  std::uint64_t disk_bytes_written = 0;
  // Of bytes_received, what came from the archive; and why nothing comes from there, "" if nothing is wrong. Of itself
  // alone.
  std::uint64_t archive_bytes = 0;
  std::string archive_trouble = {};
  /// Of a worker: the protocol version that it speaks with its origin, 0 while it has not joined. Of an origin: the
  /// newest that it speaks.
  std::uint32_t protocol = 0;
  /// Some of those that it cannot dial, so that no plan has them feed it. At the origin of each worker, too.
  std::vector<UnreachedNode> cannot_reach = {};
  /// At the origin, of a worker that is lost: when it was heard last; of one that is awaited: when the origin began to
  /// wait. 0: it is connected.
  std::uint64_t lost_unix_ms = 0;
  // Since its process began. Of itself alone.
  std::vector<PhaseTimes> phases = {};
  std::vector<Traffic> traffic = {};
  WC_FIELDS(f(1, m.name), f(2, m.role), f(3, m.version), f(4, m.parent), f(5, m.children), f(6, m.score),
            f(7, m.address), f(8, m.state), f(9, m.receiving_version), f(10, m.chunks_verified), f(11, m.chunks_total),
            f(12, m.receive_bytes_per_s), f(13, m.uplink_bytes_per_s), f(14, m.downlink_bytes_per_s),
            f(15, m.bytes_received), f(16, m.bytes_sent), f(17, m.peer_id), f(18, m.last_error), f(19, m.standing),
            f(20, m.transfer_s), f(21, m.finish_s), f(22, m.switch_s), f(23, m.encode_s), f(24, m.payload),
            f(25, m.payload_bytes), f(26, m.first_sent_s), f(27, m.keys_expire_unix_s), f(28, m.earlier_run),
            f(29, m.refused), f(30, m.manifests_refused), f(31, m.offence), f(32, m.complaints), f(33, m.complains),
            f(34, m.versions_in), f(35, m.disk_bytes_written), f(36, m.versions_in_why), f(37, m.archive_bytes),
            f(38, m.archive_trouble), f(39, m.protocol), f(50, m.cannot_reach), f(51, m.phases), f(52, m.traffic),
            f(53, m.lost_unix_ms))
  bool operator==(const NodeStatus&) const = default;
};

/// As many nodes as fit a message; all of what follows stands in each.
struct StatusReply {
  static constexpr std::uint32_t kNumber = 6;
  std::vector<NodeStatus> nodes = {};  ///< on a worker: itself
  std::uint64_t latest_version = 0;
  std::string topology = {}, model_id = {};
  double predicted_s = 0;
  bool last = false;        ///< no more nodes follow
  std::string run_id = {};  ///< that this node publishes or follows, in hexadecimal; "": not known yet
  WC_FIELDS(f(1, m.nodes), f(2, m.latest_version), f(3, m.topology), f(4, m.model_id), f(5, m.predicted_s),
            f(6, m.last), f(7, m.run_id))
};

struct VersionsRequest : Empty<7> {};

struct VersionEntry {
  std::uint64_t version = 0;
  std::string kind = {};
  std::uint64_t snapshot_bytes = 0, payload_bytes = 0;
  std::string digest = {}, path = {};
  bool current = false, durable = false;
  std::int64_t published_unix_ms = 0;
  WC_FIELDS(f(1, m.version), f(2, m.kind), f(3, m.snapshot_bytes), f(4, m.payload_bytes), f(5, m.digest), f(6, m.path),
            f(7, m.current), f(8, m.durable), f(9, m.published_unix_ms))
  bool operator==(const VersionEntry&) const = default;
};

struct VersionsReply {
  static constexpr std::uint32_t kNumber = 8;
  std::vector<VersionEntry> versions = {};
  WC_FIELDS(f(1, m.versions))
};

/// Keeps the connection open: a VersionInstalled for the version in use now, then one for each that follows.
struct SubscribeRequest : Empty<9> {};

struct VersionInstalled {
  static constexpr std::uint32_t kNumber = 10;
  std::uint64_t version = 0;
  std::string path = {}, digest = {};
  std::uint32_t run =
      0;  ///< counts the runs that this state directory has followed, from 1; versions of two have no order
  WC_FIELDS(f(1, m.version), f(2, m.path), f(3, m.digest), f(4, m.run))
};

struct ErrorReply {
  static constexpr std::uint32_t kNumber = 11;
  std::uint32_t code = 0;  ///< Errc
  std::string detail = {};
  std::uint32_t op = 0;  ///< Op
  WC_FIELDS(f(1, m.code), f(2, m.detail), f(3, m.op))
};

/// The files of the version in use are about to become those of another (a worker with --single-copy): whoever has them
/// open or mapped is waited for. A VersionInstalled follows, of the old version if it came to nothing.
struct VersionPreparing {
  static constexpr std::uint32_t kNumber = 12;
  std::uint64_t version = 0;
  WC_FIELDS(f(1, m.version))
};

/// The request is in order, and its turn will come. What it names is read until PublishTaken or an ErrorReply.
struct PublishAccepted {
  static constexpr std::uint32_t kNumber = 14;
  std::uint64_t version = 0;
  WC_FIELDS(f(1, m.version))
};

/// Answered by PublishProgress a few times a second, if that is wanted, then by PublishResult or an ErrorReply. A
/// version that is still to be taken over is waited for, too.
struct WaitRequest {
  static constexpr std::uint32_t kNumber = 15;
  std::uint64_t version = 0;
  double fraction = 0;  ///< of the active workers; 0: the origin has its own copy
  double timeout_s = 0;
  bool progress = false;
  WC_FIELDS(f(1, m.version), f(2, m.fraction), f(3, m.timeout_s), f(4, m.progress))
};

/// Asks for the number that a publication without one would be given now.
struct NextVersionRequest : Empty<16> {};

struct NextVersionReply {
  static constexpr std::uint32_t kNumber = 17;
  std::uint64_t version = 0;
  WC_FIELDS(f(1, m.version))
};

/// Pins a version for this connection: its directory stays until a release, or the connection's end. Answered by
/// VersionInstalled, or an ErrorReply. Pins count: each has a release of its own.
struct AcquireRequest {
  static constexpr std::uint32_t kNumber = 18;
  std::uint64_t version = 0;  ///< 0: the one in use
  WC_FIELDS(f(1, m.version))
};

/// Not answered.
struct ReleaseRequest {
  static constexpr std::uint32_t kNumber = 19;
  std::uint64_t version = 0;
  WC_FIELDS(f(1, m.version))
};

/// Whether this node does what it is there for: an origin takes publications, a worker is joined to its origin.
struct ReadyRequest : Empty<30> {};

struct ReadyReply {
  static constexpr std::uint32_t kNumber = 31;
  bool ready = false;
  std::string why = {};       ///< it is not
  std::uint64_t version = 0;  ///< in use; 0: none
  WC_FIELDS(f(1, m.ready), f(2, m.why), f(3, m.version))
};

/// Whether a worker serves, and who decides about that. Answered by a ServeReply, or an ErrorReply.
struct ServeRequest {
  static constexpr std::uint32_t kNumber = 32;
  std::string name = {};    ///< "": of no worker
  bool serves = false;      ///< it receives versions, and counts; otherwise it waits on standby
  bool provisions = false;  ///< until this connection ends, no standby worker takes a lost one's place
  WC_FIELDS(f(1, m.name), f(2, m.serves), f(3, m.provisions))
};

struct ServeReply : Empty<33> {};

/// The origin knows that lost worker no more. Answered by a ForgetReply, or an ErrorReply.
struct ForgetRequest {
  static constexpr std::uint32_t kNumber = 40;
  std::string name = {};
  WC_FIELDS(f(1, m.name))
};

struct ForgetReply : Empty<41> {};

/// Read the configuration file anew, the keys and the list of revoked ones. Answered by a ReloadReply, or an
/// ErrorReply: then nothing has changed.
struct ReloadRequest : Empty<42> {};

struct ReloadReply {
  static constexpr std::uint32_t kNumber = 43;
  std::vector<std::string> changes = {};  ///< a line each: "uplink: 100mbit -> 10mbit"
  WC_FIELDS(f(1, m.changes))
};

/// Cells in which a version differs from an earlier one: what an engine that has that one in memory writes over it.
/// They are written to the memory whose descriptor came with this message, which is empty: a file of changes
/// (patch/changes/change_names.h). `version` is pinned by this connection. Answered by a ChangesReply or an ErrorReply.
struct ChangesRequest {
  static constexpr std::uint32_t kNumber = 50;
  std::uint64_t base_version = 0, version = 0;
  std::string base_digest = {};  ///< as VersionInstalled has it: another run may have the number
  bool old_values = false;       ///< are wanted, too
  WC_FIELDS(f(1, m.base_version), f(2, m.version), f(3, m.base_digest), f(4, m.old_values))
};

struct ChangesReply {
  static constexpr std::uint32_t kNumber = 51;
  std::uint64_t bytes = 0;  ///< of the memory
  std::uint64_t elements = 0;
  WC_FIELDS(f(1, m.bytes), f(2, m.elements))
};

/// What the origin remembers of its last publications, the oldest first; or of one, with its workers. Answered by a
/// HistoryReply, or an ErrorReply.
struct HistoryRequest {
  static constexpr std::uint32_t kNumber = 60;
  std::uint64_t version = 0;  ///< 0: all of them, without workers
  WC_FIELDS(f(1, m.version))
};

struct PublicationEntry {
  std::uint64_t version = 0;
  std::int64_t published_unix_ms = 0;
  std::string state = {};  ///< "under way", "complete", "superseded", "given up"
  std::string kind = {};   ///< of what most workers got: "full", "packed", "patch"
  std::uint64_t snapshot_bytes = 0;
  std::uint64_t payload_bytes = 0;  ///< of what most workers got
  std::uint64_t sent_bytes = 0;     ///< by the origin
  std::optional<double> t50_s = {}, t90_s = {}, t100_s = {};
  double predicted_s = 0;  ///< T_bcast(1.0) by the plan; 0: there was none
  std::string topology = {};
  std::uint32_t workers = 0, installed = 0;
  double take_over_s = 0, encode_s = 0, pack_s = 0;
  double elapsed_s = 0;      ///< until it ended; or until now
  std::string slowest = {};  ///< who had it last, or is furthest behind
  std::string cause = {};    ///< a word for it: transport/core/origin/history/slowest_worker.h
  std::string why = {};
  /// When the origin began with it, after the publication's beginning; absent if it did not.
  std::optional<double> take_over_at_s = {}, encode_at_s = {}, pack_at_s = {};
  WC_FIELDS(f(1, m.version), f(2, m.published_unix_ms), f(3, m.state), f(4, m.kind), f(5, m.snapshot_bytes),
            f(6, m.payload_bytes), f(7, m.sent_bytes), f(8, m.t50_s), f(9, m.t90_s), f(10, m.t100_s),
            f(11, m.predicted_s), f(12, m.topology), f(13, m.workers), f(14, m.installed), f(15, m.take_over_s),
            f(16, m.encode_s), f(17, m.pack_s), f(18, m.elapsed_s), f(19, m.slowest), f(20, m.cause), f(21, m.why),
            f(22, m.take_over_at_s), f(23, m.encode_at_s), f(24, m.pack_at_s))
  bool operator==(const PublicationEntry&) const = default;
};

/// One worker's way to one version. Times count from the publication's beginning, by the origin's clock; the phases are
/// the worker's own word: transport/core/install_phases.h.
struct WorkerCourse {
  std::string name = {};
  std::string payload = {};             ///< that it was told of last; "": none
  std::optional<double> joined_s = {};  ///< of one that came later
  std::optional<double> told_s = {}, installed_s = {};
  std::string failure = {};
  bool has_phases = false;
  double waiting_s = 0, asking_s = 0, receiving_s = 0, storing_s = 0, applying_s = 0, switching_s = 0;
  double disk_behind_s = 0, interrupted_s = 0;
  std::uint32_t parents_left = 0;
  std::uint64_t bytes = 0;
  std::string fed_by = {};
  std::uint64_t fed_bytes = 0;
  double given_up_s = 0;
  std::optional<double> engine_s = {};  ///< from the switch until an engine there took the version; absent: none has
  WC_FIELDS(f(1, m.name), f(2, m.payload), f(3, m.joined_s), f(4, m.told_s), f(5, m.installed_s), f(6, m.failure),
            f(7, m.has_phases), f(8, m.waiting_s), f(9, m.asking_s), f(10, m.receiving_s), f(11, m.storing_s),
            f(12, m.applying_s), f(13, m.switching_s), f(14, m.disk_behind_s), f(15, m.interrupted_s),
            f(16, m.parents_left), f(17, m.bytes), f(18, m.fed_by), f(19, m.fed_bytes), f(20, m.given_up_s),
            f(21, m.engine_s))
};

struct HistoryReply {
  static constexpr std::uint32_t kNumber = 61;
  std::vector<PublicationEntry> publications = {};
  std::vector<WorkerCourse> workers = {};  ///< of one version: those that have not installed it, then the slowest first
  std::uint32_t workers_total = 0;         ///< of a large fleet some are left out
  WC_FIELDS(f(1, m.publications), f(2, m.workers), f(3, m.workers_total))
};

/// What a frame carries. `kind` is empty for one that this release does not know.
struct Message {
  static constexpr std::uint32_t kRequestIdNumber = 13;
  using Kind = std::variant<std::monostate, PublishRequest, PublishTaken, PublishProgress, PublishResult, StatusRequest,
                            StatusReply, VersionsRequest, VersionsReply, SubscribeRequest, VersionInstalled, ErrorReply,
                            VersionPreparing, PublishAccepted, WaitRequest, NextVersionRequest, NextVersionReply,
                            AcquireRequest, ReleaseRequest, PublishChangesRequest, ReadyRequest, ReadyReply,
                            ServeRequest, ServeReply, ForgetRequest, ForgetReply, ReloadRequest, ReloadReply,
                            ChangesRequest, ChangesReply, HistoryRequest, HistoryReply>;
  Kind kind = {};
  /// Chosen by whoever asks, another one for each request of a connection; every answer carries its request's. So an
  /// answer that comes after its caller has given up is not taken for the next one's.
  std::uint64_t request_id = 0;

  template <typename T>
  [[nodiscard]] const T* get() const {
    return std::get_if<T>(&kind);
  }
};

#undef WC_FIELDS

/// In the order of the fields' numbers, as Protobuf's own libraries write it.
[[nodiscard]] std::string encode(const Message& message);
/// Unknown fields, and known ones of another type, are passed over. Errors: kCorrupt (not in Protobuf's encoding).
[[nodiscard]] Result<Message> decode(std::string_view bytes);

/// One without the Message around it, as a file has it. Errors: as of decode().
[[nodiscard]] std::string encode_history(const HistoryReply& history);
[[nodiscard]] Result<HistoryReply> decode_history(std::string_view bytes);
/// What a node takes in a StatusReply, but for a few bytes in front of it.
[[nodiscard]] std::size_t encoded_bytes(const NodeStatus& node);

}  // namespace weightcast::local
