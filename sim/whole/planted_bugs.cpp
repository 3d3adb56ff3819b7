#include "sim/whole/planted_bugs.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/digest/checksum.h"
#include "proto/record.pb.h"

namespace weightcast::sim {
namespace {

/// Another file system, with its open files and all.
class FileSystemProxy : public FileSystem {
 public:
  explicit FileSystemProxy(FileSystem& files) : FileSystem(16), files_(files) {}

  Result<std::unique_ptr<File>> open(const Path& path, const OpenOptions& options) override {
    return files_.open(path, options);
  }
  Result<std::unique_ptr<Directory>> open_directory(const Path& path) override { return files_.open_directory(path); }
  Result<std::vector<std::string>> list(const Path& path) override { return files_.list(path); }
  Result<FileInfo> info(const Path& path) override { return files_.info(path); }
  Result<FileInfo> link_info(const Path& path) override { return files_.link_info(path); }
  Status make_directory(const Path& path) override { return files_.make_directory(path); }
  Status rename(const Path& from, const Path& to) override { return files_.rename(from, to); }
  Status make_link(const Path& target, const Path& path) override { return files_.make_link(target, path); }
  Result<Path> read_link(const Path& path) override { return files_.read_link(path); }
  Status remove(const Path& path) override { return files_.remove(path); }
  Status remove_directory(const Path& path) override { return files_.remove_directory(path); }
  Result<std::uint64_t> free_bytes(const Path& path) override { return files_.free_bytes(path); }
  Status check_writable(const Path& path) override { return files_.check_writable(path); }
  std::string users_of(const std::vector<Path>& paths) override { return files_.users_of(paths); }
  std::uint64_t process_number() override { return files_.process_number(); }

 protected:
  FileSystem& files_;
};

class DirectoryNeverSynced final : public Directory {
 public:
  explicit DirectoryNeverSynced(std::unique_ptr<Directory> directory) : directory_(std::move(directory)) {}
  Result<std::unique_ptr<File>> open(const std::string& name, const OpenOptions& options) override {
    return directory_->open(name, options);
  }
  Result<std::unique_ptr<Directory>> open_directory(const std::string& name) override {
    WC_ASSIGN(std::unique_ptr<Directory> directory, directory_->open_directory(name));
    return std::unique_ptr<Directory>(std::make_unique<DirectoryNeverSynced>(std::move(directory)));
  }
  Result<FileInfo> info(const std::string& name) override { return directory_->info(name); }
  Status sync() override { return {}; }

 private:
  std::unique_ptr<Directory> directory_;
};

class ForgottenDirectorySyncs final : public FileSystemProxy {
 public:
  using FileSystemProxy::FileSystemProxy;
  Result<std::unique_ptr<Directory>> open_directory(const Path& path) override {
    WC_ASSIGN(std::unique_ptr<Directory> directory, files_.open_directory(path));
    return std::unique_ptr<Directory>(std::make_unique<DirectoryNeverSynced>(std::move(directory)));
  }
};

/// Another open file.
class FileProxy : public File {
 public:
  explicit FileProxy(std::unique_ptr<File> file) : file_(std::move(file)) {}

  Result<std::size_t> read_at(std::uint64_t offset, MutableBytes into) override { return file_->read_at(offset, into); }
  Result<std::size_t> write_at(std::uint64_t offset, Bytes from) override { return file_->write_at(offset, from); }
  Result<std::size_t> append(Bytes from) override { return file_->append(from); }
  Result<FileInfo> info() override { return file_->info(); }
  Status allocate(std::uint64_t size_bytes) override { return file_->allocate(size_bytes); }
  Status truncate(std::uint64_t size_bytes) override { return file_->truncate(size_bytes); }
  Result<std::optional<std::uint64_t>> next_data(std::uint64_t offset) override { return file_->next_data(offset); }
  Status sync_data() override { return file_->sync_data(); }
  Status lock() override { return file_->lock(); }
  Status check_unshared() override { return file_->check_unshared(); }
  void advise_random() override { file_->advise_random(); }
  Result<std::unique_ptr<Mapping>> map() override { return file_->map(); }

 protected:
  std::unique_ptr<File> file_;
};

/// A file that goes on with `tail` where it ends; to be read only.
class FileWithTail final : public FileProxy {
 public:
  FileWithTail(std::unique_ptr<File> file, std::string tail) : FileProxy(std::move(file)), tail_(std::move(tail)) {}

  Result<std::size_t> read_at(std::uint64_t offset, MutableBytes into) override {
    WC_ASSIGN(const FileInfo real, file_->info());
    if (offset < real.size_bytes) return file_->read_at(offset, into);
    const std::uint64_t from = std::min<std::uint64_t>(offset - real.size_bytes, tail_.size());
    const std::size_t bytes = std::min<std::size_t>(into.size(), tail_.size() - from);
    if (bytes > 0) std::memcpy(into.data(), tail_.data() + from, bytes);
    return bytes;
  }
  Result<FileInfo> info() override {
    WC_ASSIGN(FileInfo real, file_->info());
    real.size_bytes += tail_.size();
    return real;
  }

 private:
  const std::string tail_;
};

class FileNeverShared final : public FileProxy {
 public:
  using FileProxy::FileProxy;
  Status check_unshared() override { return {}; }
};

class IgnoredReaders final : public FileSystemProxy {
 public:
  using FileSystemProxy::FileSystemProxy;
  Result<std::unique_ptr<File>> open(const Path& path, const OpenOptions& options) override {
    WC_ASSIGN(std::unique_ptr<File> file, files_.open(path, options));
    return std::unique_ptr<File>(std::make_unique<FileNeverShared>(std::move(file)));
  }
};

class BelievedRecords final : public FileSystemProxy {
 public:
  BelievedRecords(FileSystem& files, const bool* recovering) : FileSystemProxy(files), recovering_(recovering) {}

  Result<std::unique_ptr<File>> open(const Path& path, const OpenOptions& options) override {
    WC_ASSIGN(std::unique_ptr<File> file, files_.open(path, options));
    if (!*recovering_ || options.write || path.parent_path().filename() != "records") return file;
    return std::unique_ptr<File>(std::make_unique<FileWithTail>(std::move(file), mark()));
  }

 private:
  // As version_record.h says: length, digest, body.
  static std::string mark() {
    record::Entry entry;
    entry.mutable_durable();
    const std::string body = entry.SerializeAsString();
    const auto size = static_cast<std::uint32_t>(body.size());
    std::string out(sizeof size, '\0');
    std::memcpy(out.data(), &size, sizeof size);
    const Checksum digest = checksum_of(std::as_bytes(std::span(body)));
    out.append(reinterpret_cast<const char*>(digest.bytes.data()), Checksum::kBytes);
    return out + body;
  }

  const bool* recovering_;
};

class ForgetfulStore final : public Store {
 public:
  explicit ForgetfulStore(std::unique_ptr<Store> store) : store_(std::move(store)) {}

  // Only what leads to the latest stays: neither bases nor what somebody still receives.
  void retain(const std::vector<PayloadId>& payloads) override {
    Version latest{};
    for (const PayloadId payload : payloads) latest = std::max(latest, payload.version);
    std::vector<PayloadId> kept;
    for (const PayloadId payload : payloads) {
      if (payload.version == latest) kept.push_back(payload);
    }
    store_->retain(kept);
  }

  void pin(std::vector<Version> versions) override { store_->pin(std::move(versions)); }
  DiskBackend backend() const override { return store_->backend(); }
  const StorePlace* place() const override { return store_->place(); }
  std::vector<StoredVersion> versions() const override { return store_->versions(); }
  const StoredVersion* find(Version version) const override { return store_->find(version); }
  Version current() const override { return store_->current(); }
  Version spare() const override { return store_->spare(); }
  StoreRun run() const override { return store_->run(); }
  std::vector<StepRef> steps(Version from, Version to) const override { return store_->steps(from, to); }
  const StoredVersion* earlier() const override { return store_->earlier(); }
  void follow_run(RunId run, bool anew, std::function<void(Status)> done) override {
    store_->follow_run(run, anew, std::move(done));
  }
  Version pending_in_place_update() const override { return store_->pending_in_place_update(); }
  void on_pending_in_place_update(std::function<void()> changed) override {
    store_->on_pending_in_place_update(std::move(changed));
  }
  void on_lost(std::function<void(Version, const Error&)> lost) override { store_->on_lost(std::move(lost)); }
  std::vector<StoredPatch> patches() const override { return store_->patches(); }
  std::vector<PartialVersion> partial() const override { return store_->partial(); }
  void begin(const Manifest& manifest, std::function<void(Result<PartialVersion>)> done) override {
    store_->begin(manifest, std::move(done));
  }
  void grow(const Manifest& manifest) override { store_->grow(manifest); }
  void put_digest_part(PayloadId payload, std::uint32_t part, const std::vector<ContentDigest>& digests) override {
    store_->put_digest_part(payload, part, digests);
  }
  void write_chunk(PayloadId payload, ChunkIndex chunk, BufferRef bytes, std::function<void(Status)> done) override {
    store_->write_chunk(payload, chunk, std::move(bytes), std::move(done));
  }
  BufferRef cached_chunk(PayloadId payload, ChunkIndex chunk) const override {
    return store_->cached_chunk(payload, chunk);
  }
  void read_chunk(PayloadId payload, ChunkIndex chunk, std::function<void(Result<BufferRef>)> done) override {
    store_->read_chunk(payload, chunk, std::move(done));
  }
  void finish(PayloadId payload, std::function<void(Result<StoredVersion>)> done) override {
    store_->finish(payload, std::move(done));
  }
  void begin_import(Version version, std::vector<SnapshotFile> files,
                    std::function<void(Result<ImportTarget>)> done) override {
    store_->begin_import(version, std::move(files), std::move(done));
  }
  void finish_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                     std::function<void(Result<StoredVersion>)> done, ImportDetails details) override {
    store_->finish_import(manifest, chunk_digests, std::move(done), std::move(details));
  }
  void finish_patched_import(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                             std::function<void(Result<StoredVersion>)> done, ImportDetails details) override {
    store_->finish_patched_import(manifest, chunk_digests, std::move(done), std::move(details));
  }
  void begin_patch(PayloadId patch, std::function<void(Result<std::filesystem::path>)> done) override {
    store_->begin_patch(patch, std::move(done));
  }
  void grow_making(const Manifest& manifest) override { store_->grow_making(manifest); }
  void finish_patch(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                    std::function<void(Status)> done) override {
    store_->finish_patch(manifest, chunk_digests, std::move(done));
  }
  void add_full_manifest(const Manifest& manifest, const std::vector<ContentDigest>& chunk_digests,
                         std::function<void(Status)> done) override {
    store_->add_full_manifest(manifest, chunk_digests, std::move(done));
  }
  void discard(PayloadId payload) override { store_->discard(payload); }

 private:
  std::unique_ptr<Store> store_;
};

}  // namespace

std::unique_ptr<FileSystem> forget_directory_syncs(FileSystem& files) {
  return std::make_unique<ForgottenDirectorySyncs>(files);
}

std::unique_ptr<FileSystem> mark_records_durable(FileSystem& files, const bool* recovering) {
  return std::make_unique<BelievedRecords>(files, recovering);
}

std::unique_ptr<FileSystem> ignore_readers(FileSystem& files) { return std::make_unique<IgnoredReaders>(files); }

std::unique_ptr<Store> forget_bases(std::unique_ptr<Store> store) {
  return std::make_unique<ForgetfulStore>(std::move(store));
}

}  // namespace weightcast::sim
