#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""many_gateways.py PAGE ADDRESS: serves /NAME/metrics for gateways of any name, each with
the page that a real exporter made, its counters ahead by what has gone by since the start.
One thread, connections that stay open; for a Prometheus that scrapes a thousand of them."""

import asyncio
import re
import sys
import time
import zlib


class Page:
    def __init__(self, text):
        # Text and counters in turn: "… 12\n" of a metric whose name ends as a counter's.
        self.parts = re.split(r"(?m)(?<=[ ])(\d+)$", text)
        self.counts = [
            bool(re.search(r"(?m)^\w+_(?:total|bucket|sum|count)(?:\{.*\})? $", before)) for before in self.parts[0::2]
        ]

    def of(self, gateway, seconds):
        """Each gateway goes at a pace of its own."""
        pace = 100 + zlib.crc32(gateway.encode()) % 900
        parts = list(self.parts)
        for i, counts in enumerate(self.counts[:-1]):
            if counts:
                parts[2 * i + 1] = str(int(parts[2 * i + 1]) + int(pace * seconds) + i)
        return "".join(parts).encode()


async def answer(page, begin, reader, writer):
    try:
        while True:
            request = await reader.readuntil(b"\r\n\r\n")
            gateway = request.split(b" ", 2)[1].decode().split("/")[1]
            body = page.of(gateway, time.monotonic() - begin)
            head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: %d\r\n\r\n"
            writer.write((head % len(body)).encode() + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        page = Page(file.read())
    begin = time.monotonic()
    host, port = sys.argv[2].rsplit(":", 1)
    server = await asyncio.start_server(lambda r, w: answer(page, begin, r, w), host, int(port), backlog=4096)
    print("ready", flush=True)
    async with server:
        await server.serve_forever()


asyncio.run(main())
