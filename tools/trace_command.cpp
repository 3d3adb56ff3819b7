#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_text.h"
#include "base/posix_file_system.h"
#include "client/client.h"
#include "http/client.h"
#include "observe/otlp_spans.h"
#include "observe/publication_trace.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct TraceFlags {
  std::string state;
  std::string output;
  std::string otlp_endpoint;
  std::uint64_t version = 0;
};

constexpr std::string_view kPlain = "http://";
constexpr std::uint16_t kOtlpPort = 4318;
constexpr std::string_view kOtlpPath = "/v1/traces";
constexpr Duration kExportMax = std::chrono::seconds(10);

/// Sends the publication's spans to the collector at `url`, as OTLP over HTTP. Errors: kInvalidArgument (no such URL),
/// those of HttpClient::call(), kIo (the collector refuses them; its words follow).
Status export_spans(const std::string& url, const local::HistoryReply& history) {
  const auto refuse = [&](Errc code, const std::string& why) {
    return fail(code, Op::kSend, fmt::format("--otlp-endpoint {}: {}", url, why));
  };
  if (!url.starts_with(kPlain)) {
    return refuse(Errc::kInvalidArgument,
                  "it is to be http://HOST[:PORT][/PATH]; to leave this host encrypted, let a "
                  "collector here pass them on");
  }
  const std::string rest = url.substr(kPlain.size());
  const std::size_t slash = std::min(rest.find('/'), rest.size());
  std::string host = rest.substr(0, slash), path = rest.substr(slash);
  while (path.ends_with('/')) path.pop_back();
  auto endpoint = Endpoint::parse(host);
  if (!endpoint.has_value()) endpoint = Endpoint::parse(fmt::format("{}:{}", host, kOtlpPort));
  if (!endpoint.has_value()) return refuse(Errc::kInvalidArgument, endpoint.error().detail);
  // Whom the URL names is trusted with it, as with any exporter of OpenTelemetry's.
  WC_ASSIGN(const auto client, HttpClient::make({.server = *endpoint, .trust = {.insecure = true}}));
  const auto answer = client->call({.method = "POST",
                                    .target = path + std::string(kOtlpPath),
                                    .content_type = "application/json",
                                    .body = json_text(otlp_spans(history))},
                                   kExportMax);
  if (!answer.has_value()) return refuse(answer.error().code, answer.error().detail);
  if (answer->status / 100 == 2) return {};
  return refuse(Errc::kIo, fmt::format("status {}: {}", answer->status, answer->body.substr(0, 500)));
}

Status run(const TraceFlags& flags) {
  const auto deadline = client::deadline_after(5000);
  WC_ASSIGN(const auto client, client::Client::open(flags.state, deadline));
  WC_ASSIGN(const local::HistoryReply history, client->history(flags.version, deadline));
  if (!flags.otlp_endpoint.empty()) {
    if (history.publications.empty()) return fail(Errc::kNotFound, Op::kRead, "the origin does not know that version");
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
  auto flags = std::make_shared<TraceFlags>();
  CLI::App* app = commands.app.add_subcommand(
      "trace", "Write one publication's phases, at the origin and each worker, as a trace that Perfetto opens");
  app->add_option("VERSION", flags->version, "Of the publication")->required()->check(CLI::PositiveNumber);
  add_state_option(*app, flags->state, "The state directory of the origin's daemon");
  app->add_option("-o,--output", flags->output, "File to write; without it stdout");
  app->add_option("--otlp-endpoint", flags->otlp_endpoint,
                  "Send it as spans to an OpenTelemetry collector, e.g. http://127.0.0.1:4318, instead of stdout")
      ->envname("OTEL_EXPORTER_OTLP_ENDPOINT");
  app->footer(
      "Open the file at https://ui.perfetto.dev, or in chrome://tracing. docs/OPERATING.md says what is in it.");
  app->callback([flags, selected = &commands.selected] { *selected = [flags] { return run(*flags); }; });
}

}  // namespace weightcast
