/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libstepccl: collective communication that moves bytes with copy engines.
 *
 * The C interface. Every function returns a stepccl_result_t and never throws; outputs are written
 * only on STEPCCL_SUCCESS unless a function says otherwise. Structs that may grow begin with `size`:
 * the caller sets it to sizeof, the library reads or writes no further, and a field beyond the size
 * that the caller knew takes its default. Values of enumerations are never renumbered.
 */
#ifndef STEPCCL_STEPCCL_H
#define STEPCCL_STEPCCL_H

#include <stddef.h>
#include <stdint.h>

#include "stepccl/telemetry.h"

#define STEPCCL_VERSION_MAJOR 0
#define STEPCCL_VERSION_MINOR 1
#define STEPCCL_VERSION_PATCH 0

#if defined(__GNUC__)
#define STEPCCL_API __attribute__((visibility("default")))
#else
#define STEPCCL_API
#endif

#ifdef __cplusplus
#define STEPCCL_NOEXCEPT noexcept
extern "C" {
#else
#define STEPCCL_NOEXCEPT
#endif

/* ------------------------------------------------------------------------ */
/* Results                                                                   */
/* ------------------------------------------------------------------------ */

/*
 * The number is the stable code: STEPCCL_ERROR_TIMEOUT is R203. 1xx the call, 2xx the other ranks,
 * 3xx joining a job, 4xx this machine, 5xx a transport, 6xx a GPU, 9xx the library itself.
 */
typedef enum stepccl_result STEPCCL_INT_ENUM {
	STEPCCL_SUCCESS = 0,

	STEPCCL_ERROR_INVALID_ARGUMENT = 101,
	STEPCCL_ERROR_INVALID_USAGE = 102,
	STEPCCL_ERROR_UNSUPPORTED = 103,
	STEPCCL_ERROR_INVALID_CONFIGURATION = 104,

	STEPCCL_ERROR_PEER_CLOSED = 201,
	STEPCCL_ERROR_PEER_UNREACHABLE = 202,
	STEPCCL_ERROR_TIMEOUT = 203,
	STEPCCL_ERROR_MISMATCH = 204,
	STEPCCL_ERROR_ABORTED = 205,
	STEPCCL_ERROR_PEER_FAILED = 206,
	STEPCCL_ERROR_PEER_SILENT = 207,

	STEPCCL_ERROR_AUTHENTICATION = 301,
	STEPCCL_ERROR_VERSION = 302,
	STEPCCL_ERROR_PROTOCOL = 303,
	STEPCCL_ERROR_RENDEZVOUS = 304,
	STEPCCL_ERROR_RANK_CONFLICT = 305,

	STEPCCL_ERROR_OUT_OF_MEMORY = 401,
	STEPCCL_ERROR_SYSTEM = 402,
	STEPCCL_ERROR_MEMLOCK = 403,

	STEPCCL_ERROR_TRANSPORT_UNAVAILABLE = 501,
	STEPCCL_ERROR_TRANSPORT_FAILED = 502,

	STEPCCL_ERROR_NO_GPU = 601,
	STEPCCL_ERROR_NO_PEER_ACCESS = 602,
	STEPCCL_ERROR_DRIVER_TOO_OLD = 603,
	STEPCCL_ERROR_WRONG_DEVICE = 604,
	STEPCCL_ERROR_GPU_OUT_OF_MEMORY = 605,
	STEPCCL_ERROR_CUDA = 606,

	STEPCCL_ERROR_INTERNAL = 901,
} stepccl_result_t;

/* "R203" and so on; "R000" for success, "R???" for a number that is no result. Never NULL. */
STEPCCL_API const char *stepccl_result_code(stepccl_result_t result) STEPCCL_NOEXCEPT;
/* A name such as "timeout". Never NULL. */
STEPCCL_API const char *stepccl_result_name(stepccl_result_t result) STEPCCL_NOEXCEPT;
/* One sentence: what to do next. Never NULL. */
STEPCCL_API const char *stepccl_result_help(stepccl_result_t result) STEPCCL_NOEXCEPT;

/* Which part of its work the library was in. */
typedef enum stepccl_phase STEPCCL_INT_ENUM {
	STEPCCL_PHASE_NONE = 0,
	STEPCCL_PHASE_ARGUMENTS = 1, /* checking what the caller gave */
	STEPCCL_PHASE_RENDEZVOUS = 2, /* meeting the other ranks */
	STEPCCL_PHASE_CONNECT = 3,    /* opening a data path to a peer */
	STEPCCL_PHASE_REGISTER = 4,   /* registering memory with a device */
	STEPCCL_PHASE_TRANSFER = 5,   /* moving the bytes of an operation */
	STEPCCL_PHASE_FINISH = 6,     /* leaving the communicator */
} stepccl_phase_t;

STEPCCL_API const char *stepccl_phase_name(stepccl_phase_t phase) STEPCCL_NOEXCEPT;

/* ------------------------------------------------------------------------ */
/* Names of what is computed                                                 */
/* ------------------------------------------------------------------------ */

typedef enum stepccl_datatype STEPCCL_INT_ENUM {
	STEPCCL_INT8 = 0,
	STEPCCL_UINT8 = 1,
	STEPCCL_INT32 = 2,
	STEPCCL_UINT32 = 3,
	STEPCCL_INT64 = 4,
	STEPCCL_UINT64 = 5,
	STEPCCL_FLOAT16 = 6,  /* IEEE 754 binary16 */
	STEPCCL_BFLOAT16 = 7,
	STEPCCL_FLOAT32 = 8,
	STEPCCL_FLOAT64 = 9,
} stepccl_datatype_t;
#define STEPCCL_DATATYPE_COUNT 10

/*
 * Integers wrap modulo 2^bits. 16-bit floats are added in fp32 and rounded to nearest even at every
 * step. AVG is the sum divided by the number of ranks (integers: truncated towards zero). MIN and MAX
 * give NaN where an operand is NaN.
 */
typedef enum stepccl_redop STEPCCL_INT_ENUM {
	STEPCCL_SUM = 0,
	STEPCCL_PROD = 1,
	STEPCCL_MIN = 2,
	STEPCCL_MAX = 3,
	STEPCCL_AVG = 4,
} stepccl_redop_t;
#define STEPCCL_REDOP_COUNT 5

typedef enum stepccl_collective STEPCCL_INT_ENUM {
	STEPCCL_ALL_REDUCE = 0,
	STEPCCL_ALL_GATHER = 1,
	STEPCCL_REDUCE_SCATTER = 2,
	STEPCCL_BROADCAST = 3,
	STEPCCL_REDUCE = 4,
	STEPCCL_SCATTER = 5,
	STEPCCL_GATHER = 6,
	STEPCCL_ALL_TO_ALL = 7,
	STEPCCL_SEND_RECV = 8,
	STEPCCL_BARRIER = 9,
} stepccl_collective_t;
#define STEPCCL_COLLECTIVE_COUNT 10

typedef enum stepccl_algorithm STEPCCL_INT_ENUM {
	STEPCCL_ALGORITHM_AUTO = 0,
	STEPCCL_ALGORITHM_RING = 1,
	STEPCCL_ALGORITHM_TREE = 2,
	STEPCCL_ALGORITHM_DOUBLE_BINARY_TREE = 3,
	STEPCCL_ALGORITHM_RECURSIVE_DOUBLING = 4,
	STEPCCL_ALGORITHM_HALVING_DOUBLING = 5,
	STEPCCL_ALGORITHM_DIRECT_ONE_SHOT = 6,
	STEPCCL_ALGORITHM_DIRECT_TWO_SHOT = 7,
	STEPCCL_ALGORITHM_HIERARCHICAL = 8,
	STEPCCL_ALGORITHM_PAIRWISE = 9,
	STEPCCL_ALGORITHM_BRUCK = 10,
	STEPCCL_ALGORITHM_BINOMIAL = 11,
	STEPCCL_ALGORITHM_CHAIN = 12,
	STEPCCL_ALGORITHM_DISSEMINATION = 13,
} stepccl_algorithm_t;
#define STEPCCL_ALGORITHM_COUNT 14

/* What fp32 sums and averages are computed and sent as: rounded at every step of the algorithm, added in fp32. */
typedef enum stepccl_compression STEPCCL_INT_ENUM {
	STEPCCL_COMPRESSION_DEFAULT = 0, /* the communicator's */
	STEPCCL_COMPRESSION_NONE = 1,
	STEPCCL_COMPRESSION_BFLOAT16 = 2,
	STEPCCL_COMPRESSION_FLOAT16 = 3,
} stepccl_compression_t;
#define STEPCCL_COMPRESSION_COUNT 4

typedef enum stepccl_priority STEPCCL_INT_ENUM {
	STEPCCL_PRIORITY_NORMAL = 0,
	STEPCCL_PRIORITY_HIGH = 1,
	STEPCCL_PRIORITY_LOW = 2,
} stepccl_priority_t;
#define STEPCCL_PRIORITY_LEVELS 3

/* A set of transports: bits STEPCCL_TRANSPORT_BIT(enum stepccl_transport). 0 = the library chooses. */
#define STEPCCL_TRANSPORT_BIT(transport) (1u << (unsigned)(transport))

/* Bytes of one element; 0 for a number that is no datatype. */
STEPCCL_API size_t stepccl_datatype_bytes(stepccl_datatype_t datatype) STEPCCL_NOEXCEPT;
/* Lower-case names as nccl-tests prints them ("float", "half", "sum") or as this library's options take
 * them ("ring", "tcp"). "unknown" for a number outside the enumeration. Never NULL. */
STEPCCL_API const char *stepccl_datatype_name(stepccl_datatype_t datatype) STEPCCL_NOEXCEPT;
STEPCCL_API const char *stepccl_redop_name(stepccl_redop_t redop) STEPCCL_NOEXCEPT;
STEPCCL_API const char *stepccl_collective_name(stepccl_collective_t collective) STEPCCL_NOEXCEPT;
STEPCCL_API const char *stepccl_algorithm_name(stepccl_algorithm_t algorithm) STEPCCL_NOEXCEPT;
STEPCCL_API const char *stepccl_transport_name(enum stepccl_transport transport) STEPCCL_NOEXCEPT;

/* "0.1.0" of the library that runs, which may be newer than this header. */
STEPCCL_API const char *stepccl_version(void) STEPCCL_NOEXCEPT;

/* ------------------------------------------------------------------------ */
/* Joining a job                                                             */
/* ------------------------------------------------------------------------ */

#define STEPCCL_UNIQUE_ID_BYTES 128

/*
 * What every rank must know to join: where rank 0 listens and the job's 256-bit secret. Hand it to the
 * other ranks over a channel that only they can read; whoever holds it can join.
 */
typedef struct stepccl_unique_id {
	uint8_t bytes[STEPCCL_UNIQUE_ID_BYTES];
} stepccl_unique_id_t;

/*
 * Called by the process that will be rank 0: makes a secret and listens.
 * address: "a.b.c.d", "a.b.c.d:port", "[v6]:port", or NULL for the interface that STEPCCL_SOCKET_IFNAME
 * (or NCCL_SOCKET_IFNAME) names, else the first interface that is up and not loopback, else loopback.
 * The listener lives until stepccl_comm_init_rank of rank 0 takes it or stepccl_unique_id_discard.
 * Errors: INVALID_ARGUMENT, RENDEZVOUS (the address can't be listened on), SYSTEM.
 */
STEPCCL_API stepccl_result_t stepccl_unique_id_create(const char *address, stepccl_unique_id_t *id) STEPCCL_NOEXCEPT;
/* Closes the listener of an id that no rank 0 will use in this process. No effect on a used id. */
STEPCCL_API stepccl_result_t stepccl_unique_id_discard(const stepccl_unique_id_t *id) STEPCCL_NOEXCEPT;

typedef struct stepccl_comm *stepccl_comm_t;

typedef struct stepccl_config {
	uint32_t size;           /* sizeof(stepccl_config_t) */
	uint32_t timeout_ms;     /* of init, and how long an operation may make no progress; 0 = STEPCCL_TIMEOUT_MS, else 30000 */
	uint32_t transports;     /* STEPCCL_TRANSPORT_BIT set; 0 = STEPCCL_TRANSPORT, else by topology. Rank 0's counts */
	uint32_t algorithm;      /* stepccl_algorithm_t; AUTO = STEPCCL_ALGO (or NCCL_ALGO), else by the cost model. Rank 0's counts */
	uint32_t chunk_bytes;    /* largest message; 0 = 262144. Rank 0's counts */
	uint32_t pipeline_depth; /* chunks in flight; 0 = 4. The daemon's control page wins */
	const char *telemetry_dir; /* NULL = STEPCCL_TELEMETRY_DIR, else STEPCCL_RING_DIR; "" = no telemetry */
	const char *job_name;      /* shown in the console; NULL = STEPCCL_JOB_NAME, else empty */
	const char *net_interface; /* NULL = STEPCCL_SOCKET_IFNAME, NCCL_SOCKET_IFNAME, else the route to rank 0 */
	const char *ib_hca;        /* NULL = STEPCCL_IB_HCA, NCCL_IB_HCA, else the device of the data address */
	int32_t ib_gid_index;      /* -1 = STEPCCL_IB_GID_INDEX, NCCL_IB_GID_INDEX, else RoCE v2 of the data address */
	uint32_t heartbeat_timeout_ms; /* silence of a process that counts as death; 0 = STEPCCL_HEARTBEAT_TIMEOUT_MS, else a third of the timeout, 10000 at least; UINT32_MAX = never. Rank 0's counts */
	/* Since the first published version: */
	const char *calibration_file; /* what stepccl-perf --calibrate wrote; NULL = STEPCCL_CALIBRATION_FILE; "" = none. Rank 0's counts */
	uint64_t fusion_bytes;     /* asynchronous all_reduces of one type and reduction are collected up to this size; 0 =
				    * STEPCCL_FUSION_BYTES, else none are. Rank 0's counts. See stepccl_request_wait */
	uint64_t page_bytes;       /* operations above it move page by page; 0 = STEPCCL_PAGE_BYTES, else no paging. Rank 0's counts */
	uint32_t prefetch_depth;   /* pages in flight; 0 = 2. Rank 0's counts */
	uint32_t compression;      /* stepccl_compression_t; 0 = STEPCCL_COMPRESSION, else none. Rank 0's counts */
	uint32_t priority_levels;  /* 1..STEPCCL_PRIORITY_LEVELS data paths that do not wait for each other; 0 = 1. Rank 0's counts */
	uint32_t bandwidth_MBps;   /* what this rank may send while an operation of higher priority runs in this process, decimal
				    * megabytes a second; 0 = STEPCCL_BANDWIDTH_MBPS, else no limit */
} stepccl_config_t;

#define STEPCCL_CONFIG_INIT \
	{ (uint32_t)sizeof(stepccl_config_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, -1, 0, 0, 0, 0, 0, 0, 0, 0 }

/*
 * Joins as one of world_size ranks (1..4096) and returns when all have joined. Every rank passes the same id and
 * world_size. config may be NULL. On failure *comm is NULL and stepccl_last_error(NULL, ...) has the details
 * in the same thread.
 * Errors: INVALID_ARGUMENT, INVALID_CONFIGURATION, TIMEOUT (names the ranks that did not come),
 * PEER_UNREACHABLE, AUTHENTICATION, VERSION, PROTOCOL, RENDEZVOUS, RANK_CONFLICT, TRANSPORT_UNAVAILABLE,
 * PEER_FAILED, OUT_OF_MEMORY, SYSTEM.
 */
STEPCCL_API stepccl_result_t stepccl_comm_init_rank(stepccl_comm_t *comm, uint32_t world_size,
						    const stepccl_unique_id_t *id, uint32_t rank,
						    const stepccl_config_t *config) STEPCCL_NOEXCEPT;

/*
 * Makes a communicator of the ranks that pass the same color, ordered by key and then by rank. A collective
 * call of all ranks of comm; a negative color takes part and gets *out = NULL. The new communicator has connections
 * and a secret of its own, derived from its parent's; the two live and die apart. config may be NULL: the parent's.
 * Errors: those of stepccl_comm_init_rank and of an operation on comm.
 */
STEPCCL_API stepccl_result_t stepccl_comm_split(stepccl_comm_t comm, int32_t color, int32_t key, const stepccl_config_t *config,
						stepccl_comm_t *out) STEPCCL_NOEXCEPT;

/*
 * Chunks in flight from the next operation on, 1..256; 0 = as configured. A local matter: ranks may differ. The
 * daemon's control page wins. Errors: INVALID_ARGUMENT.
 */
STEPCCL_API stepccl_result_t stepccl_comm_set_pipeline_depth(stepccl_comm_t comm, uint32_t depth) STEPCCL_NOEXCEPT;

/*
 * Measures the latency between neighbours and sets the depth by it: 4 below 5 us, 8 above 20 us; in between 4, 6 and 8
 * are tried and the fastest is kept. A collective call. depth and latency_us (one way, of the slowest pair) may be NULL.
 * Errors: those of an operation.
 */
STEPCCL_API stepccl_result_t stepccl_comm_tune_pipeline_depth(stepccl_comm_t comm, uint32_t *depth, double *latency_us) STEPCCL_NOEXCEPT;

/*
 * From the next operation on, operations above page_bytes move page by page with prefetch_depth pages in flight
 * (0 = 2); page_bytes 0 ends paging. All ranks must pass the same. The daemon's control page does not change it.
 * Errors: INVALID_ARGUMENT (below 4096, or above 64 pages), INVALID_USAGE (an operation runs).
 */
STEPCCL_API stepccl_result_t stepccl_comm_enable_paging(stepccl_comm_t comm, uint64_t page_bytes, uint32_t prefetch_depth) STEPCCL_NOEXCEPT;

/*
 * Leaves and frees. On a healthy communicator it first waits, up to the timeout, until every rank leaves,
 * so that nobody mistakes an ordinary end for a death. The handle is invalid afterwards, whatever is returned.
 * INVALID_USAGE, and the handle stays valid, while an operation runs in another thread (abort first) or has not been
 * waited for. Requests of the communicator stay valid until they are freed.
 */
STEPCCL_API stepccl_result_t stepccl_comm_destroy(stepccl_comm_t comm) STEPCCL_NOEXCEPT;

/*
 * Ends the operation that runs, on every rank: here with ABORTED, elsewhere with PEER_FAILED naming this
 * rank. May be called from any thread while the handle is valid; not async-signal-safe. Later operations fail with the same error. The
 * handle must still be destroyed.
 */
STEPCCL_API stepccl_result_t stepccl_comm_abort(stepccl_comm_t comm) STEPCCL_NOEXCEPT;

typedef struct stepccl_comm_info {
	uint32_t size; /* sizeof(stepccl_comm_info_t) */
	uint32_t rank;
	uint32_t world_size;
	uint32_t transport;       /* enum stepccl_transport: the slowest one between any two ranks */
	uint64_t comm_id;
	uint64_t operations;      /* finished, with or without an error */
	uint32_t state;           /* stepccl_result_t: SUCCESS while the communicator is usable */
	uint32_t last_algorithm;  /* stepccl_algorithm_t of the last operation */
	uint32_t telemetry;       /* 1 when operations are published to a ring */
	uint32_t pipeline_depth;  /* of the next operation */
	/* Since the first published version: */
	uint64_t fused_operations; /* that travelled together with others */
	uint64_t page_bytes;       /* 0 = no paging */
	uint64_t held_bytes;       /* of scratch and staging memory */
	double last_compression_error; /* of the last compressed operation: largest |rounded - exact| of this rank's part */
	uint32_t encryption;       /* 1 when data between nodes runs through TLS 1.3, and so does all of TCP */
	uint32_t sockets;          /* TCP connections between two ranks */
} stepccl_comm_info_t;

/* Fills *info; may be called from any thread. Errors: INVALID_ARGUMENT. */
STEPCCL_API stepccl_result_t stepccl_comm_query(stepccl_comm_t comm, stepccl_comm_info_t *info) STEPCCL_NOEXCEPT;

#define STEPCCL_ERROR_TEXT_BYTES 768

typedef struct stepccl_error_info {
	uint32_t size;  /* sizeof(stepccl_error_info_t) */
	uint32_t code;  /* stepccl_result_t; SUCCESS when nothing has failed */
	int32_t rank;   /* of this process; -1 where there is none yet */
	int32_t peer;   /* the rank at fault or the one waited for; -1 = none */
	uint32_t phase;     /* stepccl_phase_t */
	uint32_t transport; /* enum stepccl_transport */
	char text[STEPCCL_ERROR_TEXT_BYTES]; /* one sentence, UTF-8, NUL-terminated */
} stepccl_error_info_t;

/*
 * The last error of a communicator, or with comm == NULL of the calling thread (what a failed init or a
 * refused argument left). Errors: INVALID_ARGUMENT.
 */
STEPCCL_API stepccl_result_t stepccl_last_error(stepccl_comm_t comm, stepccl_error_info_t *info) STEPCCL_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#include "stepccl/operations.h"

#endif /* STEPCCL_STEPCCL_H */
