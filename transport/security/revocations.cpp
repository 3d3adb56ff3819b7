#include "transport/security/revocations.h"

#include <openssl/pem.h>

#include <ctime>
#include <utility>

#include "proto/limits.h"

namespace weightcast {
namespace {

// An authority, and the one before it.
constexpr int kListsMax = 4;

UniqueAsn1Integer serial_of(const std::string& hexadecimal) {
  BIGNUM* number = nullptr;
  WC_CHECK(BN_hex2bn(&number, hexadecimal.c_str()) > 0);
  const UniqueBignum owner(number);
  return UniqueAsn1Integer(BN_to_ASN1_INTEGER(number, nullptr));
}

}  // namespace

Result<Revocations> Revocations::parse(const std::string& text, X509* authority) {
  set_up_openssl();
  const auto corrupt = [] {
    static_cast<void>(take_openssl_error());
    return fail(Errc::kCorrupt, Op::kParse, "not a list of revoked certificates");
  };
  if (text.size() > kRevocationsBytesMax) return corrupt();
  const UniqueBio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  Revocations made;
  int lists = 0;
  while (!made.list_) {
    UniqueCrl list(PEM_read_bio_X509_CRL(bio.get(), nullptr, nullptr, nullptr));
    if (!list) break;
    if (++lists > kListsMax) return corrupt();
    if (X509_CRL_verify(list.get(), X509_get0_pubkey(authority)) == 1) made.list_ = std::move(list);
  }
  if (lists == 0) return corrupt();
  static_cast<void>(take_openssl_error());
  if (!made.list_) {
    return fail(Errc::kNotAllowed, Op::kVerify, "this cluster's authority has not signed the list");
  }
  const UniqueAsn1Integer number(
      static_cast<ASN1_INTEGER*>(X509_CRL_get_ext_d2i(made.list_.get(), NID_crl_number, nullptr, nullptr)));
  if (!number || ASN1_INTEGER_get_uint64(&made.number_, number.get()) != 1) return corrupt();
  made.text_ = text;
  return made;
}

Revocations Revocations::make(const std::vector<Revoked>& revoked, std::uint64_t number, std::int64_t now_unix_s,
                              X509* authority, EVP_PKEY* authority_key) {
  Revocations made;
  made.number_ = number;
  made.list_.reset(X509_CRL_new());
  X509_CRL* list = made.list_.get();
  const UniqueAsn1Time now(ASN1_TIME_set(nullptr, now_unix_s));
  WC_CHECK(list != nullptr && now && X509_CRL_set_version(list, 1) == 1 &&
           X509_CRL_set_issuer_name(list, X509_get_subject_name(authority)) == 1 &&
           X509_CRL_set1_lastUpdate(list, now.get()) == 1);
  for (const Revoked& one : revoked) {
    X509_REVOKED* entry = X509_REVOKED_new();
    const UniqueAsn1Time from(ASN1_TIME_set(nullptr, one.replaced_unix_s != 0 ? one.replaced_unix_s : now_unix_s));
    WC_CHECK(entry != nullptr && from && X509_REVOKED_set_serialNumber(entry, serial_of(one.serial).get()) == 1 &&
             X509_REVOKED_set_revocationDate(entry, from.get()) == 1);
    if (one.replaced_unix_s != 0) {
      const UniqueAsn1Enumerated reason(ASN1_ENUMERATED_new());
      WC_CHECK(reason && ASN1_ENUMERATED_set(reason.get(), CRL_REASON_SUPERSEDED) == 1 &&
               X509_REVOKED_add1_ext_i2d(entry, NID_crl_reason, reason.get(), 0, X509V3_ADD_DEFAULT) == 1);
    }
    WC_CHECK(X509_CRL_add0_revoked(list, entry) == 1);
  }
  const UniqueAsn1Integer value(ASN1_INTEGER_new());
  WC_CHECK(value && ASN1_INTEGER_set_uint64(value.get(), number) == 1 &&
           X509_CRL_add1_ext_i2d(list, NID_crl_number, value.get(), 0, X509V3_ADD_DEFAULT) == 1);
  WC_CHECK(X509_CRL_sort(list) == 1 && X509_CRL_sign(list, authority_key, nullptr) > 0);
  const UniqueBio bio(BIO_new(BIO_s_mem()));
  WC_CHECK(bio && PEM_write_bio_X509_CRL(bio.get(), list) == 1);
  made.text_ = text_of(bio.get());
  return made;
}

bool Revocations::contains(const std::string& serial, std::int64_t unix_s) const {
  X509_REVOKED* entry = nullptr;
  if (!list_ || X509_CRL_get0_by_serial(list_.get(), &entry, serial_of(serial).get()) == 0) return false;
  const UniqueAsn1Enumerated reason(
      static_cast<ASN1_ENUMERATED*>(X509_REVOKED_get_ext_d2i(entry, NID_crl_reason, nullptr, nullptr)));
  if (!reason || ASN1_ENUMERATED_get(reason.get()) != CRL_REASON_SUPERSEDED) return true;
  std::tm from{};
  // A date that is none does not bring a certificate back.
  if (ASN1_TIME_to_tm(X509_REVOKED_get0_revocationDate(entry), &from) != 1) return true;
  return std::int64_t{::timegm(&from)} <= unix_s;
}

Result<Revocations> newest_revocations(FileSystem& files, const std::vector<std::filesystem::path>& directories,
                                       X509* authority) {
  Revocations newest;
  for (const std::filesystem::path& directory : directories) {
    const Result<std::string> text = read_file(files, directory / kRevocationsFile, kRevocationsBytesMax);
    if (!text.has_value() && text.error().code == Errc::kNotFound) continue;
    if (!text.has_value()) return text.error();
    Result<Revocations> list = Revocations::parse(*text, authority);
    if (!list.has_value() && list.error().code == Errc::kNotAllowed) continue;
    if (!list.has_value()) return about((directory / kRevocationsFile).native(), list.error());
    if (list->number() > newest.number()) newest = std::move(*list);
  }
  return newest;
}

}  // namespace weightcast
