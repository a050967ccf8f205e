// SPDX-License-Identifier: GPL-2.0
#include "core/keytab.h"
#include "unit.h"

static void basics(void)
{
	struct sdma_keytab t;
	int a, b;
	void *obj;
	u32 ka, kb, at = 0;

	sdma_keytab_init(&t, 3);
	CHECK(sdma_keytab_find(&t, 0, &obj) == -ENOKEY);
	CHECK(sdma_keytab_find(&t, 1, &obj) == -ENOKEY);
	CHECK(sdma_keytab_add(&t, &a, &ka) == 0 && ka);
	CHECK(sdma_keytab_add(&t, &b, &kb) == 0 && kb && kb != ka);
	CHECK(sdma_keytab_find(&t, ka, &obj) == 0 && obj == &a);
	CHECK(sdma_keytab_find(&t, kb, &obj) == 0 && obj == &b);
	CHECK(sdma_keytab_find(&t, ka + 1, &obj) == -ENOKEY);
	CHECK(sdma_keytab_find(&t, ka & ~0xffu, &obj) == -ENOKEY);
	CHECK(sdma_keytab_remove(&t, ka, &obj) == 0 && obj == &a);
	CHECK(sdma_keytab_find(&t, ka, &obj) == -EKEYREVOKED);
	CHECK(sdma_keytab_remove(&t, ka, &obj) == -EKEYREVOKED);
	CHECK(sdma_keytab_pop(&t, &at) == &b);
	CHECK(sdma_keytab_pop(&t, &at) == NULL);
	CHECK(sdma_keytab_find(&t, kb, &obj) == -EKEYREVOKED);
	sdma_keytab_destroy(&t);
}

static void limits(void)
{
	struct sdma_keytab t;
	u32 key[5];
	void *obj;
	int x, i;

	sdma_keytab_init(&t, 4);
	for (i = 0; i < 4; i++)
		CHECK(sdma_keytab_add(&t, &x, &key[i]) == 0);
	CHECK(sdma_keytab_add(&t, &x, &key[4]) == -EDQUOT);
	CHECK(sdma_keytab_remove(&t, key[2], &obj) == 0);
	CHECK(sdma_keytab_add(&t, &x, &key[4]) == 0);
	CHECK(key[4] >> 8 == key[2] >> 8 && key[4] != key[2]);
	CHECK(sdma_keytab_find(&t, key[2], &obj) == -EKEYREVOKED);
	sdma_keytab_destroy(&t);

	sdma_keytab_init(&t, 100);
	sdma_fail_alloc = 1;
	CHECK(sdma_keytab_add(&t, &x, &key[0]) == -ENOMEM);
	CHECK(sdma_keytab_add(&t, &x, &key[0]) == 0);
	for (i = 1; i < 64; i++)
		sdma_keytab_add(&t, &x, &key[1]);
	sdma_fail_alloc = 1;
	CHECK(sdma_keytab_add(&t, &x, &key[1]) == -ENOMEM);
	CHECK(sdma_keytab_find(&t, key[0], &obj) == 0);
	CHECK(sdma_keytab_add(&t, &x, &key[1]) == 0);
	sdma_keytab_destroy(&t);
}

/* A generation is used 255 times before a key comes back; the slots take turns. */
static void generations(void)
{
	struct sdma_keytab t;
	u32 first, key = 0;
	void *obj;
	int x, i, same = 0;

	sdma_keytab_init(&t, 2);
	CHECK(sdma_keytab_add(&t, &x, &first) == 0);
	CHECK(sdma_keytab_remove(&t, first, &obj) == 0);
	for (i = 0; i < 509; i++) {
		sdma_keytab_add(&t, &x, &key);
		same += key == first;
		sdma_keytab_remove(&t, key, &obj);
	}
	CHECK(same == 0);
	CHECK(sdma_keytab_find(&t, first, &obj) == -EKEYREVOKED);
	sdma_keytab_add(&t, &x, &key);
	CHECK(key == first);
	CHECK(sdma_keytab_find(&t, (first & ~0xffu) | 200, &obj) == -EKEYREVOKED);
	sdma_keytab_destroy(&t);
}

/* Against a plain model. */
static void random_use(void)
{
	enum { N = 500 };
	struct sdma_keytab t;
	static char obj[N];
	u32 key[N] = {};
	u32 dead = 0;
	void *got;
	int i, bad = 0;

	sdma_keytab_init(&t, N);
	for (i = 0; i < 200000; i++) {
		int k = (int)(rnd() % N);

		if (!key[k]) {
			bad += sdma_keytab_add(&t, &obj[k], &key[k]) != 0;
		} else {
			bad += sdma_keytab_find(&t, key[k], &got) || got != &obj[k];
			if (rnd() % 2) {
				bad += sdma_keytab_remove(&t, key[k], &got) || got != &obj[k];
				dead = key[k];
				key[k] = 0;
				bad += sdma_keytab_find(&t, dead, &got) != -EKEYREVOKED;
			}
		}
		sdma_keytab_find(&t, (u32)rnd(), &got);
	}
	CHECK(bad == 0);
	sdma_keytab_destroy(&t);
}

void test_keytab(void)
{
	basics();
	limits();
	generations();
	random_use();
}
