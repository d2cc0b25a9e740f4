"""The stand-in's xet storage: large files as `hf_xet` uploads them, in xorbs and shards.

A client cuts files into chunks, sends chunks by the many in xorbs, and then a shard that says of
which chunks of which xorbs each file consists. Here the files are put together from what was sent,
and compared with the sha256 that the shard names. It is version 1 of the protocol: the client asks
for version 2 of shards and for upload grants first, and goes on with this where they are not known.
No chunk is known from other repositories, and reading goes by plain HTTP. The formats are those of
https://huggingface.co/docs/xet.
"""

from __future__ import annotations

import hashlib
import struct
import time
from collections.abc import Iterator

import pyarrow as pa
from hub_stand_in import Hub, Problem, route
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

TOKEN = "xet_of_the_stand_in"
SHARD_TAG = b"HFRepoMetaData\0"
HEADER = 48  # bytes of a shard's header, and of each entry after it
LAST = b"\xff" * 32  # the hash in the entry that ends a section
WITH_VERIFICATION, WITH_SHA256 = 1 << 31, 1 << 30
NONE, LZ4, GROUPED_LZ4 = range(3)  # how a chunk is compressed


@route("GET", "/api/datasets/{repo}/xet-write-token/{revision}")
async def write_token(hub: Hub, request: Request, repo: str, revision: str) -> Response:
    hub.writable(request, repo, contribute=request.query_params.get("create_pr") == "1")
    expires = int(time.time()) + 3600
    return JSONResponse({"casUrl": hub.url, "accessToken": TOKEN, "exp": expires})


@route("POST", "/v1/xorbs/default/{name}")
async def xorb(hub: Hub, request: Request, name: str) -> Response:
    check_token(request)
    is_new = name not in hub.xorbs
    hub.xorbs[name] = list(chunks(hub, await request.body()))
    return JSONResponse({"was_inserted": is_new})


@route("POST", "/v1/shards")
async def shard(hub: Hub, request: Request) -> Response:
    check_token(request)
    for sha256, content in files(hub, await request.body()):
        if hashlib.sha256(content).hexdigest() != sha256:
            raise Problem(400, "a file has another sha256 than the shard says")
        hub.lfs[sha256] = content
    return JSONResponse({"result": 1})


def check_token(request: Request) -> None:
    if request.headers.get("authorization") != f"Bearer {TOKEN}":
        raise Problem(401, "the token is not that of the xet storage")


def chunks(hub: Hub, xorb: bytes) -> Iterator[bytes]:
    """Yield the chunks of a xorb; each has a header of 8 bytes."""
    at = 0
    while at < len(xorb):
        version, scheme = xorb[at], xorb[at + 4]
        packed, size = (int.from_bytes(xorb[at + i : at + i + 3], "little") for i in (1, 5))
        data = xorb[at + 8 : at + 8 + packed]
        if version != 0 or scheme not in (NONE, LZ4, GROUPED_LZ4) or len(data) != packed:
            raise Problem(400, f"there is no chunk at byte {at} of the xorb")
        hub.schemes.add(scheme)
        if scheme != NONE:
            data = pa.decompress(data, size, codec="lz4", asbytes=True)
        yield data if scheme != GROUPED_LZ4 else ungrouped(data)
        at += 8 + packed


def ungrouped(data: bytes) -> bytes:
    """Return bytes in order, given all first ones of four, then all second ones, and so on."""
    whole, at = bytearray(len(data)), 0
    for place in range(4):
        count = len(whole[place::4])
        whole[place::4] = data[at : at + count]
        at += count
    return bytes(whole)


def files(hub: Hub, shard: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield sha256 and content of each file that a shard describes."""
    if not shard.startswith(SHARD_TAG):
        raise Problem(400, "this is no shard")
    entries = (shard[at : at + HEADER] for at in range(HEADER, len(shard), HEADER))
    for head in entries:
        if head[:32] == LAST:
            return
        flags, count = struct.unpack_from("<II", head, 32)
        parts = [next(entries) for _ in range(count)]
        if flags & WITH_VERIFICATION:
            parts_hashes = [next(entries) for _ in range(count)]
            assert len(parts_hashes) == count  # blake3 of each part, which nothing here can compute
        if not flags & WITH_SHA256:
            raise Problem(400, "a file of a repository has a sha256, and the shard does not say it")
        sha256 = name(next(entries)[:32])
        yield sha256, b"".join(part(hub, entry) for entry in parts)


def part(hub: Hub, entry: bytes) -> bytes:
    """Return the part of a file that an entry names: from one chunk of a xorb up to another."""
    size, start, end = struct.unpack_from("<III", entry, 36)
    if name(entry[:32]) not in hub.xorbs:
        raise Problem(400, "the shard names a xorb that was not uploaded")
    content = b"".join(hub.xorbs[name(entry[:32])][start:end])
    if len(content) != size:
        raise Problem(400, "the shard says another size than its chunks have")
    return content


def name(hash: bytes) -> str:
    """Return a hash as text: four numbers of 64 bits."""
    return "".join(f"{number:016x}" for number in struct.unpack("<4Q", hash))
