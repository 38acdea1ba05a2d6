/* SPDX-License-Identifier: Apache-2.0 */
/* An object store for tests: tests/s3_server.py, started on demand, whose credentials and address the
 * environment of the process gets. */
#ifndef T_S3_H
#define T_S3_H

#include <stdbool.h>
#include <stddef.h>

/* Starts the server, once for a process and its children; skips the test without python3 or libcurl.
 * Ends with the process that called it. */
void t_s3_start(void);
/* VARVE_TEST_S3 names another server, which has the bucket "bucket" and takes the credentials of the environment:
 * there are no faults and counts. */
bool t_s3_real(void);
/* Sends `text` to the server's page, "/_fault" for example; its answer, which lives until the next call. */
const char *t_s3_admin(const char *page, const char *text);
/* A fault, in the words of the server; see there. */
void t_s3_fault(const char *json);
/* Requests since /_reset; method NULL: all. */
unsigned long t_s3_requests(const char *method);

/* A fresh place for copies: a folder, or, if VARVE_TEST_REMOTE is s3, a prefix of the server's. */
const char *t_shared(void);
bool t_on_s3(void);

#endif
