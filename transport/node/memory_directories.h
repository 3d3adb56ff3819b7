#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files/unique_fd.h"
#include "base/result.h"

namespace weightcast {

// The directories that nodes keep versions in, below a file system in memory (--memory-dir):
//
//   weightcast-USER-DIGEST/    of the state directory whose path has that digest
//     lock                     held by the node, for as long as it runs
//     state                    a link to the state directory, whose link `memory` leads back here
//     claim                    the bytes that it may come to take
//
// Every user of the host may make names beside them, and under their names. So nothing is read or removed but what is
// this user's own, and what others cannot write to.

/// The name of the one for that state directory, whether or not it is there.
[[nodiscard]] std::filesystem::path memory_directory_of(const std::filesystem::path& memory_dir,
                                                        const std::filesystem::path& state);

/// Whether `path` is one of this user's nodes, by its name and its owner.
[[nodiscard]] bool is_memory_directory(const std::filesystem::path& path);

/// That directory, made if it is missing; `state` exists. Others may read it who may read the state directory. Errors:
/// kNotAllowed (another user made it, or may write to it), kIo, kNotFound.
[[nodiscard]] Result<std::filesystem::path> make_memory_directory(const std::filesystem::path& memory_dir,
                                                                  const std::filesystem::path& state);

/// A node's directory in memory, which is its own for as long as this lives.
class MemoryDirectory {
 public:
  /// make_memory_directory(), and its lock. Errors: those; kBusy (another node has it).
  [[nodiscard]] static Result<MemoryDirectory> take(const std::filesystem::path& memory_dir,
                                                    const std::filesystem::path& state);

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }
  /// False once somebody has deleted it, or what it holds.
  [[nodiscard]] bool is_there() const;
  /// Removes it with what it holds.
  void remove();

 private:
  MemoryDirectory(std::filesystem::path path, UniqueFd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::filesystem::path path_;
  UniqueFd lock_;
};

/// What all below a directory of this user takes; 0 of any other.
[[nodiscard]] std::uint64_t bytes_in_memory(const std::filesystem::path& directory);
void write_claim(const std::filesystem::path& directory, std::uint64_t bytes);
/// What other nodes of this user have chosen to take of `memory_dir` and do not take yet: they may begin at the same
/// moment.
[[nodiscard]] std::uint64_t claimed_by_others(const std::filesystem::path& memory_dir,
                                              const std::filesystem::path& ours);

/// One that a node of this user has left: its state directory is gone, or has its versions elsewhere, and nobody holds
/// its lock.
struct LeftInMemory {
  std::filesystem::path path;
  std::string state;        ///< "": none is known
  std::uint64_t bytes = 0;  ///< that it takes
};
[[nodiscard]] std::vector<LeftInMemory> left_in_memory(const std::filesystem::path& memory_dir);
/// Removes it, unless a node has taken it meanwhile. Errors: kBusy, kIo.
[[nodiscard]] Status remove_left(const LeftInMemory& left);
/// Removes the one of that state directory. Harmless if there is none. Errors: kBusy (a node has it), kNotAllowed
/// (another user's has its name), kIo.
[[nodiscard]] Status remove_memory_directory(const std::filesystem::path& path);
/// Where the versions of `state` lie under the name of another path, from which it was moved, they get the right one.
/// False: nothing has changed.
[[nodiscard]] bool adopt_moved(const std::filesystem::path& memory_dir, const std::filesystem::path& state);

}  // namespace weightcast
