#include "transport/io/store/run_file.h"

#include <fmt/format.h>

#include <cinttypes>
#include <cstdio>
#include <span>
#include <string>

#include "base/checksum.h"

namespace weightcast {
namespace {

constexpr std::size_t kFileBytesMax = 256;

std::string text_of(StoreRun run) {
  const std::string line = fmt::format("run {:016x} {}\n", run.id.value, run.count);
  return line + fmt::format("check {}\n", checksum_of(std::as_bytes(std::span(line))).hex());
}

}  // namespace

Result<StoreRun> read_run(const StoreLayout& layout) {
  const Result<std::string> text = read_file(layout.files(), layout.run_file(), kFileBytesMax);
  if (!text.has_value() && text.error().code == Errc::kNotFound) return StoreRun{};
  if (!text.has_value() && text.error().code != Errc::kCorrupt && text.error().code != Errc::kTooLarge) {
    return text.error();
  }
  StoreRun run;
  if (text.has_value() && std::sscanf(text->c_str(), "run %" SCNx64 " %" SCNu32, &run.id.value, &run.count) == 2 &&
      run.count > 0 && text_of(run) == *text) {
    return run;
  }
  return fail(Errc::kCorrupt, Op::kParse,
              fmt::format("{}: damaged, so it is not known which versions are of the newest run; empty this --state "
                          "directory, or give another",
                          layout.run_file().native()));
}

Status write_run(const StoreLayout& layout, StoreRun run) {
  return replace_file(layout.files(), layout.run_file(), text_of(run), Synced::kBytesAndName);
}

}  // namespace weightcast
