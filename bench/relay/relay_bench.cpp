#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <thread>

#include "base/files/posix_file_system.h"
#include "base/json_of.h"
#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/fleet/tcp.h"
#include "bench/relay/cipher_floor.h"
#include "bench/times.h"
#include "patch/snapshot/write_file.h"
#include "tools/command.h"

namespace weightcast::bench {
namespace {

/// One repetition of origin -> relay -> leaf without any limit on rates, and, right before it, of the plain way to do
/// the same with TCP: source -> copier that hashes each chunk, then sends it on -> sink that hashes each chunk; once as
/// it is, and once with copier and sink writing each chunk to a file that was written before.
struct RelayCase {
  struct Plain {
    double seconds = 0;
    double cpu_s = 0;  ///< source, copier and sink
  };

  std::uint64_t payload_bytes = 0;
  Plain plain;
  Plain stored;
  double relay_s = 0;    ///< from the first chunk's leaving, while it is taken over, until the leaf has installed it
  double publish_s = 0;  ///< from the publish call on
  double cpu_s = 0;      ///< origin, relay and leaf, the takeover included
  double stolen_s = 0;   ///< processor time that the host gave to others meanwhile
  std::uint64_t rss_anon_bytes_max = 0;

  /// With --tls: the same by a second fleet, right after, whose connections are encrypted.
  struct Encrypted {
    double relay_s = 0;
    double cpu_s = 0;
    double stolen_s = 0;
    double cipher_s = 0;  ///< the floor: what its two hops encrypt and decrypt, by the cipher alone
  };
  std::optional<Encrypted> encrypted;

  /// CPU of the encrypted relay over the plain one's and the floor of its cipher.
  [[nodiscard]] double encrypted_cpu_ratio() const { return encrypted->cpu_s / (cpu_s + encrypted->cipher_s); }
  /// Of throughputs.
  [[nodiscard]] double ratio() const { return plain.seconds / relay_s; }
  [[nodiscard]] double stored_ratio() const { return stored.seconds / relay_s; }
};

struct RelayBenchOptions {
  std::string size = "512MiB";
  std::uint32_t repetitions = 3;
  FleetFlags flags;
};

using Clock = std::chrono::steady_clock;

constexpr std::size_t kChunkBytes = kMiB;  // what the planner chooses for payloads of this size
Endpoint any_port() { return {"127.0.0.1", 0}; }

/// Receives until the stream ends; each chunk is hashed when it is complete, then handed on.
Status receive_chunks(const UniqueFd& from, const std::function<Status(Bytes)>& on_chunk) {
  std::vector<std::byte> chunk(kChunkBytes);
  for (bool ended = false; !ended;) {
    std::size_t filled = 0;
    while (filled < chunk.size() && !ended) {
      WC_ASSIGN(const std::size_t n, tcp_receive(from, MutableBytes(chunk).subspan(filled)));
      filled += n;
      ended = n == 0;
    }
    const Bytes bytes = Bytes(chunk).first(filled);
    if (content_digest_of(bytes) == ContentDigest{})
      return fail(Errc::kCorrupt, Op::kVerify, "a chunk of a plain stream");
    WC_TRY(on_chunk(bytes));
  }
  return {};
}

/// Stores the chunks that one end of the plain way gets, if there is a directory for them.
class ChunkFile {
 public:
  Status open(const std::optional<std::filesystem::path>& directory, const char* name) {
    if (!directory) return {};
    const std::filesystem::path path = *directory / name;
    WC_ASSIGN(file_, files_.open(path, {.write = true, .create = Create::kIfMissing}));
    out_.emplace(*file_, path.native());
    return {};
  }
  Status append(Bytes chunk) { return out_ ? out_->write(chunk) : Status(); }

 private:
  PosixFileSystem files_;
  std::unique_ptr<File> file_;
  std::optional<FileWriter> out_;
};

/// Until the sink has the last byte. Copier and sink store what they get in `directory`, if there is one.
Result<RelayCase::Plain> plain_relay(std::uint64_t payload_bytes,
                                     const std::optional<std::filesystem::path>& directory) {
  ChunkFile copier_file, sink_file;
  WC_TRY(copier_file.open(directory, "plain-copier"));
  WC_TRY(sink_file.open(directory, "plain-sink"));
  WC_ASSIGN(TcpListener at_sink, tcp_listen(any_port()));
  WC_ASSIGN(TcpListener at_copier, tcp_listen(any_port()));
  WC_ASSIGN(UniqueFd source, tcp_connect(at_copier.endpoint));
  WC_ASSIGN(UniqueFd copier_in, tcp_accept(at_copier.socket));
  WC_ASSIGN(UniqueFd copier_out, tcp_connect(at_sink.endpoint));
  WC_ASSIGN(UniqueFd sink, tcp_accept(at_sink.socket));
  const std::vector<std::byte> data(kChunkBytes, std::byte{0x5a});

  const double cpu_before_s = process_cpu_s();
  const auto start = Clock::now();
  Status sent;
  Status copied;
  std::thread sending([&] {
    for (std::uint64_t left = payload_bytes; left > 0 && sent.has_value();) {
      const auto size = std::min<std::uint64_t>(left, data.size());
      sent = tcp_send_all(source, Bytes(data).first(size));
      left -= size;
    }
    source.reset();
  });
  std::thread copying([&] {
    copied = receive_chunks(copier_in, [&](Bytes chunk) -> Status {
      WC_TRY(tcp_send_all(copier_out, chunk));
      return copier_file.append(chunk);
    });
    copier_out.reset();
  });
  std::uint64_t received = 0;
  const Status drained = receive_chunks(sink, [&](Bytes chunk) -> Status {
    received += chunk.size();
    return sink_file.append(chunk);
  });
  const double seconds = to_seconds(Clock::now() - start);
  sending.join();
  copying.join();
  WC_TRY(sent);
  WC_TRY(copied);
  WC_TRY(drained);
  if (received != payload_bytes) return fail(Errc::kClosed, Op::kReceive, "a plain stream ended early");
  return RelayCase::Plain{seconds, process_cpu_s() - cpu_before_s};
}

/// From the first chunk's leaving until the leaf has installed it; every worker holds it.
Result<double> relay_seconds(Fleet& fleet, const Broadcast& broadcast, const Payload& payload) {
  if (!broadcast.t100_s) return fail(Errc::kTimedOut, Op::kInstall, "the leaf did not install it");
  for (NodeIndex node = 1; node <= fleet.worker_count(); ++node) WC_TRY(check_installed(fleet.state(node), payload));
  WC_ASSIGN(const nlohmann::json status, fleet.status());
  return *broadcast.t100_s - status.at("nodes")[0].at("first_sent_s").get<double>();
}

double gibibytes(std::uint64_t bytes) { return double(bytes) / double(kGiB); }

nlohmann::json to_json(const std::vector<RelayCase>& cases) {
  nlohmann::json list = nlohmann::json::array();
  for (const RelayCase& c : cases) {
    list.push_back(merged(WC_JSON_OF(c.payload_bytes, c.relay_s, c.publish_s, c.ratio(), c.stored_ratio(), c.cpu_s,
                                     c.stolen_s, c.rss_anon_bytes_max),
                          {{"plain_s", c.plain.seconds},
                           {"plain_cpu_s_per_relayed_gib", c.plain.cpu_s / gibibytes(c.payload_bytes)},
                           {"stored_s", c.stored.seconds},
                           {"stored_cpu_s_per_relayed_gib", c.stored.cpu_s / gibibytes(c.payload_bytes)},
                           {"cpu_s_per_relayed_gib", c.cpu_s / gibibytes(c.payload_bytes)}}));
    if (!c.encrypted) continue;
    list.back()["encrypted_relay_s"] = c.encrypted->relay_s;
    list.back()["encrypted_cpu_s"] = c.encrypted->cpu_s;
    list.back()["encrypted_stolen_s"] = c.encrypted->stolen_s;
    list.back()["cipher_s"] = c.encrypted->cipher_s;
    list.back()["encrypted_cpu_ratio"] = c.encrypted_cpu_ratio();
  }
  return {{"cases", std::move(list)}};
}

std::string relay_heading() {
  return fmt::format("{:>10} {:>12} {:>13} {:>12} {:>9} {:>10} {:>16} {:>17} {:>16} {:>8} {:>8}", "payload",
                     "plain MiB/s", "stored MiB/s", "relay MiB/s", "of plain", "of stored", "plain cpu_s/GiB",
                     "stored cpu_s/GiB", "relay cpu_s/GiB", "stolen_s", "RssAnon");
}

std::string relay_line(const RelayCase& c) {
  const double mebibytes = double(c.payload_bytes) / double(kMiB);
  const double gib = gibibytes(c.payload_bytes);
  std::string line = fmt::format(
      "{:>10} {:>12.0f} {:>13.0f} {:>12.0f} {:>9.3f} {:>10.3f} {:>16.2f} {:>17.2f} {:>16.2f} {:>8.2f} {:>4.0f} MiB",
      format_bytes(c.payload_bytes), mebibytes / c.plain.seconds, mebibytes / c.stored.seconds, mebibytes / c.relay_s,
      c.ratio(), c.stored_ratio(), c.plain.cpu_s / gib, c.stored.cpu_s / gib, c.cpu_s / gib, c.stolen_s,
      double(c.rss_anon_bytes_max) / double(kMiB));
  if (c.encrypted) {
    line += fmt::format(
        "\n{:>10} {:>38.0f} MiB/s encrypted; cpu_s/GiB {:.2f}, the cipher's floor {:.2f}: {:.3f} of plain + floor; "
        "stolen_s {:.2f}",
        "", mebibytes / c.encrypted->relay_s, c.encrypted->cpu_s / gib, c.encrypted->cipher_s / gib,
        c.encrypted_cpu_ratio(), c.encrypted->stolen_s);
  }
  return line;
}

/// Publishes three times to warm up (connections, page cache, and files of forgotten versions to write to), which is
/// not reported, then alternates the plain ways and ours, encrypted too if the flags say so. Every installed file is
/// compared with what was published.
Status run(const RelayBenchOptions& options) {
  WC_ASSIGN(const std::uint64_t payload_bytes, parse_bytes(options.size));
  constexpr std::size_t kWorkers = 2;
  constexpr std::uint32_t kWarmUps = 3;
  constexpr double kHops = 2;
  const auto network = make_loopback_network(std::vector<LinkRates>(kWorkers + 1));
  const auto encrypted_network = make_loopback_network(std::vector<LinkRates>(kWorkers + 1));
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  // For each node the version that it has and the one that arrives, the payload, and two files of the plain way.
  WC_ASSIGN(const WarmMemory warm, options.flags.warm_memory(10 * payload_bytes));
  FleetOptions fleet_options = options.flags.options(scratch.path());
  fleet_options.topology = Topology::kChain;
  fleet_options.encrypted = false;
  WC_ASSIGN(const std::unique_ptr<Fleet> fleet, Fleet::start(*network, kWorkers, fleet_options));
  std::unique_ptr<Fleet> encrypted_fleet;
  if (options.flags.encrypted) {
    fleet_options.encrypted = true;
    fleet_options.scratch = scratch.path() / "encrypted";
    std::filesystem::create_directory(fleet_options.scratch);
    WC_ASSIGN(encrypted_fleet, Fleet::start(*encrypted_network, kWorkers, fleet_options));
  }

  print_now("Three publications first, to warm up; they are not shown.\n" + relay_heading());
  std::vector<RelayCase> cases;
  for (std::uint32_t repetition = 0; repetition < kWarmUps + options.repetitions; ++repetition) {
    WC_ASSIGN(const Payload payload, make_payload(scratch.path() / "model.safetensors", payload_bytes, repetition));
    RelayCase measured;
    measured.payload_bytes = payload_bytes;
    WC_ASSIGN(measured.plain, plain_relay(payload_bytes, std::nullopt));
    WC_ASSIGN(measured.stored, plain_relay(payload_bytes, scratch.path()));
    WC_ASSIGN(const Broadcast broadcast, fleet->broadcast(Version{repetition + 1}, payload, {}));
    measured.publish_s = broadcast.t100_s.value_or(0);
    WC_ASSIGN(measured.relay_s, relay_seconds(*fleet, broadcast, payload));
    measured.cpu_s = broadcast.cpu_s;
    measured.stolen_s = broadcast.stolen_s;
    measured.rss_anon_bytes_max = broadcast.rss_anon_bytes_max;
    if (encrypted_fleet) {
      RelayCase::Encrypted& encrypted = measured.encrypted.emplace();
      WC_ASSIGN(const Broadcast second, encrypted_fleet->broadcast(Version{repetition + 1}, payload, {}));
      WC_ASSIGN(encrypted.relay_s, relay_seconds(*encrypted_fleet, second, payload));
      encrypted.cpu_s = second.cpu_s;
      encrypted.stolen_s = second.stolen_s;
      WC_ASSIGN(const double one_hop_s, cipher_floor_s(payload_bytes));
      encrypted.cipher_s = kHops * one_hop_s;
    }
    if (repetition < kWarmUps) continue;
    cases.push_back(measured);
    print_now(relay_line(measured));
  }
  return write_json(options.flags.json_path, to_json(cases));
}

}  // namespace

void add_relay_command(CLI::App& app) {
  const auto [command, options] = add_bench<const RelayBenchOptions>(
      app, "relay", "Throughput of one hop of store and forward, without limits", run);
  command->add_option("--size", options->size, "Payload")->check(bytes_validator());
  command->add_option("--repeat", options->repetitions, "Repetitions, each of the plain way and of ours")
      ->check(CLI::Range(1u, 1000u));
  options->flags.add_to(*command);
}

}  // namespace weightcast::bench
