#include <cstdio>
#include <string>

#include "base/files/posix_file_system.h"
#include "tools/train/train_commands.h"
#include "trainer/metrics/metrics_figures.h"

namespace weightcast {
namespace {

Status plot(const std::string& directory) {
  PosixFileSystem files;
  WC_ASSIGN(const std::vector<Metrics> steps, read_metrics(files, directory + "/metrics.jsonl"));
  const std::vector<NamedFigure> figures = metrics_figures(steps);
  if (figures.empty()) return fail(Errc::kNotFound, Op::kRead, directory + "/metrics.jsonl has no training step yet");
  WC_TRY(make_directories(files, directory + "/plots"));
  for (const auto& [name, figure] : figures) {
    const std::string path = directory + "/plots/" + name + ".svg";
    WC_TRY(replace_file(files, path, to_svg(figure), Synced::kNothing));
    std::printf("%s\n", path.c_str());
  }
  return {};
}

}  // namespace

void add_train_plot_command(const Commands& commands) {
  const auto [command, directory] =
      add_command<std::string>(commands, "plot", "Draw a run's metrics as SVG files in DIR/plots", plot);
  command->add_option("DIR", *directory, "A run's output_dir")->required();
}

}  // namespace weightcast
