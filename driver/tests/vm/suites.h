/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SUITES_H
#define SUITES_H

void suite_calls(void);
void suite_routes(void);
void suite_memory(void);
void suite_copy(void);
void suite_ring(void);
void suite_share(void);
void suite_lifetime(void);
void suite_limits(void);
void suite_fuzz(void);
void suite_faults(void);

#endif /* SUITES_H */
