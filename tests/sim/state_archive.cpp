#include "tests/sim/state_archive.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace weightcast::sim {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kPageBytes = 4096;

Status pack_file(File& file, std::uint64_t size_bytes, const std::string& name, std::string& out) {
  out += fmt::format("file {} {}\n", name, size_bytes);
  for (std::uint64_t at = 0; at < size_bytes;) {
    WC_ASSIGN(const std::optional<std::uint64_t> begin, file.next_data(at));
    if (!begin) break;
    std::uint64_t end = *begin;
    for (std::optional<std::uint64_t> data = begin; data == end && end < size_bytes;) {
      end = std::min((end / kPageBytes + 1) * kPageBytes, size_bytes);
      WC_ASSIGN(data, file.next_data(end));
    }
    std::string bytes(end - *begin, '\0');
    WC_TRY(read_fully(file, *begin, std::as_writable_bytes(std::span(bytes)), name));
    out += fmt::format("data {} {}\n{}\n", *begin, bytes.size(), bytes);
    at = end;
  }
  return {};
}

Status pack(FileSystem& files, const fs::path& root, const fs::path& below, std::string& out) {
  WC_ASSIGN(const std::vector<std::string> names, files.list(root / below));
  for (const std::string& entry : names) {
    const fs::path name = below / entry;
    WC_ASSIGN(const FileInfo info, files.link_info(root / name));
    if (info.is_directory()) {
      out += fmt::format("directory {}\n", name.native());
      WC_TRY(pack(files, root, name, out));
    } else if (info.is_link()) {
      WC_ASSIGN(const fs::path target, files.read_link(root / name));
      out += fmt::format("link {} {}\n", name.native(), target.native());
    } else {
      WC_ASSIGN(const std::unique_ptr<File> file, files.open(root / name, {}));
      WC_TRY(pack_file(*file, info.size_bytes, name.native(), out));
    }
  }
  return {};
}

Error malformed(std::string_view what) {
  return fail(Errc::kCorrupt, Op::kParse, fmt::format("state archive: {}", what));
}

/// The words of the line that `archive` begins with; takes it off.
std::vector<std::string> take_line(std::string_view& archive) {
  std::string_view line = archive.substr(0, archive.find('\n'));
  archive.remove_prefix(std::min(line.size() + 1, archive.size()));
  std::vector<std::string> words;
  while (!line.empty()) {
    const std::string_view word = line.substr(0, line.find(' '));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    words.emplace_back(word);
  }
  return words;
}

Result<std::uint64_t> number(const std::string& word) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || end != word.data() + word.size()) return malformed("no number: " + word);
  return value;
}

}  // namespace

Result<std::string> pack_directory(FileSystem& files, const fs::path& directory) {
  std::string archive;
  WC_TRY(pack(files, directory, {}, archive));
  return archive;
}

Status unpack_directory(FileSystem& files, std::string_view archive, const fs::path& directory) {
  WC_TRY(make_directories(files, directory));
  std::unique_ptr<File> file;
  while (!archive.empty()) {
    const std::vector<std::string> words = take_line(archive);
    const std::string kind = words.empty() ? "" : words[0];
    if (kind == "directory" && words.size() == 2) {
      WC_TRY(make_directories(files, directory / words[1]));
    } else if (kind == "link" && words.size() == 3) {
      WC_TRY(files.make_link(words[2], directory / words[1]));
    } else if (kind == "file" && words.size() == 3) {
      WC_ASSIGN(const std::uint64_t size_bytes, number(words[2]));
      WC_ASSIGN(file, files.open(directory / words[1], {.write = true, .create = Create::kNew}));
      WC_TRY(file->truncate(size_bytes));
    } else if (kind == "data" && words.size() == 3 && file) {
      WC_ASSIGN(const std::uint64_t offset, number(words[1]));
      WC_ASSIGN(const std::uint64_t length, number(words[2]));
      if (archive.size() <= length) return malformed("it is cut short");
      WC_TRY(write_fully(*file, offset, std::as_bytes(std::span(archive.substr(0, length))), "state archive"));
      archive.remove_prefix(length + 1);
    } else {
      return malformed("a line that is none: " + kind);
    }
  }
  return {};
}

}  // namespace weightcast::sim
