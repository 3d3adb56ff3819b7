#include "patch/snapshot/tensor.h"

#include <fmt/format.h>

#include <array>

namespace weightcast {
namespace {

struct Dtype {
  std::string_view name;
  unsigned bits;
};

// The order matters: it is the reference implementation's, which sorts tensors by it (descending) when it writes.
constexpr std::array<Dtype, 22> kDtypes{
    {{"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
     {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
     {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
     {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64}}};

}  // namespace

unsigned dtype_bits(std::string_view dtype) {
  const unsigned rank = dtype_rank(dtype);
  return rank == 0 ? 0 : kDtypes[rank - 1].bits;
}

unsigned dtype_rank(std::string_view dtype) {
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (kDtypes[i].name == dtype) return static_cast<unsigned>(i + 1);
  }
  return 0;
}

std::string quoted_name(std::string_view name) {
  constexpr std::size_t kShownMax = 96;
  constexpr std::size_t kEnd = kShownMax / 4;
  std::string out = "'";
  const auto append = [&out](std::string_view part) {
    for (const char c : part) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte < 0x20 || byte == 0x7f) {
        fmt::format_to(std::back_inserter(out), "\\x{:02x}", byte);
      } else {
        out.push_back(c);
      }
    }
  };
  if (name.size() <= kShownMax) {
    append(name);
  } else {
    append(name.substr(0, kShownMax - kEnd));
    out += "...";
    append(name.substr(name.size() - kEnd));
  }
  out += "'";
  return out;
}

}  // namespace weightcast
