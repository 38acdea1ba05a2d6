#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An object store in memory that fails on demand, as real servers do rarely.

Usage: s3_server.py [port]; prints its port. It checks signatures with an implementation of its own, with the key pair
testid, testsecret, or the pair last set by /_keys. Listens on loopback only.

  POST /_fault    lines of JSON: {"what": W, "method": M, "match": regex of path?query and range, "skip": n, "count": n}
                  W: a status; cut (half of the body, then the connection ends), reset (no answer), slow (byte by byte),
                  stall (no byte for 1.5 s), wrong (other bytes than the object's), expired, lost (done, but not answered),
                  late-error (status 200 with an error in its text), whole (the range is ignored), short, long (a byte less,
                  or more, than requested), hold (until /_release), huge (the length of the object is almost 2^64),
                  every (the prefix of a listing is ignored)
  POST /_put/B/K  stores an object, without a signature
  POST /_drop/B/K removes it
  POST /_keys     "id secret token": the key pair from now on
  POST /_reset    no faults, counts of 0
  POST /_flip     "key offset": flips a bit of an object
  GET  /_counts   requests so far, by method
  GET  /_sent     bytes of objects sent so far, by key; "": of listings
  GET  /_uploads  uploads that have not ended
"""
import hashlib
import hmac
import json
import re
import sys
import threading
import time
import urllib.parse
import zlib
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

lock = threading.Lock()
objects = {}  # (bucket, key): bytes
uploads = {}  # id: (bucket, key, {number: bytes})
faults = []
counts = {}
sent = {}
keys = ["testid", "testsecret", ""]
serial = [0]
held = threading.Event()


def sign(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def etag(data):
    """Any text will do: no client computes it."""
    return f'"{zlib.crc32(data):08x}-{len(data)}"'


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def answer(self, status, body=b"", headers=(), head=None):
        if isinstance(body, str):
            body = body.encode()
        fault = self.fault
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body) if head is None else head))
        self.end_headers()
        if self.command == "HEAD":
            return
        if fault == "cut":
            self.wfile.write(body[: len(body) // 2])
            self.close_connection = True
            return
        if fault == "wrong" and body:
            body = bytes(b ^ 0x55 for b in body)
        if fault == "slow":
            for i in range(0, len(body), max(1, len(body) // 20)):
                self.wfile.write(body[i : i + max(1, len(body) // 20)])
                self.wfile.flush()
                time.sleep(0.01)
            return
        self.wfile.write(body)

    def refuse(self, status, code):
        self.answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{keys[0]}</Message></Error>")

    def signed(self, body):
        auth = self.headers.get("Authorization", "")
        m = re.fullmatch(r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request, "
                         r"SignedHeaders=([^,]+), Signature=([0-9a-f]{64})", auth)
        if not m or m.group(1) != keys[0]:
            return "InvalidAccessKeyId"
        _, day, region, names, signature = m.groups()
        if keys[2] and self.headers.get("x-amz-security-token", "") != keys[2]:
            return "InvalidToken"
        content = self.headers.get("x-amz-content-sha256", "")
        if content != "UNSIGNED-PAYLOAD" and content != hashlib.sha256(body).hexdigest():
            return "XAmzContentSHA256Mismatch"
        path, _, query = self.path.partition("?")
        pairs = sorted(p if "=" in p else p + "=" for p in query.split("&") if p)
        for name in self.headers:
            if name.lower().startswith("x-amz-") and name.lower() not in names.split(";"):
                return "SignatureDoesNotMatch"
        text = "\n".join([self.command, path, "&".join(pairs)] +
                         [f"{n}:{self.headers.get(n, '').strip()}" for n in names.split(";")] + ["", names, content])
        scope = f"{day}/{region}/s3/aws4_request"
        date = self.headers["x-amz-date"]
        text = "\n".join(["AWS4-HMAC-SHA256", date, scope, hashlib.sha256(text.encode()).hexdigest()])
        key = sign(sign(sign(sign(("AWS4" + keys[1]).encode(), day), region), "s3"), "aws4_request")
        return None if hmac.compare_digest(sign(key, text).hex(), signature) else "SignatureDoesNotMatch"

    def admin(self, body):
        action, _, name = self.path[1:].partition("/")
        if action in ("_put", "_drop"):
            bucket, _, key = urllib.parse.unquote(name).partition("/")
            with lock:
                objects.pop((bucket, key), None)
                if action == "_put":
                    objects[bucket, key] = body
            return self.answer(200)
        text = body.decode()
        with lock:
            if self.path == "/_fault":
                faults.extend(json.loads(line) for line in text.splitlines() if line.strip())
            elif self.path == "/_keys":
                keys[:] = (text.split(" ") + [""])[:3]
            elif self.path == "/_release":
                held.set()
            elif self.path == "/_reset":
                held.clear()
                faults.clear()
                counts.clear()
                sent.clear()
            elif self.path == "/_flip":
                key, offset = text.rsplit(" ", 1)
                for name, data in objects.items():
                    if name[1] == key:
                        data = bytearray(data)
                        data[int(offset)] ^= 1
                        objects[name] = bytes(data)
        answers = {"/_counts": json.dumps(counts), "/_sent": json.dumps(sent), "/_uploads": "".join(f"{u[1]}\n" for u in uploads.values())}
        self.answer(200, answers.get(self.path, ""))

    def find_fault(self):
        with lock:
            for f in faults:
                if f.get("method", self.command) != self.command or \
                        not re.search(f.get("match", ""), f"{self.path} {self.headers.get('Range', '')}"):
                    continue
                if f.get("skip", 0) > 0:
                    f["skip"] -= 1
                elif f.get("count", 1) > 0:
                    f["count"] = f.get("count", 1) - 1
                    return f["what"]
        return None

    def handle_request(self):
        self.fault = None
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/_"):
            return self.admin(body)
        with lock:
            counts[self.command] = counts.get(self.command, 0) + 1
        fault = self.find_fault()
        if isinstance(fault, int):
            return self.refuse(fault, "SlowDown" if fault == 503 else "InternalError" if fault == 500 else "Refused")
        if fault == "reset":
            self.close_connection = True
            return None
        if fault == "expired":
            return self.refuse(400, "ExpiredToken")
        if fault == "stall":
            time.sleep(1.5)
        if fault == "hold":
            held.wait()
        wrong = self.signed(body)
        if wrong:
            return self.refuse(403, wrong)
        self.fault = fault
        path, _, query = self.path.partition("?")
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        query = dict(urllib.parse.parse_qsl(query, keep_blank_values=True))
        if fault == "late-error":
            return self.refuse(200, "InternalError")
        if fault == "lost":
            self.wfile = type("Nowhere", (), {"write": lambda s, b: len(b), "flush": lambda s: None, "close": lambda s: None,
                                              "closed": False})()
            self.close_connection = True
        return (self.bucket if key == "" else self.object)(bucket, key, query, body)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

    def bucket(self, bucket, _, query, __):
        prefix = "" if self.fault == "every" else query.get("prefix", "")
        if "uploads" in query:
            with lock:
                rows = sorted((u[1], i) for i, u in uploads.items() if u[0] == bucket and u[1].startswith(prefix))
            after = (query.get("key-marker", ""), query.get("upload-id-marker", ""))
            rows = [r for r in rows if r > after]
            page, more = rows[:2], len(rows) > 2
            text = "".join(f"<Upload><Key>{escape(k)}</Key><UploadId>{i}</UploadId></Upload>" for k, i in page)
            if more:
                text += f"<NextKeyMarker>{escape(page[-1][0])}</NextKeyMarker><NextUploadIdMarker>{page[-1][1]}</NextUploadIdMarker>"
            return self.answer(200, f"<ListMultipartUploadsResult><IsTruncated>{str(more).lower()}</IsTruncated>{text}"
                                    "</ListMultipartUploadsResult>")
        limit = min(1000, int(query.get("max-keys", 1000)))
        with lock:
            rows = sorted((k, v) for (b, k), v in objects.items() if b == bucket and k.startswith(prefix))
        seen, items = set(), []
        for k, v in rows:
            rest = k[len(prefix):]
            if "delimiter" in query and "/" in rest:
                common = prefix + rest.split("/")[0] + "/"
                if common not in seen:
                    seen.add(common)
                    items.append((common, None))
            else:
                items.append((k, v))
        items = [i for i in items if i[0] > query.get("continuation-token", "")]
        page, more = items[:limit], len(items) > limit
        quote = (lambda k: urllib.parse.quote_plus(k, safe="/")) if query.get("encoding-type") == "url" else escape
        text = "".join(f"<CommonPrefixes><Prefix>{quote(k)}</Prefix></CommonPrefixes>" if v is None else
                       f"<Contents><Key>{quote(k)}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
                       f"<ETag>{escape(etag(v))}</ETag><Size>{len(v)}</Size></Contents>" for k, v in page)
        if query.get("encoding-type") == "url":
            text += "<EncodingType>url</EncodingType>"
        if more:
            text += f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>"
        text = f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{text}</ListBucketResult>"
        with lock:
            sent[""] = sent.get("", 0) + len(text)
        return self.answer(200, text)

    def object(self, bucket, key, query, body):
        name = (bucket, key)
        if self.command == "PUT" and "partNumber" in query:
            with lock:
                if query["uploadId"] not in uploads:
                    return self.refuse(404, "NoSuchUpload")
                uploads[query["uploadId"]][2][int(query["partNumber"])] = body
            return self.answer(200, headers=[("ETag", etag(body))])
        if self.command == "PUT":
            with lock:
                objects[name] = body
            return self.answer(200, headers=[("ETag", etag(body))])
        if self.command == "POST" and "uploads" in query:
            with lock:
                serial[0] += 1
                upload = f"upload{serial[0]}"
                uploads[upload] = (bucket, key, {})
            return self.answer(200, f"<R><UploadId>{upload}</UploadId></R>")
        if self.command == "POST":
            return self.complete(name, query["uploadId"], body)
        if self.command == "DELETE":
            with lock:
                if "uploadId" in query:
                    uploads.pop(query["uploadId"], None)
                else:
                    objects.pop(name, None)
            return self.answer(204)
        with lock:
            data = objects.get(name)
        if data is None:
            return self.refuse(404, "NoSuchKey")
        return self.get(key, data)

    def complete(self, name, upload, body):
        with lock:
            if upload not in uploads:
                return self.refuse(404, "NoSuchUpload")
            parts = uploads[upload][2]
            wanted = re.findall(r"<PartNumber>(\d+)</PartNumber><ETag>([^<]*)</ETag>", body.decode())
            datas = [parts.get(int(n), b"") for n, _ in wanted]
            if any(etag(d) != t.replace("&quot;", '"') for d, (_, t) in zip(datas, wanted)):
                return self.refuse(400, "InvalidPart")
            if any(len(d) < 5 << 20 for d in datas[:-1]):
                return self.refuse(400, "EntityTooSmall")
            del uploads[upload]
            objects[name] = b"".join(datas)
        return self.answer(200, "<CompleteMultipartUploadResult/>")

    def get(self, key, data):
        headers = [("ETag", etag(data)), ("Last-Modified", formatdate(1700000000, usegmt=True))]
        m = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", ""))
        if m and self.fault == "huge":
            total = (1 << 64) - 1
            part = b"?" * int(m.group(2))
            return self.send_object(206, key, part, headers + [("Content-Range", f"bytes {total - len(part)}-{total - 1}/{total}")])
        if not m or self.fault == "whole":
            return self.send_object(200, key, data, headers)
        if m.group(1) == "":
            first, last = max(0, len(data) - int(m.group(2))), len(data) - 1
        else:
            first, last = int(m.group(1)), min(int(m.group(2) or len(data)), len(data) - 1)
        if first > last:
            return self.refuse(416, "InvalidRange")
        last += (self.fault == "long") - (self.fault == "short")
        part = data[first : last + 1].ljust(last + 1 - first, b"?")
        return self.send_object(206, key, part, headers + [("Content-Range", f"bytes {first}-{last}/{len(data)}")])

    def send_object(self, status, key, part, headers):
        if self.command == "GET":
            with lock:
                sent[key] = sent.get(key, 0) + len(part)
        return self.answer(status, part, headers, head=len(part))


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, request, client_address):
        pass


server = Server(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
