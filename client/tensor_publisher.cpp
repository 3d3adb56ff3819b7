#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "client/client.h"
#include "client/publish_exchange.h"
#include "patch/snapshot/safetensors.h"

namespace weightcast {
namespace {

// Room in /dev/shm under a name that the origin can open; gone with this object.
class SharedMemory {
 public:
  ~SharedMemory() {
    if (data_ != nullptr) ::munmap(data_, mapped_);
    if (fd_ >= 0) {
      ::close(fd_);
      ::unlink(path_.c_str());
    }
  }
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  Status reserve(std::uint64_t bytes) {
    if (bytes <= capacity_) return {};
    if (fd_ < 0) {
      static std::atomic<unsigned> count{0};
      do {  // a killed process of that number may have left some
        path_ = fmt::format("/dev/shm/weightcast-{}-{}.safetensors", ::getpid(), count++);
        fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
      } while (fd_ < 0 && errno == EEXIST);
      if (fd_ < 0) return fail_errno(errno, Op::kOpen, path_);
    }
    // Allocated, not just sized: a write to a page that /dev/shm has no room for would end the process.
    if (const int error = ::posix_fallocate(fd_, 0, static_cast<off_t>(bytes)); error != 0) {
      return fail_errno(error, Op::kPublish, fmt::format("{} ({} bytes; is /dev/shm large enough?)", path_, bytes));
    }
    if (data_ != nullptr) ::munmap(data_, mapped_);
    data_ = nullptr;
    capacity_ = mapped_ = 0;
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, 0);
    if (mapped == MAP_FAILED) return fail_errno(errno, Op::kPublish, path_);
    data_ = static_cast<char*>(mapped);
    capacity_ = mapped_ = bytes;
    return {};
  }

  // Makes the file exactly as long as the snapshot in it; what was reserved beyond is given back.
  Status trim(std::uint64_t bytes) {
    if (bytes == capacity_) return {};
    if (::ftruncate(fd_, static_cast<off_t>(bytes)) != 0) return fail_errno(errno, Op::kPublish, path_);
    capacity_ = bytes;
    return {};
  }

  [[nodiscard]] char* data() { return data_; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int fd_ = -1;
  char* data_ = nullptr;
  std::uint64_t capacity_ = 0;  // the file's length
  std::uint64_t mapped_ = 0;
};

}  // namespace

struct TensorPublisher::Impl {
  std::unique_ptr<LocalChannel> channel;
  SharedMemory memory;
  SafetensorsLayout layout;
  std::vector<TensorInfo> laid_out;  // for what `layout` is

  bool taking = false;   // the origin may still be reading the shared memory
  bool waiting = false;  // an outcome is due
  double take_s = 0;
  Version version{};
  std::uint64_t request = 0;
  PublishOptions options;
  LocalChannel::Clock::time_point deadline;

  /// Until the origin has its copy, or will have none. An error that leaves `taking` set is no answer of the origin's:
  /// the memory is not ours to write.
  Status finish_taking(LocalChannel::Clock::time_point until) {
    if (!taking) return {};
    const Result<Taken> taken = receive_taken(*channel, request, until);
    if (!taken.has_value()) {
      Error error = taken.error();
      error.detail += fmt::format("; the origin may still be reading version {} from shared memory", version.value);
      return error;
    }
    taking = false;
    take_s = taken->seconds;
    if (!taken->status.has_value()) waiting = false;
    return taken->status;
  }
};

TensorPublisher::TensorPublisher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TensorPublisher::TensorPublisher(TensorPublisher&&) noexcept = default;
TensorPublisher& TensorPublisher::operator=(TensorPublisher&&) noexcept = default;
TensorPublisher::~TensorPublisher() = default;

Result<TensorPublisher> TensorPublisher::open(const std::string& state_dir) {
  auto impl = std::make_unique<Impl>();
  WC_ASSIGN(impl->channel, LocalChannel::open(state_dir, deadline_after(std::chrono::seconds(5))));
  return TensorPublisher(std::move(impl));
}

Status TensorPublisher::reserve(std::uint64_t bytes) {
  if (impl_->taking) {
    return fail(Errc::kBusy, Op::kPublish,
                fmt::format("version {} is still being read from shared memory; wait() first", impl_->version.value));
  }
  return impl_->memory.reserve(bytes);
}

Status TensorPublisher::publish(Version version, std::span<const TensorSource> tensors, const PublishOptions& options) {
  const auto deadline = deadline_after(options.timeout);
  // The memory is free once the origin has its copy; how that publication ends is not waited for.
  WC_TRY(impl_->finish_taking(deadline));
  std::vector<TensorInfo> infos;
  infos.reserve(tensors.size());
  for (const TensorSource& tensor : tensors) {
    if (tensor.data.size() != tensor.info.size_bytes) {
      return fail(Errc::kInvalidArgument, Op::kPublish,
                  fmt::format("tensor '{}': {} bytes given, {} described", tensor.info.name, tensor.data.size(),
                              tensor.info.size_bytes));
    }
    infos.push_back(tensor.info);
  }
  if (infos != impl_->laid_out) {
    WC_ASSIGN(impl_->layout, lay_out_safetensors(infos));
    impl_->laid_out.clear();  // until there is memory for it
    WC_TRY(impl_->memory.reserve(impl_->layout.file_bytes));
    WC_TRY(impl_->memory.trim(impl_->layout.file_bytes));
    impl_->laid_out = std::move(infos);
  }
  const SafetensorsLayout& layout = impl_->layout;
  char* const out = impl_->memory.data();
  std::memcpy(out, layout.header.data(), layout.header.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].data.empty())
      std::memcpy(out + layout.offsets_bytes[i], tensors[i].data.data(), tensors[i].data.size());
  }
  impl_->waiting = false;
  // A request that is not sent whole is none: the origin does not read what it names.
  WC_ASSIGN(impl_->request, send_publish(*impl_->channel, version, impl_->memory.path(), options, deadline));
  impl_->version = version;
  impl_->options = options;
  impl_->deadline = deadline;
  impl_->taking = impl_->waiting = true;
  return {};
}

Result<PublishOutcome> TensorPublisher::wait() {
  if (!impl_->waiting)
    return fail(Errc::kInvalidArgument, Op::kPublish, "nothing was published that could be waited for");
  WC_TRY(impl_->finish_taking(impl_->deadline));
  impl_->waiting = false;
  return receive_outcome(*impl_->channel, impl_->request, impl_->take_s, impl_->options, impl_->deadline);
}

}  // namespace weightcast
