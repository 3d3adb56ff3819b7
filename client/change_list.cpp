#include "client/change_list.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <map>
#include <span>
#include <string_view>
#include <utility>

#include "patch/changes/change_names.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast::client {
namespace {

Error failed(int error_number, std::string_view what) {
  Error error = fail_errno(error_number, Op::kReceive, std::string(what));
  if (error_number == ENOMEM) error.code = Errc::kNoSpace;
  return error;
}

Error corrupt(std::string_view why) {
  return fail(Errc::kCorrupt, Op::kReceive, fmt::format("the daemon's list of changes: {}", why));
}

}  // namespace

Result<std::unique_ptr<ChangeList>> ChangeList::create() {
  UniqueFd fd(::memfd_create("weightcast changes", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return failed(errno, "memory for a list of changes");
  return std::unique_ptr<ChangeList>(new ChangeList(std::move(fd)));
}

ChangeList::~ChangeList() {
  if (data_ != nullptr) ::munmap(const_cast<char*>(data_), bytes_);
}

Status ChangeList::read(std::uint64_t bytes) {
  // First nobody can change it any more, then it is looked at.
  constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
  if (::fcntl(fd(), F_ADD_SEALS, kSeals) != 0) return failed(errno, "sealing a list of changes");
  struct stat info {};
  if (::fstat(fd(), &info) != 0) return failed(errno, "a list of changes");
  if (bytes == 0 || static_cast<std::uint64_t>(info.st_size) != bytes) {
    return corrupt(fmt::format("it has {} bytes instead of {}", info.st_size, bytes));
  }
  // A private mapping: who writes to it all the same, as a language without constants may, has a copy of that page.
  void* const mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_NORESERVE, fd(), 0);
  if (mapped == MAP_FAILED) return failed(errno, "mapping a list of changes");
  data_ = static_cast<const char*>(mapped);
  bytes_ = bytes;
  // The mapping stays without it.
  fd_.reset();

  const auto all = std::as_bytes(std::span<const char>(data_, bytes_));
  WC_ASSIGN(const SafetensorsHeader header, parse_safetensors_header(all, bytes_, "the changes"));
  struct Arrays {
    const TensorInfo *indices = nullptr, *values = nullptr, *old = nullptr;
  };
  std::map<std::string_view, Arrays> found;
  for (const TensorInfo& tensor : header.tensors) {
    const std::string_view name = tensor.name;
    if (name.starts_with(kIndicesPrefix)) {
      found[name.substr(kIndicesPrefix.size())].indices = &tensor;
    } else if (name.starts_with(kValuesPrefix)) {
      found[name.substr(kValuesPrefix.size())].values = &tensor;
    } else if (name.starts_with(kOldPrefix)) {
      found[name.substr(kOldPrefix.size())].old = &tensor;
    } else {
      return corrupt(fmt::format("tensor {} is neither indices nor values", quoted_name(name)));
    }
  }
  texts_.reserve(2 * found.size());  // so that none of them moves
  for (const auto& [name, arrays] : found) {
    const auto& [indices, values, old] = arrays;
    if (indices == nullptr || values == nullptr || indices->shape != values->shape || indices->shape.size() != 1 ||
        (indices->dtype != "U32" && indices->dtype != "U64") || dtype_bits(values->dtype) % 8 != 0 ||
        (old != nullptr && (old->dtype != values->dtype || old->shape != values->shape))) {
      return corrupt(fmt::format("tensor {}: its indices and values do not fit", quoted_name(name)));
    }
    wc_change change{};
    change.name = texts_.emplace_back(name).c_str();
    change.dtype = texts_.emplace_back(values->dtype).c_str();
    change.indices = data_ + indices->offset_bytes;
    change.index_bytes = indices->dtype == "U32" ? 4 : 8;
    change.values = data_ + values->offset_bytes;
    if (old != nullptr) change.old_values = data_ + old->offset_bytes;
    change.count = indices->shape.front();
    changes_.push_back(change);
  }
  return {};
}

}  // namespace weightcast::client
