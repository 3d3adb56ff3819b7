#include "security/revocations.h"

#include <openssl/pem.h>

#include "proto/limits.h"

namespace weightcast {
namespace {

UniqueAsn1Integer serial_of(const std::string& hexadecimal) {
  BIGNUM* number = nullptr;
  WC_CHECK(BN_hex2bn(&number, hexadecimal.c_str()) > 0);
  const UniqueBignum owner(number);
  return UniqueAsn1Integer(BN_to_ASN1_INTEGER(number, nullptr));
}

}  // namespace

Result<Revocations> Revocations::parse(const std::string& text, X509* authority) {
  set_up_openssl();
  const auto corrupt = [] { return fail(Errc::kCorrupt, Op::kParse, "not a list of revoked certificates"); };
  if (text.size() > kRevocationsBytesMax) return corrupt();
  const UniqueBio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  Revocations made;
  made.list_.reset(PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr));
  if (!made.list_) {
    static_cast<void>(take_openssl_error());
    return corrupt();
  }
  if (X509_CRL_verify(made.list_.get(), X509_get0_pubkey(authority)) != 1) {
    static_cast<void>(take_openssl_error());
    return fail(Errc::kNotAllowed, Op::kVerify, "this cluster's authority has not signed the list");
  }
  const UniqueAsn1Integer number(
      static_cast<ASN1_INTEGER*>(X509_CRL_get_ext_d2i(made.list_.get(), NID_crl_number, nullptr, nullptr)));
  if (!number || ASN1_INTEGER_get_uint64(&made.number_, number.get()) != 1) {
    static_cast<void>(take_openssl_error());
    return corrupt();
  }
  return made;
}

Revocations Revocations::make(const std::vector<std::string>& serials, std::uint64_t number, std::int64_t now_unix_s,
                              X509* authority, EVP_PKEY* authority_key) {
  Revocations made;
  made.number_ = number;
  made.list_.reset(X509_CRL_new());
  X509_CRL* list = made.list_.get();
  const UniqueAsn1Time now(ASN1_TIME_set(nullptr, now_unix_s));
  WC_CHECK(list != nullptr && now && X509_CRL_set_version(list, 1) == 1 &&
           X509_CRL_set_issuer_name(list, X509_get_subject_name(authority)) == 1 &&
           X509_CRL_set1_lastUpdate(list, now.get()) == 1);
  for (const std::string& serial : serials) {
    X509_REVOKED* entry = X509_REVOKED_new();
    WC_CHECK(entry != nullptr && X509_REVOKED_set_serialNumber(entry, serial_of(serial).get()) == 1 &&
             X509_REVOKED_set_revocationDate(entry, now.get()) == 1 && X509_CRL_add0_revoked(list, entry) == 1);
  }
  const UniqueAsn1Integer value(ASN1_INTEGER_new());
  WC_CHECK(value && ASN1_INTEGER_set_uint64(value.get(), number) == 1 &&
           X509_CRL_add1_ext_i2d(list, NID_crl_number, value.get(), 0, X509V3_ADD_DEFAULT) == 1);
  WC_CHECK(X509_CRL_sort(list) == 1 && X509_CRL_sign(list, authority_key, nullptr) > 0);
  return made;
}

bool Revocations::contains(X509* certificate) const {
  X509_REVOKED* entry = nullptr;
  return list_ && X509_CRL_get0_by_cert(list_.get(), &entry, certificate) != 0;
}

bool Revocations::contains(const std::string& serial) const {
  X509_REVOKED* entry = nullptr;
  return list_ && X509_CRL_get0_by_serial(list_.get(), &entry, serial_of(serial).get()) != 0;
}

std::string Revocations::to_pem() const {
  if (!list_) return {};
  const UniqueBio bio(BIO_new(BIO_s_mem()));
  WC_CHECK(bio && PEM_write_bio_X509_CRL(bio.get(), list_.get()) == 1);
  return text_of(bio.get());
}

}  // namespace weightcast
