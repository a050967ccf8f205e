/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on a communicator. Included by stepccl/stepccl.h; include that.
 *
 * Common to all of them. Buffers are host memory, aligned to the datatype; a buffer may be NULL where nothing is read from
 * or written to it. `count` is in elements. All ranks make the same calls in the same order with the same count, datatype,
 * reduction, root and algorithm; a call that differs is found and named on every rank (MISMATCH). Without call->request an
 * operation blocks until this rank's part is done and both buffers may be used again. Results have the same bits on every
 * rank and in every run with the same world size, algorithm and chunk size.
 * Errors: INVALID_ARGUMENT, INVALID_USAGE, UNSUPPORTED, PEER_*, TIMEOUT, MISMATCH, ABORTED, OUT_OF_MEMORY, MEMLOCK,
 * TRANSPORT_*. After any error but INVALID_* and UNSUPPORTED the output is undefined and the communicator is unusable:
 * every rank learns of it.
 * In place means the exact pointers that a function names; any other overlap of input and output is refused.
 */
#ifndef STEPCCL_OPERATIONS_H
#define STEPCCL_OPERATIONS_H

#include "stepccl/stepccl.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stepccl_request *stepccl_request_t;

/* What one call wants differently from its communicator. All ranks pass the same algorithm, priority, compression and
 * page_bytes. */
typedef struct stepccl_call {
	uint32_t size;       /* sizeof(stepccl_call_t) */
	uint32_t timeout_ms; /* without any progress; 0 = the communicator's */
	uint32_t algorithm;  /* stepccl_algorithm_t; AUTO = the communicator's */
	uint32_t reserved;
	/* Since the first published version: */
	stepccl_request_t *request; /* not NULL: asynchronous. Receives a handle on SUCCESS; free it with stepccl_request_free */
	void *stream;            /* a CUDA stream, for device buffers of a build with USE_CUDA; NULL for host memory */
	uint32_t priority;       /* stepccl_priority_t. Above NORMAL it needs config.priority_levels */
	uint32_t compression;    /* stepccl_compression_t, of fp32 sums and averages */
	uint64_t page_bytes;     /* 0 = the communicator's; UINT64_MAX = no paging */
	uint32_t prefetch_depth; /* 0 = the communicator's */
	uint32_t reserved1;
} stepccl_call_t;

#define STEPCCL_CALL_INIT { (uint32_t)sizeof(stepccl_call_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }

/* recv[i] on every rank = reduction over ranks of send[i], i < count. In place: send == recv. */
STEPCCL_API stepccl_result_t stepccl_all_reduce(stepccl_comm_t comm, const void *send, void *recv, size_t count,
						stepccl_datatype_t datatype, stepccl_redop_t redop,
						const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/* recv[r * count + i] on every rank = send[i] of rank r; recv holds world x count. In place: send == recv + rank * count. */
STEPCCL_API stepccl_result_t stepccl_all_gather(stepccl_comm_t comm, const void *send, void *recv, size_t count,
						stepccl_datatype_t datatype, const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/* recv[i] on rank r = reduction over ranks of send[r * count + i]; send holds world x count. In place:
 * recv == send + rank * count. */
STEPCCL_API stepccl_result_t stepccl_reduce_scatter(stepccl_comm_t comm, const void *send, void *recv, size_t count,
						    stepccl_datatype_t datatype, stepccl_redop_t redop,
						    const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/* recv[i] on every rank = send[i] of root; send is read on root alone. In place: send == recv. */
STEPCCL_API stepccl_result_t stepccl_broadcast(stepccl_comm_t comm, const void *send, void *recv, size_t count,
					       stepccl_datatype_t datatype, uint32_t root, const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/* recv[i] on root = reduction over ranks of send[i]; recv is written on root alone. In place: send == recv. */
STEPCCL_API stepccl_result_t stepccl_reduce(stepccl_comm_t comm, const void *send, void *recv, size_t count,
					    stepccl_datatype_t datatype, stepccl_redop_t redop, uint32_t root,
					    const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/* recv[i] on rank r = send[r * count + i] of root, where send holds world x count. In place on root:
 * recv == send + root * count. */
STEPCCL_API stepccl_result_t stepccl_scatter(stepccl_comm_t comm, const void *send, void *recv, size_t count,
					     stepccl_datatype_t datatype, uint32_t root, const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/* recv[r * count + i] on root = send[i] of rank r; recv holds world x count there. In place on root:
 * send == recv + root * count. */
STEPCCL_API stepccl_result_t stepccl_gather(stepccl_comm_t comm, const void *send, void *recv, size_t count,
					    stepccl_datatype_t datatype, uint32_t root, const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/* recv[r * count + i] on rank q = send[q * count + i] of rank r; both hold world x count. In place: send == recv. */
STEPCCL_API stepccl_result_t stepccl_all_to_all(stepccl_comm_t comm, const void *send, void *recv, size_t count,
						stepccl_datatype_t datatype, const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/*
 * The same with a count and a displacement (both in elements, world of each) for every peer: recv_counts[r] here must be
 * send_counts[rank] on rank r. The arrays may be freed when the call returns, also of an asynchronous one. Ranges of recv
 * must not overlap. In place: send == recv, whatever the counts.
 */
STEPCCL_API stepccl_result_t stepccl_all_to_all_v(stepccl_comm_t comm, const void *send, const size_t *send_counts,
						  const size_t *send_displacements, void *recv, const size_t *recv_counts,
						  const size_t *recv_displacements, stepccl_datatype_t datatype,
						  const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/*
 * One message from this rank to peer, and from peer to this rank; the k-th send of a pair meets its k-th receive. Two ranks
 * that both send to each other do it in a group (or asynchronously), else each may wait for the other. A message to
 * oneself works in a group alone.
 */
STEPCCL_API stepccl_result_t stepccl_send(stepccl_comm_t comm, const void *buffer, size_t count, stepccl_datatype_t datatype,
					  uint32_t peer, const stepccl_call_t *call) STEPCCL_NOEXCEPT;
STEPCCL_API stepccl_result_t stepccl_recv(stepccl_comm_t comm, void *buffer, size_t count, stepccl_datatype_t datatype,
					  uint32_t peer, const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/* Returns when every rank has called it. */
STEPCCL_API stepccl_result_t stepccl_barrier(stepccl_comm_t comm, const stepccl_call_t *call) STEPCCL_NOEXCEPT;

/*
 * Between them operations of this thread are only collected; the outermost stepccl_group_end starts them all and waits for
 * those that are not asynchronous. The operations of one communicator move side by side; all_reduces of up to 256 KiB with
 * one datatype, reduction and call travel as one. Groups nest. An error of an operation inside a group is the error of
 * stepccl_group_end (the first one counts) and nothing of the group has moved where the argument check failed.
 * Errors: INVALID_USAGE (group_end without group_start), those of the operations.
 */
STEPCCL_API stepccl_result_t stepccl_group_start(void) STEPCCL_NOEXCEPT;
STEPCCL_API stepccl_result_t stepccl_group_end(void) STEPCCL_NOEXCEPT;

/* ------------------------------------------------------------------------ */
/* Requests: handles of asynchronous operations                              */
/* ------------------------------------------------------------------------ */

/*
 * Operations of one communicator run in the order in which they are called, in a thread of the library. Both buffers belong
 * to the library until the request is done. With config.fusion_bytes small all_reduces are held back until enough have come
 * together, and leave at the latest with the next wait, test, blocking call or other kind of operation on the communicator:
 * these then have to come at the same place on every rank.
 *
 * wait: until the operation is done, at most timeout_ms (0 = only the operation's own timeout ends it).
 * The operation's result; TIMEOUT with stepccl_last_error's phase NONE when timeout_ms has passed: the operation goes on.
 * May be called from any thread, and again.
 */
STEPCCL_API stepccl_result_t stepccl_request_wait(stepccl_request_t request, uint32_t timeout_ms) STEPCCL_NOEXCEPT;
/* *done = 1 when the operation has ended; its result is then returned (SUCCESS while it runs). Does not block. */
STEPCCL_API stepccl_result_t stepccl_request_test(stepccl_request_t request, int *done) STEPCCL_NOEXCEPT;
/* Waits until page `page` (from 0) of a paged operation is complete on this rank: its elements of every block of the output may be
 * used while later pages move. INVALID_ARGUMENT where there is no such page. Otherwise as stepccl_request_wait. */
STEPCCL_API stepccl_result_t stepccl_request_wait_page(stepccl_request_t request, uint64_t page, uint32_t timeout_ms) STEPCCL_NOEXCEPT;

typedef struct stepccl_request_info {
	uint32_t size;       /* sizeof(stepccl_request_info_t) */
	uint32_t state;      /* enum stepccl_op_state; 0 = waits for its turn */
	uint32_t result;     /* stepccl_result_t once done */
	uint32_t algorithm;  /* stepccl_algorithm_t, once started */
	uint64_t sequence;   /* number of the operation in its communicator, once started; 0 for send and recv */
	uint64_t pages;      /* 1 where the operation is not paged */
	uint64_t pages_done; /* from the first page on, without a gap */
	uint64_t page_elements; /* of each block; the last page may be shorter */
	uint32_t fused;      /* operations that travelled as one with this one, itself included; 1 = alone */
	uint32_t compression; /* stepccl_compression_t that was used */
	double compression_error; /* largest |rounded - exact| of this rank's part; 0 without compression */
} stepccl_request_info_t;

/* Any thread, any time before the free. Errors: INVALID_ARGUMENT. */
STEPCCL_API stepccl_result_t stepccl_request_query(stepccl_request_t request, stepccl_request_info_t *info) STEPCCL_NOEXCEPT;
/* Gives the handle back; an operation that has not ended goes on. */
STEPCCL_API stepccl_result_t stepccl_request_free(stepccl_request_t request) STEPCCL_NOEXCEPT;

/* ------------------------------------------------------------------------ */
/* The choice of algorithm                                                    */
/* ------------------------------------------------------------------------ */

/*
 * What an operation of `bytes` (of the full array) would run as, and why: one line per algorithm that could run, with its
 * predicted time in us, where the figures come from and what excludes it. text receives at most text_bytes with the NUL;
 * *chosen (may be NULL) receives the algorithm. Errors: INVALID_ARGUMENT, UNSUPPORTED (nothing is allowed to run).
 */
STEPCCL_API stepccl_result_t stepccl_comm_explain(stepccl_comm_t comm, stepccl_collective_t collective, uint64_t bytes,
						  const stepccl_call_t *call, stepccl_algorithm_t *chosen, char *text,
						  size_t text_bytes) STEPCCL_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* STEPCCL_OPERATIONS_H */
