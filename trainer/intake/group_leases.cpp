#include "trainer/intake/group_leases.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/entropy.h"
#include "base/json_text.h"
#include "trainer/tasks/run_description.h"

namespace weightcast {
namespace {

constexpr std::uint64_t kFileBytesMax = 4096;

}  // namespace

Result<GroupLeases> GroupLeases::open(FileSystem& files, std::filesystem::path path, bool resumed) {
  GroupLeases leases(files, std::move(path));
  if (!resumed) {
    leases.run_id_ = fmt::format("{:016x}", host_entropy());
    WC_TRY(leases.write(0));
    return leases;
  }
  Result<std::string> read = read_file(files, leases.path_, kFileBytesMax);
  if (!read.has_value() && read.error().code == Errc::kNotFound) {
    read.error().detail +=
        "; it says which groups workers have had: put it back beside the checkpoints, or use another output_dir";
  }
  WC_ASSIGN(const std::string text, std::move(read));
  try {
    const auto json = parse_json(text);
    leases.run_id_ = json.at("run").get<std::string>();
    const auto reserved = natural_of(json.at("groups_reserved"));
    leases.next_ = leases.reserved_to_ = reserved.value_or(0);
    if (!is_run_id(leases.run_id_) || !reserved) {
      return fail(
          Errc::kCorrupt, Op::kRead,
          fmt::format("{}: its run is no id, or its number of groups none; put back the one that was beside the "
                      "checkpoints, or use another output_dir",
                      leases.path_.native()));
    }
  } catch (const nlohmann::json::exception& error) {
    return fail(Errc::kCorrupt, Op::kRead, fmt::format("{}: {}", leases.path_.native(), error.what()));
  }
  return leases;
}

Status GroupLeases::write(std::uint64_t reserved_to) {
  const nlohmann::json json = {{"run", run_id_}, {"groups_reserved", reserved_to}};
  return replace_file(*files_, path_, json_text(json) + "\n", Synced::kBytesAndName);
}

Result<std::vector<std::uint64_t>> GroupLeases::take(std::uint64_t count) {
  if (next_ + count > reserved_to_) {
    const std::uint64_t to = next_ + std::max(count, kReserved);
    WC_TRY(write(to));
    reserved_to_ = to;
  }
  std::vector<std::uint64_t> numbers(count);
  for (std::uint64_t& number : numbers) number = next_++;
  return numbers;
}

}  // namespace weightcast
