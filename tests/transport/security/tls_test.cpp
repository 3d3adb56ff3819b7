#include "transport/security/tls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <random>

#include "tests/result_matchers.h"
#include "tests/transport/security/cluster_keys.h"
#include "transport/security/enrolment.h"

namespace weightcast {
namespace {

using ::testing::HasSubstr;

/// Bytes under way in one direction.
struct Pipe {
  std::string bytes;
  std::size_t capacity = std::size_t{1} << 30;
  std::size_t step = std::size_t{1} << 30;  ///< what one call moves at most
  bool ended = false;
  std::uint64_t total = 0;
  std::size_t reads = 0;  ///< calls that got something
};

class PipeEnd final : public TlsWire {
 public:
  PipeEnd(Pipe& in, Pipe& out) : in_(in), out_(out) {}
  Result<Got> read_wire(MutableBytes into) override {
    const std::size_t size = std::min({into.size(), in_.bytes.size(), in_.step});
    in_.reads += size > 0 ? 1 : 0;
    std::copy_n(reinterpret_cast<const std::byte*>(in_.bytes.data()), size, into.data());
    in_.bytes.erase(0, size);
    return Got{size, size == 0 && in_.ended};
  }
  Result<std::size_t> write_wire(Bytes from, bool) override {
    const std::size_t size =
        std::min({from.size(), out_.capacity - std::min(out_.capacity, out_.bytes.size()), out_.step});
    out_.bytes.append(reinterpret_cast<const char*>(from.data()), size);
    out_.total += size;
    return size;
  }

 private:
  Pipe& in_;
  Pipe& out_;
};

/// A connection between a node that dials and one that accepts.
struct Pair {
  Pair(const std::shared_ptr<TlsContext>& dialler_context, const std::shared_ptr<TlsContext>& acceptor_context,
       const std::string& target = "a:1")
      : dialler(dialler_context->dial(target)), acceptor(acceptor_context->accept()) {}

  /// Until both are done or neither can go on. Of an end that failed the error is kept, and it ends its direction.
  void shake_hands() {
    for (int idle = 0; idle < 3;) {
      const std::uint64_t before = forth.total + back.total + forth.bytes.size() + back.bytes.size();
      turn(*dialler, dialler_wire, dialler_error, forth);
      turn(*acceptor, acceptor_wire, acceptor_error, back);
      const bool moved = before != forth.total + back.total + forth.bytes.size() + back.bytes.size();
      idle = moved ? 0 : idle + 1;
    }
  }
  [[nodiscard]] bool done() const { return dialler->done() && acceptor->done(); }

  Pipe forth, back;
  PipeEnd dialler_wire{back, forth}, acceptor_wire{forth, back};
  std::unique_ptr<TlsSession> dialler, acceptor;
  std::optional<Error> dialler_error, acceptor_error;

 private:
  static void turn(TlsSession& session, TlsWire& wire, std::optional<Error>& error, Pipe& out) {
    if (error) return;
    const auto done = session.handshake(wire);
    if (done.has_value()) return;
    error = done.error();
    out.ended = true;
  }
};

/// The same after the handshake.
struct Met : Pair {
  Met(const std::shared_ptr<TlsContext>& dialler_context, const std::shared_ptr<TlsContext>& acceptor_context,
      const std::string& target = "a:1")
      : Pair(dialler_context, acceptor_context, target) {
    shake_hands();
  }
};

iovec piece_of(std::string& text) { return {.iov_base = text.data(), .iov_len = text.size()}; }

/// What can be read now, in pieces of `piece_bytes`.
Result<std::string> read_all(TlsSession& session, TlsWire& wire, std::size_t piece_bytes = 100'000) {
  std::string all;
  for (;;) {
    std::string piece(piece_bytes, '\0');
    iovec into = piece_of(piece);
    WC_ASSIGN(const TlsSession::Moved moved, session.read({&into, 1}, wire));
    all.append(piece, 0, moved.bytes);
    if (moved.bytes < piece.size()) return all;
  }
}

Status write_all(TlsSession& session, std::string text, TlsWire& wire) {
  iovec from = piece_of(text);
  WC_ASSIGN(const std::size_t taken, session.write({&from, 1}, wire));
  EXPECT_EQ(taken, text.size());
  return {};
}

std::string noise(std::size_t bytes, unsigned seed) {
  std::mt19937 random(seed);
  std::string text(bytes, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

class Tls : public ::testing::Test {
 protected:
  ClusterKeys cluster;
  std::shared_ptr<TlsContext> origin = TlsContext::make(cluster.origin());
  std::shared_ptr<TlsContext> worker = TlsContext::make(cluster.worker("w1"));
};

TEST_F(Tls, TellsBothEndsWhoTheOtherIs) {
  Met pair(worker, origin);
  ASSERT_TRUE(pair.done());
  EXPECT_EQ(pair.dialler->peer().role, Role::kOrigin);
  EXPECT_EQ(pair.dialler->peer().name, "origin");
  EXPECT_EQ(pair.acceptor->peer().role, Role::kWorker);
  EXPECT_EQ(pair.acceptor->peer().name, "w1");
  EXPECT_EQ(pair.acceptor->peer().key, worker->keys().info.key);
  EXPECT_EQ(pair.acceptor->peer().expires_unix_s, worker->keys().info.not_after_unix_s);
  EXPECT_FALSE(pair.acceptor->resumed());
}

TEST_F(Tls, CarriesBytesBothWaysWhateverTheWireMovesAtOnce) {
  for (const std::size_t step : {std::size_t{1}, std::size_t{13}, std::size_t{5000}, std::size_t{1} << 30}) {
    Pair pair(worker, origin);
    pair.forth.step = pair.back.step = step;
    pair.shake_hands();
    ASSERT_TRUE(pair.done()) << step;
    std::string sent = noise(step == 1 ? 40'000 : 300'000, 1), received;
    for (std::size_t at = 0; received.size() < sent.size();) {
      iovec from{.iov_base = sent.data() + at, .iov_len = sent.size() - at};
      const auto taken = pair.dialler->write({&from, 1}, pair.dialler_wire);
      ASSERT_TRUE(taken.has_value()) << taken.error().message();
      at += *taken;
      const auto got = read_all(*pair.acceptor, pair.acceptor_wire, 777);
      ASSERT_TRUE(got.has_value()) << got.error().message();
      received += *got;
    }
    EXPECT_TRUE(received == sent) << step;
    ASSERT_TRUE(write_all(*pair.acceptor, "back", pair.acceptor_wire).has_value());
    std::string answer;
    while (answer.size() < 4) {
      ASSERT_TRUE(pair.acceptor->write({}, pair.acceptor_wire).has_value());
      answer += *read_all(*pair.dialler, pair.dialler_wire);
    }
    EXPECT_EQ(answer, "back");
  }
}

TEST_F(Tls, PiecesOfAnySizeArriveInOrder) {
  Met pair(worker, origin);
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> texts;
    std::string all;
    for (unsigned i = 0; i < 1 + random() % 8; ++i) {
      const std::size_t sizes[] = {0, 1, 40, 16'383, 16'384, 16'385, 40'000, random() % 70'000};
      texts.push_back(noise(sizes[random() % 8], unsigned(random())));
      all += texts.back();
    }
    std::vector<iovec> pieces;
    for (std::string& text : texts) pieces.push_back(piece_of(text));
    const auto taken = pair.dialler->write(pieces, pair.dialler_wire);
    ASSERT_TRUE(taken.has_value());
    ASSERT_EQ(*taken, all.size());
    // Read into pieces of any size, too.
    std::string into(all.size(), '\0');
    const std::size_t cut = all.empty() ? 0 : random() % all.size();
    std::vector<iovec> places{{into.data(), cut}, {into.data() + cut, into.size() - cut}};
    const auto moved = pair.acceptor->read(places, pair.acceptor_wire);
    ASSERT_TRUE(moved.has_value());
    ASSERT_EQ(moved->bytes, all.size()) << round;
    ASSERT_TRUE(into == all) << round;
  }
}

TEST_F(Tls, AWireThatTakesLittleHoldsWritesUpAndLosesNothing) {
  Met pair(worker, origin);
  pair.forth.capacity = 1000;
  std::string sent = noise(100'000, 2), received;
  std::size_t at = 0;
  std::size_t held = 0;
  while (received.size() < sent.size()) {
    iovec from{.iov_base = sent.data() + at, .iov_len = sent.size() - at};
    const auto taken = pair.dialler->write({&from, 1}, pair.dialler_wire);
    ASSERT_TRUE(taken.has_value());
    EXPECT_LE(*taken, TlsSession::kRecordBytesMax) << "it takes no more than one record beyond what fits";
    at += *taken;
    held += pair.dialler->holds_output() ? 1 : 0;
    received += *read_all(*pair.acceptor, pair.acceptor_wire);
  }
  EXPECT_GT(held, 50u);
  EXPECT_TRUE(received == sent);
  EXPECT_FALSE(pair.dialler->holds_output());
}

TEST_F(Tls, ARecordAddsLittleToWhatItCarries) {
  Met pair(worker, origin);
  const std::uint64_t before = pair.forth.total;
  constexpr std::size_t kBytes = kMiB;
  ASSERT_TRUE(write_all(*pair.dialler, noise(kBytes, 3), pair.dialler_wire).has_value());
  EXPECT_EQ(pair.forth.total - before,
            kBytes + kBytes / TlsSession::kRecordBytesMax * TlsSession::kRecordOverheadBytes);
  ASSERT_TRUE(read_all(*pair.acceptor, pair.acceptor_wire).has_value());
  EXPECT_EQ(pair.dialler->wire_bytes_sent(), pair.forth.total);
  EXPECT_EQ(pair.acceptor->wire_bytes_received(), pair.forth.total);
}

TEST_F(Tls, ReadsSeveralRecordsByOneCallOfTheWireAndLeavesNoneBehind) {
  Met pair(worker, origin);
  constexpr std::size_t kRecords = 64;
  const std::string sent = noise(kRecords * TlsSession::kRecordBytesMax, 3);
  ASSERT_TRUE(write_all(*pair.dialler, sent, pair.dialler_wire).has_value());
  pair.forth.reads = 0;
  // Asked for less than it has read ahead, it gives the rest without the wire.
  std::string received;
  while (received.size() < sent.size()) {
    std::string piece(5000, '\0');
    iovec into = piece_of(piece);
    const auto moved = pair.acceptor->read({&into, 1}, pair.acceptor_wire);
    ASSERT_TRUE(moved.has_value());
    ASSERT_GT(moved->bytes, 0u);
    received.append(piece, 0, moved->bytes);
  }
  EXPECT_EQ(received, sent);
  EXPECT_LE(pair.forth.reads, kRecords / 2);
}

TEST_F(Tls, MeetsAgainByATicketThatIsUsedOnce) {
  const auto meet = [&](const std::string& target) {
    Met pair(worker, origin, target);
    EXPECT_TRUE(pair.done());
    EXPECT_TRUE(read_all(*pair.dialler, pair.dialler_wire).has_value());  // the ticket comes behind the handshake
    EXPECT_EQ(pair.dialler->peer().role, Role::kOrigin);
    EXPECT_EQ(pair.acceptor->peer().name, "w1");
    EXPECT_EQ(pair.dialler->resumed(), pair.acceptor->resumed());
    return pair.acceptor->resumed();
  };
  EXPECT_FALSE(meet("a:1"));
  EXPECT_TRUE(meet("a:1"));
  EXPECT_TRUE(meet("a:1"));
  EXPECT_FALSE(meet("b:1")) << "who is dialled elsewhere may be another";
  {
    Pair interrupted(worker, origin, "a:1");
    ASSERT_FALSE(interrupted.dialler->handshake(interrupted.dialler_wire).value());
  }
  EXPECT_FALSE(meet("a:1")) << "the attempt before took the ticket";
}

TEST_F(Tls, TheDiallersFirstMessageLeavesAfterOneRoundTrip) {
  std::uint64_t with_certificates = 0;
  for (const bool resumes : {false, true}) {
    SCOPED_TRACE(resumes);
    Pair pair(worker, origin);
    EXPECT_FALSE(pair.dialler->handshake(pair.dialler_wire).value());
    EXPECT_FALSE(pair.acceptor->handshake(pair.acceptor_wire).value());
    // One flight there, one back: now it knows whom it speaks to, and says what it wants.
    ASSERT_TRUE(pair.dialler->handshake(pair.dialler_wire).value());
    EXPECT_EQ(pair.dialler->peer().name, "origin");
    ASSERT_TRUE(write_all(*pair.dialler, "Join", pair.dialler_wire).has_value());
    ASSERT_TRUE(pair.acceptor->handshake(pair.acceptor_wire).value());
    EXPECT_EQ(read_all(*pair.acceptor, pair.acceptor_wire).value(), "Join");
    EXPECT_EQ(pair.acceptor->resumed(), resumes);
    EXPECT_TRUE(read_all(*pair.dialler, pair.dialler_wire).has_value());  // the ticket
    const std::uint64_t bytes = pair.forth.total + pair.back.total;
    if (resumes) {
      EXPECT_LT(bytes, with_certificates) << "no certificate travels";
    }
    with_certificates = bytes;
  }
}

TEST_F(Tls, KeepsTicketsOfABoundedNumberOfPeers) {
  for (std::size_t i = 0; i < TlsContext::kTicketsMax + 20; ++i) {
    Met pair(worker, origin, "host:" + std::to_string(i));
    ASSERT_TRUE(read_all(*pair.dialler, pair.dialler_wire).has_value());
  }
  std::size_t kept = 0;
  for (std::size_t i = 0; i < TlsContext::kTicketsMax + 20; ++i) {
    Met pair(worker, origin, "host:" + std::to_string(i));
    kept += pair.dialler->resumed() ? 1 : 0;
  }
  EXPECT_LE(kept, TlsContext::kTicketsMax);
  EXPECT_GT(kept, TlsContext::kTicketsMax / 2);
}

TEST_F(Tls, ATicketDoesNotOutliveARevocation) {
  const auto meet = [&] {
    auto pair = std::make_unique<Met>(worker, origin);
    if (pair->dialler->done()) static_cast<void>(read_all(*pair->dialler, pair->dialler_wire));
    return pair;
  };
  EXPECT_TRUE(meet()->done());
  EXPECT_TRUE(meet()->acceptor->resumed());
  cluster.revoke("w1");
  origin->set_revocations(cluster.revocations(origin->keys()));
  const auto pair = meet();
  ASSERT_TRUE(pair->acceptor_error.has_value());
  EXPECT_EQ(pair->acceptor_error->code, Errc::kNotAllowed);
  EXPECT_THAT(pair->acceptor_error->detail, HasSubstr("w1 is revoked"));
}

TEST_F(Tls, OtherKeysCountForConnectionsThatAreMadeFromThenOn) {
  const auto meet = [&] {
    auto pair = std::make_unique<Met>(worker, origin);
    EXPECT_TRUE(pair->done());
    EXPECT_TRUE(read_all(*pair->dialler, pair->dialler_wire).has_value());  // the ticket
    return pair;
  };
  const auto before = meet();
  Pair begun(worker, origin);  // a handshake that spans the change
  EXPECT_FALSE(begun.dialler->handshake(begun.dialler_wire).value());
  worker->set_keys(cluster.read(cluster.issue("w1", 30, true)));
  const auto after = meet();
  EXPECT_FALSE(after->acceptor->resumed()) << "a ticket would stand for the keys before";
  EXPECT_EQ(after->acceptor->peer().key, worker->keys().info.key);
  EXPECT_NE(after->acceptor->peer().key, before->acceptor->peer().key);
  EXPECT_TRUE(meet()->acceptor->resumed());
  begun.shake_hands();
  EXPECT_TRUE(begun.done());
  EXPECT_EQ(begun.acceptor->peer().key, before->acceptor->peer().key);
  EXPECT_TRUE(read_all(*begun.dialler, begun.dialler_wire).has_value());
  EXPECT_EQ(meet()->acceptor->peer().key, worker->keys().info.key) << "its ticket is not kept";
  ASSERT_TRUE(write_all(*before->dialler, "still here", before->dialler_wire).has_value());
  EXPECT_EQ(read_all(*before->acceptor, before->acceptor_wire).value(), "still here");
}

TEST_F(Tls, OtherKeysOfTheAcceptorEndTheTicketsThatItGave) {
  const auto resumes = [&] {
    Met pair(worker, origin);
    EXPECT_TRUE(pair.done());
    EXPECT_TRUE(read_all(*pair.dialler, pair.dialler_wire).has_value());
    return pair.dialler->resumed();
  };
  EXPECT_FALSE(resumes());
  EXPECT_TRUE(resumes());
  origin->set_keys(cluster.origin());
  EXPECT_FALSE(resumes());
  EXPECT_TRUE(resumes());
}

// ---- who does not get in

/// The acceptor's refusal, and what the dialler learns of it: at the end of its handshake or at its first read.
void expect_refused(Pair& pair, const std::string& reason, const std::string& told) {
  pair.shake_hands();
  ASSERT_TRUE(pair.acceptor_error.has_value());
  EXPECT_THAT(pair.acceptor_error->detail, HasSubstr(reason));
  EXPECT_FALSE(pair.acceptor->done());
  if (!pair.dialler_error) {
    const auto read = read_all(*pair.dialler, pair.dialler_wire);
    ASSERT_FALSE(read.has_value());
    pair.dialler_error = read.error();
  }
  EXPECT_EQ(pair.dialler_error->code, Errc::kNotAllowed);
  EXPECT_THAT(pair.dialler_error->detail, HasSubstr(told));
}

TEST_F(Tls, TheDiallerRefusesAnotherCluster) {
  const ClusterKeys other;
  const auto stranger = TlsContext::make(other.origin());
  Met pair(worker, stranger);
  ASSERT_TRUE(pair.dialler_error.has_value());
  EXPECT_EQ(pair.dialler_error->code, Errc::kNotAllowed);
  EXPECT_THAT(pair.dialler_error->detail, HasSubstr("another cluster's"));
  EXPECT_THAT(pair.dialler_error->detail, HasSubstr(other.open().cluster()));
  ASSERT_TRUE(pair.acceptor_error.has_value());
  EXPECT_THAT(pair.acceptor_error->detail, HasSubstr("it belongs to another cluster"));
}

/// Keys of this cluster whose holder trusts another's authority, so that its own end lets anybody in.
NodeKeys trusting(NodeKeys keys, const NodeKeys& other) {
  keys.authority.reset(X509_dup(other.authority.get()));
  return keys;
}

TEST_F(Tls, TheAcceptorRefusesAnotherCluster) {
  const ClusterKeys other;
  const auto stranger = TlsContext::make(trusting(other.worker("w1"), cluster.origin()));
  Pair pair(stranger, origin);
  expect_refused(pair, "another cluster's", "another cluster");
}

TEST_F(Tls, AnExpiredCertificateIsRefusedOnBothSides) {
  const ClusterKeys past(unix_now_s() - 20 * kDay_s);
  const auto old_worker = TlsContext::make(past.read(past.issue("old", 10)));
  const auto good_origin = TlsContext::make(past.origin());
  Pair dials(old_worker, good_origin);
  expect_refused(dials, "expired on", "as expired");
  Met accepts(good_origin, old_worker);
  ASSERT_TRUE(accepts.dialler_error.has_value());
  EXPECT_EQ(accepts.dialler_error->code, Errc::kTimedOut);
  EXPECT_THAT(accepts.dialler_error->detail, HasSubstr("expired on"));
  EXPECT_THAT(accepts.acceptor_error->detail, HasSubstr("as expired"));
}

TEST_F(Tls, ARevokedCertificateIsRefused) {
  cluster.revoke("w1");
  origin->set_revocations(cluster.revocations(origin->keys()));
  Pair pair(worker, origin);
  expect_refused(pair, "w1 is revoked", "as revoked");
}

TEST_F(Tls, KeysThatAreNotForConnectionsAreRefused) {
  // The signing key of the origin, and what a worker's key has signed in the authority's name.
  NodeKeys signing = cluster.origin();
  std::swap(signing.key, signing.signing_key);
  std::swap(signing.certificate, signing.signing_certificate);
  const auto with_signing = TlsContext::make(std::move(signing));
  Pair first(with_signing, origin);
  expect_refused(first, "for signing", "refuses this node's certificate");

  NodeKeys forged = cluster.worker("w2");
  const NodeKeys issuer = cluster.worker("w3");
  forged.certificate =
      make_certificate({KeyUse::kOrigin, "origin", forged.key.get(), unix_now_s() - 10, unix_now_s() + 1000},
                       issuer.certificate.get(), issuer.key.get());
  const auto with_forged = TlsContext::make(std::move(forged));
  Pair second(with_forged, origin);
  expect_refused(second, "its certificate", "refuses this node's certificate");
}

// ---- a machine that has no keys yet

struct TlsEnrolment : Tls {
  const KeyId authority = cluster.open().make_token({"w9", 1, unix_now_s() + 60, 30}, unix_now_s())->authority;
  std::shared_ptr<TlsContext> enrolling_origin = TlsContext::make(cluster.origin(), {.enrols = true});
};

TEST_F(TlsEnrolment, AMachineWithoutKeysProvesNothingAndKnowsWhomItSpeaksTo) {
  Met pair(TlsContext::make_enrolling(authority), enrolling_origin);
  ASSERT_TRUE(pair.done()) << pair.dialler_error->message() << pair.acceptor_error->message();
  EXPECT_EQ(pair.acceptor->peer().role, Role::kStranger);
  EXPECT_EQ(pair.acceptor->peer().name, "");
  EXPECT_EQ(pair.dialler->peer().role, Role::kOrigin);
  // Workers meet the same origin as ever.
  Met known(worker, enrolling_origin);
  EXPECT_EQ(known.acceptor->peer().role, Role::kWorker);
}

TEST_F(TlsEnrolment, AnOriginThatDoesNotEnrolWantsACertificate) {
  Met pair(TlsContext::make_enrolling(authority), origin);
  EXPECT_FALSE(pair.acceptor->done());
  ASSERT_TRUE(pair.acceptor_error.has_value());
}

TEST_F(TlsEnrolment, WhoAnswersInTheOriginsPlaceIsRefusedBeforeTheSecretLeaves) {
  const ClusterKeys other;
  const auto other_origin = TlsContext::make(other.origin(), {.enrols = true});
  const auto worker_as_origin = TlsContext::make(cluster.worker("w2"), {.enrols = true});
  // It shows the right authority's certificate, which everybody may have, beside its own keys.
  NodeKeys borrowed = other.origin();
  borrowed.between.emplace_back(X509_dup(cluster.origin().authority.get()));
  const auto with_borrowed = TlsContext::make(std::move(borrowed), {.enrols = true});
  for (const auto& false_origin : {other_origin, worker_as_origin, with_borrowed}) {
    Met pair(TlsContext::make_enrolling(authority), false_origin);
    EXPECT_FALSE(pair.dialler->done());
    ASSERT_TRUE(pair.dialler_error.has_value());
    EXPECT_EQ(pair.dialler_error->code, Errc::kNotAllowed) << pair.dialler_error->message();
  }
}

TEST_F(TlsEnrolment, AnEnrolledWorkerMeetsOthersAgainByTickets) {
  const Applicant machine;
  const JoinToken token = *cluster.open().make_token({"w7", 1, unix_now_s() + 60, 30}, unix_now_s());
  const auto chars = [](std::span<const std::byte> bytes) {
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  const auto made = enrol(cluster.directory(),
                          {.token_id = chars(token.id),
                           .token_secret = chars(token.secret),
                           .name = "w7",
                           .host_name = "",
                           .key = machine.key_request()},
                          unix_now_s());
  ASSERT_TRUE(made.has_value()) << made.error().message();
  const auto enrolled = TlsContext::make(*machine.keys_from(made->certificates, token, unix_now_s()));
  for (const bool resumes : {false, true}) {
    Met pair(enrolled, origin);
    ASSERT_TRUE(pair.done());
    EXPECT_EQ(pair.acceptor->peer().name, "w7");
    EXPECT_EQ(pair.acceptor->resumed(), resumes);
    EXPECT_TRUE(read_all(*pair.dialler, pair.dialler_wire).has_value());
  }
  // Both ways, and between two that were not made by the same key.
  Met accepts(worker, enrolled);
  EXPECT_EQ(accepts.dialler->peer().name, "w7");
  cluster.revoke(kEnrolmentName);
  origin->set_revocations(cluster.revocations(origin->keys()));
  Met revoked(enrolled, origin);
  ASSERT_TRUE(revoked.acceptor_error.has_value());
  EXPECT_THAT(revoked.acceptor_error->detail, HasSubstr("w7 is revoked"));
}

/// A peer that uses OpenSSL as it likes.
struct FreePeer {
  explicit FreePeer(const NodeKeys* keys, int version) {
    context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    if (keys != nullptr) {
      SSL_CTX_use_certificate(context, keys->certificate.get());
      SSL_CTX_use_PrivateKey(context, keys->key.get());
    }
    ssl = SSL_new(context);
    SSL_set_connect_state(ssl);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(SSL_get_rbio(ssl), -1);
  }
  ~FreePeer() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  void shake_hands(Pipe& out, Pipe& in, const std::function<void()>& other) {
    for (int i = 0; i < 6; ++i) {
      static_cast<void>(SSL_do_handshake(ssl));
      move_out(out);
      other();
      BIO_write(SSL_get_rbio(ssl), in.bytes.data(), int(in.bytes.size()));
      in.bytes.clear();
    }
  }
  void move_out(Pipe& out) const {
    out.bytes += text_of(SSL_get_wbio(ssl));
    static_cast<void>(BIO_reset(SSL_get_wbio(ssl)));
  }
  SSL_CTX* context;
  SSL* ssl;
};

TEST_F(Tls, APeerWithoutACertificateOrWithAnOlderProtocolIsRefused) {
  const NodeKeys good = cluster.worker("w5");
  struct Case {
    const NodeKeys* keys;
    int version;
    bool gets_in;
  };
  for (const Case c :
       {Case{&good, TLS1_3_VERSION, true}, Case{nullptr, TLS1_3_VERSION, false}, Case{&good, TLS1_2_VERSION, false}}) {
    Pipe in, out;
    PipeEnd wire(in, out);
    FreePeer peer(c.keys, c.version);
    const auto session = origin->accept();
    std::optional<Error> error;
    peer.shake_hands(in, out, [&] {
      if (error || session->done()) return;
      const auto done = session->handshake(wire);
      if (!done.has_value()) error = done.error();
    });
    EXPECT_EQ(session->done(), c.gets_in);
    EXPECT_EQ(error.has_value(), !c.gets_in);
  }
}

TEST_F(Tls, APeerThatDoesNotEncryptIsToldFromOthers) {
  for (const bool dials : {true, false}) {
    Pipe in, out;
    PipeEnd wire(in, out);
    const auto session = dials ? worker->dial("a:1") : origin->accept();
    in.bytes = "WCF2 and what follows";
    EXPECT_THAT(session->handshake(wire), FailsWith(Errc::kNotAllowed, "--keys"));
    EXPECT_TRUE(session->peer_is_plain());
  }
}

TEST_F(Tls, APeerThatEndsDuringTheHandshakeIsAnErrorAtEveryLength) {
  std::string hello;
  {
    Pair pair(worker, origin);
    ASSERT_FALSE(pair.dialler->handshake(pair.dialler_wire).value());
    hello = pair.forth.bytes;
  }
  for (std::size_t cut = 0; cut < hello.size(); cut += 5) {
    Pipe in, out;
    PipeEnd wire(in, out);
    in.bytes = hello.substr(0, cut);
    in.ended = true;
    const auto session = origin->accept();
    EXPECT_THAT(session->handshake(wire), FailsWith(Errc::kClosed)) << cut;
  }
}

TEST_F(Tls, AHandshakeWithoutEndIsCutOff) {
  // The first of many fragments of a message that says it is 120 KiB long.
  Pipe in, out;
  PipeEnd wire(in, out);
  const auto session = origin->accept();
  std::string fragment("\x16\x03\x01\x04\x00", 5);
  fragment += std::string("\x01\x01\xe0\x00", 4) + std::string(1020, 'x');
  std::string more("\x16\x03\x01\x04\x00", 5);
  more += std::string(1024, 'x');
  in.bytes = fragment;
  std::optional<Error> error;
  std::size_t sent = 0;
  for (; !error && sent < kMiB; sent += more.size()) {
    const auto done = session->handshake(wire);
    if (!done.has_value()) error = done.error();
    in.bytes += more;
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_LE(session->wire_bytes_received(), TlsSession::kHandshakeBytesMax);
}

TEST_F(Tls, AChangedByteAnywhereIsFoundAndNothingOfItsRecordIsRead) {
  for (std::size_t at = 0; at < 60; ++at) {
    Met pair(worker, origin);
    ASSERT_TRUE(pair.done());
    ASSERT_TRUE(write_all(*pair.dialler, "a secret of thirty-eight bytes or such", pair.dialler_wire).has_value());
    ASSERT_EQ(pair.forth.bytes.size(), 60u);
    pair.forth.bytes[at] ^= 0x40;
    pair.forth.ended = true;
    std::string into(100, '\0');
    iovec place = piece_of(into);
    const auto moved = pair.acceptor->read({&place, 1}, pair.acceptor_wire);
    EXPECT_TRUE(!moved.has_value() || (moved->ended && moved->bytes == 0)) << at;
  }
}

TEST_F(Tls, RecordsAreNeitherRepeatedNorReordered) {
  Met pair(worker, origin);
  ASSERT_TRUE(write_all(*pair.dialler, "one", pair.dialler_wire).has_value());
  const std::string record = pair.forth.bytes;
  EXPECT_EQ(*read_all(*pair.acceptor, pair.acceptor_wire), "one");
  pair.forth.bytes = record;
  EXPECT_FALSE(read_all(*pair.acceptor, pair.acceptor_wire).has_value());
}

TEST_F(Tls, EndsInOrderAndWithoutAWord) {
  Met pair(worker, origin);
  ASSERT_TRUE(write_all(*pair.dialler, "last", pair.dialler_wire).has_value());
  pair.dialler->end_writing(pair.dialler_wire);
  std::string into(100, '\0');
  iovec place = piece_of(into);
  EXPECT_EQ(pair.acceptor->read({&place, 1}, pair.acceptor_wire)->bytes, 4u);
  EXPECT_TRUE(pair.acceptor->read({&place, 1}, pair.acceptor_wire)->ended);
  ASSERT_TRUE(write_all(*pair.acceptor, "the other way is open", pair.acceptor_wire).has_value());
  EXPECT_EQ(*read_all(*pair.dialler, pair.dialler_wire), "the other way is open");
  pair.back.ended = true;
  EXPECT_TRUE(pair.dialler->read({&place, 1}, pair.dialler_wire)->ended);
}

TEST_F(Tls, KeysAreUpdatedOnTheWay) {
  const auto updating = TlsContext::make(cluster.worker("w7"), {.key_update_bytes = 50'000});
  Met pair(updating, origin);
  const std::uint64_t before = pair.forth.total;
  const std::string sent = noise(kMiB, 5);
  ASSERT_TRUE(write_all(*pair.dialler, sent, pair.dialler_wire).has_value());
  EXPECT_TRUE(*read_all(*pair.acceptor, pair.acceptor_wire) == sent);
  const std::uint64_t plain = kMiB + kMiB / TlsSession::kRecordBytesMax * TlsSession::kRecordOverheadBytes;
  EXPECT_GT(pair.forth.total - before, plain + 10 * 20) << "updates are records of their own";
}

TEST_F(Tls, AFloodOfRequestsForNewKeysIsBounded) {
  const NodeKeys keys = cluster.worker("w8");
  Pipe in, out;
  PipeEnd wire(in, out);
  FreePeer peer(&keys, TLS1_3_VERSION);
  const auto session = origin->accept();
  peer.shake_hands(in, out, [&] {
    if (!session->done()) {
      ASSERT_TRUE(session->handshake(wire).has_value());
    }
  });
  ASSERT_TRUE(session->done());
  out.capacity = 0;  // it reads none of the answers
  std::optional<Error> error;
  for (int i = 0; i < 100'000 && !error; ++i) {
    ASSERT_EQ(SSL_key_update(peer.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
    ASSERT_EQ(SSL_do_handshake(peer.ssl), 1);
    peer.move_out(in);
    const auto read = read_all(*session, wire);
    if (!read.has_value()) error = read.error();
  }
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, Errc::kTooLarge);
}

}  // namespace
}  // namespace weightcast
