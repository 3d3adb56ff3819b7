#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files/file_system.h"
#include "base/result.h"

namespace weightcast {

/// Records on disk in the order in which they came, and numbers that are given out once. One process has a directory:
///   lock            held while a spool is open
///   sequence        the next number that a restart may give out
///   RUN/N.log       records of one run: size (4 bytes), checksum (16), payload; appended to one file after the other
/// A record that add() has taken survives a kill, and in most cases a power cut: nothing is synced but the numbers.
/// What a kill has left half-written at the end of a file is skipped. A file goes when all of its records were removed;
/// records that were removed may come back after a restart. One thread at a time.
class Spool {
 public:
  using Id = std::uint64_t;
  static constexpr std::uint64_t kFileBytes = std::uint64_t{4} << 20;
  static constexpr std::uint64_t kRecordBytesMax = std::uint64_t{64} << 20;  ///< what the learner takes in a body

  /// Errors: kBusy (another process has it), kCorrupt (`sequence`), those of the files.
  [[nodiscard]] static Result<Spool> open(FileSystem& files, std::filesystem::path directory);
  Spool(Spool&&) = default;
  Spool& operator=(Spool&&) = delete;
  ~Spool() = default;

  /// The first of `count` numbers that nobody had before and nobody gets again.
  [[nodiscard]] Result<std::uint64_t> take_numbers(std::uint64_t count);

  /// The run whose records are here; "" where there are none, or of several.
  [[nodiscard]] const std::string& run() const { return run_; }
  /// From now on records are of that run: the logs of others are deleted, and nothing else. Returns the records that
  /// are there, as open() leaves to be taken by records(). Errors: those of the files.
  [[nodiscard]] Status set_run(const std::string& run);
  /// Those that were there when the run was set or found, and have not been removed.
  [[nodiscard]] std::vector<Id> records() const;

  /// Errors: those of the files; then nothing is added.
  [[nodiscard]] Result<Id> add(std::string_view payload);
  /// Where a record lies. It can be read on any thread, also after it was removed.
  struct Place {
    std::shared_ptr<File> file;
    std::uint64_t offset = 0;  ///< of the payload
    std::uint64_t bytes = 0;
  };
  [[nodiscard]] Place place_of(Id id) const;
  /// Errors: kCorrupt, those of the files.
  [[nodiscard]] static Result<std::string> read(const Place& place);
  [[nodiscard]] Result<std::string> read(Id id) const { return read(place_of(id)); }
  /// Errors: those of deleting a file; it is gone from here all the same.
  [[nodiscard]] Status remove(Id id);

 private:
  struct Log {
    std::shared_ptr<File> file;
    std::uint64_t size_bytes = 0;
    std::uint64_t records = 0;  // that were not removed
  };
  struct Record {
    std::uint64_t log = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  // of the payload
  };

  Spool(FileSystem& files, std::filesystem::path directory) : files_(&files), directory_(std::move(directory)) {}

  [[nodiscard]] Status load_run(const std::string& run);
  [[nodiscard]] Status load_log(std::uint64_t number);
  [[nodiscard]] Status begin_log();
  [[nodiscard]] std::filesystem::path path_of(std::uint64_t log) const;

  FileSystem* files_;
  std::filesystem::path directory_;
  std::unique_ptr<File> lock_;
  std::uint64_t next_number_ = 0;
  std::uint64_t reserved_to_ = 0;  // the next number that the file names
  std::string run_;
  std::map<std::uint64_t, Log> logs_;
  std::uint64_t current_ = 0;  // the log that is appended to; 0: none
  std::uint64_t last_log_ = 0;
  std::map<Id, Record> records_;
  Id next_id_ = 1;
};

}  // namespace weightcast
