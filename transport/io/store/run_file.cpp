#include "transport/io/store/run_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <span>
#include <string>
#include <vector>

#include "base/digest/checksum.h"
#include "transport/io/log.h"
#include "transport/io/store/files/readable.h"
#include "transport/io/store/files/version_record.h"

namespace weightcast {
namespace {

constexpr std::size_t kFileBytesMax = 256;

std::string text_of(StoreRun run) {
  const std::string line = fmt::format("run {:016x} {}\n", run.id.value, run.count);
  return line + fmt::format("check {}\n", checksum_of(std::as_bytes(std::span(line))).hex());
}

/// What names and records say. Its id is kNoRun if none does.
Result<StoreRun> run_of_contents(const StoreLayout& layout) {
  StoreRun run{kNoRun, 0};
  std::vector<std::filesystem::path> folders{layout.incoming(), layout.patches()}, records;
  for (const StoreLayout& place : layout.places()) records.insert(records.begin(), place.records());
  for (const StoreLayout& place : layout.places()) folders.push_back(place.versions());
  folders.insert(folders.end(), records.begin(), records.end());
  for (const std::filesystem::path& folder : folders) {
    WC_ASSIGN(const std::vector<std::string> names, names_in(layout.files(), folder));
    for (const std::string& name : names) {
      const auto named = StoreLayout::named(name);
      if (named) run.count = std::max(run.count, named->run);
    }
  }
  for (const std::filesystem::path& folder : records) {
    WC_ASSIGN(const std::vector<std::string> names, names_in(layout.files(), folder));
    for (const std::string& name : names) {
      const auto named = StoreLayout::named(name);
      if (!named || named->run != run.count) continue;
      const Result<VersionRecord> record = read_record(layout.files(), folder / name);
      if (record.has_value() && record->manifest.run != kNoRun) run.id = record->manifest.run;
    }
  }
  return run;
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
  WC_ASSIGN(run, run_of_contents(layout));
  if (run.id == kNoRun) {
    return fail(Errc::kCorrupt, Op::kParse,
                fmt::format("{}: damaged, and no record here says which run its versions are of; empty this --state "
                            "directory, or give another",
                            layout.run_file().native()));
  }
  log_warning("store: {} is damaged; the versions here are of run {}, and it is written anew",
              layout.run_file().native(), to_string(run.id));
  WC_TRY(write_run(layout, run));
  return run;
}

Status write_run(const StoreLayout& layout, StoreRun run) {
  return replace_file(layout.files(), layout.run_file(), text_of(run), Synced::kBytesAndName);
}

}  // namespace weightcast
