/* SPDX-License-Identifier: GPL-2.0 */
/* A JSON writer onto stdout: commas and escapes are its business. */
#ifndef JSON_H
#define JSON_H

#include <stdbool.h>
#include <stddef.h>

/* @key is NULL inside an array and at the top. */
void json_open(const char *key, char bracket);
void json_close(char bracket);
/* At most @max bytes of @s; bytes that aren't printable ASCII are escaped. */
void json_text(const char *key, const char *s, size_t max);
void json_uint(const char *key, unsigned long long v);
void json_int(const char *key, long long v);
void json_bool(const char *key, bool v);
void json_end(void);

#endif /* JSON_H */
