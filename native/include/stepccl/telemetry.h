/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a process that uses libstepccl shows to the node's daemon, and what the
 * daemon sends on to the console. One definition for every side: the library
 * writes the ring, stepccld reads it and encodes frames, the console's addon
 * decodes them.
 *
 * All integers are little-endian. Structs hold no implicit padding.
 */
#ifndef STEPCCL_TELEMETRY_H
#define STEPCCL_TELEMETRY_H

#include <stdint.h>

/* Enumerations are ints in C and in C++, so that a number outside one is an error to report and not undefined
 * behaviour. */
#ifdef __cplusplus
#define STEPCCL_INT_ENUM : int
extern "C" {
#else
#define STEPCCL_INT_ENUM
#endif

/* ------------------------------------------------------------------------ */
/* 1. The ring: one file for each rank, single producer, single consumer.    */
/* ------------------------------------------------------------------------ */

/*
 * A rank creates STEPCCL_RING_DIR/<pid>.<rank>.<comm id, 16 hex digits>.ring with
 * mode 0660 (O_CREAT|O_EXCL, group of the directory) and maps it. The directory
 * belongs to the daemon (0770, group stepccl, setgid). STEPCCL_TELEMETRY_DIR
 * overrides it; where it doesn't exist or can't be written the library runs
 * without telemetry.
 * Layout: stepccl_ring_header, stepccl_flow[STEPCCL_RING_FLOWS],
 * stepccl_op[op_slots]. op_slots is a power of two.
 *
 * The producer never blocks. It writes slot (op_head & (op_slots - 1)), then
 * stores op_head + 1 with release order. The consumer keeps its own tail; when
 * op_head - tail > op_slots it has lost op_head - tail - op_slots records, says
 * how many, and goes on. The consumer re-reads op_head after copying a slot and
 * drops the copy when it may have been overwritten meanwhile.
 */
#define STEPCCL_RING_DIR "/run/stepccl/rings"
#define STEPCCL_RING_MAGIC 0x31524353u /* "SCR1" */
#define STEPCCL_RING_VERSION 1u
#define STEPCCL_RING_FLOWS 256u
#define STEPCCL_RING_OP_SLOTS 1024u

enum stepccl_transport STEPCCL_INT_ENUM {
	STEPCCL_TRANSPORT_NONE = 0,
	STEPCCL_TRANSPORT_SHM = 1,
	STEPCCL_TRANSPORT_TCP = 2,
	STEPCCL_TRANSPORT_RDMA = 3,
	STEPCCL_TRANSPORT_DMA = 4,      /* /dev/dma_device, inside one node */
	STEPCCL_TRANSPORT_GPU_PEER = 5, /* NVLink or PCIe peer copies */
};

enum stepccl_op_state STEPCCL_INT_ENUM {
	STEPCCL_OP_STARTED = 1,
	STEPCCL_OP_COMPLETED = 2,
	STEPCCL_OP_FAILED = 3,
};

struct stepccl_ring_header {
	uint32_t magic;
	uint32_t version;
	uint32_t header_bytes; /* offset of the flows */
	uint32_t op_slots;
	uint32_t pid;
	uint32_t rank;
	uint32_t world_size;
	uint32_t flow_count; /* flows in use, release-stored by the producer */
	uint64_t comm_id;
	uint64_t start_realtime_ns;
	uint64_t heartbeat_ns; /* CLOCK_MONOTONIC of the producer's last sign of life */
	uint64_t op_head;      /* records written since creation, release-stored */
	uint8_t job_name[64]; /* NUL-terminated: what the user called this job */
	uint64_t reserved[8];
};

/* Bytes between this rank and one peer over one transport; totals since start. */
struct stepccl_flow {
	uint32_t peer_rank;
	uint8_t transport; /* enum stepccl_transport */
	uint8_t reserved0[3];
	uint32_t peer_ipv4; /* network byte order; 0 where the transport has none */
	uint32_t queue_depth; /* operations posted and not completed */
	uint64_t tx_bytes;
	uint64_t rx_bytes;
	uint64_t tx_ops;
	uint64_t rx_ops;
	uint64_t errors;
	uint64_t reserved1;
};

/*
 * One operation of one rank. A record is written at its start and at its end; a short one inside a node (below a
 * microsecond or so) that never had to wait has that of its end alone.
 */
struct stepccl_op {
	uint64_t sequence; /* operation number inside the communicator, from 1 */
	uint64_t begin_ns; /* CLOCK_MONOTONIC */
	uint64_t end_ns;   /* 0 while it runs */
	uint64_t bytes;    /* of the full array, as nccl-tests counts "size" */
	uint64_t sm_ns;    /* streaming-multiprocessor time; 0 on the CPU */
	uint8_t state;      /* enum stepccl_op_state */
	uint8_t collective; /* stepccl_collective_t */
	uint8_t algorithm;  /* stepccl_algorithm_t */
	uint8_t transport;  /* enum stepccl_transport: the slowest one used */
	uint8_t datatype;   /* stepccl_datatype_t */
	uint8_t redop;      /* stepccl_redop_t */
	uint16_t error;     /* stepccl_result_t, positive; 0 = none */
	uint32_t root;
	uint32_t reserved0;
	uint64_t reserved1;
};

/* ------------------------------------------------------------------------ */
/* 2. The control page: live settings, written by the daemon alone.          */
/* ------------------------------------------------------------------------ */

/*
 * STEPCCL_CONTROL_FILE, mode 0640, group stepccl. A rank maps it read-only and
 * reads it at operation boundaries: load seq (acquire); odd = being written, keep
 * the old values; copy; load seq again; take the copy when both are equal.
 * 0 in a field means "not set here: keep the process's own value".
 */
#define STEPCCL_CONTROL_FILE "/run/stepccl/control"
#define STEPCCL_CONTROL_MAGIC 0x31434353u /* "SCC1" */

struct stepccl_control {
	uint32_t magic;
	uint32_t version; /* 1 */
	uint64_t seq;
	uint32_t pipeline_depth;
	uint32_t dma_concurrency;
	uint32_t hbm_defrag_interval_ms;
	uint8_t hbm_defrag; /* 0 unset, 1 off, 2 on; likewise below */
	uint8_t async_gd;
	uint8_t paging;
	uint8_t compression;
	uint64_t page_bytes;
	uint32_t prefetch_depth;
	uint32_t sm_budget;                 /* thread blocks */
	uint64_t buffer_bytes;              /* of each GPU's pool */
	uint32_t hbm_cache_ratio_permille;  /* of the GPU's memory; buffer_bytes counts before it */
	uint8_t encryption;                 /* TLS for the data between nodes */
	uint8_t reserved0[3];
	uint64_t reserved[7];
};

/* ------------------------------------------------------------------------ */
/* 3. The frame: daemon -> console, binary, on the JSON-RPC stream.          */
/* ------------------------------------------------------------------------ */

/*
 * A JSON-RPC message begins with '{' and ends with '\n'; a frame begins with
 * STEPCCL_FRAME_MAGIC ('S' first) and says its own length. Nothing else may
 * stand between them.
 *
 * Layout: stepccl_frame_header, then nic_count x stepccl_frame_nic, then
 * flow_count x stepccl_frame_flow, then op_count x stepccl_frame_op.
 * A decoder refuses a frame whose total_bytes is not exactly what the counts
 * give, or above STEPCCL_FRAME_MAX_BYTES.
 */
#define STEPCCL_FRAME_MAGIC 0x31464353u /* "SCF1" */
#define STEPCCL_FRAME_VERSION 1u
#define STEPCCL_FRAME_MAX_BYTES (1u << 20)
#define STEPCCL_NODE_UNKNOWN 0xffffu

struct stepccl_frame_header {
	uint32_t magic;
	uint32_t total_bytes;
	uint16_t version;
	uint16_t node; /* the cluster's number of this node, or STEPCCL_NODE_UNKNOWN */
	uint32_t interval_ms;
	uint64_t sequence; /* from 1, by subscription */
	uint64_t monotonic_ns;
	uint64_t realtime_ns;
	uint64_t lost_ops; /* records overwritten before they were read, total */
	uint32_t nic_count;
	uint32_t flow_count;
	uint32_t op_count;
	uint32_t rank_count; /* live rings */
	uint32_t daemon_rss_kib;
	uint32_t cpu_permille; /* of all the node's CPUs, over the interval */
	uint64_t mem_available_bytes;
};

/* Totals of one network interface or RDMA port, as the kernel counts them. */
struct stepccl_frame_nic {
	uint8_t name[16]; /* netdev or RDMA device, NUL-padded */
	uint8_t kind;     /* 1 netdev, 2 RDMA port */
	uint8_t port;     /* RDMA port number */
	uint8_t state;    /* 0 unknown, 1 down, 2 init, 3 armed, 4 active */
	uint8_t reserved0;
	uint32_t speed_mbps; /* 0 = the kernel doesn't say */
	uint64_t tx_bytes;
	uint64_t rx_bytes;
	uint64_t tx_packets;
	uint64_t rx_packets;
	uint64_t errors;
	uint64_t drops;
};

struct stepccl_frame_flow {
	uint64_t comm_id;
	uint32_t rank;
	uint32_t peer_rank;
	uint16_t peer_node; /* by the member's address, or STEPCCL_NODE_UNKNOWN */
	uint8_t transport;
	uint8_t reserved0;
	uint32_t queue_depth;
	uint64_t tx_bytes;
	uint64_t rx_bytes;
	uint64_t tx_ops;
	uint64_t rx_ops;
	uint64_t errors;
};

struct stepccl_frame_op {
	uint64_t comm_id;
	uint64_t sequence;
	uint64_t begin_ns;
	uint64_t end_ns;
	uint64_t bytes;
	uint64_t sm_ns;
	uint32_t rank;
	uint32_t world_size;
	uint8_t state;
	uint8_t collective;
	uint8_t algorithm;
	uint8_t transport;
	uint8_t datatype;
	uint8_t redop;
	uint16_t error;
};

/* ------------------------------------------------------------------------ */
/* 4. The flight recorder: the last operations of a rank, readable after it. */
/* ------------------------------------------------------------------------ */

/*
 * A rank creates <ring directory>/<pid>.<rank>.<comm id, 16 hex digits>.flight beside its ring, likewise with mode
 * 0660 and O_EXCL. It removes the file when the communicator ends well, and leaves it where an operation failed or the
 * process was killed; the daemon removes what is left behind after a while.
 * Layout: stepccl_flight_header, stepccl_flight_op[op_slots]. op_slots is a power of two.
 *
 * Operations take the slots in turn, in the order of the calls, and are changed in place as they go on. A slot whose
 * operation has not ended is passed over, so that what a rank hangs in stays however much is called after it. A writer makes `edits` odd, changes the record, makes it even again. A reader that finds it odd
 * or changed reads again; a record that stays odd belongs to a rank that was stopped or killed in the middle, and is
 * taken as it is: every field of it is either old or new.
 */
#define STEPCCL_FLIGHT_MAGIC 0x31524653u /* "SFR1" */
#define STEPCCL_FLIGHT_VERSION 1u
#define STEPCCL_FLIGHT_OP_SLOTS 1024u
#define STEPCCL_FLIGHT_WAITING 14u
#define STEPCCL_FLIGHT_NO_REDOP 0xffu

enum stepccl_flight_state {
	STEPCCL_FLIGHT_QUEUED = 1,
	STEPCCL_FLIGHT_STARTED = 2,
	STEPCCL_FLIGHT_COMPLETED = 3,
	STEPCCL_FLIGHT_FAILED = 4,
};

struct stepccl_flight_header {
	uint32_t magic;
	uint32_t version;
	uint32_t header_bytes; /* offset of the operations */
	uint32_t op_slots;
	uint32_t pid;
	uint32_t rank;
	uint32_t world_size;
	uint32_t reserved0;
	uint64_t comm_id;
	uint64_t op_head; /* slots taken or passed over since creation, release-stored */
	uint8_t job_name[64]; /* NUL-terminated */
	uint64_t reserved[8];
};

enum stepccl_flight_message {
	STEPCCL_FLIGHT_COLLECTIVE = 0,
	STEPCCL_FLIGHT_SEND = 1,
	STEPCCL_FLIGHT_RECV = 2,
};

/* Times are CLOCK_MONOTONIC, 0 = not yet. */
struct stepccl_flight_op {
	uint32_t edits;
	uint32_t root; /* of a send or receive: the peer */
	/* A collective: which one of the communicator it is, from 1, counted alike on all ranks. A send or receive: which one
	 * of this pair and direction, from 1; 0 until it has started. */
	uint64_t sequence;
	uint64_t queued_ns;
	uint64_t started_ns;
	uint64_t ended_ns;
	uint64_t count;
	uint64_t bytes;
	uint8_t state;      /* enum stepccl_flight_state */
	uint8_t collective; /* stepccl_collective_t */
	uint8_t algorithm;  /* stepccl_algorithm_t; 0 = not chosen yet */
	uint8_t transport;  /* enum stepccl_transport: the slowest one used; 0 = not known yet */
	uint8_t datatype;   /* stepccl_datatype_t */
	uint8_t redop;      /* stepccl_redop_t, or STEPCCL_FLIGHT_NO_REDOP */
	uint16_t error;     /* stepccl_result_t; 0 = none */
	uint32_t waiting_count; /* ranks whose data or readiness it lacked when it last stood still */
	uint32_t waiting[STEPCCL_FLIGHT_WAITING]; /* the first of them, ascending */
	uint8_t message; /* enum stepccl_flight_message */
	uint8_t reserved0[3];
};

/* ------------------------------------------------------------------------ */
/* 5. The GPU board: what the GPU engine of a rank is like now.              */
/* ------------------------------------------------------------------------ */

/*
 * A rank with a GPU engine creates <ring directory>/<pid>.<rank>.<comm id, 16 hex digits>.gpu with mode 0660 and
 * O_EXCL, writes it about four times a second and whenever a setting or the pool has changed, and removes it when the
 * engine ends. `edits` is odd while it is written: a reader takes a copy when it was even and the same before and after.
 */
#define STEPCCL_GPU_MAGIC 0x31474353u /* "SCG1" */
#define STEPCCL_GPU_VERSION 1u
#define STEPCCL_GPU_RANGES 256u

/* Rows of `settings`, each a field of stepccl_control. */
enum stepccl_gpu_setting STEPCCL_INT_ENUM {
	STEPCCL_GPU_PIPELINE_DEPTH = 0,
	STEPCCL_GPU_SM_BUDGET = 1,
	STEPCCL_GPU_DMA_CONCURRENCY = 2,
	STEPCCL_GPU_ASYNC_GD = 3,               /* 0 off, 1 on */
	STEPCCL_GPU_HBM_DEFRAG = 4,             /* 0 off, 1 on */
	STEPCCL_GPU_HBM_DEFRAG_INTERVAL_MS = 5,
	STEPCCL_GPU_PAGING = 6,                 /* 0 off, 1 on */
	STEPCCL_GPU_PAGE_BYTES = 7,
	STEPCCL_GPU_PREFETCH_DEPTH = 8,
	STEPCCL_GPU_BUFFER_BYTES = 9,
	STEPCCL_GPU_HBM_CACHE_RATIO_PERMILLE = 10,
};
#define STEPCCL_GPU_SETTING_COUNT 11u

enum stepccl_gpu_setting_state STEPCCL_INT_ENUM {
	STEPCCL_GPU_SETTING_OWN = 0,     /* the daemon sets nothing: the process's own value is in force */
	STEPCCL_GPU_SETTING_APPLIED = 1,
	STEPCCL_GPU_SETTING_PENDING = 2, /* not yet on all ranks; `reason` says what it waits for */
	STEPCCL_GPU_SETTING_REFUSED = 3, /* `reason` says why; in_force is what it was before */
};

enum stepccl_gpu_reason STEPCCL_INT_ENUM {
	STEPCCL_GPU_REASON_NONE = 0,
	STEPCCL_GPU_REASON_NEXT_CALL = 1,      /* it counts from the ranks' next common call on */
	STEPCCL_GPU_REASON_BUSY = 2,           /* a rank is inside a call */
	STEPCCL_GPU_REASON_OUT_OF_RANGE = 3,   /* the engine can't take this value */
	STEPCCL_GPU_REASON_NO_MEMORY = 4,      /* the pool or the GPU has no room for it */
	STEPCCL_GPU_REASON_UNGATED_GRAPHS = 5, /* live graphs were captured before defragmentation was switched on */
	STEPCCL_GPU_REASON_NEEDS_OTHER = 6,    /* it says something only together with a setting that is off */
	STEPCCL_GPU_REASON_OVERRIDDEN = 7,     /* another setting counts before it */
	STEPCCL_GPU_REASON_FAILED = 8,         /* the engine has ended with an error */
};
#define STEPCCL_GPU_REASON_COUNT 9u

struct stepccl_gpu_setting_row {
	uint64_t wanted;   /* of the daemon; 0 where it sets nothing */
	uint64_t in_force;
	uint8_t state;     /* enum stepccl_gpu_setting_state */
	uint8_t reason;    /* enum stepccl_gpu_reason */
	uint8_t reserved[6];
};

enum stepccl_gpu_range_kind STEPCCL_INT_ENUM {
	STEPCCL_GPU_RANGE_FREE = 0,    /* physical memory that nothing uses */
	STEPCCL_GPU_RANGE_BUFFER = 1,
	STEPCCL_GPU_RANGE_ENGINE = 2,  /* flags, staging and pages of the engine */
};

/* A part of the pool that has physical memory. Offsets are addresses less the pool's base; between two ranges there is none. */
struct stepccl_gpu_range {
	uint64_t offset;
	uint64_t bytes;
	uint8_t kind; /* enum stepccl_gpu_range_kind */
	uint8_t reserved[7];
};

struct stepccl_gpu_board {
	uint32_t magic;
	uint32_t version;
	uint32_t total_bytes; /* sizeof(struct stepccl_gpu_board) */
	uint32_t edits;
	uint32_t pid;
	uint32_t rank;
	uint32_t world_size;
	uint32_t error;       /* stepccl_result_t that ended the engine; 0 = it works */
	uint64_t comm_id;
	uint64_t updated_ns;  /* CLOCK_MONOTONIC */
	uint64_t operations;  /* begun */
	uint8_t job_name[64]; /* NUL-terminated, likewise the next two */
	uint8_t gpu_uuid[48];
	uint8_t async_reason[128]; /* why async_level is not higher */
	uint32_t async_level;      /* stepccl_cuda_async_level_t */
	uint32_t multiprocessors;
	uint32_t sm_budget;        /* 0 = by size */
	uint32_t pipeline_depth;
	uint32_t dma_concurrency;
	uint32_t prefetch_depth;
	uint32_t graph_lanes;
	uint32_t lanes_in_use;
	uint32_t defrag_interval_ms;         /* 0 = off */
	uint32_t fragmentation_permille;
	uint32_t last_before_permille;       /* of the last epoch that moved or released something */
	uint32_t last_after_permille;
	uint32_t hbm_cache_ratio_permille;
	uint32_t defrag_blocked;             /* enum stepccl_gpu_reason: why the last epoch could not be held; 0 = it could */
	uint64_t page_bytes;                 /* 0 = paging off */
	uint64_t capacity_bytes;
	uint64_t held_bytes;
	uint64_t used_bytes;
	uint64_t staging_bytes;
	uint64_t largest_free_bytes;
	uint64_t buffers;
	uint64_t device_free_bytes;
	uint64_t device_total_bytes;
	uint64_t defrag_epochs;
	uint64_t defrag_moved_bytes;
	uint64_t defrag_released_bytes;
	uint64_t last_epoch_us;
	uint64_t last_epoch_ns;    /* CLOCK_MONOTONIC; 0 = none */
	uint64_t control_seq;      /* of the control page that the rows answer; 0 = none was found */
	uint32_t range_count;
	uint32_t ranges_omitted;
	struct stepccl_gpu_setting_row settings[STEPCCL_GPU_SETTING_COUNT];
	struct stepccl_gpu_range ranges[STEPCCL_GPU_RANGES];
};

#ifdef __cplusplus
} /* extern "C" */
static_assert(sizeof(stepccl_ring_header) == 192, "ring header");
static_assert(sizeof(stepccl_flow) == 64, "flow");
static_assert(sizeof(stepccl_op) == 64, "op");
static_assert(sizeof(stepccl_flight_header) == 176, "flight header");
static_assert(sizeof(stepccl_flight_op) == 128, "flight op");
static_assert(sizeof(stepccl_control) == 120, "control");
static_assert(sizeof(stepccl_gpu_setting_row) == 24 && sizeof(stepccl_gpu_range) == 24, "gpu rows");
static_assert(sizeof(stepccl_gpu_board) == 480 + 24 * (STEPCCL_GPU_SETTING_COUNT + STEPCCL_GPU_RANGES), "gpu board");
static_assert(sizeof(stepccl_frame_header) == 80, "frame header");
static_assert(sizeof(stepccl_frame_nic) == 72, "frame nic");
static_assert(sizeof(stepccl_frame_flow) == 64, "frame flow");
static_assert(sizeof(stepccl_frame_op) == 64, "frame op");
#endif

#endif /* STEPCCL_TELEMETRY_H */
