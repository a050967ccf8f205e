/* SPDX-License-Identifier: Apache-2.0 */
/* The header is C, the library is loadable from C, and its version is the header's. */
#include <stdio.h>
#include <string.h>

#include "stepccl/stepccl.h"

static int check(int held, const char *what)
{
	if (!held)
		fprintf(stderr, "failed: %s\n", what);
	return held ? 0 : 1;
}

int main(void)
{
	int failures = 0;
	char version[32];
	stepccl_unique_id_t id;
	stepccl_comm_t comm = NULL;
	stepccl_config_t config = STEPCCL_CONFIG_INIT;
	stepccl_comm_info_t info;
	stepccl_call_t call = STEPCCL_CALL_INIT;
	double x = 2.5;
	double y = 0;

	snprintf(version, sizeof(version), "%d.%d.%d", STEPCCL_VERSION_MAJOR, STEPCCL_VERSION_MINOR, STEPCCL_VERSION_PATCH);
	failures += check(strcmp(version, stepccl_version()) == 0, "version");
	memset(&info, 0, sizeof(info));
	info.size = (uint32_t)sizeof(info);
	config.telemetry_dir = "";
	failures += check(config.ib_gid_index == -1, "config's initialiser");
	failures += check(stepccl_unique_id_create("127.0.0.1", &id) == STEPCCL_SUCCESS, "unique id");
	failures += check(stepccl_comm_init_rank(&comm, 1, &id, 0, &config) == STEPCCL_SUCCESS, "init");
	failures += check(stepccl_all_reduce(comm, &x, &y, 1, STEPCCL_FLOAT64, STEPCCL_SUM, &call) == STEPCCL_SUCCESS && y == x, "all_reduce");
	failures += check(stepccl_comm_query(comm, &info) == STEPCCL_SUCCESS && info.world_size == 1 && info.operations == 1, "query");
	failures += check(stepccl_comm_destroy(comm) == STEPCCL_SUCCESS, "destroy");
	failures += check(strcmp(stepccl_result_code(STEPCCL_ERROR_PEER_CLOSED), "R201") == 0, "code");
	return failures == 0 ? 0 : 1;
}
