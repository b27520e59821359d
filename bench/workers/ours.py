"""saragossa on its CPU device; with `memory` in the job also what it holds beside weights and cache."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from common import Job, main, measure

BLOCK_TOKENS = 256  # of the KV cache


class Ours:
    """One session a prompt."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._session: Any = None

    def prefill(self, ids: list[int]) -> int:
        self._session = self._model.session()
        self._session.prefill(ids)
        return int(self._session.step())

    def step(self, token: int) -> int:
        return int(self._session.step())


def load(job: Job) -> tuple[Ours, dict[str, Any]]:
    import saragossa

    model = saragossa.LLM(job.model, device="cpu", threads=job.threads, context=max(job.context, 1024))
    return Ours(model), {"engine": model.device_description}


def memory(job: Job) -> None:
    """Resident bytes after one sequence: peak, mapped weights, KV blocks that it touched, the rest."""
    engine, facts = load(job)
    measured = Job(job.model, job.threads, (), job.depth, job.decode, 1, job.vocab)
    measure(engine, measured)
    peak = _status_bytes("VmHWM")
    weights = _mapped_bytes(Path(job.model))
    tokens = -(-(job.depth + job.decode + 1) // BLOCK_TOKENS) * BLOCK_TOKENS
    cache = tokens * engine._model.loaded.model.kv_bytes_per_token
    facts |= {"peak": peak, "weights": weights, "kv": cache, "overhead": peak - weights - cache}
    print(json.dumps(facts))


def _status_bytes(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def _mapped_bytes(folder: Path) -> int:
    """Resident pages of mappings of the folder's weights."""
    total, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first = line.split(maxsplit=1)[0]
        if not first.endswith(":"):
            inside = line.endswith(".safetensors") and str(folder.resolve()) in line
        elif inside and first == "Rss:":
            total += int(line.split()[1]) * 1024
    return total


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    if arguments.get("memory"):
        memory(Job(**arguments | {"prefill": ()}))
    else:
        main(load)
