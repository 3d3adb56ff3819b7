#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <span>

#include "base/json_of.h"
#include "base/json_text.h"
#include "base/text.h"
#include "base/time.h"
#include "base/units.h"
#include "client/attempt.h"
#include "tools/command.h"

namespace weightcast {
namespace {

struct PublishFlags {
  std::string path, state;
  std::uint64_t version = 0;
  double wait = 0;
  double timeout_s = 300;
  bool json = false;
  bool allow_nonfinite = false;
  bool new_model = false;
  bool files = false;
};

// One bar per worker, redrawn in place on a terminal; elsewhere a plain line per second.
class ProgressView {
 public:
  explicit ProgressView(bool enabled) : enabled_(enabled), terminal_(::isatty(STDERR_FILENO) == 1) {}

  void show(const wc_progress& progress) {
    if (!enabled_) return;
    terminal_ ? draw(progress) : print(progress);
  }

 private:
  static double fraction_of(const wc_worker_progress& worker) {
    if (worker.installed != 0) return 1;
    // By the worker's own word, which may be anything.
    return worker.chunks_total > 0 ? std::min(1.0, double(worker.chunks_verified) / worker.chunks_total) : 0;
  }

  void draw(const wc_progress& progress) {
    constexpr int kBarWidth = 32;
    winsize window{};
    const int rows = ::ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 4 ? window.ws_row - 2 : 22;
    std::string out;
    if (drawn_ > 0) out += fmt::format("\x1b[{}A", drawn_);
    drawn_ = 0;
    for (const wc_worker_progress& worker : std::span(progress.worker, progress.worker_count)) {
      if (drawn_ == rows - 1 && progress.workers > static_cast<unsigned>(rows)) break;
      const double fraction = fraction_of(worker);
      const int full = static_cast<int>(fraction * kBarWidth);
      out += fmt::format("\x1b[2K  {:<16.16} [{:#<{}}{:.<{}}] {:3.0f} %  {}\n", printable(worker.name), "", full, "",
                         kBarWidth - full, 100 * fraction,
                         worker.installed != 0            ? "installed"
                         : worker.receive_bytes_per_s > 0 ? format_rate(Rate{worker.receive_bytes_per_s})
                                                          : "nothing comes");
      ++drawn_;
    }
    if (const auto drawn = static_cast<unsigned>(drawn_); drawn < progress.workers) {
      out += fmt::format("\x1b[2K  ... and {} more, {} of {} installed\n", progress.workers - drawn, progress.installed,
                         progress.workers);
      ++drawn_;
    }
    std::fputs(out.c_str(), stderr);
    std::fflush(stderr);
  }

  void print(const wc_progress& progress) {
    if (progress.elapsed_s < next_line_s_) return;
    next_line_s_ = progress.elapsed_s + 1;
    std::fprintf(stderr, "%5.1f s: %u of %u workers installed, %.0f %% received\n", progress.elapsed_s,
                 progress.installed, progress.workers, 100 * progress.received);
  }

  bool enabled_;
  bool terminal_;
  int drawn_ = 0;
  double next_line_s_ = 0;
};

std::string seconds_or_dash(const std::optional<double>& seconds) {
  return seconds ? fmt::format("{:.3f} s", *seconds) : std::string("-");
}

/// "undecided" while the payload is being made.
std::string_view kind_of(const wc::Outcome& outcome) {
  switch (outcome.payload) {
    case WC_FULL: return "full";
    case WC_PACKED: return "packed";
    case WC_PATCH: return "patch";
    default: return "undecided";
  }
}

nlohmann::json to_json(const wc::Outcome& outcome) {
  return merged(WC_JSON_OF(outcome.version, outcome.payload_bytes, outcome.workers, outcome.installed, outcome.topology,
                           outcome.predicted_s, outcome.origin_egress_bytes, outcome.missing, outcome.notice,
                           outcome.t50_s, outcome.t90_s, outcome.t100_s, outcome.take_s),
                {{"kind", kind_of(outcome)}});
}

/// Until the origin has its own copy and the workers that are waited for have installed it.
wc::Outcome publish(const PublishFlags& flags, const std::string& path) {
  const auto deadline = std::chrono::steady_clock::now() + from_seconds(flags.timeout_s);
  const auto left = [&] { return std::chrono::ceil<wc::Milliseconds>(deadline - std::chrono::steady_clock::now()); };
  wc::Client client(flags.state);
  wc::PublishOptions options;
  options.version = flags.version;
  options.allow_nonfinite = flags.allow_nonfinite;
  options.new_model = flags.new_model;
  options.file_tree = flags.files;
  const std::uint64_t version = client.publish_path(path, options, left());
  wc::WaitOptions wait;
  wc::Outcome outcome = client.wait(version, wait, left());
  if (!outcome.notice.empty()) std::fprintf(stderr, "%s\n", printable(outcome.notice).c_str());
  if (flags.wait <= 0) return outcome;
  ProgressView view(!flags.json);
  wait.fraction = flags.wait;
  wait.on_progress = [&](const wc_progress& progress) { view.show(progress); };
  return client.wait(version, wait, left());
}

/// The workers that have not installed it, each with what status says of it: "w2 (the disk is full)".
std::string missing_text(const PublishFlags& flags, const std::vector<std::string>& missing) {
  if (missing.empty()) return "no worker is connected";
  std::map<std::string, std::string> reasons;
  // That the origin does not answer any more is no news about the publication.
  static_cast<void>(attempt([&] {
    const auto status = nlohmann::json::parse(wc::Client(flags.state).status());
    for (const auto& node : status.at("nodes")) {
      if (node.at("role") == "worker") reasons[node.at("name")] = node.at("last_error");
    }
    return 0;
  }));
  std::vector<std::string> texts;
  for (const std::string& name : missing) {
    const std::string& why = reasons[name];
    texts.push_back(why.empty() ? name : fmt::format("{} ({})", name, printable(why)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

Status run(const PublishFlags& flags) {
  const auto began_at = std::chrono::steady_clock::now();
  // The daemon reads the path, from wherever it was started.
  std::error_code error;
  const auto path = std::filesystem::absolute(flags.path, error);
  if (error) return fail(Errc::kInvalidArgument, Op::kPublish, fmt::format("{}: {}", flags.path, error.message()));
  if (flags.version == WC_NEXT_VERSION) {
    return fail(Errc::kInvalidArgument, Op::kPublish, "version 0: versions start at 1");
  }
  WC_ASSIGN(const wc::Outcome outcome, attempt([&] { return publish(flags, path.string()); }));

  if (flags.json) {
    fmt::print("{}\n", json_text(to_json(outcome)));
  } else if (flags.wait > 0) {
    fmt::print("version {} ({}, {}): {} of {} workers installed\n", outcome.version, kind_of(outcome),
               format_bytes(outcome.payload_bytes), outcome.installed, outcome.workers);
    fmt::print("T_bcast(0.5) {}, T_bcast(0.9) {}, T_bcast(1.0) {}; {} predicted {:.3f} s\n",
               seconds_or_dash(outcome.t50_s), seconds_or_dash(outcome.t90_s), seconds_or_dash(outcome.t100_s),
               outcome.topology, outcome.predicted_s);
  } else {
    fmt::print("version {} published ({}, {}), {} workers to go\n", outcome.version, kind_of(outcome),
               format_bytes(outcome.payload_bytes), outcome.workers - outcome.installed);
  }
  std::fflush(stdout);
  if (outcome.reached) return {};
  // The origin ends the wait before its time when nobody who is missing can still install it.
  const double waited_s = to_seconds(std::chrono::steady_clock::now() - began_at);
  const bool is_early = waited_s < flags.timeout_s - 1;
  return fail(Errc::kTimedOut, Op::kPublish,
              fmt::format("version {}: {} of {} workers installed it within {} s, {:.4g} % were to; missing: {}; see "
                          "'weightcast status'",
                          outcome.version, outcome.installed, outcome.workers,
                          is_early ? fmt::format("{:.1f}", waited_s) : fmt::format("{}", flags.timeout_s),
                          100 * flags.wait, missing_text(flags, outcome.missing)));
}

}  // namespace

void add_publish_command(const Commands& commands) {
  const auto [app, flags] =
      add_command<PublishFlags>(commands, "publish", "Publish a snapshot from the trainer's host", run);
  app->add_option("PATH", flags->path,
                  "A safetensors file, or a directory with model.safetensors or shards and their index; with --files "
                  "any directory")
      ->required();
  app->add_option("--version", flags->version, "The version's number; greater than the last")
      ->check(CLI::NonNegativeNumber)
      ->required();
  add_state_option(*app, flags->state, "The origin's state directory");
  app->add_option("--wait", flags->wait, "Wait until this fraction of the workers has installed it")
      ->check(CLI::Range(0.0, 1.0));
  app->add_option("--timeout", flags->timeout_s, "Seconds to wait at most")
      ->check(CLI::Range(0.0, 604'800.0))
      ->capture_default_str();
  app->add_flag("--json", flags->json, "One JSON object instead of text");
  app->add_flag("--allow-nonfinite", flags->allow_nonfinite, "Publish although a tensor holds NaN or infinity");
  app->add_flag("--new-model", flags->new_model,
                "Publish although tensors have other names, dtypes or shapes than in the version before, or a "
                "directory of files comes after a model");
  app->add_flag("--files", flags->files,
                "Publish all files below the directory PATH, for workers that were started with --files");
}

}  // namespace weightcast
