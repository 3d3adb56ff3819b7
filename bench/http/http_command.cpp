#include <fmt/format.h>

#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/http/http_bench.h"

namespace weightcast::bench {
namespace {

struct HttpArguments {
  HttpBenchOptions options;
  std::string json_path;
};

Status run(const HttpArguments& arguments) {
  WC_ASSIGN(const HttpBenchResult result, run_http_bench(arguments.options));
  fmt::print(
      "{} connections ({} idle, {} streams, {} that do not read): /health p50 {:.2f} ms, p99 {:.2f} ms, max {:.2f} ms "
      "of {} probes; {} events read, {} streams cut; one connection more gets {}; {:.2f} cores with the clients\n",
      result.connections, arguments.options.idle, arguments.options.streams, arguments.options.never_read,
      result.p50_ms, result.p99_ms, result.max_ms, result.probes, result.events, result.streams_cut,
      result.above_cap_status, result.server_cpu_share);
  return write_json(arguments.json_path, to_json(arguments.options, result));
}

}  // namespace

void add_http_command(CLI::App& app) {
  const auto [command, arguments] =
      add_bench<const HttpArguments>(app, "http", "Answers to /health beside many clients, slow ones among them", run);
  HttpBenchOptions& options = arguments->options;
  command->add_option("--idle", options.idle, "Connections that stay open");
  command->add_option("--streams", options.streams, "Streams that are read");
  command->add_option("--seconds", options.seconds, "How long");
  command->add_option("--json", arguments->json_path, "Write the result to this file; - is stdout");
}

}  // namespace weightcast::bench
