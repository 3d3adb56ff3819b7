#include "tools/output_files.h"

namespace weightcast {

OutputSnapshot::~OutputSnapshot() {
  for (const Output& output : outputs_) {
    if (output.file) static_cast<void>(remove_if_there(files_, output.temporary));
  }
}

Status OutputSnapshot::open(const std::filesystem::path& path) {
  const bool single = table_.files().size() == 1;
  if (!single) WC_TRY(make_directories(files_, path));
  for (const SnapshotFile& file : table_.files()) {
    Output output{single ? path : path / file.name, {}, nullptr};
    output.temporary = output.path.native() + ".tmp";
    WC_ASSIGN(output.file, files_.open(output.temporary, {.write = true, .create = Create::kEmpty}));
    outputs_.push_back(std::move(output));
  }
  return {};
}

Status OutputSnapshot::finish() {
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    Output& output = outputs_[i];
    WC_TRY(output.file->truncate(table_.files()[i].size_bytes));
    WC_TRY(output.file->sync_data());
    WC_TRY(files_.rename(output.temporary, output.path));
    output.file.reset();
  }
  return {};
}

Status OutputSnapshot::write(std::uint64_t offset, Bytes bytes) {
  for (const FilePiece& piece : table_.pieces(offset, bytes.size())) {
    const Output& output = outputs_[piece.file];
    WC_TRY(write_fully(*output.file, piece.offset_bytes, bytes.first(piece.size_bytes), output.temporary.native()));
    bytes = bytes.subspan(piece.size_bytes);
  }
  return {};
}

}  // namespace weightcast
