#pragma once

#include <fmt/format.h>

#include <string>

#include "transport/io/store/files/snapshot_check.h"
#include "transport/io/store/files/version_files.h"
#include "transport/io/store/store.h"

namespace weightcast::sim {

/// What a store says that it has, and the digests of what the files of its versions hold.
inline std::string describe(const Store& store, FileSystem& files) {
  std::string text =
      store.current() == kNoVersion ? "current: none\n" : fmt::format("current: version {}\n", store.current().value);
  if (const StoreRun run = store.run(); run != StoreRun{}) {
    text += fmt::format("run {}, number {}\n", to_string(run.id), run.count);
  }
  if (const StoredVersion* earlier = store.earlier()) {
    text += fmt::format("in use: version {} of run number {}\n", earlier->manifest.version.value, earlier->run);
  }
  for (const StoredVersion& stored : store.versions()) {
    const auto opened = VersionFiles::open(files, stored.path, *FileTable::make(stored.manifest.files));
    const Result<SnapshotDigest> digest =
        opened.has_value() ? files_digest(**opened, 1) : Result<SnapshotDigest>(opened.error());
    text += fmt::format(
        "version {}, {}, digest {}{}\n", stored.manifest.version.value, stored.durable ? "durable" : "not durable",
        digest.has_value() ? digest->root().hex() : digest.error().message(),
        digest.has_value() && digest->root() == stored.manifest.snapshot_digest ? "" : ", which is wrong");
  }
  for (const StoredPatch& patch : store.patches()) {
    text += fmt::format("{}, {} chunks\n", to_string(patch.manifest.id()), patch.manifest.chunk_count());
  }
  for (const PartialVersion& partial : store.partial()) {
    text += fmt::format("partly: {}, digests of {} chunks, held", to_string(partial.manifest.id()),
                        partial.chunk_digests.size());
    for (auto i = partial.held.next_in(ChunkIndex{0}); i; i = partial.held.next_in(ChunkIndex{i->value + 1})) {
      text += fmt::format(" {}", i->value);
    }
    text += fmt::format(" of {}\n", partial.held.size());
  }
  return text;
}

}  // namespace weightcast::sim
