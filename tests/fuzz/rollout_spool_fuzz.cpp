// Arbitrary bytes as a log of a worker's spool, and as a file of its numbers: what is whole can be read, what is not is
// passed by, and nothing that comes later is lost.
#include <string>
#include <string_view>

#include "sim/host/sim_file_system.h"
#include "worker/learner/spool.h"

namespace weightcast {
namespace {

void put(FileSystem& disk, const char* path, std::string_view text) {
  WC_CHECK(replace_file(disk, path, text, Synced::kNothing).has_value());
}

}  // namespace
}  // namespace weightcast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  sim::SimFileSystem disk(1);
  WC_CHECK(make_directories(disk, "/spool/ab").has_value());
  put(disk, "/spool/ab/000000000001.log", text);
  put(disk, "/spool/sequence", text.substr(0, 64));
  if (Result<Spool> spool = Spool::open(disk, "/spool"); spool.has_value()) {
    const std::uint64_t first = spool->take_numbers(10).value();
    WC_CHECK(spool->take_numbers(1).value() == first + 10);
  }
  WC_CHECK(disk.remove("/spool/sequence").has_value());
  Result<Spool> spool = Spool::open(disk, "/spool");
  WC_CHECK(spool.has_value());
  const std::size_t found = spool->records().size();
  for (const Spool::Id id : spool->records()) WC_CHECK(spool->read(id).has_value());
  const Result<Spool::Id> added = spool->set_run("ab").has_value() ? spool->add(text) : Result<Spool::Id>(Spool::Id{});
  WC_CHECK(added.has_value() && spool->read(*added).value() == text && spool->records().size() == found + 1);
  return 0;
}
