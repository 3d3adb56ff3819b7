// Arbitrary bytes where a node reads keys, certificates and lists of revoked ones: an error, or something that the
// cluster's authority has signed.
//
// The first byte says what the others are:
//   0  the text of a node's file      1  the text of a list of revoked certificates
//   2  a certificate (DER)
//   3  changes of a node's file that was right: at which place (2 bytes), and to what
//   4  changes of such a list         5  changes of such a certificate (DER)
#include <openssl/x509.h>

#include <array>

#include "tests/fuzz/fuzz_input.h"
#include "transport/security/authority.h"
#include "transport/security/node_keys.h"
#include "transport/security/revocations.h"

namespace weightcast {
namespace {

constexpr std::int64_t kNow = 1'800'000'000;

/// The same in every run, so that a find can be repeated. Serials, which are random, have one length.
UniqueKey fixed_key(unsigned char seed) {
  set_up_openssl();
  const std::array<unsigned char, 32> bytes{seed};
  return UniqueKey(EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, bytes.data(), bytes.size()));
}

/// A cluster that is made once.
struct Cluster {
  UniqueKey authority_key = fixed_key(1), node_key = fixed_key(2);
  UniqueX509 authority, node;
  std::string file, revoked, der;

  Cluster() {
    CertificateRequest request{KeyUse::kAuthority, "", authority_key.get(), kNow - 1000, kNow + 1000};
    authority = make_certificate(request, nullptr, authority_key.get());
    request = {KeyUse::kWorker, "w1", node_key.get(), kNow - 1000, kNow + 1000};
    node = make_certificate(request, authority.get(), authority_key.get());
    append_pem(file, node_key.get());
    append_pem(file, node.get());
    append_pem(file, authority.get());
    revoked = Revocations::make({{"01"}, {"0abc", kNow + 9}}, 3, kNow, authority.get(), authority_key.get()).to_pem();
    der = der_of<i2d_X509>(node.get());
  }
};

std::string changed(std::string text, FuzzInput& input) {
  while (!input.empty()) {
    const std::size_t at = input.word();
    text[at % text.size()] = static_cast<char>(input.byte());
  }
  return text;
}

void read_node(const std::string& text) {
  const Result<NodeKeys> keys = parse_node_keys(text, "it", kNow);
  if (keys.has_value()) WC_CHECK(check_issued(keys->certificate.get(), keys->authority.get(), kNow).has_value());
}

void read_list(const Cluster& cluster, const std::string& text) {
  const Result<Revocations> list = Revocations::parse(text, cluster.authority.get());
  // Nobody but the authority can make one: what is accepted is the list that it signed.
  if (list.has_value()) WC_CHECK(list->number() == 3 && list->contains("01", 0) && list->contains("0abc", kNow + 9));
}

void read_der(const Cluster& cluster, const std::string& der) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(der.data());
  const UniqueX509 certificate(d2i_X509(nullptr, &bytes, static_cast<long>(der.size())));
  if (!certificate) return;
  const Result<CertificateInfo> info = read_certificate(certificate.get());
  if (!check_issued(certificate.get(), cluster.authority.get(), kNow).has_value()) return;
  WC_CHECK(info.has_value() && info->use == KeyUse::kWorker && info->name == "w1");
}

}  // namespace
}  // namespace weightcast

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace weightcast;
  static const Cluster cluster;
  FuzzInput input(data, size);
  const std::uint8_t what = input.byte() % 6;
  const auto rest = what < 3 ? input.bytes(size) : std::span<const std::uint8_t>();
  const std::string text(rest.begin(), rest.end());
  switch (what) {
    case 0: read_node(text); break;
    case 1: read_list(cluster, text); break;
    case 2: read_der(cluster, text); break;
    case 3: read_node(changed(cluster.file, input)); break;
    case 4: read_list(cluster, changed(cluster.revoked, input)); break;
    default: read_der(cluster, changed(cluster.der, input)); break;
  }
  return 0;
}
