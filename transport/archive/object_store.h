#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/digest/checksum.h"
#include "base/result.h"

namespace weightcast {

/// Where an archive's objects lie: a directory, an HTTP server, or a bucket of S3. Names are those of archive_index.h,
/// without '/'. An object appears whole, and is replaced at once. One process at a time writes; any thread. Calls
/// block, and each wait has a bound. Errors name the object, and never a credential: kNotAllowed, kNoSpace, kTimedOut,
/// kIo (it failed as often as was tried), and those named.
class ObjectStore {
 public:
  using Sink = std::function<Status(Bytes)>;

  ObjectStore() = default;
  virtual ~ObjectStore() = default;
  ObjectStore(const ObjectStore&) = delete;
  ObjectStore& operator=(const ObjectStore&) = delete;

  /// For messages.
  [[nodiscard]] virtual std::string place_of(const std::string& name) const = 0;

  /// The size of an object; nothing if there is none.
  [[nodiscard]] virtual Result<std::optional<std::uint64_t>> size_of(const std::string& name) = 0;
  /// All of it. Errors: kNotFound, kTooLarge.
  [[nodiscard]] virtual Result<std::string> read(const std::string& name, std::uint64_t bytes_max) = 0;
  /// `sink` gets bytes [offset, offset + size) of an object of `object_bytes`, in order and each once, as they come.
  /// Errors: kNotFound, kCorrupt (it has another size, or was replaced while it was read); those of `sink`.
  [[nodiscard]] virtual Status read_range(const std::string& name, std::uint64_t object_bytes, std::uint64_t offset,
                                          std::uint64_t size, const Sink& sink) = 0;
  [[nodiscard]] virtual Status write(const std::string& name, Bytes bytes) = 0;
  /// Calls that wait for a network fail within a second or two, and later ones at once, with kIo.
  virtual void stop() {}
};

}  // namespace weightcast
