/* SPDX-License-Identifier: Apache-2.0 */
/* An object store for tests: tests/s3_server.py, started on demand. Its address and credentials are put into the
 * environment of the process. */
#ifndef T_S3_H
#define T_S3_H

#include <stdbool.h>
#include <stddef.h>

/* Starts the server, once for a process and its children; skips the test without python3 or libcurl. The server
 * ends with the process that called this. */
void t_s3_start(void);
/* True if VARVE_TEST_S3 names another server, which has the bucket "bucket" and accepts the credentials of the
 * environment. It has no faults and counts. */
bool t_s3_real(void);
/* Sends `text` to the server's page, "/_fault" for example. Returns the answer, valid until the next call. */
const char *t_s3_admin(const char *page, const char *text);
/* Orders a fault; tests/s3_server.py describes the JSON. */
void t_s3_fault(const char *json);
/* Number of requests since /_reset; method NULL: all. */
unsigned long t_s3_requests(const char *method);

/* An empty place for copies: a folder or, if VARVE_TEST_REMOTE is s3, a prefix of the server's. */
const char *t_shared(void);
bool t_on_s3(void);

#endif
