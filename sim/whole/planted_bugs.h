#pragma once

#include <memory>

#include "base/files/file_system.h"
#include "transport/io/store/store.h"

namespace weightcast::sim {

/// `files`, except that syncs of directories do nothing and succeed.
[[nodiscard]] std::unique_ptr<FileSystem> forget_directory_syncs(FileSystem& files);
/// `files`, except that while `*recovering` each record reads as if its version were marked durable.
[[nodiscard]] std::unique_ptr<FileSystem> mark_records_durable(FileSystem& files, const bool* recovering);
/// `files`, except that nobody else ever seems to have a file open.
[[nodiscard]] std::unique_ptr<FileSystem> ignore_readers(FileSystem& files);
/// `store`, except that retain() keeps only the payloads of the latest version.
[[nodiscard]] std::unique_ptr<Store> forget_bases(std::unique_ptr<Store> store);

}  // namespace weightcast::sim
