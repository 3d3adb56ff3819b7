#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/files/posix_file_system.h"
#include "base/json_text.h"
#include "client/client.h"
#include "tools/command.h"
#include "tools/observe/otlp_collector.h"
#include "tools/observe/publication_trace.h"

namespace weightcast {
namespace {

struct TraceFlags {
  std::string state;
  std::string output;
  std::string otlp_endpoint;
  std::uint64_t version = 0;
};

constexpr Duration kExportMax = std::chrono::seconds(10);

Status export_spans(const std::string& url, const local::HistoryReply& history) {
  if (history.publications.empty()) return fail(Errc::kNotFound, Op::kRead, "the origin does not know that version");
  auto collector = OtlpCollector::make(url, WEIGHTCAST_VERSION);
  const Status sent = collector.has_value() ? (*collector)->send(history, kExportMax) : Status(collector.error());
  return sent.has_value() ? sent : Status(about("--otlp-endpoint", sent.error()));
}

Status run(const TraceFlags& flags) {
  const auto deadline = client::deadline_after(5000);
  WC_ASSIGN(const auto client, client::Client::open(flags.state, deadline));
  WC_ASSIGN(const local::HistoryReply history, client->history(flags.version, deadline));
  if (!flags.otlp_endpoint.empty()) {
    WC_TRY(export_spans(flags.otlp_endpoint, history));
    if (flags.output.empty()) return {};
  }
  const std::string text = json_text(publication_trace(history)) + "\n";
  if (flags.output.empty()) {
    std::fputs(text.c_str(), stdout);
    return {};
  }
  PosixFileSystem files;
  return replace_file(files, flags.output, text, Synced::kBytes);
}

}  // namespace

void add_trace_command(const Commands& commands) {
  const auto [app, flags] = add_command<TraceFlags>(
      commands, "trace",
      "Write one publication's phases, at the origin and each worker, as a trace that Perfetto opens", run);
  app->add_option("VERSION", flags->version, "Of the publication")->required()->check(CLI::PositiveNumber);
  add_state_option(*app, flags->state, "The state directory of the origin's daemon");
  app->add_option("-o,--output", flags->output, "File to write; without it stdout");
  app->add_option("--otlp-endpoint", flags->otlp_endpoint,
                  "Send it as spans to an OpenTelemetry collector, e.g. http://127.0.0.1:4318, instead of stdout");
  app->footer(
      "Open the file at https://ui.perfetto.dev, or in chrome://tracing. docs/OPERATING.md says what is in it.");
}

}  // namespace weightcast
