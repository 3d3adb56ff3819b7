#include "patch/snapshot/snapshot_stream.h"

namespace weightcast {

Result<Bytes> SnapshotStream::view(std::uint64_t offset, std::size_t size, std::vector<std::byte>& scratch) const {
  const std::vector<FilePiece> pieces = source_.file_table().pieces(offset, size);
  if (pieces.size() == 1) {
    WC_ASSIGN(const Bytes file, source_.mapping(pieces[0].file));
    return file.subspan(std::size_t(pieces[0].offset_bytes), size);
  }
  scratch.resize(size);
  WC_TRY(source_.read_at(offset, scratch));
  return Bytes(scratch);
}

}  // namespace weightcast
