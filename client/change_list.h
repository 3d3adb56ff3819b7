#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"
#include "weightcast/weightcast.h"

namespace weightcast::client {

/// Memory that a daemon fills with a file of changes (patch/changes/change_names.h): a memfd, which is empty until
/// then. From read() on nobody can change it.
class ChangeList {
 public:
  /// Errors: kNoSpace, kIo (no descriptor is left).
  [[nodiscard]] static Result<std::unique_ptr<ChangeList>> create();
  ~ChangeList();
  ChangeList(const ChangeList&) = delete;
  ChangeList& operator=(const ChangeList&) = delete;

  /// Maps what the daemon has written, `bytes` of it. Errors: kCorrupt (it is no file of changes), kNoSpace, kIo.
  [[nodiscard]] Status read(std::uint64_t bytes);

  [[nodiscard]] int fd() const { return fd_.get(); }
  /// One for each tensor that has changes, by name. They point into the mapping.
  [[nodiscard]] const std::vector<wc_change>& changes() const { return changes_; }

 private:
  explicit ChangeList(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
  const char* data_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::vector<std::string> texts_;  // names and dtypes
  std::vector<wc_change> changes_;
};

}  // namespace weightcast::client
