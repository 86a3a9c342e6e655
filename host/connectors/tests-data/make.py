#!/usr/bin/env python3
"""Makes the files of this folder with other implementations of the formats.

pip install fastavro cramjam backports.zstd grpcio-tools protobuf pyarrow
"""
import datetime as dt
import decimal
import importlib
import io
import json
import sys
import tempfile
from pathlib import Path

import fastavro
import pyarrow as pa
from grpc_tools import protoc

here = Path(__file__).parent
utc = dt.timezone.utc


def avro():
    schema = fastavro.parse_schema(json.loads((here / "all_types.avsc").read_text()))
    row = {
        "flag": True, "whole": -7, "big": 1 << 40, "single": 0.5, "dbl": -2.25, "text": "häuser", "bin": b"\x00\xff",
        "fix": b"abcd", "suit": "HEARTS", "day": dt.date(2013, 1, 1),
        "millis": dt.datetime(2013, 1, 1, 9, 20, 0, 123000, utc),
        "micros": dt.datetime(1969, 12, 31, 23, 59, 59, 999999, utc),
        "local": dt.datetime(2013, 1, 1, 9, 20, 0, 5), "price": decimal.Decimal("-12.34"),
        "cost": decimal.Decimal("12345678901234567.891"), "tags": ["a", None], "counts": {"x": 1},
        "inner": {"a": 3, "b": [b"1234", b"5678"]}, "either": "word", "number": 5,
    }
    other = dict(row, flag=False, big=None, dbl=None, tags=[], counts={}, inner=None, either=None, price=decimal.Decimal("0.00"))
    third = dict(row, either={"a": 1, "b": []}, number=1 << 33, suit="SPADES")
    rows = [row, other, third]
    for codec in ["null", "deflate", "snappy", "zstandard"]:
        with open(here / f"all_types.{codec}.avro", "wb") as out:
            fastavro.writer(out, schema, rows, codec=codec, sync_marker=bytes(range(16)), sync_interval=100)
    values = []
    for value in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, schema, value)
        values.append(out.getvalue().hex())
    form = fastavro.schema.to_parsing_canonical_form(json.loads((here / "all_types.avsc").read_text()))
    print_ = fastavro.schema.fingerprint(form, "CRC-64-AVRO")
    (here / "all_types.avro.json").write_text(json.dumps({"fingerprint": print_, "values": values}, indent=1) + "\n")


def protobuf():
    import grpc_tools
    include = str(Path(grpc_tools.__file__).parent / "_proto")
    with tempfile.TemporaryDirectory() as folder:
        args = ["protoc", f"-I{here}", f"-I{include}", f"--descriptor_set_out={here}/all_types.desc", "--include_imports"]
        assert protoc.main([*args, f"--python_out={folder}", "all_types.proto"]) == 0
        sys.path.insert(0, folder)
        pb = importlib.import_module("all_types_pb2")
        message = pb.All(
            flag=True, whole=-7, zigzag=-(1 << 40), unsigned=(1 << 32) - 1, huge=(1 << 64) - 1, f32=7, sf64=-8, single=0.5,
            dbl=-2.25, text="häuser", bin=b"\x00\xff", suit=pb.HEARTS, packed=[1, -1, 300],
            inners=[pb.Inner(a=1, b=["x", ""]), pb.Inner()], counts={"x": 1}, inner=pb.Inner(), word="w", maybe=0,
            suits=[pb.HEARTS, pb.SPADES],
        )
        message.at.FromMicroseconds(-1)
        message.took.FromMilliseconds(1500)
        message.wrapped.value = 9
        values = [message.SerializeToString(deterministic=True).hex(), pb.All().SerializeToString().hex()]
    (here / "all_types.proto.json").write_text(json.dumps(values, indent=1) + "\n")


def arrow():
    table = pa.table({
        "n": pa.array([1, None, 3], pa.int32()),
        "word": pa.array(["a", "b", "a"]).dictionary_encode(),
        "at": pa.array([0, 1_000_001, None], pa.timestamp("us", "UTC")),
        "list": pa.array([[1], [], None], pa.large_list(pa.int64())),
        "kept": pa.array([{"x": 1}, None, {"x": 2}], pa.struct([("x", pa.uint16())])),
    })
    for name, compression in [("plain", None), ("lz4", "lz4"), ("zstd", "zstd")]:
        options = pa.ipc.IpcWriteOptions(compression=compression)
        with pa.OSFile(str(here / f"three_rows.{name}.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=2)
    with pa.OSFile(str(here / "three_rows.arrows"), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table)


avro()
protobuf()
arrow()
