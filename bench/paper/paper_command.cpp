#include <fmt/ranges.h>

#include <cstdio>

#include "bench/add_bench.h"
#include "bench/commands.h"
#include "bench/fleet/interrupt.h"
#include "bench/fleet/process.h"
#include "bench/fleet/scratch.h"
#include "bench/paper/paper_bench.h"

namespace weightcast::bench {
namespace {

struct PaperArguments {
  std::vector<std::string> names;
  bool is_quick = false;
  std::string directory, json_path, svg_path;
};

Status run(const PaperArguments& arguments) {
  hold_interrupts();
  std::vector<PaperItem> items;
  for (const std::string& name : arguments.names) {
    if (name == "all") {
      for (const std::string_view each : simulated_item_names()) items.push_back(*paper_item(each));
      continue;
    }
    WC_ASSIGN(PaperItem item, paper_item(name));
    items.push_back(std::move(item));
  }
  if (arguments.is_quick) {
    for (PaperItem& item : items) make_quick(item);
  }
  const std::filesystem::path programs = std::filesystem::path(beside_this_program("weightcast")).parent_path();
  if (!arguments.directory.empty()) return write_paper_items(items, {arguments.directory, programs});
  if (items.size() > 1 && !arguments.svg_path.empty()) {
    return fail(Errc::kInvalidArgument, Op::kConfigure, "--svg draws one figure; give one NAME, or --out DIR");
  }
  WC_ASSIGN(const Scratch scratch, Scratch::make());
  nlohmann::json results = nlohmann::json::array();
  for (const PaperItem& item : items) {
    WC_ASSIGN(const PaperResult result, run_paper_item(item, {scratch.path(), programs}));
    fmt::print("{}", paper_text(item, result));
    std::fflush(stdout);
    results.push_back(to_json(item, result));
    WC_TRY(write_result(arguments.svg_path, to_svg(result.figure)));
  }
  return write_json(arguments.json_path, {{"items", std::move(results)}});
}

}  // namespace

void add_paper_command(CLI::App& app) {
  const auto [command, arguments] = add_bench<const PaperArguments>(
      app, "paper", "Tables and figures of papers, by simulation or training runs, beside the papers' figures", run);
  command
      ->add_option("NAME", arguments->names,
                   fmt::format("all, for those that simulate; {}", fmt::join(paper_item_names(), ", ")))
      ->required();
  command->add_flag("--quick", arguments->is_quick,
                    "A sixteenth of the work and one step, or three steps of a tiny model: that it runs, and no more");
  CLI::Option* out = command->add_option("--out", arguments->directory,
                                         "Write DIR/NAME.json and DIR/NAME.svg, and keep those that lie there from the "
                                         "same configuration; training runs, which are kept one by one, lie in "
                                         "DIR/NAME");
  command->add_option("--json", arguments->json_path, "Write the results to this file; - is stdout")->excludes(out);
  command->add_option("--svg", arguments->svg_path, "Draw the figure of one NAME")->excludes(out);
}

}  // namespace weightcast::bench
