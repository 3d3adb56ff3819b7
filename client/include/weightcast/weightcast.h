#ifndef WEIGHTCAST_WEIGHTCAST_H
#define WEIGHTCAST_WEIGHTCAST_H

/* weightcast's interface for trainers and inference engines: publish, subscribe, status. C99, by libweightcast.so.
 *
 * Who talks to whom. A client speaks to the daemon whose state directory it is given, over DIR/api.sock. Only the
 * daemon's own user may, and the group that the daemon was given by --api-group. A trainer publishes at the origin; an
 * engine subscribes at the worker on its host. A `state_dir` that is NULL or "" is the environment's WEIGHTCAST_STATE;
 * where that is not set the call returns WC_INVALID_ARGUMENT.
 *
 * Errors. Each function that can fail returns a wc_code. WC_OK is 0. Where the last parameter is a wc_error and not
 * NULL, a failing call fills it with one line for a person; a call that succeeds leaves it as it was. Every function
 * can return WC_INVALID_ARGUMENT (a null pointer or a bad value; nothing was done), and where it takes a handle,
 * WC_BUSY (another thread is inside a call of that handle). The comments name the other codes.
 *
 * Time. `timeout_ms` bounds the whole call, in milliseconds; the call returns at most 100 ms later. Negative is 0: what
 * is there already. It counts up to a year. No call waits for anything but the daemon, and wc_begin() and wc_wait() for
 * the origin's copy.
 *
 * Threads. A handle serves one call at a time, from any thread. Different handles are independent. wc_cancel() and
 * wc_subscription_cancel() may come from any thread, while a call runs. The library starts no thread and installs no
 * signal handler. After fork() only one of the two processes may use a handle.
 *
 * Ownership. Strings and arrays that a caller passes are read during the call only. What a function returns belongs to
 * the handle until the moment that its comment names.
 *
 * Growth. Structs with a `struct_size` are filled in by the caller with sizeof of the struct, so that a newer library
 * knows which members the caller has. WC_INIT sets it and clears the rest:  wc_outcome outcome = WC_INIT(outcome);
 * Members named `reserved` are 0. Functions, codes and members are added, and never change or go, within one SOVERSION.
 */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WC_API __attribute__((visibility("default")))
#else
#define WC_API
#endif

#if defined(__cplusplus)
template <typename T>
T wc_init() {
  T made{};
  made.struct_size = sizeof(T);
  return made;
}
#define WC_INIT(variable) wc_init<decltype(variable)>()
extern "C" {
#else
#define WC_INIT(variable) \
  { .struct_size = sizeof(variable) }
#endif

/* The library's release, "0.1.0". Static. */
WC_API const char* wc_version(void);

/* ------------------------------------------------------------------------------------------------------- errors */

typedef enum wc_code {
  WC_OK = 0,
  WC_INVALID_ARGUMENT = 1, /* the caller's input is wrong; repeating the call cannot help */
  WC_CORRUPT = 2,          /* bytes do not match their format */
  WC_TOO_LARGE = 3,        /* a length exceeds its limit */
  WC_UNSUPPORTED = 4,      /* well formed, but of a kind that the other side does not know; releases differ */
  WC_NOT_FOUND = 5,        /* no such daemon, version, file or tensor */
  WC_ALREADY_EXISTS = 6,   /* the version is not greater than the last one */
  WC_WRONG_BASE = 7,       /* a change is against another version than the last one */
  WC_BUSY = 8,             /* something else holds it now; try again later */
  WC_TIMED_OUT = 9,        /* the call's time was over */
  WC_CLOSED = 10,          /* the daemon ended, or closed the connection, during the call */
  WC_NO_SPACE = 11,        /* memory, a disk or a quota is full */
  WC_IO = 12,              /* the operating system refused; the text carries its words */
  WC_NOT_ALLOWED = 13,     /* this node may not do that, or another user owns it */
  WC_CANCELLED = 14,       /* wc_cancel() ended the call */
  WC_TOO_FAR = 15          /* the changes are not known, or cost more than the whole: take the whole */
} wc_code;

/* What went wrong, for a person. Filled in by a failing call; the caller owns it, and it may live on the stack. */
typedef struct wc_error {
  size_t struct_size;
  wc_code code;
  char operation[16]; /* what was being done: "publish", "connect", ... */
  char message[1024]; /* "cannot publish: ...": on what it failed, why, what to do. One line, cut off at a character */
} wc_error;

/* "invalid argument", "timed out", ...; "unknown" for a number that is no code. Static. */
WC_API const char* wc_code_name(wc_code code);

/* ------------------------------------------------------------------------------------------------------- client */

/* A connection to one daemon. It connects again by itself in the first call after the connection was lost. */
typedef struct wc_client wc_client;

/* Connects to the daemon whose state directory is `state_dir`. `*client` is NULL on error; else wc_close() frees it.
 * Errors: WC_NOT_FOUND (no daemon runs there), WC_NOT_ALLOWED (another user's), WC_TIMED_OUT, WC_IO. */
WC_API wc_code wc_open(const char* state_dir, int64_t timeout_ms, wc_client** client, wc_error* error);

enum {
  WC_READY_VERSION = 1u /* wc_ready(): and a version is in use */
};

/* Waits until the daemon whose state directory is `state_dir` runs and does what it is there for: an origin takes
 * publications, a worker is joined to its origin. For programs that are started beside their daemon. `flags` may be 0.
 * Errors: WC_TIMED_OUT (the message says what was missing), WC_NOT_ALLOWED (another user's), WC_UNSUPPORTED, WC_IO. */
WC_API wc_code wc_ready(const char* state_dir, uint32_t flags, int64_t timeout_ms, wc_error* error);

/* Ends the connection and frees the handle and its memory; NULL is allowed. A publication that was committed goes on.
 * No other call of the handle may be running. */
WC_API void wc_close(wc_client* client);

/* Ends the call that is running on this handle in another thread: it returns WC_CANCELLED at once. Has no effect where
 * none runs. May be called from a signal handler. A commit that was cancelled may have been published: see wc_commit().
 */
WC_API void wc_cancel(wc_client* client);

/* All nodes that the daemon knows, as JSON in UTF-8: what `weightcast status --json` prints. JSON, because nodes tell
 * more with each release and callers in every language can read it. `*json` ends with a NUL, belongs to the caller, and
 * is freed by wc_free().
 * Errors, here and below for every call that asks the daemon: WC_TIMED_OUT, WC_CANCELLED, WC_CLOSED (the daemon ended
 * during the call), and those of wc_open() where the connection was lost before. */
WC_API wc_code wc_status(wc_client* client, int64_t timeout_ms, char** json, wc_error* error);

/* The versions on this host, as JSON: what `weightcast versions --json` prints. As wc_status(). */
WC_API wc_code wc_versions(wc_client* client, int64_t timeout_ms, char** json, wc_error* error);

/* The origin's last publications, the oldest first, as JSON: what `weightcast history --json` prints. Or one of them,
 * with each worker's phases: what `weightcast status --version N --json` prints. `version` 0: all. The origin remembers
 * 256 since its start. As wc_status(); also WC_NOT_FOUND (it does not remember that version), WC_NOT_ALLOWED (the
 * daemon is a worker). */
WC_API wc_code wc_history(wc_client* client, uint64_t version, int64_t timeout_ms, char** json, wc_error* error);

/* Frees what wc_status(), wc_versions() and wc_history() gave; NULL is allowed. */
WC_API void wc_free(char* text);

/* ---------------------------------------------------------------------------------------------------- publishing */

/* One tensor. Its bytes are little-endian, row-major and without gaps. */
typedef struct wc_tensor {
  const char* name;      /* UTF-8; not "__metadata__" */
  const char* dtype;     /* as safetensors writes it: "BF16", "F32", "F8_E4M3", "I64", ... */
  const uint64_t* shape; /* `rank` lengths; may be NULL for rank 0 */
  uint64_t rank;         /* at most 64; 0 is one element */
  const void* data;      /* wc_publish(): the bytes; read by no other function */
  uint64_t size_bytes;   /* 0, or what dtype and shape say; anything else is refused */
  uint64_t reserved[2];
} wc_tensor;

/* Asks the origin to number a version by itself: one more than the greatest that it has or was given. */
#define WC_NEXT_VERSION 0u

enum {
  WC_ALLOW_NONFINITE = 1u, /* publish although a tensor holds NaN or infinity */
  WC_SECOND_REGION = 2u,   /* wc_begin(): rather take more memory than wait for the origin */
  WC_NEW_MODEL = 4u,       /* publish although tensors have other names, dtypes or shapes than in the version before */
  WC_FILE_TREE = 8u        /* wc_publish_path(): the path is a directory, and all files below it are published */
};

/* A file that accompanies the weights: configuration or tokenizer. */
typedef struct wc_file {
  const char* name; /* without a directory: *.json, *.jinja, *.model or *.txt, not hidden, no index of shards */
  const void* data; /* `size_bytes`, at most 32 MiB */
  uint64_t size_bytes;
  uint64_t reserved;
} wc_file;

/* What loads the weights needs the model's files beside them (config.json, tokenizer.json, ...). A directory that is
 * published brings its own. Of tensors in memory, and of a lone safetensors file, they are given here, at most 256 and
 * 128 MiB together. They replace those of the version before. Where none are given, those of the version before are
 * kept, whatever has restarted since, unless the tensors are another model's. Where a publication has fewer of them
 * than the version before, the origin's log and wc_outcome's `notice` name those that are gone. */
typedef struct wc_publish_options {
  size_t struct_size;
  uint64_t version; /* greater than the last one and at most 2^63 - 1; or WC_NEXT_VERSION */
  uint32_t flags;   /* WC_ALLOW_NONFINITE | WC_SECOND_REGION | WC_NEW_MODEL | WC_FILE_TREE */
  uint32_t reserved;
  const wc_file* files; /* `file_count` of them, or NULL */
  size_t file_count;
  const char* files_directory; /* instead: takes what of such files this directory holds; or NULL */
  uint32_t parts;              /* wc_begin(), wc_begin_changes(): 0, or how many parts wc_region_done() is called for */
  uint32_t reserved2;
} wc_publish_options;

/* The number that the origin would give to the next version. Another program may take it first.
 * Errors: WC_NOT_ALLOWED (the daemon is a worker), and those of wc_status(). */
WC_API wc_code wc_next_version(wc_client* client, int64_t timeout_ms, uint64_t* version, wc_error* error);

enum wc_serve_flags {
  WC_PROVISION = 1u /* until the client's connection ends, no standby worker takes a lost one's place by itself */
};

/* Activates a worker (`serves` not 0): it receives versions, and counts. Or releases it: it waits on standby, as with
 * --standby. Either holds when the worker joins again, until the origin's daemon ends. A worker that is as asked stays
 * so. `name` NULL: of no worker, for the flags alone. A client that provisions says so again after each error.
 * Errors: WC_NOT_FOUND (the origin knows no such worker), WC_NOT_ALLOWED (the daemon is a worker), and those of
 * wc_status(). */
WC_API wc_code wc_serve(wc_client* client, const char* name, int serves, uint32_t flags, int64_t timeout_ms,
                        wc_error* error);

/* The origin knows the lost worker `name` no more, nor what it holds against it; wc_status() is without it at once. If
 * it joins again it is new. Errors: WC_NOT_FOUND (the origin knows no such worker), WC_BUSY (it is connected),
 * WC_NOT_ALLOWED (the daemon is a worker), and those of wc_status(). */
WC_API wc_code wc_forget(wc_client* client, const char* name, int64_t timeout_ms, wc_error* error);

/* Begins a publication that the caller fills in place. Gives `addresses[i]`, the writable place of `tensors[i]`, in
 * memory that the origin will read itself. The caller fills the tensors in any order, from any threads, and then calls
 * wc_commit() or wc_abort(); until one of them returns, the addresses belong to the caller. After that they may not be
 * written.
 *
 * The memory is a sealed memfd, a safetensors file: nothing of it remains when the process is killed. It is used again
 * for the next publication of the same tensors, at the same addresses, and costs no page faults then; wc_reserve() pays
 * for the first time. Its contents are undefined here. A client has one region, and a second one from the first call
 * with WC_SECOND_REGION that finds the origin reading. Where all are read, the call waits. A region that the origin may
 * be reading is never handed out, whatever has timed out.
 *
 * The call does not talk to the daemon, except to wait. `options` may be NULL: WC_NEXT_VERSION and no flags.
 * Errors: WC_INVALID_ARGUMENT (a name that is not UTF-8 or is given twice, an unknown dtype, a size that is not what
 * dtype and shape say), WC_TOO_LARGE (a limit of the format), WC_BUSY (the last region is neither committed nor
 * aborted), WC_TIMED_OUT (the origin is still reading; the call may be repeated), WC_CANCELLED, WC_NO_SPACE, WC_IO. */
WC_API wc_code wc_begin(wc_client* client, const wc_publish_options* options, const wc_tensor* tensors, size_t count,
                        void** addresses, int64_t timeout_ms, wc_error* error);

/* Publishes what was filled. Returns when the origin has accepted it: then it reads the memory by itself, and the
 * caller may begin the next one. Whether it took the weights over, wc_wait() tells. `options` replaces that of
 * wc_begin(), unless it is NULL. `*version` (may be NULL) is the number that was given.
 * After WC_TIMED_OUT, WC_CANCELLED and WC_CLOSED the request may have left or not. A second wc_commit() tells: it sends
 * what has not left, or returns WC_INVALID_ARGUMENT (nothing is begun). In that case the region is the origin's, which
 * may publish it; wc_wait() with version 0 tells. After any other error the region is still the caller's, to commit
 * again or to abort.
 * In a run that has versions, the tensors' names, dtypes and shapes are those of the last one. wc_wait() tells of
 * others as WC_INVALID_ARGUMENT, unless WC_NEW_MODEL allows them: every worker would take what is published. Errors:
 * WC_INVALID_ARGUMENT (nothing was begun; files that are none), WC_ALREADY_EXISTS (the version is not greater than the
 * last), WC_NOT_ALLOWED (the daemon is a worker), WC_BUSY (too many publications wait at the origin; a part is not
 * done, see wc_region_done()), WC_WRONG_BASE (after wc_begin_changes()), and those of wc_status(). */
WC_API wc_code wc_commit(wc_client* client, const wc_publish_options* options, int64_t timeout_ms, uint64_t* version,
                         wc_error* error);

/* Forgets what was begun. WC_OK also where nothing was. */
WC_API wc_code wc_abort(wc_client* client, wc_error* error);

/* Takes memory for these tensors ahead of time, so that no later wc_begin() or write pays for it: `regions` of them, 1
 * or 2. Takes as long as touching so much memory does.
 * Errors: as wc_begin(); WC_BUSY (a region in use has other tensors), WC_NO_SPACE. */
WC_API wc_code wc_reserve(wc_client* client, const wc_tensor* tensors, size_t count, unsigned regions, wc_error* error);

/* wc_begin(), a copy of each tensor's `data`, and wc_commit(), with their errors. */
WC_API wc_code wc_publish(wc_client* client, const wc_publish_options* options, const wc_tensor* tensors, size_t count,
                          int64_t timeout_ms, uint64_t* version, wc_error* error);

/* Publishes a safetensors file or a directory in the style of Hugging Face. The daemon reads it, from wherever it runs:
 * give an absolute path. Returns when the origin has accepted the request. The files may not be changed until
 * wc_wait(WC_TAKEN_OVER) has returned.
 * With WC_FILE_TREE all files below the directory are published, of any kind and under their paths: workers take such
 * versions only where the daemon was started with --files. Symbolic links to files of the directory become files; any
 * other link is refused. Empty directories are left out. WC_NEW_MODEL changes over from a model to files, or back.
 * Errors: those of wc_commit(). */
WC_API wc_code wc_publish_path(wc_client* client, const wc_publish_options* options, const char* path,
                               int64_t timeout_ms, uint64_t* version, wc_error* error);

/* Cells of one tensor that have changed. */
typedef struct wc_change {
  const char* name;     /* of a tensor of the base version */
  const char* dtype;    /* that tensor's, of whole bytes */
  const void* indices;  /* `count` numbers of elements, row-major, from 0: ascending, each once */
  uint32_t index_bytes; /* of each index: 4 (uint32_t) or 8 (uint64_t) */
  uint32_t reserved32;
  const void* values; /* `count` elements of `dtype`: their new values */
  uint64_t count;
  const void* old_values; /* from wc_changes() with WC_OLD_VALUES: `count` elements; else NULL */
  uint64_t reserved;
} wc_change;

/* Publishes the last version with other values in some cells, for a trainer that knows which ones changed. The result
 * is the same, byte for byte, as that of publishing all tensors; the cost grows with the changes. Tensors that are not
 * named stay as they are, and so do their names, dtypes and shapes. A value may be the old one. Without any change
 * (`count` 0) the version is a copy of the last one.
 *
 * `base_version` is the last version, or the last of those that wait at the origin. WC_WRONG_BASE says which one that
 * is, if it is another. After that publish all tensors, as for the first version.
 *
 * Copies the changes into memory that the origin reads, and returns when it has accepted them; the caller's arrays may
 * then change. That memory is apart from the regions of wc_begin(), and goes by the same rules: see WC_SECOND_REGION.
 * Whether the origin took the changes over, wc_wait() tells: it checks them meanwhile. With WC_ALLOW_NONFINITE the new
 * values may be NaN or infinite; those of the base are not looked at.
 *
 * Errors: WC_INVALID_ARGUMENT (a null pointer, an unknown dtype or one below a byte, a name that is given twice or is
 * not UTF-8), WC_TOO_LARGE (a limit of the format; a name of more than 16376 bytes), WC_WRONG_BASE, and those of
 * wc_begin() and wc_commit(). From wc_wait(): WC_INVALID_ARGUMENT (no such tensor, or of another dtype; indices that
 * are out of bounds or do not ascend; a value that is NaN or infinite), WC_WRONG_BASE (the base was not taken over),
 * WC_CORRUPT (the origin's copy of the base is damaged: publish all tensors). */
WC_API wc_code wc_publish_sparse(wc_client* client, const wc_publish_options* options, uint64_t base_version,
                                 const wc_change* changes, size_t count, int64_t timeout_ms, uint64_t* version,
                                 wc_error* error);

/* Changes of one piece of a tensor: a box of it, from element `start` on, `lengths` of them, in each dimension. The
 * shard of one process, for example. */
typedef struct wc_piece {
  const char* name;        /* of a tensor of the base version */
  const char* dtype;       /* that tensor's, of whole bytes */
  const uint64_t* start;   /* `rank` numbers, in elements */
  const uint64_t* lengths; /* `rank` numbers, in elements */
  uint64_t rank;           /* as many dimensions as the tensor has; 0: all of it, whatever its dimensions */
  uint64_t count;          /* elements that change */
  uint32_t index_bytes;    /* of each index: 4 (uint32_t) or 8 (uint64_t) */
  uint32_t reserved32;
  uint64_t reserved[2];
} wc_piece;

/* wc_publish_sparse() for a trainer whose processes each know the changes of their own pieces: begins a publication of
 * changes that is filled in place. Gives `indices[i]` and `values[i]`, the writable places of `pieces[i]`: `count`
 * numbers of elements of the box, row-major in the box, from 0, ascending, each once; and as many new values. A tensor
 * may have any number of pieces, which may not overlap; the origin merges them. Elements outside of all pieces stay as
 * they are. Without any piece (`count` 0) the version is a copy of the last one.
 *
 * As after wc_begin(), the caller and other processes fill the memory, and wc_commit() or wc_abort() follows. Others
 * find their places by wc_region_find() under two names. With pieces of the second to fourth row, all 64 columns, of
 * "w":  indices[1+3,0+64]/w  and  values[1+3,0+64]/w ; of a whole tensor  indices/w  and  values/w .
 *
 * `base_version` is as for wc_publish_sparse(), and what else it says of bases and files holds, too. Errors:
 * WC_INVALID_ARGUMENT (a null pointer, an unknown dtype or one below a byte, a piece that is given twice, more changes
 * than the box has elements, `files` or WC_NEW_MODEL), WC_TOO_LARGE (a limit of the format), and those of wc_begin().
 * From wc_wait(): those of wc_publish_sparse(), and WC_INVALID_ARGUMENT for a box that is not within its tensor, or
 * pieces that overlap. */
WC_API wc_code wc_begin_changes(wc_client* client, const wc_publish_options* options, uint64_t base_version,
                                const wc_piece* pieces, size_t count, void** indices, void** values, int64_t timeout_ms,
                                wc_error* error);

/* Finds the elements in which `now` differs from `shadow`, and makes the shadow equal to it, in one pass: for a trainer
 * that keeps a copy of what it published, and does not know which elements have changed since. Both are `count`
 * elements, at most 2^32, of `element_bytes`: 1, 2, 4, 8 or 16. They are compared bit by bit, so that -0 is not 0.
 * Writes the numbers of those that differ, ascending from 0, and their new values: what a wc_piece takes. `*changed` is
 * how many differ. `indices` and `values` have room for `capacity`; of more the first ones are written, and the shadow
 * is made equal all the same. All arrays are the caller's, and none overlaps another.
 * Takes no handle; threads may call it at once, for different arrays. Errors: WC_INVALID_ARGUMENT, WC_TOO_LARGE (more
 * than 2^32 elements). After an error nothing was written. */
WC_API wc_code wc_update_shadow(void* shadow, const void* now, uint64_t count, uint32_t element_bytes,
                                uint64_t capacity, uint32_t* indices, void* values, uint64_t* changed, wc_error* error);

typedef enum wc_until {
  WC_TAKEN_OVER = 1, /* the origin has its own copy, and reads the source no more */
  WC_INSTALLED = 2   /* `fraction` of the active workers have installed it */
} wc_until;

/* How far a worker is, during wc_wait(). */
typedef struct wc_worker_progress {
  const char* name;
  uint32_t chunks_verified;
  uint32_t chunks_total; /* 0: not known */
  double receive_bytes_per_s;
  uint32_t installed; /* 1 or 0 */
  uint32_t reserved;
} wc_worker_progress;

/* Belongs to the library, until the callback returns. */
typedef struct wc_progress {
  size_t struct_size;
  uint64_t version;
  uint64_t payload_bytes;
  double elapsed_s;
  double received; /* 0 to 1: the mean over all workers */
  uint32_t workers;
  uint32_t installed;
  const wc_worker_progress* worker; /* of a large fleet some of them, those that have not installed it first */
  size_t worker_count;
} wc_progress;

typedef struct wc_wait_options {
  size_t struct_size;
  wc_until until;
  uint32_t reserved;
  double fraction; /* WC_INSTALLED: above 0, at most 1 */
  /* May be NULL. Called a few times a second from inside wc_wait(), which is in the caller's thread. It may not call
   * back into the handle, but for wc_cancel(). */
  void (*on_progress)(void* context, const wc_progress* progress);
  void* context;
} wc_wait_options;

typedef enum wc_payload {
  WC_UNDECIDED = 0, /* it is being made */
  WC_FULL = 1,      /* the snapshot as it is */
  WC_PACKED = 2,    /* the snapshot, encoded */
  WC_PATCH = 3      /* the changes against the version before */
} wc_payload;

/* How far a publication was when the call ended. */
typedef struct wc_outcome {
  size_t struct_size;
  uint64_t version;
  wc_payload payload;
  uint32_t reached; /* 1: what was waited for has happened */
  uint64_t payload_bytes;
  uint32_t workers; /* active ones */
  uint32_t installed;
  /* T_bcast(0.5), (0.9), (1.0) in seconds since the origin began; negative where not reached. */
  double t50_s, t90_s, t100_s;
  double take_s; /* until the origin had its own copy; negative where this client does not know it */
  double predicted_s;
  uint64_t origin_egress_bytes; /* chunk bytes that the origin sent since it began */
  char topology[16];
  char missing[2048]; /* names of some workers that have not installed it, a line each */
  char notice[512];   /* what the origin said when it took it over: files that the version before had; mostly "" */
} wc_outcome;

/* Waits for a publication: `version`, or with 0 the last one that this client committed. `options` may be NULL:
 * WC_TAKEN_OVER. `outcome` may be NULL. What is not reached in time is WC_TIMED_OUT, and the outcome says how far it
 * came; its version is 0 where the daemon did not answer.
 * Errors: why the origin did not take it over (WC_CORRUPT: not a readable snapshot; WC_INVALID_ARGUMENT: a tensor holds
 * NaN or infinity, or the tensors are another model's; WC_NO_SPACE, WC_IO, WC_CLOSED: the origin is ending),
 * WC_NOT_FOUND (nothing was committed; the origin does not know the version, or newer ones took its place), and those
 * of wc_status(). */
WC_API wc_code wc_wait(wc_client* client, uint64_t version, const wc_wait_options* options, int64_t timeout_ms,
                       wc_outcome* outcome, wc_error* error);

/* ------------------------------------------------------------------- one publication, filled by several processes */

/* How several processes fill one publication:
 *
 *   the one that begins   wc_begin() or wc_begin_changes(), with `parts` in its options; wc_region_fd(), wc_region_id()
 *   each of the others    wc_region_attach(); wc_region_filled_for() is that number; writes to its slots;
 *                         wc_region_done()
 *   the one that began    wc_region_hold() and wc_region_done() for its own part; wc_commit()
 *
 * The others need not be of its user or PID namespace, as long as they get the descriptor. */

/* The descriptor of the memory that was begun, for other processes to fill parts of it: send it over a Unix socket
 * (SCM_RIGHTS), or let them open /proc/PID/fd/N. It belongs to the client, until wc_commit() or wc_abort() returns. All
 * of them stop writing before the one that began commits.
 * Errors: WC_INVALID_ARGUMENT (nothing was begun). */
WC_API wc_code wc_region_fd(wc_client* client, int* fd, wc_error* error);

/* The number of the publication that the memory is filled for: never 0, and another after each wc_begin(), whatever
 * process it is in. Hand it out beside the descriptor: what a path leads to later may be other memory, or this memory
 * in a later publication. See wc_region_filled_for().
 * Errors: WC_INVALID_ARGUMENT (nothing was begun). */
WC_API wc_code wc_region_id(wc_client* client, uint64_t* id, wc_error* error);

/* A mapping of another process's region. */
typedef struct wc_region wc_region;

/* One tensor of a region. What it points to belongs to the region. */
typedef struct wc_slot {
  size_t struct_size;
  const char* name;
  const char* dtype;
  const uint64_t* shape;
  uint64_t rank;
  void* address; /* writable */
  uint64_t size_bytes;
} wc_slot;

/* The most that wc_publish_options.parts may be. */
#define WC_PARTS_MAX 4096u

/* Maps the region that `fd` leads to. `fd` stays the caller's and may be closed. wc_region_close() frees it.
 * Errors: WC_INVALID_ARGUMENT (not a region), WC_CORRUPT (its header is damaged), WC_NO_SPACE, WC_IO. */
WC_API wc_code wc_region_attach(int fd, wc_region** region, wc_error* error);
WC_API void wc_region_close(wc_region* region);

/* The memory that `client` has begun, in this process: mapped at the addresses that wc_begin() gave, until
 * wc_region_close(), whatever becomes of the client and its next publications. For callers who cannot know when the
 * last pointer into it is gone. Errors: WC_INVALID_ARGUMENT (nothing was begun). */
WC_API wc_code wc_region_hold(wc_client* client, wc_region** region, wc_error* error);

/* What wc_region_id() gives where the memory was begun; 0 once that was committed or aborted, and for NULL. It changes
 * while the region is mapped. Where it is not the number that was handed out, nobody may write. */
WC_API uint64_t wc_region_filled_for(const wc_region* region);

/* Which memory it is: a number that is the same in all processes that map it, never 0, and another for other memory; 0
 * for NULL. Where the memory that was begun is one that a process has mapped for an earlier publication,
 * wc_region_renew() is enough, and costs no mapping and no page faults. */
WC_API uint64_t wc_region_memory(const wc_region* region);

/* Reads again what lies where in the memory, which was begun for another publication since. Slots that were given
 * before are not valid any more. Errors: WC_CORRUPT (its header is damaged); the region is as it was then. */
WC_API wc_code wc_region_renew(wc_region* region, wc_error* error);

/* Says that part `part`, from 0 up to the number that was begun, of publication `id` (wc_region_id()) is filled; to be
 * called after its last write, by any process. Repeating it is harmless. wc_commit() refuses with WC_BUSY while a part
 * is missing, so that what a process has not filled is never published.
 * Errors: WC_INVALID_ARGUMENT (no such part; the region is filled for another publication by now, for which this does
 * not count). */
WC_API wc_code wc_region_done(wc_region* region, uint64_t id, uint32_t part, wc_error* error);

/* Number of tensors. They have the order of their bytes, which is not the order given to wc_begin(). */
WC_API size_t wc_region_count(const wc_region* region);
/* Errors: WC_NOT_FOUND (`index` is not below the count). */
WC_API wc_code wc_region_slot(const wc_region* region, size_t index, wc_slot* slot, wc_error* error);
/* Errors: WC_NOT_FOUND. */
WC_API wc_code wc_region_find(const wc_region* region, const char* name, wc_slot* slot, wc_error* error);

/* --------------------------------------------------------------------------------------------------- subscription */

/* Tells an inference engine what to use. It connects again by itself, at first after 50 ms, then less and less often,
 * up to every 2 s. */
typedef struct wc_subscription wc_subscription;

typedef enum wc_event_kind {
  /* `version` is in use now; its files lie in `directory`, for as long as the daemon keeps the version. The first
   * event, if the daemon has a version, and one for each newer version; versions in between may be skipped. */
  WC_EVENT_INSTALLED = 1,
  /* Only from a worker with --single-copy: the files of the version in use are about to become those of `version`.
   * Close and unmap them; what was copied elsewhere may be used on. A WC_EVENT_INSTALLED follows, of the old version if
   * nothing came of it. */
  WC_EVENT_PREPARING = 2,
  /* The daemon ended, or the connection did. After the subscription has connected again, it tells the version in use
   * even if that is known. */
  WC_EVENT_DISCONNECTED = 3
} wc_event_kind;

typedef struct wc_event {
  size_t struct_size;
  wc_event_kind kind;
  /* Counts the runs whose versions this daemon has taken, from 1: an origin with an empty state directory begins a new
   * run, whose numbers may be smaller. A greater `run` is newer whatever the version. */
  uint32_t run;
  uint64_t version;
  char directory[4096];
  char digest[64]; /* of the snapshot, in hexadecimal */
} wc_event;

/* Subscribes at the daemon whose state directory is `state_dir`. `*subscription` is NULL on error.
 * Errors: those of wc_open(). */
WC_API wc_code wc_subscribe(const char* state_dir, int64_t timeout_ms, wc_subscription** subscription, wc_error* error);

/* Frees the handle; NULL is allowed. No other call of it may be running. */
WC_API void wc_subscription_close(wc_subscription* subscription);

/* A descriptor for the caller's own poll(), select() or epoll: readable when wc_next() has something to do. Then call
 * wc_next() with a time-out of 0 until it returns WC_TIMED_OUT, which may be at once. Belongs to the subscription and
 * stays the same. Do not read from it. -1 for NULL. */
WC_API int wc_subscription_fd(const wc_subscription* subscription);

/* The next event.
 * Errors: WC_TIMED_OUT (none came), WC_CANCELLED, WC_UNSUPPORTED and WC_CORRUPT (the daemon is of a release that does
 * not match), WC_NOT_ALLOWED. */
WC_API wc_code wc_next(wc_subscription* subscription, int64_t timeout_ms, wc_event* event, wc_error* error);

/* Pins a version: its directory stays, complete and unchanged, until wc_release() or the connection's end. `version` 0
 * is the one in use. Fills `event` as WC_EVENT_INSTALLED does. A version that is acquired twice is released twice. A
 * subscription may hold 4 pins. After WC_EVENT_DISCONNECTED all pins are gone: acquire again what is still used, or
 * treat it as gone. Where the connection has ended, it connects again first, and wc_next() tells that event. A worker
 * with --single-copy cannot take a new version while the old one is pinned, and gives up after --single-copy-wait.
 * Errors: WC_NOT_FOUND (the daemon has not that version, or none yet), WC_BUSY (too many pins; the version is about to
 * give way to another, in place), WC_TIMED_OUT and WC_CANCELLED (nothing is pinned), and those of wc_status(). */
WC_API wc_code wc_acquire(wc_subscription* subscription, uint64_t version, int64_t timeout_ms, wc_event* event,
                          wc_error* error);

/* Lets a pinned version go.
 * Errors: WC_NOT_FOUND (it was not acquired by this subscription), WC_TIMED_OUT and WC_CANCELLED (the daemon does not
 * read; it is still pinned). */
WC_API wc_code wc_release(wc_subscription* subscription, uint64_t version, int64_t timeout_ms, wc_error* error);

/* The elements in which a version differs from an earlier one, tensor by tensor. An engine that has the earlier one in
 * its own memory writes them over it. */
typedef struct wc_change_list wc_change_list;

enum {
  WC_OLD_VALUES = 1u /* wc_changes(): and what the elements were */
};

/* Asks the daemon for the changes from `base_version` to `version`, which this subscription has acquired. `base_digest`
 * is what wc_event had for the base: another run may have the same number. They are exact, over as many versions as lie
 * between: with their values in place of the old ones, each tensor of the base has the bytes that `version` has. An
 * element may be listed whose value has not changed. `flags`: 0, or WC_OLD_VALUES. `*list` is NULL on error; else
 * wc_change_list_close() frees it, at any time, whatever became of subscription and daemon.
 *
 * From what they come:
 *   a worker's lists   of its last 4 versions that came as patches, while they take no more than 256 MiB. The base need
 *                      not be there any more. They are gone when the daemon ends, and --single-copy keeps none.
 *   both versions      where lists do not lead there: the daemon compares the files, while it has those of the base. So
 *                      it answers after its restart, on an origin's host, and where the base is the newer version.
 * Old values are read from the base's files in either case.
 *
 * Errors: WC_TOO_FAR (neither is there, or the changes take half of the snapshot: load `version` whole; the message
 * says which, and so it does where only old values are not to be had), WC_NOT_FOUND (`version` is not acquired, or was
 * withdrawn), WC_BUSY (another list is being made), WC_UNSUPPORTED (an older daemon has no old values), WC_NO_SPACE,
 * and those of wc_status(). */
WC_API wc_code wc_changes(wc_subscription* subscription, uint64_t base_version, const char* base_digest,
                          uint64_t version, uint32_t flags, int64_t timeout_ms, wc_change_list** list, wc_error* error);

/* Tensors that have changes. 0 for NULL. */
WC_API size_t wc_change_list_count(const wc_change_list* list);
/* One of them, ordered by name. The list owns what it points to: memory that is mapped, of which nothing is copied.
 * That cannot change, and is aligned to its elements' width. NULL if `index` is not below the count. */
WC_API const wc_change* wc_change_list_at(const wc_change_list* list, size_t index);
/* Frees the list; NULL is allowed. */
WC_API void wc_change_list_close(wc_change_list* list);

/* As wc_cancel(). */
WC_API void wc_subscription_cancel(wc_subscription* subscription);

#if defined(__cplusplus)
}
#endif

#endif
