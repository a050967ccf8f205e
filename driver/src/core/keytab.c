// SPDX-License-Identifier: GPL-2.0
#include "keytab.h"

#define NONE 0xffffffffu
#define FIRST_CAPACITY 64u

static u32 key_of(u32 slot, u8 gen)
{
	return slot << 8 | gen;
}

void sdma_keytab_init(struct sdma_keytab *t, u32 limit)
{
	memset(t, 0, sizeof(*t));
	t->limit = limit < 1u << 24 ? limit : 1u << 24;
	t->free_head = NONE;
	t->free_tail = NONE;
}

void sdma_keytab_destroy(struct sdma_keytab *t)
{
	sdma_free(t->slots);
	t->slots = NULL;
	t->capacity = 0;
	t->used = 0;
}

static void push_free(struct sdma_keytab *t, u32 slot)
{
	t->slots[slot].next_free = NONE;
	if (t->free_tail == NONE)
		t->free_head = slot;
	else
		t->slots[t->free_tail].next_free = slot;
	t->free_tail = slot;
}

static int grow(struct sdma_keytab *t)
{
	u32 capacity = t->capacity ? t->capacity * 2 : FIRST_CAPACITY;
	struct sdma_key_slot *slots;
	u32 i;

	if (capacity > t->limit)
		capacity = t->limit;
	slots = sdma_zalloc(capacity, sizeof(*slots));
	if (!slots)
		return -ENOMEM;
	if (t->capacity)
		memcpy(slots, t->slots, t->capacity * sizeof(*slots));
	sdma_free(t->slots);
	t->slots = slots;
	i = t->capacity;
	t->capacity = capacity;
	for (; i < capacity; i++)
		push_free(t, i);
	return 0;
}

int sdma_keytab_add(struct sdma_keytab *t, void *obj, u32 *key)
{
	struct sdma_key_slot *s;
	u32 slot;
	int ret;

	if (t->used >= t->limit)
		return -EDQUOT;
	if (t->free_head == NONE) {
		ret = grow(t);
		if (ret)
			return ret;
	}
	slot = t->free_head;
	s = &t->slots[slot];
	t->free_head = s->next_free;
	if (t->free_head == NONE)
		t->free_tail = NONE;
	if (s->gen == 0xff) {
		s->gen = 0;
		s->wrapped = true;
	}
	s->gen++;
	s->obj = obj;
	t->used++;
	*key = key_of(slot, s->gen);
	return 0;
}

static int slot_of(const struct sdma_keytab *t, u32 key, u32 *slot)
{
	const struct sdma_key_slot *s;
	u8 gen = key & 0xff;

	*slot = key >> 8;
	if (!gen || *slot >= t->capacity)
		return -ENOKEY;
	*slot = array_index_nospec(*slot, t->capacity);
	s = &t->slots[*slot];
	if (s->gen == gen && s->obj)
		return 0;
	return s->wrapped || gen <= s->gen ? -EKEYREVOKED : -ENOKEY;
}

int sdma_keytab_find(const struct sdma_keytab *t, u32 key, void **obj)
{
	u32 slot;
	int ret = slot_of(t, key, &slot);

	if (!ret)
		*obj = t->slots[slot].obj;
	return ret;
}

static void *take(struct sdma_keytab *t, u32 slot)
{
	void *obj = t->slots[slot].obj;

	t->slots[slot].obj = NULL;
	t->used--;
	push_free(t, slot);
	return obj;
}

int sdma_keytab_remove(struct sdma_keytab *t, u32 key, void **obj)
{
	u32 slot;
	int ret = slot_of(t, key, &slot);

	if (!ret)
		*obj = take(t, slot);
	return ret;
}

void *sdma_keytab_pop(struct sdma_keytab *t, u32 *cursor)
{
	for (; *cursor < t->capacity; ++*cursor)
		if (t->slots[*cursor].obj)
			return take(t, *cursor);
	return NULL;
}
