#include "transport/node/payload/payload_producer.h"

#include <utility>

namespace weightcast {

PayloadProducer::PayloadProducer(Jobs& jobs, Store& store, std::unique_ptr<PayloadSource> source,
                                 PayloadObserver observer)
    : jobs_(jobs), store_(store), source_(std::move(source)), observer_(std::move(observer)) {}

void PayloadProducer::start() {
  jobs_.run([self = shared_from_this()] { self->note(self->source_->open()); },
            [self = shared_from_this()] { self->announce(); });
}

void PayloadProducer::announce() {
  if (error_) return observer_.done(*error_);
  Result<PayloadSource::Announcement> announced = source_->announce();
  if (!announced.has_value()) return observer_.done(announced.error());
  payload_.emplace(std::move(announced->manifest), announced->pace, std::move(announced->author));
  // Workers make room while this node does.
  observer_.begun(std::make_shared<const Manifest>(payload_->announced()), announced->packed_share);
  source_->begin(store_, [self = shared_from_this()](const Status& begun) {
    if (!begun.has_value()) return self->observer_.done(begun.error());  // there is nothing to throw away
    self->produce();
  });
}

void PayloadProducer::produce() {
  running_ = source_->jobs();
  produces_since_ = jobs_.loop().now();
  for (unsigned i = 0; i < source_->jobs(); ++i) {
    jobs_.run(
        [self = shared_from_this()] {
          self->note(self->source_->produce([&self](std::uint32_t first, std::span<const ContentDigest> digests,
                                                    std::uint64_t bytes) { self->report(first, digests, bytes); }));
        },
        [self = shared_from_this()] {
          if (--self->running_ == 0) self->finish();
        });
  }
}

// Producing goes on while the loop tells of it.
void PayloadProducer::report(std::uint32_t first, std::span<const ContentDigest> digests, std::uint64_t bytes) {
  // Several threads make parts: who is told of more is told last.
  const std::lock_guard lock(telling_);
  std::optional<MadePayload> grown = payload_->handle_made(jobs_.loop().now(), first, digests, bytes);
  if (!grown) return;
  jobs_.post([self = shared_from_this(), grown = std::move(*grown)]() mutable {
    if (self->closed_) return;
    self->store_.grow_making(*grown.manifest);
    self->observer_.grown(std::move(grown));
  });
}

void PayloadProducer::finish() {
  closed_ = true;
  if (error_) return abandon(*error_);
  const Result<Checksum> digest = source_->end();
  if (!digest.has_value()) return abandon(digest.error());
  MadePayload made = payload_->close(*digest);
  made.took = jobs_.loop().now() - produces_since_;
  source_->finish(store_, made, [self = shared_from_this(), made](const Status& stored) mutable {
    if (!stored.has_value()) return self->abandon(stored.error());
    self->observer_.done(std::move(made));
  });
}

// Who is being sent some of it hears that it ends before it is gone.
void PayloadProducer::abandon(const Error& why) {
  observer_.done(why);
  store_.discard(payload_->announced().id());
}

void PayloadProducer::note(const Status& status) {
  if (status.has_value()) return;
  const std::lock_guard lock(mutex_);
  if (!error_) error_ = status.error();
  source_->stop();
}

}  // namespace weightcast
