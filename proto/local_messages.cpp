#include "proto/local_messages.h"

#include <fmt/format.h>

#include <protozero/pbf_reader.hpp>
#include <protozero/pbf_writer.hpp>
#include <type_traits>
#include <utility>

namespace weightcast::local {
namespace {

using protozero::pbf_wire_type;

template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};

template <typename M>
std::string encode_fields(const M& message);

/// Writes each field that has not its default value, as proto3 does.
struct FieldWriter {
  protozero::pbf_writer& out;

  void operator()(std::uint32_t number, std::uint64_t value) const {
    if (value != 0) out.add_uint64(number, value);
  }
  void operator()(std::uint32_t number, std::uint32_t value) const {
    if (value != 0) out.add_uint32(number, value);
  }
  void operator()(std::uint32_t number, std::int64_t value) const {
    if (value != 0) out.add_int64(number, value);
  }
  void operator()(std::uint32_t number, bool value) const {
    if (value) out.add_bool(number, true);
  }
  void operator()(std::uint32_t number, double value) const {
    if (value != 0) out.add_double(number, value);
  }
  void operator()(std::uint32_t number, const std::optional<double>& value) const {
    if (value) out.add_double(number, *value);
  }
  void operator()(std::uint32_t number, const std::string& value) const {
    if (!value.empty()) out.add_bytes(number, value);
  }
  void operator()(std::uint32_t number, const std::vector<std::string>& values) const {
    for (const std::string& value : values) out.add_bytes(number, value);
  }
  template <typename M>
  void operator()(std::uint32_t number, const std::vector<M>& messages) const {
    for (const M& message : messages) add_message(number, message);
  }

  template <typename M>
  void add_message(std::uint32_t number, const M& message) const {
    // Not by protozero's nested writer, which leaves out a message without fields.
    out.add_message(number, encode_fields(message));
  }
};

template <typename M>
M read_message(protozero::pbf_reader in);

/// Takes the value that `in` stands before, if the field is of its type. protozero does not look at the type itself.
template <typename T>
bool read_field(protozero::pbf_reader& in, T& field) {
  constexpr bool kFixed = std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>;
  constexpr bool kCounted = std::is_same_v<T, std::string> || IsVector<T>::value;
  if (!in.has_wire_type(kFixed     ? pbf_wire_type::fixed64
                        : kCounted ? pbf_wire_type::length_delimited
                                   : pbf_wire_type::varint)) {
    return false;
  }
  if constexpr (kFixed) {
    field = in.get_double();
  } else if constexpr (std::is_same_v<T, std::string>) {
    field = in.get_bytes();
  } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
    field.push_back(in.get_bytes());
  } else if constexpr (IsVector<T>::value) {
    field.push_back(read_message<typename T::value_type>(in.get_message()));
  } else if constexpr (std::is_same_v<T, bool>) {
    field = in.get_uint64() != 0;
  } else {
    field = static_cast<T>(in.get_uint64());
  }
  return true;
}

template <typename M>
M read_message(protozero::pbf_reader in) {
  M message;
  while (in.next()) {
    bool taken = false;
    M::fields(message, [&](std::uint32_t number, auto& field) {
      if (!taken && in.tag() == number) taken = read_field(in, field);
    });
    if (!taken) in.skip();
  }
  return message;
}

/// Reads the alternative of Message::Kind whose number `in` stands before; all from the `I`th on are tried.
template <std::size_t I = 1>
bool read_kind(protozero::pbf_reader& in, Message::Kind& kind) {
  if constexpr (I == std::variant_size_v<Message::Kind>) {
    return false;
  } else {
    using M = std::variant_alternative_t<I, Message::Kind>;
    if (in.tag() != M::kNumber) return read_kind<I + 1>(in, kind);
    if (!in.has_wire_type(pbf_wire_type::length_delimited)) return false;
    kind = read_message<M>(in.get_message());
    return true;
  }
}

template <typename M>
std::string encode_fields(const M& message) {
  std::string bytes;
  protozero::pbf_writer out(bytes);
  M::fields(message, FieldWriter{out});
  return bytes;
}

/// What `read` makes of `bytes`. Errors: kCorrupt.
template <typename M>
Result<M> decode_by(M (*read)(protozero::pbf_reader), std::string_view bytes) {
  try {
    return read({bytes.data(), bytes.size()});
  } catch (const protozero::exception& error) {
    return fail(Errc::kCorrupt, Op::kParse,
                fmt::format("local message: not what this release speaks ({})", error.what()));
  }
}

Message read_envelope(protozero::pbf_reader in) {
  Message message;
  while (in.next()) {
    if (in.tag() == Message::kRequestIdNumber && read_field(in, message.request_id)) continue;
    if (!read_kind(in, message.kind)) in.skip();
  }
  return message;
}

}  // namespace

std::string encode(const Message& message) {
  std::string bytes;
  protozero::pbf_writer out(bytes);
  const FieldWriter write{out};
  std::visit(
      [&]<typename M>(const M& kind) {
        if constexpr (std::is_same_v<M, std::monostate>) {
          write(Message::kRequestIdNumber, message.request_id);
        } else if constexpr (M::kNumber < Message::kRequestIdNumber) {
          write.add_message(M::kNumber, kind);
          write(Message::kRequestIdNumber, message.request_id);
        } else {
          write(Message::kRequestIdNumber, message.request_id);
          write.add_message(M::kNumber, kind);
        }
      },
      message.kind);
  return bytes;
}

Result<Message> decode(std::string_view bytes) { return decode_by(read_envelope, bytes); }

std::string encode_history(const HistoryReply& history) { return encode_fields(history); }
Result<HistoryReply> decode_history(std::string_view bytes) { return decode_by(read_message<HistoryReply>, bytes); }
std::size_t encoded_bytes(const NodeStatus& node) { return encode_fields(node).size(); }

}  // namespace weightcast::local
