#pragma once

#include <memory>

#include "base/file_system.h"
#include "transport/io/store/store.h"

namespace weightcast::sim {

/// `files`, whose directories say that they are synced, and are not.
[[nodiscard]] std::unique_ptr<FileSystem> forget_directory_syncs(FileSystem& files);
/// `files`, whose records read as if the version were marked durable, while `*recovering`.
[[nodiscard]] std::unique_ptr<FileSystem> mark_records_durable(FileSystem& files, const bool* recovering);
/// `store`, which is not told to keep more than the latest of what is retained.
[[nodiscard]] std::unique_ptr<Store> forget_bases(std::unique_ptr<Store> store);

}  // namespace weightcast::sim
