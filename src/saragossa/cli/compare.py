"""`doctor --compare A B`: two ways to run a model over the same tokens: where they part, which layer is the
first to differ; and the record of a near tie, for the repository."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saragossa import _core
from saragossa.cli.compare_report import as_record, as_text, without_fingerprints
from saragossa.cli.prompts import MAX_PROMPT_BYTES, not_empty, parse_ids
from saragossa.cli.ways import Way, name_of, parse_way
from saragossa.engine import loading, trace
from saragossa.engine.compare import DIFFERENT, EXACT, ROUNDED, Bounds, compare
from saragossa.errors import UsageError
from saragossa.files import read_text
from saragossa.text.tokenizer import Tokenizer
from saragossa.weights.locate import locate

TOKENS = 32
TEXT = (
    "A comparison needs a text that is neither too short nor too even: numbers such as 3, 14 and 159, "
    "names such as Zaragoza, a question, and then some plain words. What do you see when you look at the "
    "river from the bridge?"
)
_SOURCES = ("prompt", "ids", "tokens_file", "max_tokens")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two: its name in a record, its model's, and whether it is float32 throughout."""

    name: str
    model: str
    exact: bool
    trace: trace.Trace


def run(args: argparse.Namespace) -> int:
    """Returns 0 where the two are equal or part at near ties only, else 1."""
    ways = [parse_way(text) for text in args.compare]
    golden = [way for way in ways if way.golden is not None]
    if len(golden) == 2:
        raise UsageError("--compare: both are golden files", cure="give a way to run a model for one of them")
    for name in _SOURCES if golden else ():
        if getattr(args, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} does not go with a golden file, which has tokens of its own")
    count = TOKENS if args.max_tokens is None else args.max_tokens
    if count > trace.MAX_TOKENS:
        raise UsageError(f"--max-tokens: found {count}, accepted is 1 to {trace.MAX_TOKENS} with --compare")
    margin, tolerance = (_bound(name, getattr(args, name)) for name in ("near_tie", "tolerance"))
    records = None if args.record is None else read_records(Path(args.record))
    folders = [None if way.golden is not None else _folder(way, args.model) for way in ways]

    a, b = _golden_and_run(ways, folders) if golden else _both_run(args, ways, folders, count)
    default = EXACT if a.exact and b.exact else ROUNDED
    result = compare(a.trace, b.trace, Bounds(margin or default.margin, tolerance or default.layer))
    record = as_record(a, b, result)
    if records is not None:
        write_record(Path(args.record), records, record)
    print(json.dumps(record, indent=1) if args.json else as_text(a, b, result))
    return 1 if result.verdict == DIFFERENT else 0


def _golden_and_run(ways: Sequence[Way], folders: Sequence[Path | None]) -> list[Side]:
    """In the order of the ways; the model is forced to the golden's tokens."""
    path = next(way.golden for way in ways if way.golden is not None)
    golden = Side("golden", path.stem, True, trace.read_golden(path))
    tokens = golden.trace.greedy
    return [
        golden if folder is None else _run(way, folder, golden.trace.prompt, len(tokens), tokens)
        for way, folder in zip(ways, folders, strict=True)
    ]


def _both_run(
    args: argparse.Namespace, ways: Sequence[Way], folders: Sequence[Path | None], count: int
) -> list[Side]:
    """B is forced to the tokens that A decodes."""
    sides: list[Side] = []
    ids: Sequence[int] = ()
    for way, folder in zip(ways, folders, strict=True):
        assert folder is not None
        ids = ids or _ids(args, folder)
        sides.append(_run(way, folder, ids, count, sides[0].trace.greedy if sides else None))
    return sides


def _folder(way: Way, default: str | None) -> Path:
    name = way.model or default
    if name is None:
        raise UsageError(
            "--compare: no model",
            cure="give --model-dir MODEL, or one with the way, such as cpu:exact@FOLDER",
        )
    return locate(name, allow_download=False)


def _run(way: Way, folder: Path, ids: Sequence[int], count: int, forced: Sequence[int] | None) -> Side:
    loaded = loading.load(folder, device=way.device, exact=way.exact, switches=way.switches)
    device = loaded.device.name
    isa = loaded.device.description.partition(",")[0] if device == "cpu" else ""
    values = loading.switch_values(exact=way.exact, switches=way.switches)
    exact = all(values[name] == value for name, value in loading.EXACT.items() if _counts(name, device))
    name = name_of(way, device, isa, loading.EXACT)
    side = Side(name, folder.name, exact, trace.run(loaded, ids, count, forced))
    del loaded
    _core.trim_heap()
    return side


def _counts(switch: str, device: str) -> bool:
    """Whether a switch of the exact path means anything on a device."""
    return switch.startswith("metal_") == (device == "metal") or switch == "kv_dtype"


def _ids(args: argparse.Namespace, folder: Path) -> list[int]:
    """The prompt's token ids; a text is taken as it is, without the chat template."""
    if args.ids is not None:
        return parse_ids(args.ids)
    if args.tokens_file is not None:
        text = read_text(Path(args.tokens_file), MAX_PROMPT_BYTES, UsageError)
        return parse_ids(text.strip().strip("[]").replace(",", " "), "--tokens-file")
    text = TEXT if args.prompt is None else not_empty(args.prompt)
    return Tokenizer.from_dir(folder).encode(text)


def _bound(name: str, value: float | None) -> float | None:
    if value is not None and not (value > 0 and not math.isnan(value)):
        raise UsageError(f"--{name.replace('_', '-')}: found {value:g}, accepted is a number above 0")
    return value


def read_records(path: Path) -> dict[str, Any]:
    """What --record adds to: a file of records, or none yet."""
    if not path.parent.is_dir():
        raise UsageError(f"--record: the folder {path.parent} does not exist")
    if not path.exists():
        return {"records": []}
    try:
        found = json.loads(read_text(path, MAX_PROMPT_BYTES, UsageError))
    except ValueError as error:
        raise UsageError(
            f"--record: {path} is no JSON: {error}", cure="give a file that --record made"
        ) from None
    if not isinstance(found, dict) or not isinstance(found.get("records"), list):
        raise UsageError(f"--record: {path} has no list of records", cure="give a file that --record made")
    return found


def key_of(record: dict[str, Any]) -> tuple[Any, ...]:
    """What a record is about. One that is made again takes the older one's place."""
    return tuple(record.get(name) for name in ("model", "a", "b", "prompt_md5", "max_tokens"))


def write_record(path: Path, records: dict[str, Any], record: dict[str, Any]) -> None:
    """Append, or replace what is about the same. A line a key, so that a change is read as one."""
    kept = [old for old in records["records"] if key_of(old) != key_of(record)]
    place = next((i for i, old in enumerate(records["records"]) if key_of(old) == key_of(record)), len(kept))
    kept.insert(place, without_fingerprints(record))
    entries = [
        "  {\n"
        + ",\n".join(f"   {json.dumps(key)}: {json.dumps(value)}" for key, value in entry.items())
        + "\n  }"
        for entry in kept
    ]
    rest = [
        f" {json.dumps(key)}: {json.dumps(value)},\n" for key, value in records.items() if key != "records"
    ]
    path.write_text("{\n" + "".join(rest) + ' "records": [\n' + ",\n".join(entries) + "\n ]\n}\n")
