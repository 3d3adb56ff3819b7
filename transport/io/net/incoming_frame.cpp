#include "transport/io/net/incoming_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace weightcast {
namespace {

// What a message may take before any of it has come.
constexpr std::size_t kFirstTextBytes = 4 * kKiB;
// How every TLS connection begins; no frame does.
constexpr std::byte kTlsHandshake{0x16};
constexpr std::byte kTlsVersion{0x03};

}  // namespace

std::span<iovec> IncomingFrame::space(std::size_t bytes_max) {
  std::size_t count = 0;
  const auto add = [&](MutableBytes bytes) {
    bytes = bytes.first(std::min(bytes.size(), bytes_max));
    bytes_max -= bytes.size();
    if (!bytes.empty()) pieces_[count++] = {.iov_base = bytes.data(), .iov_len = bytes.size()};
  };
  if (header_ && !buffer_ && text_.size() == body_have_bytes_) {
    text_.resize(std::min<std::size_t>(header_->body_bytes, std::max(kFirstTextBytes, 2 * text_.size())));
  }
  if (header_) add(body().subspan(body_have_bytes_));
  // The next header lies behind all of this body.
  if (header_ && body().size() < header_->body_bytes) return std::span(pieces_).first(count);
  add(MutableBytes(next_header_).subspan(header_have_bytes_));
  return std::span(pieces_).first(count);
}

Result<std::size_t> IncomingFrame::take(std::size_t bytes) {
  if (!header_) {
    const std::size_t of_header = std::min(bytes, next_header_.size() - header_have_bytes_);
    header_have_bytes_ += of_header;
    bytes -= of_header;
    if (header_have_bytes_ == next_header_.size()) WC_TRY(begin_body());
    return bytes;
  }
  const std::size_t of_body = std::min(bytes, body_bytes_left());
  if (buffer_ && hashes_chunk()) digest_.update(body().subspan(body_have_bytes_, of_body));
  body_have_bytes_ += of_body;
  return bytes - of_body;
}

ReceivedChunk IncomingFrame::take_chunk() {
  buffer_->set_size(header_->body_bytes);
  ReceivedChunk chunk{header_->payload, header_->chunk, std::move(buffer_),
                      hashes_chunk() ? digest_.take() : ContentDigest{}};
  end();
  return chunk;
}

std::string IncomingFrame::take_control() {
  std::string body = std::exchange(text_, {});
  end();
  return body;
}

MutableBytes IncomingFrame::body() {
  if (buffer_) return {buffer_->data(), header_->body_bytes};
  return std::as_writable_bytes(std::span(text_));
}

Status IncomingFrame::begin_body() {
  if (next_header_[0] == kTlsHandshake && next_header_[1] == kTlsVersion) {
    peer_encrypts_ = true;
    return fail(Errc::kNotAllowed, Op::kReceive, "it encrypts, and this node has no keys; start it with --keys, too");
  }
  WC_ASSIGN(header_, decode_frame_header(next_header_));
  header_have_bytes_ = 0;
  WC_TRY(check_limits());
  if (is_chunk()) {
    buffer_ = buffers_.take(std::max<std::size_t>(1, header_->body_bytes));
    digest_.reset();
  }
  return {};
}

Status IncomingFrame::check_limits() const {
  const std::size_t limit = is_chunk() ? limits_.chunk_bytes_max : limits_.control_bytes_max;
  if (is_chunk() && limit == 0) {
    return fail(Errc::kNotAllowed, Op::kReceive, "a chunk, and this node takes none from this peer");
  }
  if (header_->body_bytes <= limit) return {};
  return fail(
      Errc::kTooLarge, Op::kReceive,
      fmt::format("a frame of {} bytes, and this node takes at most {} from this peer", header_->body_bytes, limit));
}

void IncomingFrame::end() {
  header_.reset();
  buffer_.reset();
  body_have_bytes_ = 0;
}

}  // namespace weightcast
