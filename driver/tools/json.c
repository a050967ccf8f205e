// SPDX-License-Identifier: GPL-2.0
#include "json.h"

#include <stdio.h>

static bool first = true;

static void quoted(const char *s, size_t max)
{
	size_t i;

	putchar('"');
	for (i = 0; i < max && s[i]; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c > 0x7e)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void begin(const char *key)
{
	if (!first)
		putchar(',');
	first = false;
	if (key) {
		quoted(key, 64);
		putchar(':');
	}
}

void json_open(const char *key, char bracket)
{
	begin(key);
	putchar(bracket);
	first = true;
}

void json_close(char bracket)
{
	putchar(bracket);
	first = false;
}

void json_text(const char *key, const char *s, size_t max)
{
	begin(key);
	quoted(s, max);
}

void json_uint(const char *key, unsigned long long v)
{
	begin(key);
	printf("%llu", v);
}

void json_int(const char *key, long long v)
{
	begin(key);
	printf("%lld", v);
}

void json_bool(const char *key, bool v)
{
	begin(key);
	fputs(v ? "true" : "false", stdout);
}

void json_end(void)
{
	putchar('\n');
	first = true;
}
