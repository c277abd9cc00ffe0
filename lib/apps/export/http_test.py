#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Post() against a server of HTTP and HTTPS that takes the rows, or fails in each way that
servers and networks do."""

import base64
import gzip
import os
import socket
import ssl
import subprocess
import unittest

import lab
import receiver

POST = lab.path("lib/apps/export/post")
BODY = b'{"row": "host"}\n\0\r\n"\\\x1a\xff' + os.urandom(100000) + b"\n"


class HttpTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = lab.temporary_directory(cls)
        cls.certificate = lab.make_certificate(cls.directory, "centre", "-addext", "subjectAltName=IP:127.0.0.1")
        cls.token_file = os.path.join(cls.directory, "token")
        with open(cls.token_file, "w") as file:
            file.write(' s3"cret\\n \n')
        cls.token = 's3"cret\\n'

    def serve(self, tls=False, **options):
        server = receiver.Receiver(self.certificate if tls else None, **options)
        self.addCleanup(server.close)
        return server

    def post(self, url, body=BODY, token="", ca="", seconds=60, **options):
        """The code and the message, which is one line."""
        done = subprocess.run(
            [POST, url, token, ca, str(seconds)], input=body, capture_output=True, timeout=90, check=False, **options
        )
        self.assertEqual(done.stderr, b"")
        code, message = done.stdout.decode().split(" ", 1)
        self.assertEqual(done.returncode, 0 if code == "OK" else 1)
        self.assertNotIn("\n", message)
        self.assertNotIn("s3", message)
        return code, message.replace(url.split("/")[2], "HOST")

    def fail(self, fault, **options):
        server = self.serve()
        server.fault = fault
        return self.post(server.url, **options)

    def test_the_body_arrives_byte_for_byte(self):
        server = self.serve(tls=True, token=self.token)
        url = server.url + "?query=INSERT+INTO+{rows}[1-3]&a=%22"
        for body in (BODY, b"", 2000000 * b"x"):
            self.assertEqual(self.post(url, body, self.token_file, self.certificate[0]), ("OK", ""))
            request = server.requests.pop()
            self.assertEqual(gzip.decompress(request.body), body)
            self.assertEqual(request.path, "/?query=INSERT+INTO+{rows}[1-3]&a=%22")
            self.assertEqual(request.headers["Content-Type"], "application/x-ndjson")
            self.assertEqual(request.headers["Content-Encoding"], "gzip")
        self.assertEqual(server.requests, [])

    def test_arguments_show_no_secret(self):
        server = self.serve()
        seen = []

        def look(handler):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    with open("/proc/%s/cmdline" % pid, "rb") as file:
                        arguments = file.read().split(b"\0")
                except OSError:
                    continue
                if arguments[0] == b"curl":
                    seen.append(arguments)
            receiver.answer(204)(handler)

        server.fault = look
        self.assertEqual(self.post(server.url, token=self.token_file), ("OK", ""))
        self.assertIn([b"curl", b"--disable", b"--config", b"-", b""], seen)

    def test_an_unknown_certificate(self):
        server = self.serve(tls=True)
        code, message = self.post(server.url)
        self.assertEqual(code, "UNAVAILABLE")
        self.assertRegex(message, "^HOST: SSL certificate problem: self.signed certificate$")
        other = os.path.join(self.directory, "other")
        os.mkdir(other)
        code, message = self.post(server.url, ca=lab.make_certificate(other, "other")[0])
        self.assertEqual(code, "UNAVAILABLE")
        self.assertIn("certificate", message)
        self.assertEqual(server.requests, [])

    def test_a_certificate_of_another_host(self):
        server = self.serve(tls=True)
        code, message = self.post(server.url.replace("127.0.0.1", "localhost"), ca=self.certificate[0])
        self.assertEqual(code, "UNAVAILABLE")
        self.assertIn("certificate subject name", message)

    def test_a_wrong_token(self):
        server = self.serve(token="another")
        self.assertEqual(
            self.post(server.url, token=self.token_file),
            ("UNAUTHENTICATED", "HOST answered 401 (the token of %s?): no such token" % self.token_file),
        )
        self.assertEqual(self.post(server.url), ("UNAUTHENTICATED", "HOST answered 401 (it needs a token): no such token"))

    def test_a_user_and_a_password(self):
        path = os.path.join(self.directory, "user")
        with open(path, "w") as file:
            file.write('gateway:s3":\\cret\n')
        server = self.serve()
        self.assertEqual(self.post(server.url, token=path), ("OK", ""))
        self.assertEqual(
            server.requests.pop().headers["Authorization"],
            "Basic " + base64.b64encode(b'gateway:s3":\\cret').decode(),
        )

    def test_token_files(self):
        path = os.path.join(self.directory, "bad")
        for content, why in (
            (b"", "it is empty"),
            (b" \n", "it is empty"),
            (b"a\nb\n", "expected one word of printable ASCII"),
            (b"a\0b\n", "expected one word of printable ASCII"),
            (b"a\x1b[2J", "expected one word of printable ASCII"),
            (20000 * b"a", "expected one word of printable ASCII"),
        ):
            with open(path, "wb") as file:
                file.write(content)
            self.assertEqual(self.post("https://centre/", token=path), ("INVALID_ARGUMENT", "the token %s: %s" % (path, why)))
        self.assertEqual(
            self.post("https://centre/", token="/nonexistent\n"),
            ("NOT_FOUND", "the token /nonexistent\\x0A: No such file or directory"),
        )
        self.assertEqual(self.post("https://centre/", token=self.directory)[1], "the token %s: Is a directory" % self.directory)

    def test_a_token_is_not_shown_on_the_way(self):
        needs = ("INVALID_ARGUMENT", "a token needs https://, or others on the way could read it")
        for url in (
            "http://centre/",
            "http://localhost.evil/",
            "http://127.0.0.1.evil/",
            "http://evil/?http://localhost/",
        ):
            self.assertEqual(self.post(url, token=self.token_file), needs, url)
        # Nor to a proxy.
        server = self.serve(token=self.token)
        environment = dict(os.environ, http_proxy="http://127.0.0.1:1")
        self.assertEqual(self.post(server.url, token=self.token_file, env=environment), ("OK", ""))
        self.assertEqual(self.post(server.url, env=environment)[0], "UNAVAILABLE")

    def test_urls(self):
        for url in ("ftp://centre/", "file:///etc/passwd", "centre/x/", "https:///x", "HTTPS://centre/"):
            self.assertEqual(self.post(url), ("INVALID_ARGUMENT", "expected a URL https://HOST/..."), url)
        # The bug: the line had what stands before the '/'.
        for url in ("https://u:s3cret@centre/", "https://u:s3/cret@centre/", "https://u@centre/", "http://localhost\\@evil/"):
            code, message = self.post(url)
            self.assertEqual(code, "INVALID_ARGUMENT")
            self.assertNotIn("s3", message)
        for url in ("https://[::1]:1/", "https://[::1]/", "https://centre.invalid:1/@", "https://centre.invalid/\n\r\"\\"):
            self.assertEqual(self.post(url)[0], "UNAVAILABLE", url)

    def test_no_host_and_no_server(self):
        self.assertEqual(
            self.post("https://no.such.host.invalid/"),
            ("UNAVAILABLE", "HOST: Could not resolve host: HOST"),
        )
        server = self.serve()
        server.close()
        code, message = self.post(server.url)
        self.assertEqual(code, "UNAVAILABLE")
        self.assertRegex(message, "^HOST: Failed to connect to 127.0.0.1 port")

    def test_a_server_that_is_killed_while_it_receives(self):
        code, message = self.fail(receiver.killed_while_receiving)
        self.assertEqual(code, "UNAVAILABLE")
        self.assertRegex(message, "^HOST: .*(reset|closed|Broken pipe)")

    def test_a_server_that_never_answers(self):
        code, message = self.fail(receiver.silent, seconds=2)
        self.assertEqual(code, "UNAVAILABLE")
        self.assertRegex(message, "^HOST: Operation timed out after ")

    def test_a_server_that_accepts_no_connection(self):
        with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
            port = listener.getsockname()[1]
            waiting = []
            self.addCleanup(lambda: [one.close() for one in waiting])
            for _ in range(3):
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(("127.0.0.1", port))
            code, message = self.post("http://127.0.0.1:%d/" % port, seconds=2)
        self.assertEqual(code, "UNAVAILABLE")
        self.assertRegex(message, "^HOST: .*(timed out|timeout|Timeout)")

    def test_a_full_server(self):
        code, message = self.fail(receiver.answer(507, "Code: 243. DB::Exception: no room\x1b[2J\nat line 7"))
        self.assertEqual(code, "UNAVAILABLE")
        self.assertEqual(message, "HOST answered 507: Code: 243. DB::Exception: no room\\x1B[2J")

    def test_answers(self):
        for fault, expected in (
            (receiver.answer(500), ("UNAVAILABLE", "HOST answered 500")),
            (receiver.answer(404, "\r\n<html>\n"), ("FAILED_PRECONDITION", "HOST answered 404: <html>")),
            (receiver.answer(403, "x" * 300), ("PERMISSION_DENIED", "HOST answered 403: " + "x" * 200)),
            (
                receiver.answer(429, "slow down", Retry_After="120"),
                ("RESOURCE_EXHAUSTED", "HOST answered 429 (try again in 120 s): slow down"),
            ),
            (
                receiver.answer(503, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT"),
                ("UNAVAILABLE", "HOST answered 503 (try again after Wed, 21 Oct 2026 07:28:00 GMT)"),
            ),
            (receiver.answer(429), ("RESOURCE_EXHAUSTED", "HOST answered 429")),
            (
                receiver.answer(302, "moved", Location="http://elsewhere/\x1b"),
                ("FAILED_PRECONDITION", "HOST answered 302 (redirects are not followed: http://elsewhere/%1B)"),
            ),
        ):
            self.assertEqual(self.fail(fault), expected)

    def test_what_is_no_http(self):
        code, message = self.fail(receiver.no_http)
        self.assertEqual(code, "UNAVAILABLE")
        self.assertEqual(message, "HOST: Received HTTP/0.9 when not allowed")

    def test_an_endless_answer_is_cut(self):
        expected = "HOST answered 200 with more than 16 kB: does this URL take rows?"
        # SIGPIPE is ignored in `netmeter`, and has its default here.
        self.assertEqual(self.fail(receiver.endless(200)), ("FAILED_PRECONDITION", expected))
        self.assertEqual(self.fail(receiver.endless(500)), ("UNAVAILABLE", "HOST answered 500: all is well"))

    def test_curl_is_not_installed(self):
        self.assertEqual(
            self.post("https://centre/", env={"PATH": self.directory}),
            ("NOT_FOUND", "curl is not installed (apt install curl)"),
        )


if __name__ == "__main__":
    lab.main(120)
