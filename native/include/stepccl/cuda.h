/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libstepccl on GPUs: stream-ordered collectives over copy engines and few thread blocks.
 *
 * One process (or thread) per GPU. An engine is attached to a communicator of stepccl.h, whose ranks must all run on
 * one host with peer access between their GPUs; the communicator's control plane goes on noticing deaths. The functions
 * below follow stepccl.h: they return a stepccl_result_t, never throw, write outputs only on SUCCESS, and structs begin
 * with `size`. Where the library was built without USE_CUDA, or no driver is found, stepccl_cuda_attach says NO_GPU.
 *
 * Order. All ranks make the same calls on an engine in the same order. Calls on one engine may come from any thread,
 * one at a time, and may use different streams: they run one after the other, each after what was on its stream.
 *
 * Capture. A call on a capturing stream becomes nodes of the graph; every rank captures the same calls. A graph has its
 * own flags and staging (a lane), so graphs and eager calls may run at once. When graph_lanes are used up, new graphs share the last lane, and
 * graphs that share one must not run at once (stepccl_cuda_info_t.shared_lanes counts them). A lane comes free when
 * its graph and all executables made from it are destroyed. Where CUDA_DEVICE_MAX_CONNECTIONS is 1, a stream that waits
 * holds up all others of the process: every rank must then launch its graphs and eager calls in the same order.
 *
 * Buffers. Any device pointer of the engine's GPU will do, and pinned host memory where paging is on. Without
 * staging go only buffers that the other GPUs can see: those of stepccl_cuda_mem_alloc or stepccl_cuda_register. On
 * every rank they must be the same window at the same offset in it; where they are not, the call is reported as
 * MISMATCH. Pointers must be aligned to the datatype (16 bytes for the fast paths).
 */
#ifndef STEPCCL_CUDA_H
#define STEPCCL_CUDA_H

#include "stepccl/stepccl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stepccl_cuda *stepccl_cuda_t;

/* A CUstream or cudaStream_t. NULL is the legacy default stream: the work then runs on a stream of the engine's own,
 * between two events. */
typedef void *stepccl_cuda_stream_t;

/* How far the CPU is out of the way of a transfer, from least to most. */
typedef enum stepccl_cuda_async_level STEPCCL_INT_ENUM {
	STEPCCL_CUDA_ASYNC_NONE = 0,   /* the calling thread waits for the stream and then starts the transfer */
	STEPCCL_CUDA_ASYNC_STREAM = 1, /* queued ahead: the stream itself starts and synchronises it */
	STEPCCL_CUDA_ASYNC_NIC = 2,    /* the GPU rings the network adapter's doorbell (no hardware shown to do it yet) */
} stepccl_cuda_async_level_t;

/* How an operation moves its bytes. */
typedef enum stepccl_cuda_path STEPCCL_INT_ENUM {
	STEPCCL_CUDA_PATH_AUTO = 0,
	STEPCCL_CUDA_PATH_FLAGGED = 1, /* kernel; every 16 bytes on the link carry their own flags: lowest latency */
	STEPCCL_CUDA_PATH_STAGED = 2,  /* kernel; pieces pushed into the peers' staging: any pointer, any size */
	STEPCCL_CUDA_PATH_DIRECT = 3,  /* kernel; reads and writes the peers' windows with loads and stores, whole blocks too */
	STEPCCL_CUDA_PATH_BULK = 4,    /* kernel; the same through shared memory with bulk copies (sm_90): fewest blocks */
	STEPCCL_CUDA_PATH_COPY_ENGINE = 5, /* no kernel at all; windows */
	STEPCCL_CUDA_PATH_PAGED = 6,   /* page by page through the pool */
	STEPCCL_CUDA_PATH_PIPELINE = 7, /* copy engines carry, few thread blocks add: large reductions */
	STEPCCL_CUDA_PATH_PACKED = 8,  /* kernel; lines of 128 bytes, the last 8 of them a flag: low latency up to about 1 MiB */
} stepccl_cuda_path_t;
#define STEPCCL_CUDA_PATH_COUNT 9

typedef struct stepccl_cuda_config {
	uint32_t size;            /* sizeof(stepccl_cuda_config_t) */
	int32_t device;           /* CUDA ordinal; -1 = the calling thread's current context, else ordinal 0 */
	uint32_t timeout_ms;      /* how long an operation that has begun may wait for a peer; 0 = STEPCCL_TIMEOUT_MS, else 30000 */
	uint32_t sm_budget;       /* most thread blocks of one operation, at most 32; 0 = STEPCCL_SM_BUDGET, else by size */
	uint32_t graph_lanes;     /* graphs that may run at once with each other; 0 = 4; at most 64 */
	uint32_t dma_concurrency; /* copies to different peers at once; 0 = STEPCCL_DMA_CONCURRENCY, else half the ranks */
	uint32_t pipeline_depth;  /* pages and pieces in flight; 0 = 4 */
	uint32_t async_gd;        /* 0 = STEPCCL_USE_ASYNC_GD, else on; 1 = off (ASYNC_NONE), 2 = on */
	uint64_t pool_bytes;      /* most physical memory of the pool; 0 = by hbm_cache_ratio */
	double hbm_cache_ratio;   /* share of the GPU's memory that the pool may grow to; 0 = 0.1 */
	const char *calibration_file; /* thresholds, JSON written by stepccl-gpu-perf --calibrate; NULL = STEPCCL_CUDA_CALIBRATION, else built in */
} stepccl_cuda_config_t;

#define STEPCCL_CUDA_CONFIG_INIT { (uint32_t)sizeof(stepccl_cuda_config_t), -1, 0, 0, 0, 0, 0, 0, 0, 0.0, 0 }

/* ------------------------------------------------------------------------ */
/* Attaching                                                                 */
/* ------------------------------------------------------------------------ */

/*
 * Attaches the GPU engine; every rank of comm calls it. Uses comm for a few small operations, and watches it
 * afterwards: detach before stepccl_comm_destroy. config may be NULL. On failure *engine is NULL and
 * stepccl_cuda_last_error(NULL, ...) has the details in the same thread.
 * Errors: INVALID_ARGUMENT, INVALID_CONFIGURATION, NO_GPU (no driver, no device, or built without USE_CUDA),
 * DRIVER_TOO_OLD, NO_PEER_ACCESS (names the two ranks; also ranks on different hosts), WRONG_DEVICE (two ranks on one
 * GPU, unless STEPCCL_CUDA_SHARED_GPU=1 allows it for development: right, but as slow as the driver's time slices), GPU_OUT_OF_MEMORY, CUDA, SYSTEM, and those of an operation of comm.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_attach(stepccl_cuda_t *engine, stepccl_comm_t comm,
						 const stepccl_cuda_config_t *config) STEPCCL_NOEXCEPT;

/*
 * Waits for the engine's work on this GPU (not for other ranks longer than the timeout), gives back all GPU memory and frees. Buffers of
 * mem_alloc are gone, graphs with the engine's calls must not be launched any more. The handle is invalid afterwards.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_detach(stepccl_cuda_t engine) STEPCCL_NOEXCEPT;

/*
 * Ends what runs: waiting kernels and streams go on within about 50 ms, with undefined results; this engine's later
 * calls fail with ABORTED, the other ranks' with PEER_FAILED. Any thread.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_abort(stepccl_cuda_t engine) STEPCCL_NOEXCEPT;

/*
 * SUCCESS while the engine is usable, otherwise the error that ended it (a peer's death, TIMEOUT, MISMATCH, ABORTED).
 * Never blocks; any thread. After an error streams are released, results are undefined, detach is what is left.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_status(stepccl_cuda_t engine) STEPCCL_NOEXCEPT;

/* The engine's last error; with engine == NULL the calling thread's. Errors: INVALID_ARGUMENT. */
STEPCCL_API stepccl_result_t stepccl_cuda_last_error(stepccl_cuda_t engine, stepccl_error_info_t *info) STEPCCL_NOEXCEPT;

/* Number of GPUs that the driver shows; 0 with the reason in stepccl_cuda_last_error(NULL, ...) and NO_GPU returned. */
STEPCCL_API stepccl_result_t stepccl_cuda_device_count(uint32_t *count) STEPCCL_NOEXCEPT;

typedef struct stepccl_cuda_info {
	uint32_t size;         /* sizeof(stepccl_cuda_info_t) */
	int32_t device;        /* CUDA ordinal */
	uint32_t rank;
	uint32_t world_size;
	uint32_t async_level;  /* stepccl_cuda_async_level_t in force */
	uint32_t sm_budget;
	uint32_t multiprocessors; /* of the GPU */
	uint32_t graph_lanes;
	uint32_t lanes_in_use; /* by live graphs */
	uint32_t shared_lanes; /* graphs that had to share one */
	uint32_t handle_type;  /* how memory is shared: 1 POSIX descriptor of a VMM allocation, 2 CUDA IPC */
	uint32_t last_path;    /* stepccl_cuda_path_t of the last operation */
	uint32_t last_blocks;  /* thread blocks of the last operation */
	uint32_t defrag_interval_ms; /* 0 = off */
	uint64_t operations;   /* begun */
	uint64_t page_bytes;   /* 0 = paging off */
	uint32_t prefetch_depth;
	uint32_t pipeline_depth;
	char gpu_uuid[48];     /* "GPU-...", as nvidia-smi prints it */
	char async_reason[128]; /* why async_level is not higher; one clause */
} stepccl_cuda_info_t;

/* Any thread. Errors: INVALID_ARGUMENT. */
STEPCCL_API stepccl_result_t stepccl_cuda_query(stepccl_cuda_t engine, stepccl_cuda_info_t *info) STEPCCL_NOEXCEPT;

/* ------------------------------------------------------------------------ */
/* Memory that the other GPUs see                                            */
/* ------------------------------------------------------------------------ */

/*
 * Allocates `bytes` (rounded up to 512) from the pool and makes them a window of all ranks; every rank calls it with
 * the same size. Blocks until all have. Aligned to 512 bytes (2 MiB from 2 MiB on).
 * Errors: INVALID_ARGUMENT, GPU_OUT_OF_MEMORY (on every rank when one has it; the pool is unchanged), MISMATCH, and
 * those of status.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_mem_alloc(stepccl_cuda_t engine, void **pointer, size_t bytes) STEPCCL_NOEXCEPT;
/*
 * Gives a buffer back once the engine's work that was queued before is done; needs no other rank at that moment, but every rank must free it in the end,
 * as its place is used again only then. Graphs that use the buffer must be gone.
 * Errors: INVALID_ARGUMENT (no buffer of mem_alloc).
 */
STEPCCL_API stepccl_result_t stepccl_cuda_mem_free(stepccl_cuda_t engine, void *pointer) STEPCCL_NOEXCEPT;

/*
 * Makes existing device memory (cudaMalloc) a window by CUDA IPC; every rank calls it with the same size. The memory
 * must not be freed before deregister. Errors: INVALID_ARGUMENT, UNSUPPORTED (memory of another kind, such as
 * expandable segments: use mem_alloc), MISMATCH, CUDA.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_register(stepccl_cuda_t engine, void *pointer, size_t bytes) STEPCCL_NOEXCEPT;
/* Collective; waits for the engine's work first. Errors: INVALID_ARGUMENT. */
STEPCCL_API stepccl_result_t stepccl_cuda_deregister(stepccl_cuda_t engine, void *pointer) STEPCCL_NOEXCEPT;

typedef struct stepccl_cuda_pool_info {
	uint32_t size; /* sizeof(stepccl_cuda_pool_info_t) */
	uint32_t fragmentation_permille; /* of held_bytes: what neither a buffer nor the engine uses */
	uint64_t capacity_bytes;  /* the pool may hold this much physical memory */
	uint64_t held_bytes;      /* physical memory that it holds */
	uint64_t used_bytes;      /* of buffers and of the engine's own staging */
	uint64_t staging_bytes;   /* the engine's own part of used_bytes */
	uint64_t largest_free_bytes; /* largest buffer that fits without growing */
	uint64_t buffers;
	uint64_t defrag_epochs;   /* finished since attach */
	uint64_t defrag_moved_bytes;
	uint64_t defrag_released_bytes;
	uint32_t last_fragmentation_before_permille; /* of the last epoch that moved or released something */
	uint32_t last_fragmentation_after_permille;
	uint64_t last_epoch_us;   /* how long operations were held back */
	uint64_t device_free_bytes; /* of the GPU, all processes */
	uint64_t device_total_bytes;
	uint64_t device_used_by_engine_bytes; /* drop of device_free over attach plus pool growth since */
} stepccl_cuda_pool_info_t;

STEPCCL_API stepccl_result_t stepccl_cuda_pool_query(stepccl_cuda_t engine, stepccl_cuda_pool_info_t *info) STEPCCL_NOEXCEPT;

/*
 * Compacts the pool every interval_ms while operations run (0 = stop): physical memory under holes goes back to the
 * GPU, addresses stay what they were for users, peers and graphs captured after the call. Every rank calls it.
 * An epoch waits for the engine's own operations and holds further ones back; it cannot see other work. While it is on,
 * kernels and copies of the caller must not touch memory of the pool (stepccl_cuda_mem_alloc): they could meet an address
 * without memory, or write to what was copied already. Who has such work calls stepccl_cuda_defrag_now at a moment without it.
 * Errors: INVALID_ARGUMENT, UNSUPPORTED (memory is shared by IPC).
 */
STEPCCL_API stepccl_result_t stepccl_cuda_defrag(stepccl_cuda_t engine, uint32_t interval_ms) STEPCCL_NOEXCEPT;
/* One epoch now; every rank calls it. *released_bytes may be NULL. Errors: UNSUPPORTED, INVALID_USAGE (a capture is going on), TIMEOUT. */
STEPCCL_API stepccl_result_t stepccl_cuda_defrag_now(stepccl_cuda_t engine, uint64_t *released_bytes) STEPCCL_NOEXCEPT;

/*
 * Operations on pinned host memory, and those on plain pointers that are larger than page_bytes, go page by page
 * through prefetch_depth + 1 buffers of the pool. page_bytes 0 = off: then host memory is refused, and large operations
 * on plain pointers use three buffers of 16 MiB. Every rank calls it with the same values.
 * Errors: INVALID_ARGUMENT (page_bytes is no multiple of 2 MiB, depth not 1..15), GPU_OUT_OF_MEMORY.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_paging(stepccl_cuda_t engine, uint64_t page_bytes, uint32_t prefetch_depth) STEPCCL_NOEXCEPT;

/* ------------------------------------------------------------------------ */
/* Settings                                                                  */
/* ------------------------------------------------------------------------ */

/* 1..64. Every rank sets the same. */
STEPCCL_API stepccl_result_t stepccl_cuda_set_pipeline_depth(stepccl_cuda_t engine, uint32_t depth) STEPCCL_NOEXCEPT;
/* Most thread blocks of one operation, 1..32; 0 = by size. Every rank sets the same, between the same calls. */
STEPCCL_API stepccl_result_t stepccl_cuda_set_sm_budget(stepccl_cuda_t engine, uint32_t blocks) STEPCCL_NOEXCEPT;

/* ------------------------------------------------------------------------ */
/* Operations                                                                */
/* ------------------------------------------------------------------------ */

/* What one call wants differently, and what it learns. All ranks pass the same. */
typedef struct stepccl_cuda_call {
	uint32_t size;      /* sizeof(stepccl_cuda_call_t) */
	uint32_t path;      /* stepccl_cuda_path_t; UNSUPPORTED where the call can't go that way */
	uint32_t sm_budget; /* 0 = the engine's */
	uint32_t reserved;
	uint64_t ticket;    /* out: for stepccl_cuda_receipt and stepccl_cuda_wait_page */
} stepccl_cuda_call_t;

#define STEPCCL_CUDA_CALL_INIT { (uint32_t)sizeof(stepccl_cuda_call_t), 0, 0, 0, 0 }

/*
 * Each returns when the work is queued on `stream`. count is in elements; call may be NULL. Arithmetic as in stepccl.h;
 * ranks are added in the order 0, 1, ..., so the bits are the same on every rank, path and run. A count of 0 is a
 * barrier. In place: send == recv (all_reduce, broadcast, reduce); send == recv + rank * count (all_gather);
 * recv == send + rank * count (reduce_scatter); gather and scatter at the root likewise; all_to_all never.
 * Errors: INVALID_ARGUMENT (a NULL or misaligned pointer, overlap, a number outside its enumeration, a root outside the world),
 * WRONG_DEVICE (memory of another GPU, or host memory that is not pinned), UNSUPPORTED, CUDA, and those of status.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_all_reduce(stepccl_cuda_t engine, const void *send, void *recv, size_t count,
						     stepccl_datatype_t datatype, stepccl_redop_t redop,
						     stepccl_cuda_stream_t stream, stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* send: count elements; recv: world_size * count. */
STEPCCL_API stepccl_result_t stepccl_cuda_all_gather(stepccl_cuda_t engine, const void *send, void *recv, size_t count,
						     stepccl_datatype_t datatype, stepccl_cuda_stream_t stream,
						     stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* send: world_size * count elements; recv: count. */
STEPCCL_API stepccl_result_t stepccl_cuda_reduce_scatter(stepccl_cuda_t engine, const void *send, void *recv, size_t count,
							 stepccl_datatype_t datatype, stepccl_redop_t redop,
							 stepccl_cuda_stream_t stream, stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* send is read at the root only, recv written everywhere. */
STEPCCL_API stepccl_result_t stepccl_cuda_broadcast(stepccl_cuda_t engine, const void *send, void *recv, size_t count,
						    stepccl_datatype_t datatype, uint32_t root, stepccl_cuda_stream_t stream,
						    stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* recv is written at the root only (elsewhere it may be NULL). */
STEPCCL_API stepccl_result_t stepccl_cuda_reduce(stepccl_cuda_t engine, const void *send, void *recv, size_t count,
						 stepccl_datatype_t datatype, stepccl_redop_t redop, uint32_t root,
						 stepccl_cuda_stream_t stream, stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* send: world_size * count at the root (elsewhere may be NULL); recv: count. */
STEPCCL_API stepccl_result_t stepccl_cuda_scatter(stepccl_cuda_t engine, const void *send, void *recv, size_t count,
						  stepccl_datatype_t datatype, uint32_t root, stepccl_cuda_stream_t stream,
						  stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* send: count; recv: world_size * count at the root (elsewhere may be NULL). */
STEPCCL_API stepccl_result_t stepccl_cuda_gather(stepccl_cuda_t engine, const void *send, void *recv, size_t count,
						 stepccl_datatype_t datatype, uint32_t root, stepccl_cuda_stream_t stream,
						 stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* Both: world_size * count; block p goes to and comes from rank p. */
STEPCCL_API stepccl_result_t stepccl_cuda_all_to_all(stepccl_cuda_t engine, const void *send, void *recv, size_t count,
						     stepccl_datatype_t datatype, stepccl_cuda_stream_t stream,
						     stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* Arrays of world_size, in elements: counts and offsets of what goes to and comes from each rank. send_counts[p] of
 * rank r equals recv_counts[r] of rank p. The arrays are read before the call returns. */
STEPCCL_API stepccl_result_t stepccl_cuda_all_to_all_v(stepccl_cuda_t engine, const void *send, const size_t *send_counts,
						       const size_t *send_offsets, void *recv, const size_t *recv_counts,
						       const size_t *recv_offsets, stepccl_datatype_t datatype,
						       stepccl_cuda_stream_t stream, stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/*
 * Between two ranks: only they make the call. Matched in order for each pair. The stream waits until the other side's
 * stream has come to its call: two ranks that send to each other must put both calls into one group. Long messages go by copy
 * engine, without a thread block, where both ranks make the call within 2 ms of each other and the receiver's buffer can be shared;
 * call->path = COPY_ENGINE wants that in any size, then the calling thread waits for the peer's call, up to the timeout.
 * Errors: also MISMATCH where the two lengths are seen to differ.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_send(stepccl_cuda_t engine, const void *send, size_t count, stepccl_datatype_t datatype,
					       uint32_t peer, stepccl_cuda_stream_t stream, stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
STEPCCL_API stepccl_result_t stepccl_cuda_recv(stepccl_cuda_t engine, void *recv, size_t count, stepccl_datatype_t datatype,
					       uint32_t peer, stepccl_cuda_stream_t stream, stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;
/* The streams of all ranks have come here. */
STEPCCL_API stepccl_result_t stepccl_cuda_barrier(stepccl_cuda_t engine, stepccl_cuda_stream_t stream,
						  stepccl_cuda_call_t *call) STEPCCL_NOEXCEPT;

/*
 * Calls between the two are held back and queued by group_end; sends and receives of a group run as one exchange, so their order
 * between ranks is free. Arguments are checked at the call, what group_end meets it returns. Groups nest. One group per
 * engine at a time. Errors of group_end: INVALID_USAGE (no group), and those of the calls.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_group_start(stepccl_cuda_t engine) STEPCCL_NOEXCEPT;
STEPCCL_API stepccl_result_t stepccl_cuda_group_end(stepccl_cuda_t engine) STEPCCL_NOEXCEPT;

typedef struct stepccl_cuda_receipt_info {
	uint32_t size;       /* sizeof(stepccl_cuda_receipt_t) */
	uint32_t path;       /* stepccl_cuda_path_t */
	uint32_t blocks;     /* thread blocks; 0 on the copy engines */
	uint32_t copies;     /* copy-engine transfers */
	uint64_t runs;       /* 1, or replays of the graph; 0 = not finished (or no thread block: not counted) */
	uint64_t sm_ns;      /* sum over blocks and runs of the time that each held its multiprocessor */
	uint64_t link_bytes; /* sent to peers, per run */
} stepccl_cuda_receipt_t;

/*
 * What an operation took. Blocks until the engine's bookkeeping is read from the GPU (about 20 us; not for operations that still run).
 * The last 1024 tickets are kept. Errors: INVALID_ARGUMENT (an old or unknown ticket).
 */
STEPCCL_API stepccl_result_t stepccl_cuda_receipt(stepccl_cuda_t engine, uint64_t ticket, stepccl_cuda_receipt_t *receipt) STEPCCL_NOEXCEPT;

/*
 * Makes `stream` wait until page `page` (from 0) of a paged operation is in its place in recv; with stream == NULL the calling thread
 * waits, up to the engine's timeout. For an operation that was not paged: until all of it is. Not for captured
 * operations. Errors: INVALID_ARGUMENT, TIMEOUT.
 */
STEPCCL_API stepccl_result_t stepccl_cuda_wait_page(stepccl_cuda_t engine, uint64_t ticket, uint64_t page,
						    stepccl_cuda_stream_t stream) STEPCCL_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STEPCCL_CUDA_H */
