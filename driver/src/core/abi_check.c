// SPDX-License-Identifier: GPL-2.0
/* The binary interface as ABI 1.0 froze it: any change here is a new major. */
#include <linux/stepccl_dma.h>

#include "env.h"

#define AT(type, field, off) \
	_Static_assert(offsetof(struct stepccl_dma_##type, field) == (off), #type "." #field)
#define SIZE(type, bytes) \
	_Static_assert(sizeof(struct stepccl_dma_##type) == (bytes), "size of " #type)

AT(desc, src, 0); AT(desc, dst, 8); AT(desc, length, 16); AT(desc, src_node, 20);
AT(desc, dst_node, 22); AT(desc, opcode, 24); AT(desc, reserved, 25);
SIZE(desc, 32);

AT(sqe, src, 0); AT(sqe, dst, 8); AT(sqe, length, 16); AT(sqe, src_node, 20);
AT(sqe, dst_node, 22); AT(sqe, opcode, 24); AT(sqe, flags, 25); AT(sqe, prio, 26);
AT(sqe, timeout_ms, 28); AT(sqe, user_data, 32); AT(sqe, src_key, 40); AT(sqe, dst_key, 44);
AT(sqe, reserved, 48);
SIZE(sqe, 64);

AT(cqe, user_data, 0); AT(cqe, res, 8); AT(cqe, bytes, 12); AT(cqe, flags, 16);
AT(cqe, detail, 18); AT(cqe, engine, 20); AT(cqe, nsec, 24);
SIZE(cqe, 32);

AT(ring_hdr, magic, 0); AT(ring_hdr, abi, 4); AT(ring_hdr, flags, 8); AT(ring_hdr, state, 12);
SIZE(ring_hdr, 16);

AT(hello, size, 0); AT(hello, abi_major, 4); AT(hello, abi_minor, 6); AT(hello, features, 8);
AT(hello, supported, 16); AT(hello, version, 24); AT(hello, git_id, 40);
SIZE(hello, 64);

AT(query, size, 0); AT(query, op, 4); AT(query, index, 8); AT(query, data_size, 12);
AT(query, data, 16);
SIZE(query, 24);

AT(limits, max_contexts, 0); AT(limits, max_contexts_per_user, 4); AT(limits, max_mrs, 8);
AT(limits, max_entries, 12); AT(limits, max_mr_bytes, 16); AT(limits, max_op_bytes, 24);
AT(limits, dma_min_bytes, 28); AT(limits, drain_ms, 32); AT(limits, op_timeout_ms, 36);
AT(limits, cpu_step_bytes, 40); AT(limits, engines, 44); AT(limits, page_bytes, 48);
AT(limits, local_node, 52);
SIZE(limits, 56);

AT(engine_info, driver, 0); AT(engine_info, bus_id, 32); AT(engine_info, numa_node, 64);
AT(engine_info, align_bytes, 68); AT(engine_info, max_bytes, 72); AT(engine_info, flags, 80);
AT(engine_info, state, 84);
SIZE(engine_info, 88);

AT(counters, ops_read, 0); AT(counters, ops_write, 8); AT(counters, ops_failed, 16);
AT(counters, ops_cancelled, 24); AT(counters, bytes_cpu, 32); AT(counters, bytes_dma, 40);
AT(counters, cpu_no_engine, 48); AT(counters, cpu_small, 56); AT(counters, cpu_align, 64);
AT(counters, cpu_quarantined, 72); AT(counters, cpu_busy, 80); AT(counters, cpu_policy, 88);
AT(counters, verify_mismatch, 96); AT(counters, mrs, 104); AT(counters, pinned_pages, 112);
AT(counters, quarantined_pages, 120); AT(counters, contexts, 128);
SIZE(counters, 136);

AT(last_error, code, 0); AT(last_error, err, 4); AT(last_error, boottime_ns, 8);
AT(last_error, count, 16); AT(last_error, text, 24);
SIZE(last_error, 184);

AT(route, node, 0); AT(route, state, 2); AT(route, reserved, 3); AT(route, numa_node, 4);
SIZE(route, 8);

AT(ctx_create, size, 0); AT(ctx_create, flags, 4); AT(ctx_create, sq_entries, 8);
AT(ctx_create, cq_entries, 12); AT(ctx_create, policy, 16); AT(ctx_create, eventfd, 20);
AT(ctx_create, ctx_id, 24); AT(ctx_create, detail, 28); AT(ctx_create, mmap_bytes, 32);
AT(ctx_create, off_sq_head, 40); AT(ctx_create, off_sq_tail, 44);
AT(ctx_create, off_cq_head, 48); AT(ctx_create, off_cq_tail, 52);
AT(ctx_create, off_sqes, 56); AT(ctx_create, off_cqes, 60);
SIZE(ctx_create, 64);

AT(mr_reg, size, 0); AT(mr_reg, access, 4); AT(mr_reg, va, 8); AT(mr_reg, len, 16);
AT(mr_reg, iova, 24); AT(mr_reg, flags, 32); AT(mr_reg, key, 36); AT(mr_reg, pages, 40);
AT(mr_reg, fail_page, 48); AT(mr_reg, detail, 56); AT(mr_reg, reserved, 60);
SIZE(mr_reg, 64);

AT(mr_reg_dmabuf, size, 0); AT(mr_reg_dmabuf, fd, 4); AT(mr_reg_dmabuf, offset, 8);
AT(mr_reg_dmabuf, len, 16); AT(mr_reg_dmabuf, iova, 24); AT(mr_reg_dmabuf, access, 32);
AT(mr_reg_dmabuf, flags, 36); AT(mr_reg_dmabuf, key, 40); AT(mr_reg_dmabuf, detail, 44);
SIZE(mr_reg_dmabuf, 48);

AT(mr_dereg, size, 0); AT(mr_dereg, key, 4);
SIZE(mr_dereg, 8);

AT(mr_export, size, 0); AT(mr_export, key, 4); AT(mr_export, access, 8); AT(mr_export, fd, 12);
SIZE(mr_export, 16);

AT(mr_import, size, 0); AT(mr_import, fd, 4); AT(mr_import, access, 8); AT(mr_import, key, 12);
AT(mr_import, iova, 16); AT(mr_import, len, 24); AT(mr_import, flags, 32);
AT(mr_import, detail, 36);
SIZE(mr_import, 40);

AT(enter, size, 0); AT(enter, flags, 4); AT(enter, to_submit, 8); AT(enter, min_complete, 12);
AT(enter, timeout_ns, 16); AT(enter, submitted, 24); AT(enter, ready, 28);
SIZE(enter, 32);

AT(cancel, size, 0); AT(cancel, flags, 4); AT(cancel, user_data, 8); AT(cancel, cancelled, 16);
AT(cancel, reserved, 20);
SIZE(cancel, 24);

AT(route_set, size, 0); AT(route_set, node, 4); AT(route_set, state, 6);
AT(route_set, reserved, 7); AT(route_set, numa_node, 8); AT(route_set, flags, 12);
SIZE(route_set, 16);

AT(submit_one, size, 0); AT(submit_one, flags, 4); AT(submit_one, desc, 8);
AT(submit_one, src_key, 40); AT(submit_one, dst_key, 44); AT(submit_one, timeout_ms, 48);
AT(submit_one, bytes, 52); AT(submit_one, cqe_flags, 56); AT(submit_one, detail, 58);
AT(submit_one, engine, 60); AT(submit_one, nsec, 64);
SIZE(submit_one, 72);
