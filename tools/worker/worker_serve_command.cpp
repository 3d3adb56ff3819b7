#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <thread>

#include "base/files/descriptors.h"
#include "base/files/posix_file_system.h"
#include "base/process.h"
#include "base/settings/log_writer.h"
#include "base/text.h"
#include "tools/observe/metrics_port.h"
#include "tools/shell/configured_command.h"
#include "tools/shell/operator_options.h"
#include "tools/shell/stop_signal.h"
#include "tools/worker/model_directory.h"
#include "tools/worker/worker_commands.h"
#include "trainer/tasks/registry.h"
#include "worker/serve/surface.h"

namespace weightcast {
namespace {

struct ServeFlags {
  std::string directory;
  OperatorSettings operators;
  std::string state;
  WeightPlace weights = WeightPlace::kMapped;
  std::string task;
  TaskOptions task_options;
  EngineOptions engine;
  SurfaceOptions surface;
};

/// Null without --task.
Result<std::shared_ptr<const Task>> task_of(const ServeFlags& flags) {
  if (flags.task.empty()) return std::shared_ptr<const Task>();
  WC_ASSIGN(std::unique_ptr<Task> task, make_task(flags.task, flags.task_options));
  return std::shared_ptr<const Task>(std::move(task));
}

Status serve(const ServeFlags& flags) {
  const std::atomic<bool>& stop = stop_on_signals();
  PosixFileSystem files;
  WC_TRY(raise_descriptor_limit());
  SurfaceOptions options = flags.surface;
  const auto say = [log = LogStyle{flags.operators.log_format, "serve"}](const std::string& line) {
    write_log_line(log, "warning", line);
  };
  watch_signals(AtHangup::kStops, say);
  options.http.warn = options.say = say;
  options.release = WEIGHTCAST_VERSION;
  WC_ASSIGN(const auto http, operator_options(flags.operators, options.http.trust.keys, {}, say));
  WC_ASSIGN(options.task, task_of(flags));
  const std::filesystem::path directory = flags.directory;
  WC_ASSIGN(const std::shared_ptr<const Tokenizer> tokenizer, read_tokenizer(files, directory));
  WC_ASSIGN(options.chat, read_chat_style(files, directory, tokenizer.get()));
  EngineOptions engine_options = flags.engine;
  WC_TRY(set_tokens(files, directory, tokenizer, engine_options));
  WC_ASSIGN(ModelFiles model, ModelFiles::open(files, directory));
  WC_ASSIGN(const auto weights, EngineWeights::open(std::move(model)));
  if (options.model_name.empty()) options.model_name = std::filesystem::absolute(directory).filename().string();
  std::unique_ptr<VersionFollower> versions;
  if (!flags.state.empty()) {
    versions = VersionFollower::start(files, subscribe_to_versions(flags.state), weights->config(), flags.weights, say);
  }
  WC_ASSIGN(std::unique_ptr<Engine> engine, Engine::make(weights, kNoVersion, engine_options));
  WC_ASSIGN(const std::unique_ptr<Surface> surface,
            Surface::start(std::move(engine), std::move(versions), tokenizer, options));
  write_output(fmt::format("serving {} at {}\n", printable(options.model_name), surface->endpoint().to_string()));
  std::unique_ptr<OperatorPort> port;
  if (http) {
    WC_ASSIGN(port, start_metrics_port(*http, [&surface](const HttpRequest&, HttpResponder responder) {
                surface->answer_metrics(std::move(responder));
              }));
    write_output(fmt::format("operators look at {}\n", port->url()));
  }
  while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  surface->stop(std::chrono::seconds(5));
  return {};
}

}  // namespace

void add_worker_serve_command(const Commands& commands) {
  const auto [command, flags] =
      add_command<ServeFlags>(commands, "serve", "Answer OpenAI's clients over HTTP with a model", serve);
  command->add_option("DIR", flags->directory, "A model's directory in Hugging Face's layout")->required();
  flags->surface.http.listen.port = 7700;
  std::vector<SettingField> fields{
      {"listen", &flags->surface.http.listen, "HOST:PORT; port 0 takes a free one"},
      {"name", &flags->surface.model_name, "Of the model; default: the directory's"},
      {"state", &flags->state, "State directory of this host's daemon: generate under the versions that it installs"},
      {"weights", &flags->weights, "With --state: mapped, or resident (for --single-copy)"},
      {"in-flight", &flags->engine.in_flight, "With --state: what becomes of answers when a version comes"},
      {"wait-max", DurationIn{&flags->surface.wait_max, std::chrono::seconds(1)},
       "Seconds for which a call waits for the version that it wants, for POST /resume, or for rewards; then 503", 0,
       3600},
      {"task", &flags->task, "Computes rewards for POST /v1/rl/trajectories with 'metadata'"},
      {"task-option", &flags->task_options, "Of the task; may be repeated"},
      {"keys", &flags->surface.http.trust.keys,
       "File of this node's keys (weightcast keys): clients need keys of the cluster, too"},
      {"insecure", &flags->surface.http.trust.insecure,
       "Plain connections beyond loopback, too: everybody on the way can read and change them"},
      {"connections", &flags->surface.http.limits.connections_max, "At most so many; beyond it 503", 1, 100'000},
      {"cache-bytes", ByteCount{&flags->engine.cache_bytes_max}, "At most so much for keys and values"},
      {"cache-dtype", &flags->engine.cache_dtype, "Of keys and values"},
      {"running-max", &flags->engine.running_max, "Sequences that a step computes together", 1, 65536},
      {"threads", &flags->engine.threads, "Of the engine", 1, 1024},
  };
  add_operator_fields(
      fields, flags->operators,
      "Where Prometheus reads /metrics apart from clients (docs/OPERATING.md); without it at --listen alone. Open to "
      "this host on loopback; elsewhere with --http-token, or with --keys, encrypted");
  add_setting_flags(*command, fields);
  command->get_option("--task-option")->needs(command->get_option("--task"));
}

}  // namespace weightcast
