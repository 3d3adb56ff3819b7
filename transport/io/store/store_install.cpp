// The end of a payload: it is checked, becomes a version, or is thrown away.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/io/log.h"
#include "transport/io/store/store_incoming.h"
#include "transport/io/store/store_work.h"

namespace weightcast {

void Store::finish(PayloadId payload, InstallDone done) {
  const auto found = incoming_.find(payload);
  if (found == incoming_.end() || !found->second->begun()) {
    later([payload, done = std::move(done)] { done(no_such(payload)); });
    return;
  }
  const IncomingRef incoming = found->second;
  if (!incoming->held.complete() || !incoming->record.digests.complete() || incoming->finishing) {
    later([payload, done = std::move(done)] {
      done(fail(Errc::kCorrupt, Op::kInstall, fmt::format("{}: not all of it is here", to_string(payload))));
    });
    return;
  }
  incoming->finishing = true;
  if (payload.is_encoded() && !is_made_beside(payload)) return finish_in_place(incoming, std::move(done));
  auto handle = [this, incoming, done = std::move(done)](const Result<Checksum>& digest) {
    handle_digest(incoming, digest, done);
  };
  incoming->check ? incoming->check->finish(std::move(handle)) : incoming->applied->finish(std::move(handle));
}

void Store::handle_digest(const IncomingRef& incoming, const Result<Checksum>& digest, const InstallDone& done) {
  if (!digest.has_value()) return give_up(incoming, digest.error(), done);
  const Manifest& manifest = incoming->manifest();
  if (*digest == manifest.snapshot_digest) return install_checked(incoming, done);
  const Error error =
      fail(Errc::kCorrupt, Op::kVerify,
           fmt::format("version {}: its chunks match their digests, its files do not match the snapshot's ({} "
                       "instead of {}); thrown away",
                       manifest.version.value, digest->hex(), manifest.snapshot_digest.hex()));
  throw_away(incoming, error, done);
}

void Store::give_up(const IncomingRef& incoming, const Error& error, const InstallDone& done) {
  const Error about_it = about(incoming->manifest().version, error);
  // Another try would end the same.
  const bool useless = error.code == Errc::kWrongBase || error.code == Errc::kCorrupt;
  if (useless && incoming->id().is_encoded()) return throw_away(incoming, about_it, done);
  incoming->finishing = false;
  later([about_it, done] { done(about_it); });
}

// In one moment for the store and for who is told: in between, children would be promised what is not there.
void Store::throw_away(const IncomingRef& incoming, const Error& error, const InstallDone& done) {
  later([this, incoming, error, done] {
    incoming->finishing = false;
    discard(incoming->id());
    done(error);
  });
}

void Store::install_checked(const IncomingRef& incoming, InstallDone done) {
  serial_.run(
      [layout = layout_, incoming]() -> Result<double> {
        const Manifest& manifest = incoming->manifest();
        if (manifest.id().is_encoded()) return install_patched(layout, manifest);
        // Only where it must be: to replace a file makes some file systems write its data out at once.
        if (incoming->record_is_behind) {
          WC_TRY(write_record(layout.files(), layout.record(manifest.version), incoming->record));
        }
        return install(layout, manifest.version);
      },
      [this, incoming, done = std::move(done)](const Result<double>& switch_s) {
        incoming->finishing = false;
        if (!switch_s.has_value()) return done(about(incoming->manifest().version, switch_s.error()));
        handle_moved(incoming, *switch_s, done);
      });
}

void Store::handle_moved(const IncomingRef& incoming, double switch_s, const InstallDone& done) {
  incoming_.erase(incoming->id());
  if (incoming->base) --std::exchange(incoming->base, nullptr)->users;
  std::shared_ptr<const LeafSums> leaves;
  if (incoming->check) leaves = std::make_shared<const LeafSums>(incoming->check->take_leaves());
  if (incoming->applied) leaves = incoming->applied->leaves();
  if (incoming->applied) keep_step(incoming->applied->take_step());
  incoming->applied.reset();
  if (incoming->id().is_encoded()) {
    VersionRecord record{incoming->manifest(), ChunkDigests(incoming->manifest())};
    add_patch(std::move(incoming->record), std::move(incoming->files));
    handle_installed(std::move(record), std::move(incoming->target), std::move(leaves), switch_s, done);
  } else {
    handle_installed(std::move(incoming->record), std::move(incoming->files), std::move(leaves), switch_s, done);
  }
}

/// The files that become spare are versions_kept steps and one old; engines may be further behind.
void Store::keep_step(StepRef step) {
  if (!step || !lists_steps()) return;
  steps_.push_back(std::move(step));
  std::uint64_t bytes = 0;
  for (const StepRef& each : steps_) bytes += each->bytes;
  for (; steps_.size() > kStepsMax || bytes > kStepBytesMax; steps_.pop_front()) {
    bytes -= steps_.front()->bytes;
  }
}

void Store::add_patch(VersionRecord record, FilesRef files) {
  const PayloadId payload = record.manifest.id();
  auto patch = std::make_shared<Patch>();
  patch->stored = {std::move(record.manifest), std::move(record.digests.chunks)};
  patch->files = std::move(files);
  patches_[payload] = std::move(patch);
}

Store::CompleteRef Store::add_complete(VersionRecord record, FilesRef files, std::shared_ptr<const LeafSums> leaves) {
  const Version version = record.manifest.version;
  auto complete = std::make_shared<Complete>();
  complete->stored = {std::move(record.manifest),
                      std::move(record.digests.chunks),
                      layout_.complete(version),
                      record.durable,
                      0,
                      run_.count};
  complete->files = std::move(files);
  complete->stored.leaves = std::move(leaves);
  complete_[version] = complete;
  current_ = std::max(current_, version);
  return complete;
}

void Store::handle_installed(VersionRecord record, FilesRef files, std::shared_ptr<const LeafSums> leaves,
                             double switch_s, const InstallDone& done) {
  const CompleteRef complete = add_complete(std::move(record), std::move(files), std::move(leaves));
  complete->stored.switch_s = switch_s;
  done(complete->stored);
  forget_old();
  make_durable(complete);
  scrub_from_now_on(complete);
}

}  // namespace weightcast
