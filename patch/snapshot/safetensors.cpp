#include "patch/snapshot/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "patch/snapshot/json_text.h"

namespace weightcast {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and so is this code");

constexpr std::size_t kLengthBytes = sizeof(std::uint64_t);
constexpr std::string_view kMetadataKey = "__metadata__";

/// Receives the header's JSON as events, so that duplicate keys are seen and nothing but tensors is kept.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit HeaderReader(SafetensorsHeader& header) : header_(header) {}

  /// What was wrong, once an event returned false.
  [[nodiscard]] Errc code() const { return code_; }
  [[nodiscard]] const std::string& problem() const { return problem_; }

  bool null() override {
    // The reference implementation reads a null as "no metadata".
    return skips() || (at_ == At::kRoot && name_ == kMetadataKey) || refuse_type("null");
  }
  bool boolean(bool) override { return skips() || refuse_type("a boolean"); }
  bool number_integer(number_integer_t) override { return skips() || refuse_type("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return skips() || refuse_type("a number that is not an integer below 2^64");
  }
  bool binary(binary_t&) override { return refuse_type("binary"); }

  bool number_unsigned(number_unsigned_t number) override {
    if (skips()) return true;
    if (at_ == At::kShape) {
      if (tensor_.shape.size() == kTensorRankMax) {
        return refuse(Errc::kTooLarge, fmt::format("{}: more than {} dimensions", subject(), kTensorRankMax));
      }
      tensor_.shape.push_back(number);
      return true;
    }
    if (at_ == At::kOffsets) {
      if (offsets_seen_ == offsets_.size()) return refuse(subject() + ": more than two data_offsets");
      offsets_[offsets_seen_++] = number;
      return true;
    }
    return refuse_type("a number");
  }

  bool string(string_t& text) override {
    if (skips()) return true;
    if (at_ == At::kMetadata) {
      if (header_.metadata.size() == kMetadataEntriesMax) {
        return refuse(Errc::kTooLarge, fmt::format("more than {} entries of metadata", kMetadataEntriesMax));
      }
      if (!header_.metadata.emplace(name_, text).second) {
        return refuse(fmt::format("metadata {} is given twice", quoted_name(name_)));
      }
      return true;
    }
    if (at_ == At::kTensor && field_ == Field::kDtype) {
      tensor_.dtype = std::move(text);
      return true;
    }
    return refuse_type("a string");
  }

  bool start_object(std::size_t) override {
    switch (at_) {
      case At::kStart: at_ = At::kRoot; return true;
      case At::kRoot:
        if (name_ == kMetadataKey) {
          at_ = At::kMetadata;
          return true;
        }
        return start_tensor();
      case At::kTensor: return field_ == Field::kOther ? start_skipping() : refuse_type("an object");
      case At::kSkipping: return start_skipping();
      default: return refuse_type("an object");
    }
  }

  bool end_object() override {
    switch (at_) {
      case At::kSkipping: return end_skipping();
      case At::kMetadata: at_ = At::kRoot; return true;
      case At::kTensor: return end_tensor();
      default: return true;
    }
  }

  bool start_array(std::size_t) override {
    if (at_ == At::kSkipping) return start_skipping();
    if (at_ == At::kTensor) {
      switch (field_) {
        case Field::kShape: at_ = At::kShape; return true;
        case Field::kOffsets: at_ = At::kOffsets; return true;
        case Field::kOther: return start_skipping();
        default: break;
      }
    }
    return refuse_type("an array");
  }

  bool end_array() override {
    if (at_ == At::kSkipping) return end_skipping();
    at_ = At::kTensor;
    return true;
  }

  bool key(string_t& text) override {
    switch (at_) {
      case At::kRoot: return key_of_root(text);
      case At::kMetadata: name_ = std::move(text); return true;
      case At::kTensor: return key_of_tensor(text);
      default: return true;
    }
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception&) override {
    const std::string shown = token.empty() ? "" : fmt::format(" near {}", quoted_name(token));
    return refuse(fmt::format("its header is not JSON: error at byte {} of it{}", position, shown));
  }

 private:
  enum class At { kStart, kRoot, kMetadata, kTensor, kShape, kOffsets, kSkipping };
  enum class Field : unsigned { kNone = 0, kDtype = 1, kShape = 2, kOffsets = 4, kOther = 8 };

  bool refuse(Errc code, std::string problem) {
    code_ = code;
    problem_ = std::move(problem);
    return false;
  }
  bool refuse(std::string problem) { return refuse(Errc::kCorrupt, std::move(problem)); }

  [[nodiscard]] std::string subject() const { return fmt::format("tensor {}", quoted_name(tensor_.name)); }

  bool refuse_type(std::string_view type) {
    switch (at_) {
      case At::kStart: return refuse(fmt::format("its header is {}, not an object", type));
      case At::kRoot:
        return refuse(fmt::format("the entry of tensor {} is {}, not an object", quoted_name(name_), type));
      case At::kMetadata: return refuse(fmt::format("metadata {} is {}, not a string", quoted_name(name_), type));
      default: return refuse(fmt::format("{}: its {} holds {}", subject(), field_name(), type));
    }
  }

  [[nodiscard]] std::string_view field_name() const {
    switch (field_) {
      case Field::kDtype: return "dtype";
      case Field::kShape: return "shape";
      case Field::kOffsets: return "data_offsets";
      default: return "entry";
    }
  }

  [[nodiscard]] bool skips() const { return at_ == At::kSkipping || (at_ == At::kTensor && field_ == Field::kOther); }
  bool start_skipping() {
    at_ = At::kSkipping;
    ++skipped_depth_;
    constexpr std::size_t kAround = 2;  // the header and the tensor
    if (skipped_depth_ <= kHeaderDepthMax - kAround) return true;
    return refuse(fmt::format("{}: more than {} levels of objects and arrays", subject(), kHeaderDepthMax));
  }
  bool end_skipping() {
    if (--skipped_depth_ == 0) at_ = At::kTensor;
    return true;
  }

  bool key_of_root(std::string& text) {
    if (text == kMetadataKey) {
      if (std::exchange(metadata_seen_, true)) return refuse("__metadata__ is given twice");
    } else if (text.size() > kTensorNameBytesMax) {
      return refuse(Errc::kTooLarge, fmt::format("the name of tensor {} is {} bytes long, above the limit of {}",
                                                 quoted_name(text), text.size(), kTensorNameBytesMax));
    }
    name_ = std::move(text);
    return true;
  }

  bool key_of_tensor(const std::string& text) {
    field_ = text == "dtype"          ? Field::kDtype
             : text == "shape"        ? Field::kShape
             : text == "data_offsets" ? Field::kOffsets
                                      : Field::kOther;
    if (field_ == Field::kOther) return true;
    const auto bit = static_cast<unsigned>(field_);
    if ((fields_seen_ & bit) != 0) return refuse(fmt::format("{}: {} is given twice", subject(), text));
    fields_seen_ |= bit;
    return true;
  }

  bool start_tensor() {
    if (header_.tensors.size() == kTensorsMax) {
      return refuse(Errc::kTooLarge, fmt::format("more than {} tensors", kTensorsMax));
    }
    tensor_ = TensorInfo{};
    tensor_.name = std::move(name_);
    field_ = Field::kNone;
    fields_seen_ = 0;
    offsets_seen_ = 0;
    at_ = At::kTensor;
    return true;
  }

  bool end_tensor() {
    for (const Field field : {Field::kDtype, Field::kShape, Field::kOffsets}) {
      field_ = field;
      if ((fields_seen_ & static_cast<unsigned>(field)) == 0) {
        return refuse(fmt::format("{}: {} is missing", subject(), field_name()));
      }
    }
    if (offsets_seen_ != offsets_.size()) return refuse(subject() + ": data_offsets are not two");
    const auto [begin, end] = offsets_;
    if (end < begin) {
      return refuse(fmt::format("{}: its data_offsets [{}, {}] end before they begin", subject(), begin, end));
    }
    tensor_.offset_bytes = begin;
    tensor_.size_bytes = end - begin;
    header_.tensors.push_back(std::move(tensor_));
    at_ = At::kRoot;
    return true;
  }

  SafetensorsHeader& header_;
  At at_ = At::kStart;
  std::string name_;
  TensorInfo tensor_;
  Field field_ = Field::kNone;
  unsigned fields_seen_ = 0;
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t offsets_seen_ = 0;
  std::size_t skipped_depth_ = 0;
  bool metadata_seen_ = false;
  Errc code_ = Errc::kCorrupt;
  std::string problem_;
};

/// A name that stands twice among `tensors`, if one does.
std::optional<std::string_view> find_duplicate(std::span<const TensorInfo> tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice == names.end()) return std::nullopt;
  return *twice;
}

/// What is wrong with the size of `tensor`, or nothing.
std::optional<std::string> size_problem(const TensorInfo& tensor) {
  if (dtype_bits(tensor.dtype) == 0) return std::nullopt;
  const auto expected = tensor_bytes(tensor.dtype, tensor.shape);
  if (!expected.has_value()) return expected.error().detail;
  if (*expected == tensor.size_bytes) return std::nullopt;
  return fmt::format("shape [{}] in {} takes {} bytes, but it has {}", fmt::join(tensor.shape, ", "), tensor.dtype,
                     *expected, tensor.size_bytes);
}

/// `text` as a JSON string. Errors: kInvalidArgument if it is not UTF-8.
Result<std::string> json_string(std::string_view text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    return fail(Errc::kInvalidArgument, Op::kEncode, fmt::format("name {} is not valid UTF-8", quoted_name(text)));
  }
}

}  // namespace

Result<std::uint64_t> tensor_bytes(std::string_view dtype, std::span<const std::uint64_t> shape) {
  std::uint64_t bits = dtype_bits(dtype);
  if (bits == 0) {
    return fail(Errc::kInvalidArgument, Op::kParse, fmt::format("unknown dtype {}", quoted_name(dtype)));
  }
  // Elements first, then bits, so that an overflow before a dimension of zero is refused as the reference does.
  std::uint64_t elements = 1;
  bool overflow = false;
  for (const std::uint64_t dimension : shape) overflow |= __builtin_mul_overflow(elements, dimension, &elements);
  overflow |= __builtin_mul_overflow(bits, elements, &bits);
  if (overflow) {
    return fail(Errc::kTooLarge, Op::kParse,
                fmt::format("shape [{}] in {} exceeds 2^64 bits", fmt::join(shape, ", "), dtype));
  }
  if (bits % 8 != 0) {
    return fail(Errc::kInvalidArgument, Op::kParse,
                fmt::format("shape [{}] in {} is not a whole number of bytes", fmt::join(shape, ", "), dtype));
  }
  return bits / 8;
}

Result<std::uint64_t> safetensors_data_offset(Bytes prefix, std::uint64_t file_bytes, std::string_view file) {
  if (file_bytes < kLengthBytes || prefix.size() < kLengthBytes) {
    return fail(
        Errc::kCorrupt, Op::kParse,
        fmt::format("{}: {} bytes are too few for a safetensors file; copy or write it again", file, file_bytes));
  }
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, prefix.data(), kLengthBytes);
  if (header_bytes > kSafetensorsHeaderBytesMax) {
    return fail(Errc::kTooLarge, Op::kParse,
                fmt::format("{}: its header claims {} bytes, above the format's limit of {}; is it a safetensors file?",
                            file, header_bytes, kSafetensorsHeaderBytesMax));
  }
  if (header_bytes > file_bytes - kLengthBytes) {
    return fail(Errc::kCorrupt, Op::kParse,
                fmt::format("{}: its header claims {} bytes, but the file has {}: it is truncated; copy it again", file,
                            header_bytes, file_bytes));
  }
  return kLengthBytes + header_bytes;
}

Result<SafetensorsHeader> parse_safetensors_header(Bytes prefix, std::uint64_t file_bytes, std::string_view file) {
  SafetensorsHeader header;
  WC_ASSIGN(header.data_offset_bytes, safetensors_data_offset(prefix, file_bytes, file));
  const auto refuse = [file](Errc code, std::string_view problem) {
    return fail(code, Op::kParse, fmt::format("{}: {}; write the file again", file, problem));
  };
  if (prefix.size() < header.data_offset_bytes) {
    return fail(Errc::kInvalidArgument, Op::kParse,
                fmt::format("{}: {} bytes of it were read, and its header ends at {}; read as far as that", file,
                            prefix.size(), header.data_offset_bytes));
  }
  const char* json = reinterpret_cast<const char*>(prefix.data()) + kLengthBytes;
  const std::size_t json_bytes = header.data_offset_bytes - kLengthBytes;
  if (json_bytes == 0 || json[0] != '{') return refuse(Errc::kCorrupt, "its header does not start with '{'");

  if (const auto at = find_nul({json, json_bytes})) {
    return refuse(Errc::kCorrupt, fmt::format("its header is not JSON: byte {} of it is a NUL", *at));
  }
  HeaderReader reader(header);
  if (!nlohmann::json::sax_parse(json, json + json_bytes, &reader)) return refuse(reader.code(), reader.problem());
  if (const auto name = find_duplicate(header.tensors)) {
    return refuse(Errc::kCorrupt, fmt::format("tensor {} is given twice", quoted_name(*name)));
  }

  // Names break ties between empty tensors at one place, so that the order is one whatever the header's.
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.offset_bytes, a.size_bytes, a.name) < std::tie(b.offset_bytes, b.size_bytes, b.name);
  });
  const std::uint64_t data_bytes = file_bytes - header.data_offset_bytes;
  std::uint64_t end = 0;
  for (TensorInfo& tensor : header.tensors) {
    const auto wrong = [&](std::string_view what) {
      return refuse(Errc::kCorrupt, fmt::format("tensor {}: {}", quoted_name(tensor.name), what));
    };
    if (tensor.offset_bytes != end) {
      return wrong(fmt::format("it begins at byte {} of the data, but the one before it ends at {} ({})",
                               tensor.offset_bytes, end, tensor.offset_bytes > end ? "a hole" : "an overlap"));
    }
    if (const auto problem = size_problem(tensor)) return wrong(*problem);
    end += tensor.size_bytes;
    if (end > data_bytes) {
      return fail(
          Errc::kCorrupt, Op::kParse,
          fmt::format("{}: tensor {} ends at byte {} of the data, but the file holds {}: it is truncated; copy it "
                      "again",
                      file, quoted_name(tensor.name), end, data_bytes));
    }
    tensor.offset_bytes += header.data_offset_bytes;
  }
  if (end != data_bytes) {
    return refuse(Errc::kCorrupt, fmt::format("{} bytes after the last tensor belong to none", data_bytes - end));
  }
  return header;
}

Result<SafetensorsLayout> lay_out_safetensors(std::span<const TensorInfo> tensors, const SafetensorsMetadata& metadata,
                                              std::size_t alignment_bytes) {
  if (tensors.size() > kTensorsMax || metadata.size() > kMetadataEntriesMax) {
    return fail(Errc::kTooLarge, Op::kEncode,
                fmt::format("{} tensors and {} entries of metadata; the limits are {} and {}", tensors.size(),
                            metadata.size(), kTensorsMax, kMetadataEntriesMax));
  }
  if (const auto name = find_duplicate(tensors)) {
    return fail(Errc::kInvalidArgument, Op::kEncode, fmt::format("tensor {} is given twice", quoted_name(*name)));
  }
  SafetensorsLayout layout;
  layout.order.resize(tensors.size());
  std::iota(layout.order.begin(), layout.order.end(), std::size_t{0});
  std::sort(layout.order.begin(), layout.order.end(), [&](std::size_t a, std::size_t b) {
    const unsigned rank_a = dtype_rank(tensors[a].dtype);
    const unsigned rank_b = dtype_rank(tensors[b].dtype);
    return std::tie(rank_b, tensors[a].dtype, tensors[a].name) < std::tie(rank_a, tensors[b].dtype, tensors[b].name);
  });

  std::string json = "{";
  const auto separate = [&json] {
    if (json.size() > 1) json.push_back(',');
  };
  if (!metadata.empty()) {
    json += "\"__metadata__\":{";
    bool first = true;
    for (const auto& [key, value] : metadata) {
      WC_ASSIGN(const std::string key_json, json_string(key));
      WC_ASSIGN(const std::string value_json, json_string(value));
      fmt::format_to(std::back_inserter(json), "{}{}:{}", std::exchange(first, false) ? "" : ",", key_json, value_json);
    }
    json.push_back('}');
  }
  layout.offsets_bytes.resize(tensors.size());
  std::uint64_t data_bytes = 0;
  for (const std::size_t i : layout.order) {
    const TensorInfo& tensor = tensors[i];
    const auto refuse = [&](Errc code, std::string_view problem) {
      return fail(code, Op::kEncode, fmt::format("tensor {}: {}", quoted_name(tensor.name), problem));
    };
    if (tensor.name == kMetadataKey) return refuse(Errc::kInvalidArgument, "the format reserves this name");
    if (tensor.name.size() > kTensorNameBytesMax) {
      return refuse(Errc::kTooLarge, fmt::format("its name is longer than {} bytes", kTensorNameBytesMax));
    }
    if (tensor.shape.size() > kTensorRankMax) {
      return refuse(Errc::kTooLarge, fmt::format("more than {} dimensions", kTensorRankMax));
    }
    if (const auto problem = size_problem(tensor)) return refuse(Errc::kInvalidArgument, *problem);
    const std::uint64_t begin = data_bytes;
    if (__builtin_add_overflow(data_bytes, tensor.size_bytes, &data_bytes) || data_bytes > (std::uint64_t{1} << 62)) {
      return refuse(Errc::kTooLarge, "the file would exceed 2^62 bytes");
    }
    layout.offsets_bytes[i] = begin;
    WC_ASSIGN(const std::string name_json, json_string(tensor.name));
    WC_ASSIGN(const std::string dtype_json, json_string(tensor.dtype));
    separate();
    fmt::format_to(std::back_inserter(json), R"({}:{{"dtype":{},"shape":[{}],"data_offsets":[{},{}]}})", name_json,
                   dtype_json, fmt::join(tensor.shape, ","), begin, data_bytes);
  }
  json.push_back('}');
  const std::size_t file_header_bytes =
      (kLengthBytes + json.size() + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
  json.resize(file_header_bytes - kLengthBytes, ' ');
  if (json.size() > kSafetensorsHeaderBytesMax) {
    return fail(Errc::kTooLarge, Op::kEncode,
                fmt::format("the header would take {} bytes, above the format's limit of {}; use several files",
                            json.size(), kSafetensorsHeaderBytesMax));
  }

  const std::uint64_t header_bytes = json.size();
  layout.header.resize(kLengthBytes);
  std::memcpy(layout.header.data(), &header_bytes, kLengthBytes);
  layout.header += json;
  for (std::uint64_t& offset : layout.offsets_bytes) offset += layout.header.size();
  layout.file_bytes = layout.header.size() + data_bytes;
  return layout;
}

Status write_safetensors(FileWriter& out, const SafetensorsLayout& layout, std::span<const Bytes> data) {
  const auto refuse = [](std::string problem) {
    return fail(Errc::kInvalidArgument, Op::kEncode, problem + "; lay the file out for the data that it is to hold");
  };
  if (data.size() != layout.order.size()) {
    return refuse(fmt::format("data of {} tensors for a layout of {}", data.size(), layout.order.size()));
  }
  // Before the first byte: a file with a wrong tensor in the middle would be of use to nobody.
  for (std::size_t k = 0; k < layout.order.size(); ++k) {
    const std::size_t i = layout.order[k];
    const std::uint64_t end =
        k + 1 < layout.order.size() ? layout.offsets_bytes[layout.order[k + 1]] : layout.file_bytes;
    if (data[i].size() != end - layout.offsets_bytes[i]) {
      return refuse(fmt::format("tensor number {} has {} bytes of data, and the layout {}", i, data[i].size(),
                                end - layout.offsets_bytes[i]));
    }
  }
  WC_TRY(out.write(std::as_bytes(std::span(layout.header))));
  for (const std::size_t i : layout.order) WC_TRY(out.write(data[i]));
  return {};
}

}  // namespace weightcast
