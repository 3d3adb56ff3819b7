#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <thread>

#include "base/descriptors.h"
#include "base/log_line.h"
#include "base/posix_file_system.h"
#include "base/settings.h"
#include "observe/metrics_port.h"
#include "tasks/registry.h"
#include "tools/model_directory.h"
#include "tools/operator_options.h"
#include "tools/stop_signal.h"
#include "tools/worker_commands.h"
#include "worker/serve/surface.h"

namespace weightcast {
namespace {

struct ServeFlags {
  std::string directory;
  std::string listen = "127.0.0.1:7700";
  HttpFlags http;
  std::string state;
  std::string weights = "mapped";
  std::string cache_dtype = "float32";
  std::string in_flight = "keep";
  double wait_max_s = 30;
  std::string task;
  std::vector<std::string> task_options;
  std::string log_format = "text";
  EngineOptions engine;
  SurfaceOptions surface;
};

/// Null without --task.
Result<std::shared_ptr<const Task>> task_of(const ServeFlags& flags) {
  TaskOptions options;
  for (const std::string& text : flags.task_options) {
    WC_ASSIGN(const Setting setting, parse_setting(text));
    options.insert_or_assign(setting.first, setting.second);
  }
  if (flags.task.empty()) return std::shared_ptr<const Task>();
  WC_ASSIGN(std::unique_ptr<Task> task, make_task(flags.task, options));
  return std::shared_ptr<const Task>(std::move(task));
}

Status serve(const ServeFlags& flags) {
  const std::atomic<bool>& stop = stop_on_signals();
  PosixFileSystem files;
  WC_TRY(raise_descriptor_limit());
  SurfaceOptions options = flags.surface;
  WC_ASSIGN(options.http.listen, Endpoint::parse(flags.listen));
  WC_ASSIGN(const LogFormat format, parse_log_format(flags.log_format));
  const auto say = [log = LogStyle{format, "serve"}](const std::string& line) { write_log_line(log, "warning", line); };
  options.http.warn = options.say = say;
  options.release = WEIGHTCAST_VERSION;
  WC_ASSIGN(const auto http, operator_options(flags.http, options.http.trust.keys, {}, say));
  options.wait_max = from_seconds(flags.wait_max_s);
  WC_ASSIGN(options.task, task_of(flags));
  const std::filesystem::path directory = flags.directory;
  WC_ASSIGN(const std::shared_ptr<const Tokenizer> tokenizer, read_tokenizer(files, directory));
  WC_ASSIGN(options.chat, read_chat_style(files, directory, tokenizer.get()));
  EngineOptions engine_options = flags.engine;
  engine_options.bfloat16_cache = flags.cache_dtype == "bfloat16";
  WC_ASSIGN(engine_options.in_flight, parse_in_flight(flags.in_flight));
  WC_TRY(set_tokens(files, directory, tokenizer, engine_options));
  WC_ASSIGN(ModelFiles model, ModelFiles::open(files, directory));
  WC_ASSIGN(const auto weights, EngineWeights::open(std::move(model)));
  if (options.model_name.empty()) options.model_name = std::filesystem::absolute(directory).filename().string();
  std::unique_ptr<VersionFollower> versions;
  if (!flags.state.empty()) {
    WC_ASSIGN(const WeightPlace place, parse_weight_place(flags.weights));
    versions = VersionFollower::start(files, subscribe_to_versions(flags.state), weights->config(), place, say);
  }
  WC_ASSIGN(std::unique_ptr<Engine> engine, Engine::make(weights, kNoVersion, engine_options));
  WC_ASSIGN(const std::unique_ptr<Surface> surface,
            Surface::start(std::move(engine), std::move(versions), tokenizer, options));
  std::printf("serving %s at %s\n", options.model_name.c_str(), surface->endpoint().to_string().c_str());
  std::unique_ptr<OperatorPort> port;
  if (http) {
    WC_ASSIGN(port, start_metrics_port(*http, [&surface](const HttpRequest&, HttpResponder responder) {
                surface->answer_metrics(std::move(responder));
              }));
    std::printf("operators look at %s\n", port->url().c_str());
  }
  std::fflush(stdout);
  while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  surface->stop(std::chrono::seconds(5));
  return {};
}

}  // namespace

void add_worker_serve_command(CLI::App& app, CommandBody& selected) {
  const auto flags = std::make_shared<ServeFlags>();
  CLI::App* command = app.add_subcommand("serve", "Answer OpenAI's clients over HTTP with a model");
  command->add_option("DIR", flags->directory, "A model's directory in Hugging Face's layout")->required();
  command->add_option("--listen", flags->listen, "HOST:PORT; port 0 takes a free one")->capture_default_str();
  command->add_option("--name", flags->surface.model_name, "Of the model; default: the directory's");
  command->add_option("--state", flags->state,
                      "State directory of this host's daemon: generate under the versions that it installs");
  command->add_option("--weights", flags->weights, "With --state: mapped, or resident (for --single-copy)")
      ->check(CLI::IsMember(kWeightPlaceNames))
      ->capture_default_str();
  command->add_option("--in-flight", flags->in_flight, "With --state: what becomes of answers when a version comes")
      ->check(CLI::IsMember(kInFlightNames))
      ->capture_default_str();
  command
      ->add_option(
          "--wait-max", flags->wait_max_s,
          "Seconds for which a call waits for the version that it wants, for POST /resume, or for rewards; then 503")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  CLI::Option* const task =
      command->add_option("--task", flags->task, "Computes rewards for POST /v1/rl/trajectories with 'metadata'");
  command->add_option("--task-option", flags->task_options, "NAME=VALUE of the task; may be repeated")->needs(task);
  add_http_options(*command, flags->http,
                   "Where Prometheus reads /metrics apart from clients (docs/OPERATING.md); without it at --listen "
                   "alone. Open to this host on loopback; elsewhere with --http-token, or with --keys, encrypted");
  command->add_option("--keys", flags->surface.http.trust.keys,
                      "File of this node's keys (weightcast keys): clients need keys of the cluster, too");
  command->add_flag("--insecure", flags->surface.http.trust.insecure,
                    "Plain connections beyond loopback, too: everybody on the way can read and change them");
  command->add_option("--connections", flags->surface.http.limits.connections_max, "At most so many; beyond it 503")
      ->check(CLI::Range(std::size_t{1}, std::size_t{100'000}))
      ->capture_default_str();
  command->add_option("--cache-bytes", flags->engine.cache_bytes_max, "At most so much for keys and values")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  command->add_option("--cache-dtype", flags->cache_dtype, "Of keys and values")
      ->check(CLI::IsMember({"float32", "bfloat16"}))
      ->capture_default_str();
  command->add_option("--running-max", flags->engine.running_max, "Sequences that a step computes together")
      ->capture_default_str();
  command->add_option("--threads", flags->engine.threads, "Of the engine")
      ->check(CLI::Range(1u, 1024u))
      ->capture_default_str();
  add_log_format_option(*command, flags->log_format);
  command->callback([flags, &selected] { selected = [flags] { return serve(*flags); }; });
}

}  // namespace weightcast
