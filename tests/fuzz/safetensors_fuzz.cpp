// Whatever a file holds, its header is either refused or keeps the promises of SafetensorsHeader.
#include <cstddef>
#include <cstdint>
#include <span>

#include "patch/snapshot/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  const Bytes file = std::as_bytes(std::span(data, size));
  const auto header = parse_safetensors_header(file, size, "fuzz");
  if (!header.has_value()) {
    WC_CHECK(!header.error().detail.empty());
    return 0;
  }
  std::uint64_t end = header->data_offset_bytes;
  for (const TensorInfo& tensor : header->tensors) {
    WC_CHECK(tensor.offset_bytes == end);
    end += tensor.size_bytes;
  }
  WC_CHECK(end == size);

  // What can be read can be written, and read again.
  const auto layout = lay_out_safetensors(header->tensors, header->metadata);
  WC_CHECK(layout.has_value());
  const auto again = parse_safetensors_header(std::as_bytes(std::span(layout->header)), layout->file_bytes, "again");
  WC_CHECK(again.has_value() && again->metadata == header->metadata);
  WC_CHECK(again->tensors.size() == header->tensors.size());
  return 0;
}
