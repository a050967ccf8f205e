/* SPDX-License-Identifier: GPL-2.0 */
/* Keys of registered memory: a 24-bit slot and an 8-bit generation. */
#ifndef SDMA_KEYTAB_H
#define SDMA_KEYTAB_H

#include "env.h"

struct sdma_key_slot {
	void *obj;
	u8 gen;			/* of the current or latest use; 0: never used */
	bool wrapped;		/* all generations have been given out */
	u32 next_free;
};

/* Slots are reused oldest first, so that a stale key stays recognisable long. */
struct sdma_keytab {
	struct sdma_key_slot *slots;
	u32 capacity;
	u32 limit;
	u32 used;
	u32 free_head;
	u32 free_tail;
};

/* @limit: greatest number of live keys, at most 2^24. Allocates nothing. */
void sdma_keytab_init(struct sdma_keytab *t, u32 limit);
void sdma_keytab_destroy(struct sdma_keytab *t);

/* Gives @obj a key, never 0. Returns 0, -EDQUOT at the limit, -ENOMEM. */
int sdma_keytab_add(struct sdma_keytab *t, void *obj, u32 *key);

/*
 * The object of @key. Returns 0, -ENOKEY for a key that was never given out,
 * -EKEYREVOKED for one that was removed.
 */
int sdma_keytab_find(const struct sdma_keytab *t, u32 key, void **obj);

/* As find, and takes the key out of use. */
int sdma_keytab_remove(struct sdma_keytab *t, u32 key, void **obj);

/*
 * Takes the next live key out and returns its object, NULL when none is left;
 * *@cursor starts at 0.
 */
void *sdma_keytab_pop(struct sdma_keytab *t, u32 *cursor);

#endif /* SDMA_KEYTAB_H */
