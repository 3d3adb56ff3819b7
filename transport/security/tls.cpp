#include "transport/security/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace weightcast {

namespace {

// A handshake has one certificate and few names in it.
constexpr long kPeerCertificatesBytesMax = 8 * 1024;
// How long a ticket spares the other end a look at the certificates. Expiry and revocation are looked at each time.
constexpr long kTicketLifetime_s = 3600;
constexpr unsigned char kSessionContext[] = "weightcast";
// One name of an application protocol, after its length: the client has no certificate, and wants one.
constexpr std::string_view kEnrolmentProtocols = "\x10weightcast-enrol";
// Certificates between those of peers and the authority's: a cluster has a few at a time.
constexpr std::size_t kIssuersMax = 32;
constexpr std::byte kTlsHandshake{0x16};
constexpr std::byte kTlsAlert{0x15};
// Four records and the beginning of a fifth: OpenSSL then reads 2.6 at a time, where 64 KiB give 2. Below 128 KiB,
// which the allocator would map and unmap each time.
constexpr std::size_t kReadBufferBytes = 4 * (TlsSession::kRecordBytesMax + TlsSession::kRecordOverheadBytes) + 1024;
// A shorter piece shares a record with what follows.
constexpr std::size_t kOwnRecordBytesMin = TlsSession::kRecordBytesMax;

bool has_fast_aes() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("aes") != 0 && __builtin_cpu_supports("pclmul") != 0;
#else
  return true;  // every 64-bit processor of the last decade that is not x86 either has it or is no server's
#endif
}

/// A peer's reason to refuse this node, in words for a person.
std::optional<std::string> refusal_of(int reason) {
  switch (reason) {
    case SSL_R_TLSV1_ALERT_UNKNOWN_CA: return "it belongs to another cluster, and refuses this node's certificate";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED: return "it refuses this node's certificate as expired";
    case SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED: return "it refuses this node's certificate as revoked";
    case SSL_R_SSLV3_ALERT_BAD_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE:
    case SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN:
    case SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED:
    case SSL_R_TLSV1_ALERT_DECRYPT_ERROR:
    case SSL_R_TLSV1_ALERT_ACCESS_DENIED: return "it refuses this node's certificate";
    // What HTTPS servers say to a client that names another protocol than theirs, or has no certificate of theirs.
    case SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
    case SSL_R_TLSV1_ALERT_NO_APPLICATION_PROTOCOL:
    case SSL_R_TLSV1_UNRECOGNIZED_NAME:
      return "it speaks TLS and not this protocol; an HTTPS server? --origin takes what the origin's --listen says";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
      return "it does not encrypt: a node without --keys, or a server of another kind, such as HTTP";
    default: return std::nullopt;
  }
}

}  // namespace

/// The functions that OpenSSL calls. A session's SSL and its BIO have the session as their application data.
struct TlsCallbacks {
  static TlsSession& session_of(BIO* bio) { return *static_cast<TlsSession*>(BIO_get_data(bio)); }
  static TlsSession& session_of(const SSL* ssl) { return *static_cast<TlsSession*>(SSL_get_app_data(ssl)); }

  static int read(BIO* bio, char* out, int size) {
    BIO_clear_retry_flags(bio);
    TlsSession& session = session_of(bio);
    if (session.wire_ == nullptr || session.error_ || size <= 0) return -1;
    auto wanted = static_cast<std::size_t>(size);
    if (!session.done_) {
      const std::size_t left = TlsSession::kHandshakeBytesMax - session.wire_bytes_received_;
      if (left == 0) {
        session.error_ = fail(Errc::kTooLarge, Op::kReceive,
                              fmt::format("its handshake is longer than {} bytes", TlsSession::kHandshakeBytesMax));
        return -1;
      }
      wanted = std::min(wanted, left);
    }
    const MutableBytes into(reinterpret_cast<std::byte*>(out), wanted);
    const Result<TlsWire::Got> got = session.wire_->read_wire(into);
    if (!got.has_value()) {
      session.error_ = got.error();
      return -1;
    }
    if (got->ended) {
      session.wire_ended_ = true;
      return 0;
    }
    if (got->bytes == 0) {
      BIO_set_retry_read(bio);
      return -1;
    }
    const bool is_first = session.wire_bytes_received_ == 0;
    session.wire_bytes_received_ += got->bytes;
    if (is_first && into[0] != kTlsHandshake && into[0] != kTlsAlert) {
      session.peer_is_plain_ = true;
      session.error_ = fail(Errc::kNotAllowed, Op::kReceive,
                            "it does not encrypt, and this node has keys; start it with --keys, too");
      return -1;
    }
    return static_cast<int>(got->bytes);
  }

  static int write(BIO* bio, const char* data, int size) {
    BIO_clear_retry_flags(bio);
    TlsSession& session = session_of(bio);
    if (session.write_error_) return size;  // it goes nowhere, and reading goes on
    if (size < 0) return -1;
    std::string_view bytes(data, static_cast<std::size_t>(size));
    if (session.output_.empty() && session.wire_ != nullptr) {
      const Result<std::size_t> taken =
          session.wire_->write_wire(std::as_bytes(std::span(bytes)), session.more_follows_);
      if (!taken.has_value()) {
        session.write_error_ = taken.error();
        return size;
      }
      session.wire_bytes_sent_ += *taken;
      bytes.remove_prefix(*taken);
    }
    if (session.output_.size() + bytes.size() > TlsSession::kOutputBytesMax) {
      session.error_ = fail(Errc::kTooLarge, Op::kSend, "it asks for answers, and reads none");
      return -1;
    }
    session.output_ += bytes;
    return size;
  }

  static long control(BIO* bio, int command, long, void*) {
    switch (command) {
      case BIO_CTRL_FLUSH: return 1;
      case BIO_CTRL_EOF: return session_of(bio).wire_ended_ ? 1 : 0;
      default: return 0;
    }
  }

  static int create(BIO* bio) {
    BIO_set_init(bio, 1);
    return 1;
  }

  static BIO_METHOD* method() {
    static BIO_METHOD* const made = [] {
      BIO_METHOD* fresh = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "weightcast wire");
      WC_CHECK(fresh != nullptr);
      BIO_meth_set_read(fresh, read);
      BIO_meth_set_write(fresh, write);
      BIO_meth_set_ctrl(fresh, control);
      BIO_meth_set_create(fresh, create);
      return fresh;
    }();
    return made;
  }

  /// Judges what the peer has sent in place of OpenSSL's own verification, which check_chain() uses.
  static int verify(X509_STORE_CTX* store, void*) {
    const auto* ssl = static_cast<const SSL*>(X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
    TlsSession& session = session_of(ssl);
    Between between;
    STACK_OF(X509)* sent = X509_STORE_CTX_get0_untrusted(store);
    for (int i = 1; i < sk_X509_num(sent); ++i) between.push_back(sk_X509_value(sent, i));
    const Status status = session.check_peer(X509_STORE_CTX_get0_cert(store), between);
    int code = X509_V_OK;  // the alert that the peer gets says which of these it is
    if (!status.has_value()) {
      code = session.revoked_                         ? X509_V_ERR_CERT_REVOKED
             : session.of_another_cluster_            ? X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY
             : status.error().code == Errc::kTimedOut ? X509_V_ERR_CERT_HAS_EXPIRED
                                                      : X509_V_ERR_CERT_REJECTED;
      session.peer_error_ = status.error();
    }
    X509_STORE_CTX_set_error(store, code);
    return status.has_value() ? 1 : 0;
  }

  /// Of a client that has no certificate yet and asks for one, where this node gives some.
  static int select_protocol(SSL* ssl, const unsigned char** out, unsigned char* out_size, const unsigned char* in,
                             unsigned in_size, void*) {
    TlsSession& session = session_of(ssl);
    const std::string_view offered(reinterpret_cast<const char*>(in), in_size);
    if (!session.context_->options_.enrols || offered != kEnrolmentProtocols) return SSL_TLSEXT_ERR_NOACK;
    session.peer_.role = Role::kStranger;
    SSL_set_verify(ssl, SSL_VERIFY_NONE, nullptr);
    *out = in + 1;
    *out_size = in[0];
    return SSL_TLSEXT_ERR_OK;
  }

  static int keep_ticket(SSL* ssl, SSL_SESSION* ticket) {
    const TlsSession& session = session_of(ssl);
    if (session.end_ != TlsSession::End::kDialled) return 0;
    return session.context_->keep_ticket(session.target_, session.keys_number_, ticket) ? 1 : 0;
  }
};

// ---- a session

TlsSession::TlsSession(std::shared_ptr<TlsContext> context, End end, std::string target)
    : context_(std::move(context)),
      end_(end),
      target_(std::move(target)),
      keys_number_(context_->keys_number_),
      ssl_(SSL_new(context_->context_)) {
  BIO* bio = BIO_new(TlsCallbacks::method());
  WC_CHECK(ssl_ != nullptr && bio != nullptr && SSL_set_app_data(ssl_, this) == 1);
  peer_.role = Role::kStranger;  // until it has proven more
  BIO_set_data(bio, this);
  SSL_set_bio(ssl_, bio, bio);
  if (end == End::kAccepted) {
    SSL_set_accept_state(ssl_);
    return;
  }
  SSL_set_connect_state(ssl_);
  if (SSL_SESSION* ticket = context_->take_ticket(target_)) {
    static_cast<void>(SSL_set_session(ssl_, ticket));  // refused, it is a handshake like the first
    SSL_SESSION_free(ticket);
  }
}

TlsSession::~TlsSession() {
  // Otherwise OpenSSL would take the ticket back from a session whose end nobody has said, as TLS 1.2 wanted.
  SSL_set_shutdown(ssl_, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
  SSL_free(ssl_);
}

Status TlsSession::check_peer(X509* certificate, const Between& sent) {
  const auto refuse = [](Errc code, std::string why) -> Status {
    return fail(code, Op::kVerify, "its certificate is refused: " + std::move(why));
  };
  X509* authority = context_->keys_.authority.get();
  if (context_->pinned_) {
    const auto pinned = std::ranges::find_if(sent, [&](X509* one) {
      EVP_PKEY* key = X509_get0_pubkey(one);
      return key != nullptr && X509_self_signed(one, 1) == 1 && key_id(key) == *context_->pinned_;
    });
    static_cast<void>(take_openssl_error());
    if (pinned == sent.end()) {
      return refuse(Errc::kNotAllowed, "it is not the origin of the token's cluster, or it runs without --enroll");
    }
    authority = *pinned;
  }
  Between between = context_->issuers();
  between.insert(between.end(), sent.begin(), sent.end());
  Result<Vouched> vouched = check_chain(certificate, between, authority, unix_now_s());
  if (!vouched.has_value()) {
    of_another_cluster_ = vouched.error().code == Errc::kNotAllowed;
    return refuse(vouched.error().code, vouched.error().detail);
  }
  CertificateInfo& info = vouched->info;
  if (info.use != KeyUse::kOrigin && info.use != KeyUse::kWorker) {
    return refuse(Errc::kNotAllowed, "it is for " + std::string(to_string(info.use)) + ", not for connections");
  }
  if (X509_check_purpose(certificate, X509_PURPOSE_SSL_CLIENT, 0) != 1 ||
      X509_check_purpose(certificate, X509_PURPOSE_SSL_SERVER, 0) != 1) {
    return refuse(Errc::kNotAllowed, "it is not for connections");
  }
  revoked_ = std::ranges::any_of(
      vouched->serials, [&](const std::string& s) { return context_->revocations_.contains(s, unix_now_s()); });
  if (revoked_) return refuse(Errc::kNotAllowed, info.name + " is revoked");
  if (context_->pinned_ && info.use != KeyUse::kOrigin) {
    return refuse(Errc::kNotAllowed, fmt::format("{} is a worker, not the origin", info.name));
  }
  if (!context_->pinned_ && vouched->serials.size() > 2) context_->keep_issuers(sent);
  peer_.role = info.use == KeyUse::kOrigin ? Role::kOrigin : Role::kWorker;
  peer_.name = std::move(info.name);
  peer_.addresses = std::move(info.addresses);
  peer_.serials = std::move(vouched->serials);
  peer_.key = info.key;
  peer_.expires_unix_s = info.not_after_unix_s;
  return {};
}

Result<bool> TlsSession::handshake(TlsWire& wire) {
  WC_TRY(flush(wire));
  if (done_) return true;
  ERR_clear_error();
  wire_ = &wire;
  const int result = SSL_do_handshake(ssl_);
  wire_ = nullptr;
  if (result != 1) {
    const int kind = SSL_get_error(ssl_, result);
    if (!error_ && (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)) return false;
    return error_of(kind);
  }
  // When both have met before, no certificate has come, and what holds of it may have changed since.
  X509* certificate = SSL_get0_peer_certificate(ssl_);
  const bool enrols = end_ == End::kAccepted && SSL_get_verify_mode(ssl_) == SSL_VERIFY_NONE;
  if (certificate == nullptr && !enrols) return fail(Errc::kNotAllowed, Op::kVerify, "it has no certificate");
  if (!enrols && !context_->pinned_) WC_TRY(check_peer(certificate, {}));
  // Not before: whoever has proven nothing gets room for one record.
  SSL_set_default_read_buffer_len(ssl_, kReadBufferBytes);
  resumed_ = SSL_session_reused(ssl_) == 1;
  done_ = true;
  return true;
}

Error TlsSession::error_of(int kind) {
  const unsigned long code = ERR_peek_last_error();
  const std::string reason = take_openssl_error();
  if (peer_error_) return *peer_error_;
  if (error_) return *error_;
  if (wire_ended_) {
    return fail(Errc::kClosed, Op::kReceive,
                done_ ? "it ended the connection" : "it ended the connection during the handshake; does it have keys?");
  }
  if (const auto refusal = refusal_of(ERR_GET_REASON(code))) return fail(Errc::kNotAllowed, Op::kReceive, *refusal);
  return fail(Errc::kCorrupt, Op::kReceive, fmt::format("TLS 1.3: {} ({})", reason, kind));
}

Result<TlsSession::Moved> TlsSession::read(std::span<iovec> into, TlsWire& wire) {
  WC_CHECK(done_);
  if (error_) return *error_;
  ERR_clear_error();
  wire_ = &wire;
  Moved moved;
  for (std::size_t piece = 0; piece < into.size(); ++piece) {
    auto* at = static_cast<std::byte*>(into[piece].iov_base);
    std::size_t left = into[piece].iov_len;
    while (left > 0) {
      std::size_t got = 0;
      const int result = SSL_read_ex(ssl_, at, left, &got);
      if (result == 1) {
        at += got;
        left -= got;
        moved.bytes += got;
        continue;
      }
      const int kind = SSL_get_error(ssl_, result);
      wire_ = nullptr;
      if (!error_ && (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE)) return moved;
      // Who ends the wire without a word has been killed, or was cut off. Frames tell whether anything is missing.
      const bool ended = !error_ && (kind == SSL_ERROR_ZERO_RETURN || wire_ended_);
      if (!ended) error_ = error_of(kind);
      if (moved.bytes > 0) return moved;  // the next call tells
      if (ended) return Moved{.ended = true};
      return *error_;
    }
  }
  wire_ = nullptr;
  return moved;
}

Status TlsSession::flush(TlsWire& wire) {
  if (write_error_) return *write_error_;
  if (output_.empty()) return {};
  const Result<std::size_t> taken = wire.write_wire(std::as_bytes(std::span(output_)), false);
  if (!taken.has_value()) {
    write_error_ = taken.error();
    output_.clear();
    return *write_error_;
  }
  wire_bytes_sent_ += *taken;
  output_.erase(0, *taken);
  if (output_.empty()) output_.shrink_to_fit();
  return {};
}

Result<std::size_t> TlsSession::write(std::span<iovec> from, TlsWire& wire) {
  WC_CHECK(done_ || from.empty());
  WC_TRY(flush(wire));
  std::size_t left = 0;
  for (const iovec& piece : from) left += piece.iov_len;
  std::size_t taken = 0;
  std::size_t piece = 0;
  std::size_t offset = 0;
  ERR_clear_error();
  wire_ = &wire;
  Status status;
  while (left > 0 && output_.empty() && status.has_value()) {
    while (offset == from[piece].iov_len) {
      ++piece;
      offset = 0;
    }
    const auto* at = static_cast<const char*>(from[piece].iov_base) + offset;
    std::size_t size = std::min(from[piece].iov_len - offset, kRecordBytesMax);
    if (size < kOwnRecordBytesMin && size < left) {
      small_.clear();
      std::size_t next = piece;
      std::size_t next_offset = offset;
      while (next < from.size() && small_.size() < kRecordBytesMax) {
        const std::size_t part = std::min(from[next].iov_len - next_offset, kRecordBytesMax - small_.size());
        small_.append(static_cast<const char*>(from[next].iov_base) + next_offset, part);
        ++next;
        next_offset = 0;
      }
      at = small_.data();
      size = small_.size();
    }
    more_follows_ = size < left;
    std::size_t put = 0;
    const int result = SSL_write_ex(ssl_, at, size, &put);
    if (result != 1) {
      status = error_of(SSL_get_error(ssl_, result));
      break;
    }
    taken += put;
    left -= put;
    for (std::size_t step = put; step > 0;) {
      const std::size_t part = std::min(step, from[piece].iov_len - offset);
      offset += part;
      step -= part;
      if (step > 0) {
        ++piece;
        offset = 0;
      }
    }
    bytes_since_key_update_ += put;
    status = write_error_ ? Status(*write_error_) : update_keys();
  }
  more_follows_ = false;
  wire_ = nullptr;
  WC_TRY(status);
  return taken;
}

Status TlsSession::update_keys() {
  if (bytes_since_key_update_ < context_->options_.key_update_bytes) return {};
  bytes_since_key_update_ = 0;
  if (SSL_key_update(ssl_, SSL_KEY_UPDATE_NOT_REQUESTED) != 1) return error_of(SSL_ERROR_SSL);
  return {};  // it leaves before the next record
}

void TlsSession::end_writing(TlsWire& wire) {
  if (!done_ || error_ || write_error_) return;
  wire_ = &wire;
  static_cast<void>(SSL_shutdown(ssl_));
  wire_ = nullptr;
  static_cast<void>(take_openssl_error());
}

// ---- what sessions share

TlsContext::TlsContext(NodeKeys keys, TlsOptions options, std::optional<KeyId> pinned)
    : keys_(std::move(keys)), options_(options), pinned_(pinned) {
  set_up_openssl();
  context_ = make_context();
}

SSL_CTX* TlsContext::make_context() const {
  SSL_CTX* const context = SSL_CTX_new(TLS_method());
  WC_CHECK(context != nullptr);
  WC_CHECK(SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) == 1 &&
           SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) == 1);
  // Where either end has to compute AES without instructions, ChaCha20 is several times as fast.
  WC_CHECK(SSL_CTX_set_ciphersuites(context, has_fast_aes()
                                                 ? "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256"
                                                 : "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256") == 1);
  WC_CHECK(SSL_CTX_set1_groups_list(context, "X25519") == 1 && SSL_CTX_set1_sigalgs_list(context, "ed25519") == 1);
  SSL_CTX_set_options(context, SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA | SSL_OP_NO_COMPRESSION);
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_NO_AUTO_CHAIN);
  SSL_CTX_set_read_ahead(context, 1);  // as much as the read buffer holds, and not the header of a record alone
  SSL_CTX_set_max_cert_list(context, kPeerCertificatesBytesMax);
  if (!pinned_) use_keys(context);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  SSL_CTX_set_cert_verify_callback(context, TlsCallbacks::verify, nullptr);
  SSL_CTX_set_alpn_select_cb(context, TlsCallbacks::select_protocol, nullptr);
  WC_CHECK(SSL_CTX_set_session_id_context(context, kSessionContext, sizeof kSessionContext - 1) == 1);
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
  SSL_CTX_sess_set_new_cb(context, TlsCallbacks::keep_ticket);
  SSL_CTX_set_num_tickets(context, 1);
  SSL_CTX_set_timeout(context, kTicketLifetime_s);
  return context;
}

void TlsContext::use_keys(SSL_CTX* context) const {
  WC_CHECK(SSL_CTX_use_certificate(context, keys_.certificate.get()) == 1 &&
           SSL_CTX_use_PrivateKey(context, keys_.key.get()) == 1);
  for (const UniqueX509& between : keys_.between) {
    WC_CHECK(SSL_CTX_add1_chain_cert(context, between.get()) == 1);
  }
  // For those who know the authority by its fingerprint alone.
  if (options_.enrols) WC_CHECK(SSL_CTX_add1_chain_cert(context, keys_.authority.get()) == 1);
}

void TlsContext::set_keys(NodeKeys keys) {
  WC_CHECK(!pinned_);
  keys_ = std::move(keys);
  issuers_.clear();  // the authority may be another
  // Sessions hold the one before. Its key for tickets ends with it, so nobody resumes what the keys before began.
  SSL_CTX_free(std::exchange(context_, make_context()));
  drop_tickets();
}

std::shared_ptr<TlsContext> TlsContext::make(NodeKeys keys, TlsOptions options) {
  return std::shared_ptr<TlsContext>(new TlsContext(std::move(keys), options, std::nullopt));
}

std::shared_ptr<TlsContext> TlsContext::make_enrolling(const KeyId& authority) {
  std::shared_ptr<TlsContext> made(new TlsContext({}, {}, authority));
  WC_CHECK(SSL_CTX_set_alpn_protos(made->context_, reinterpret_cast<const unsigned char*>(kEnrolmentProtocols.data()),
                                   unsigned(kEnrolmentProtocols.size())) == 0);
  return made;
}

Between TlsContext::issuers() const {
  Between all = keys_.issuers();
  for (const UniqueX509& one : issuers_) all.push_back(one.get());
  return all;
}

// A ticket brings the peer's own certificate back, and not those between. Whoever has been forgotten is refused once,
// and then shows them again.
void TlsContext::keep_issuers(const Between& sent) {
  const Between known = issuers();
  for (X509* one : sent) {
    if (X509_check_ca(one) == 0 || std::ranges::any_of(known, [&](X509* k) { return X509_cmp(k, one) == 0; })) continue;
    if (check_issued(one, keys_.authority.get(), unix_now_s()).has_value()) issuers_.emplace_back(X509_dup(one));
  }
  while (issuers_.size() > kIssuersMax) issuers_.pop_front();
}

TlsContext::~TlsContext() {
  drop_tickets();
  SSL_CTX_free(context_);
}

std::unique_ptr<TlsSession> TlsContext::accept() {
  return std::unique_ptr<TlsSession>(new TlsSession(shared_from_this(), TlsSession::End::kAccepted, ""));
}

std::unique_ptr<TlsSession> TlsContext::dial(const std::string& target) {
  return std::unique_ptr<TlsSession>(new TlsSession(shared_from_this(), TlsSession::End::kDialled, target));
}

void TlsContext::drop_tickets() {
  const std::lock_guard lock(tickets_mutex_);
  ++keys_number_;
  for (auto& [target, ticket] : tickets_) SSL_SESSION_free(ticket);
  tickets_.clear();
}

bool TlsContext::keep_ticket(const std::string& target, std::uint64_t keys_number, SSL_SESSION* session) {
  const std::lock_guard lock(tickets_mutex_);
  if (keys_number != keys_number_) return false;
  SSL_SESSION*& place = tickets_[target];
  SSL_SESSION_free(std::exchange(place, session));
  if (tickets_.size() <= kTicketsMax) return true;
  auto victim = tickets_.begin();
  if (victim->first == target) ++victim;
  SSL_SESSION_free(victim->second);
  tickets_.erase(victim);
  return true;
}

SSL_SESSION* TlsContext::take_ticket(const std::string& target) {
  const std::lock_guard lock(tickets_mutex_);
  const auto found = tickets_.find(target);
  if (found == tickets_.end()) return nullptr;
  SSL_SESSION* ticket = found->second;
  tickets_.erase(found);
  return ticket;
}

}  // namespace weightcast
