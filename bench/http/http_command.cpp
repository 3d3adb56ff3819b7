#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>

#include "base/json_text.h"
#include "bench/commands.h"
#include "bench/fleet/fleet_flags.h"
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
  return write_result(arguments.json_path, json_text(to_json(arguments.options, result), 2) + "\n");
}

}  // namespace

void add_http_command(CLI::App& app) {
  const auto arguments = std::make_shared<HttpArguments>();
  HttpBenchOptions& options = arguments->options;
  CLI::App* command = app.add_subcommand("http", "Answers to /health beside many clients, slow ones among them");
  command->add_option("--idle", options.idle, "Connections that stay open")->capture_default_str();
  command->add_option("--streams", options.streams, "Streams that are read")->capture_default_str();
  command->add_option("--never-read", options.never_read, "Streams that are not read")->capture_default_str();
  command->add_option("--event-ms", options.event_ms, "Between two events of a stream")->capture_default_str();
  command->add_option("--seconds", options.seconds, "How long")->capture_default_str();
  command->add_option("--json", arguments->json_path, "Write the result to this file; - is stdout");
  command->callback([arguments] { run_bench([&] { return run(*arguments); }); });
}

}  // namespace weightcast::bench
