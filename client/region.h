#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace weightcast::client {

/// A memfd, mapped for writing: the memory in which a snapshot is filled in place. It has no name, so nothing of it
/// remains when the process is killed. It is sealed at its size, so that whoever reads or maps it is safe from
/// SIGBUS. Behind the snapshot it says which publication it is being filled for, and which parts of that are done:
///
///   size_bytes()   room for the snapshot
///   0 to 63        up to a multiple of 64
///   8 * kPartsMax  the ledger: for each part the publication that it was done for last
///   64             Footer, at the file's end
class Region {
 public:
  static constexpr std::uint32_t kPartsMax = 4096;

  /// Memory is taken when it is first written. Errors: kNoSpace, kIo.
  [[nodiscard]] static Result<std::shared_ptr<Region>> create(std::uint64_t size_bytes);
  /// Maps what another process made by create(). `fd` stays the caller's. Errors: kInvalidArgument (not a region).
  [[nodiscard]] static Result<std::shared_ptr<Region>> attach(int fd);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

  /// Takes the memory now, so that no write pays for it. Errors: kNoSpace.
  [[nodiscard]] Status populate();

  /// Which memory it is, the same in all processes that map it; another one's is another, but by chance.
  [[nodiscard]] std::uint64_t memory() const;
  /// What it is being filled for, as all processes that map it see it; 0: nobody may write to it now.
  [[nodiscard]] std::uint64_t publication() const;
  void set_publication(std::uint64_t id);

  /// How much of it is the snapshot, from its beginning, as all processes that map it see it.
  [[nodiscard]] std::uint64_t content_bytes() const;
  void set_content_bytes(std::uint64_t bytes);

  /// How many parts a publication has, of which each is to be done. Errors: kTooLarge (above kPartsMax).
  [[nodiscard]] Status expect_parts(std::uint32_t parts);
  /// From any process. The ledger holds publications, not marks: what comes too late for one cannot count for the next.
  /// Errors: kInvalidArgument (it is being filled for another publication; there is no such part).
  [[nodiscard]] Status mark_done(std::uint64_t publication, std::uint32_t part);
  /// Errors: kBusy (parts of `publication` are not done).
  [[nodiscard]] Status check_done(std::uint64_t publication) const;

  [[nodiscard]] char* data() const { return data_; }
  [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  struct Footer;

  Region(UniqueFd fd, std::uint64_t file_bytes) : fd_(std::move(fd)), file_bytes_(file_bytes) {}
  Status map();
  [[nodiscard]] Footer* footer() const;
  [[nodiscard]] std::atomic<std::uint64_t>* ledger() const;

  const UniqueFd fd_;
  const std::uint64_t file_bytes_;
  std::uint64_t size_bytes_ = 0;
  char* data_ = nullptr;
};

/// A number that no other memory or publication of any process has, but by chance; never 0.
[[nodiscard]] Result<std::uint64_t> fresh_id();

}  // namespace weightcast::client
