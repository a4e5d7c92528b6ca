"""The server under many clients: streams, clients that leave, broken requests, slow readers.

usage: python -m test.llm.stress [--requests 10000] [--streams 64] [--seed N]
In: a small model with random weights behind a server in a process of its own. Out: counts, and an
exit code of 1 where an answer differs from the one that the same request got alone, the server
crashed, a page of its cache was lost, or its memory grew. The suite runs a small share of it.

Requests are sent by the `openai` client where it is installed, and by plain sockets.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from test.children import Child
from test.llm.made import chat_file
from test.optional import found

PROMPTS = 24


class Stress:
    """Requests of all kinds to one server."""

    def __init__(self, port: int, pid: int, seed: int) -> None:
        self.port, self.pid = port, pid
        self.pick = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.expected: dict[str, str] = {}
        openai = found("openai")
        base = f"http://127.0.0.1:{port}/v1"
        self.client: Any = (
            openai.AsyncOpenAI(base_url=base, api_key="none", max_retries=0, timeout=600)
            if openai
            else None
        )

    def body(self, number: int) -> dict[str, Any]:
        """One of a few requests, greedy or by a seed."""
        words = ["The quick ", "Grüße ", "日本 ", "x = "]
        return {
            "model": "tiny",
            "messages": [{"role": "user", "content": words[number % 4] * (1 + number % 5)}],
            "max_tokens": 4 + number % 9,
            "temperature": number % 3 / 2,
            "seed": number,
        }

    async def raw(self, data: bytes, path: str = "/v1/chat/completions", leave: float = 0) -> bytes:
        """One request by a socket; `leave`: after so many seconds nobody listens any more."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
        try:
            writer.write(head.encode() + data)
            await writer.drain()
            if leave:
                await asyncio.sleep(leave)
                return b""
            return await asyncio.wait_for(reader.read(), 600)
        except ConnectionError:
            # an answer to what is too large may come before all of it was sent
            return b"HTTP/1.1 413 "
        finally:
            writer.close()

    async def text(self, body: dict[str, Any], stream: bool, slow: bool = False) -> str:
        """The answer to a request."""
        if self.client is None:
            answer = await self.raw(json.dumps(body).encode())
            content: str = json.loads(answer.partition(b"\r\n\r\n")[2])["choices"][0]["message"][
                "content"
            ]
            return content
        if not stream:
            answer = await self.client.chat.completions.create(**body)
            return str(answer.choices[0].message.content)
        said = ""
        async for chunk in await self.client.chat.completions.create(**body, stream=True):
            said += chunk.choices[0].delta.content or ""
            if slow:
                await asyncio.sleep(0.05)
        return said

    async def ask(self, number: int) -> None:
        """One request of a random kind."""
        kind = self.pick.choices(
            ["stream", "whole", "slow", "leave", "broken", "huge"], [10, 5, 1, 2, 1, 1]
        )[0]
        self.counts[kind] += 1
        body = self.body(self.pick.randrange(PROMPTS))
        try:
            if kind == "leave":
                data = json.dumps({**body, "stream": True, "max_tokens": 200}).encode()
                await self.raw(data, leave=self.pick.random() * 0.1 + 0.001)
            elif kind == "broken":
                data = bytearray(json.dumps(body).encode())
                for _ in range(3):
                    data[self.pick.randrange(len(data))] = self.pick.randrange(256)
                self.check_status(await self.raw(bytes(data)), (b"200", b"400", b"404"))
            elif kind == "huge":
                body["messages"][0]["content"] = "x" * self.pick.choice([5_000, 9_000_000])
                self.check_status(await self.raw(json.dumps(body).encode()), (b"400", b"413"))
            else:
                said = await self.text(body, kind != "whole", kind == "slow")
                if said != self.expected[str(body["seed"])]:
                    self.wrong.append(f"{body}: {said!r}, not {self.expected[str(body['seed'])]!r}")
        except Exception as error:
            self.wrong.append(f"{kind}: {type(error).__name__}: {error}")

    def check_status(self, answer: bytes, accepted: tuple[bytes, ...]) -> None:
        if answer[9:12] not in accepted:
            self.wrong.append(f"a broken request got {answer[:200]!r}")

    def memory(self) -> int:
        """Resident megabytes of the server."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        line = next(line for line in text.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) >> 10

    async def metrics(self) -> dict[str, float]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        text = (await asyncio.wait_for(reader.read(), 60)).decode()
        writer.close()
        lines = [line.split() for line in text.splitlines() if line.startswith("weft_llm_")]
        return {name.removeprefix("weft_llm_"): float(value) for name, value in lines}

    async def run(self, requests: int, streams: int) -> None:
        for number in range(PROMPTS):
            body = self.body(number)
            self.expected[str(body["seed"])] = await self.text(body, False)
        gate = asyncio.Semaphore(streams)

        async def one(number: int) -> None:
            async with gate:
                await self.ask(number)

        warm = min(requests, 4 * streams)
        await asyncio.gather(*(one(i) for i in range(warm)))
        before = self.memory()
        await asyncio.gather(*(one(i) for i in range(warm, requests)))
        for _ in range(600):
            numbers = await self.metrics()
            if not numbers["texts_running"] and not numbers["texts_waiting"]:
                break
            await asyncio.sleep(0.1)
        if numbers["cache_pages_free"] != numbers["cache_pages"]:
            self.wrong.append(f"pages were lost: {numbers}")
        if numbers["texts_failed_total"]:
            self.wrong.append(f"{numbers['texts_failed_total']} texts failed")
        after = self.memory()
        if after > before * 1.2 + 64:
            self.wrong.append(f"memory grew from {before} to {after} MB")
        print(f"{dict(self.counts)}; memory {before} -> {after} MB; {numbers}", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """All of it; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m test.llm.stress", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        file = chat_file(Path(folder) / "tiny.gguf", max_position_embeddings=256)
        command = [sys.executable, "-m", "weft.llm", "--model", str(file), "--serve", "0"]
        with Child([*command, "--texts", "8", "--warmup"], 24 * 3600, stderr=-1) as child:
            assert child.stderr is not None
            line = child.stderr.readline()
            port = int(line.split("/")[2].rpartition(":")[2])
            stress = Stress(port, child.pid, options.seed)
            asyncio.run(stress.run(options.requests, options.streams))
            if child.poll() is not None:
                stress.wrong.append(f"the server ended with {child.returncode}")
            child.interrupt()
            child.wait(60)
    for line in stress.wrong[:20]:
        print(line)
    print(f"{options.requests} requests, {len(stress.wrong)} wrong")
    return 1 if stress.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
