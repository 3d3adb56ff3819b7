#pragma once

#include "transport/core/manifest/manifest.h"
#include "transport/io/store/files/version_files.h"

namespace weightcast {

/// Makes a patch's base, which `files` hold, its result where it is. `manifest` describes the patch, whose file is
/// complete, and `base_digest` is of the base; `threads` apply. Nobody else uses the files, and after an error they are
/// neither. Blocks. Memory: the code of `threads` segments. Errors: kCorrupt (the payload does not decode, does not fit
/// the base, or leads to other bytes than its manifest says), and those of the files.
[[nodiscard]] Status apply_in_place(VersionFiles& files, VersionFiles& patch, const Manifest& manifest,
                                    const Checksum& base_digest, unsigned threads);

}  // namespace weightcast
