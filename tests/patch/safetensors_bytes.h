#pragma once

#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "base/digest/checksum.h"

namespace weightcast {

inline Bytes as_bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

/// The bytes of a safetensors file with that header, whatever it says, and that data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data = "") {
  const std::uint64_t header_bytes = header.size();
  std::string out(sizeof header_bytes, '\0');
  std::memcpy(out.data(), &header_bytes, sizeof header_bytes);
  out += header;
  out += data;
  return out;
}

/// A file with one tensor of U8.
inline std::string one_tensor(std::string_view name, std::string_view data) {
  const std::string size = std::to_string(data.size());
  return safetensors_bytes(
      "{\"" + std::string(name) + "\":{\"dtype\":\"U8\",\"shape\":[" + size + "],\"data_offsets\":[0," + size + "]}}",
      data);
}

}  // namespace weightcast
