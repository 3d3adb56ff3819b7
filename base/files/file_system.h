#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/digest/checksum.h"
#include "base/files/open_files.h"
#include "base/result.h"
#include "base/units.h"

namespace weightcast {

// The seam under everything that keeps files: the store, the patch library, the node's records. Two implementations:
// PosixFileSystem (base/files/posix_file_system.h) is what a node runs on; sim::SimFileSystem
// (sim/host/sim_file_system.h) is a disk in memory that loses power, fills up and fails on purpose.
//
// Threads. Calls block. The store makes them on pool threads, or on the loop's thread before the loop runs. Chunks go
// through Disk (transport/io/disk/disk.h), which does not block. Any thread may call the Posix side, and several
// threads may use one File at once. One thread calls the simulated side.
//
// Errors are those of fail_errno(), with the path in the detail, unless a function names others.
//
// Durability. After a kill, the next process sees all that calls had changed before they returned. After a power cut,
// only what was synced is sure to be there.
//   File::sync_data()    the file's bytes and its size; not its name
//   Directory::sync()    the names in this directory: creations, renames in and out, removals; not the files' bytes,
//                        and not the name of the directory itself
//   rename()             replaces `to` at once: whoever looks finds the old or the new one, also after a power cut,
//                        but which of them is sure only when both directories were synced
//   everything else      may be lost, kept, or kept in part, in any order

/// What a name leads to.
struct FileInfo {
  enum class Kind : std::uint8_t { kFile, kDirectory, kLink, kOther };

  Kind kind = Kind::kOther;
  std::uint64_t size_bytes = 0;
  std::int64_t modified_ns = 0;
  std::uint64_t links = 0;   ///< names that this file has
  std::uint64_t device = 0;  ///< with `number`: the same for all names and handles of one file, and for no other
  std::uint64_t number = 0;
  bool executable = false;  ///< by its owner

  [[nodiscard]] bool is_file() const { return kind == Kind::kFile; }
  [[nodiscard]] bool is_directory() const { return kind == Kind::kDirectory; }
  [[nodiscard]] bool is_link() const { return kind == Kind::kLink; }
  [[nodiscard]] bool same_file(const FileInfo& other) const { return device == other.device && number == other.number; }
};

enum class Create : std::uint8_t {
  kNever,
  kIfMissing,  ///< an old one is opened as it is
  kNew,        ///< kAlreadyExists if there is one
  kEmpty,      ///< an old one loses what it holds
};

struct OpenOptions {
  bool write = false;
  Create create = Create::kNever;
  bool append = false;          ///< append() may be called
  bool follow_links = true;     ///< else a symbolic link in the last place is an error
  unsigned permissions = 0644;  ///< of a new file, less the process's umask
};

/// A file's bytes, mapped for reading while this object lives. Only for files of our own: if somebody truncates the
/// file meanwhile, a read beyond its new end ends the process with SIGBUS.
class Mapping {
 public:
  virtual ~Mapping() = default;
  [[nodiscard]] virtual Bytes bytes() const = 0;
};

/// An open file; closed with its last owner. Keeps its file whatever happens to the name.
class File {
 public:
  File() = default;
  virtual ~File() = default;
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  /// Up to `into.size()` bytes, perhaps fewer; 0 at the end of the file. pread(2).
  [[nodiscard]] virtual Result<std::size_t> read_at(std::uint64_t offset, MutableBytes into) = 0;
  /// Up to `from.size()` bytes, perhaps fewer, at least one. pwrite(2). Errors: kNoSpace.
  [[nodiscard]] virtual Result<std::size_t> write_at(std::uint64_t offset, Bytes from) = 0;
  /// Appends up to `from.size()` bytes, perhaps fewer. Other processes see them all at once. Only for a file that was
  /// opened for appending.
  [[nodiscard]] virtual Result<std::size_t> append(Bytes from) = 0;

  [[nodiscard]] virtual Result<FileInfo> info() = 0;
  /// Makes the file at least this long and reserves its blocks, so that later writes cannot run out of space.
  /// fallocate(2). Errors: kNoSpace; kUnsupported where the file system cannot.
  [[nodiscard]] virtual Status allocate(std::uint64_t size_bytes) = 0;
  /// Makes the file exactly so long.
  [[nodiscard]] virtual Status truncate(std::uint64_t size_bytes) = 0;
  /// The offset of the first written byte at or after `offset`; nothing if only a hole follows. SEEK_DATA.
  [[nodiscard]] virtual Result<std::optional<std::uint64_t>> next_data(std::uint64_t offset) = 0;

  /// Waits until the bytes and the size are on the disk. fdatasync(2).
  [[nodiscard]] virtual Status sync_data() = 0;

  /// Takes the file's lock for this process until the file is closed. flock(2). Errors: kBusy.
  [[nodiscard]] virtual Status lock() = 0;
  /// Succeeds if nothing else has this file open or mapped, in this process or another. Takes a lease and returns it.
  /// Errors: kBusy (something has), kUnsupported (the file system cannot tell).
  [[nodiscard]] virtual Status check_unshared() = 0;

  /// Tells the kernel that reads come in random order, so that it reads nothing ahead.
  virtual void advise_random() = 0;

  /// All of it, as long as it is now. Errors: kIo when the process has too many mappings.
  [[nodiscard]] virtual Result<std::unique_ptr<Mapping>> map() = 0;

  /// For messages: the path by which it was opened.
  [[nodiscard]] virtual std::string_view name() const { return "file"; }
  /// The descriptor, for io_uring. -1 for a simulated file.
  [[nodiscard]] virtual int fd() const { return -1; }
};

/// An open directory. Calls act on this directory even if it is renamed. A name may be a path below it. Errors, of all
/// calls: kInvalidArgument where something on that path is no directory; a link to one is none.
class Directory {
 public:
  Directory() = default;
  virtual ~Directory() = default;
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;

  [[nodiscard]] virtual Result<std::unique_ptr<File>> open(const std::string& name, const OpenOptions& options) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Directory>> open_directory(const std::string& name) = 0;
  /// Of a link: of the link itself.
  [[nodiscard]] virtual Result<FileInfo> info(const std::string& name) = 0;
  /// Waits until the names in it are on the disk. fsync(2).
  [[nodiscard]] virtual Status sync() = 0;
};

/// Paths, and what they lead to. A process has one, and it outlives all that it opened.
class FileSystem {
 public:
  using Path = std::filesystem::path;

  virtual ~FileSystem() = default;
  FileSystem(const FileSystem&) = delete;
  FileSystem& operator=(const FileSystem&) = delete;

  /// Does not wait for anybody: a FIFO, a device or a directory in a file's place is refused at once. Errors:
  /// kNotFound; kAlreadyExists; kNotAllowed where this user may not; kInvalidArgument for what is no regular file.
  [[nodiscard]] virtual Result<std::unique_ptr<File>> open(const Path& path, const OpenOptions& options) = 0;
  [[nodiscard]] virtual Result<std::unique_ptr<Directory>> open_directory(const Path& path) = 0;

  /// The names in a directory, sorted, so that callers behave the same on every host.
  [[nodiscard]] virtual Result<std::vector<std::string>> list(const Path& path) = 0;
  /// Of what a link leads to. Errors: kNotFound.
  [[nodiscard]] virtual Result<FileInfo> info(const Path& path) = 0;
  /// Of the link itself. Errors: kNotFound.
  [[nodiscard]] virtual Result<FileInfo> link_info(const Path& path) = 0;

  /// Errors: kAlreadyExists; kNotAllowed where this user may not.
  [[nodiscard]] virtual Status make_directory(const Path& path) = 0;
  [[nodiscard]] virtual Status rename(const Path& from, const Path& to) = 0;
  [[nodiscard]] virtual Status make_link(const Path& target, const Path& path) = 0;
  [[nodiscard]] virtual Result<Path> read_link(const Path& path) = 0;
  /// A name of a file or of a link. Errors: kNotFound.
  [[nodiscard]] virtual Status remove(const Path& path) = 0;
  /// An empty directory. Errors: kNotFound.
  [[nodiscard]] virtual Status remove_directory(const Path& path) = 0;

  /// Bytes that this user can still write below `path`.
  [[nodiscard]] virtual Result<std::uint64_t> free_bytes(const Path& path) = 0;
  /// Errors: kNotAllowed where this user may not make names in the directory.
  [[nodiscard]] virtual Status check_writable(const Path& path) = 0;
  /// The processes that have one of these files open or mapped, for a message: "python3 (process 71)", separated by
  /// commas; "" if none is found. Finds only processes that this one may inspect: of its own user, on its own host or
  /// in its own container. Reads all of /proc, which takes milliseconds.
  [[nodiscard]] virtual std::string users_of(const std::vector<Path>& paths) = 0;
  /// This process, for a person who reads its lock file.
  [[nodiscard]] virtual std::uint64_t process_number() = 0;

  /// The one owner of files that stay open between their uses.
  [[nodiscard]] OpenFiles& open_files() { return open_files_; }

 protected:
  explicit FileSystem(std::size_t files_kept_open) : open_files_(files_kept_open) {}

 private:
  OpenFiles open_files_;
};

// The functions below use only the calls above.

/// The size of one write to a file. Larger writes are hardly cheaper per byte, and the page cache takes them in folios
/// of higher order, which are expensive where memory is fragmented or given back to a host: 128 KiB at a time was
/// measured at 1.7 CPU s/GiB where 64 KiB took 0.25.
inline constexpr std::size_t kWriteBytes = 64 * kKiB;

/// Reads exactly `into.size()` bytes. `what` names the file in errors. Errors: kCorrupt when the file ends before.
[[nodiscard]] Status read_fully(File& file, std::uint64_t offset, MutableBytes into, std::string_view what);
[[nodiscard]] Status write_fully(File& file, std::uint64_t offset, Bytes from, std::string_view what);

/// Gives `file` its full size and, where the file system can, its blocks, so that later writes cannot run out of space.
/// `path` is the file's, for errors. Errors: kNoSpace.
[[nodiscard]] Status preallocate(FileSystem& files, File& file, std::uint64_t size_bytes,
                                 const std::filesystem::path& path);

/// The contents of a file. Errors: kTooLarge beyond `bytes_max`.
[[nodiscard]] Result<std::string> read_file(FileSystem& files, const std::filesystem::path& path,
                                            std::uint64_t bytes_max);

/// Whether `path` exists. A link exists if its target does. False, too, if the disk does not say: ask info() where that
/// matters.
[[nodiscard]] bool exists(FileSystem& files, const std::filesystem::path& path);
/// Makes the directory and those above it that are missing. Their names survive a power cut. Harmless if it exists.
[[nodiscard]] Status make_directories(FileSystem& files, const std::filesystem::path& path);
/// Removes `path` and, if it is a directory, all below it. Does not follow links. Harmless if there is nothing, or if
/// another thread removes it at the same time. Goes on after an error, and returns the first.
[[nodiscard]] Status remove_all(FileSystem& files, const std::filesystem::path& path);
/// remove(), harmless if there is nothing.
[[nodiscard]] Status remove_if_there(FileSystem& files, const std::filesystem::path& path);
/// How much a power cut leaves of a file that replace_file() has written.
enum class Synced : std::uint8_t {
  kNothing,       ///< the old or the new file, perhaps with a part of its bytes
  kBytes,         ///< the old or the new file, whole
  kBytesAndName,  ///< the new file
};
/// Puts a file with this text in the place of `path`: written beside it under the name `path`.tmp, then renamed.
/// Whoever looks finds the old one or the new one.
[[nodiscard]] Status replace_file(FileSystem& files, const std::filesystem::path& path, std::string_view text,
                                  Synced synced);
/// Makes the names in a directory survive a power cut; "" is the working directory.
[[nodiscard]] Status sync_directory(FileSystem& files, const std::filesystem::path& path);

}  // namespace weightcast
