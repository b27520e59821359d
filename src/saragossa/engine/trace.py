"""What a model makes of given tokens, kept so that two ways of running it can be compared (compare.py)."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from saragossa import _core
from saragossa.engine.loading import Loaded
from saragossa.engine.options import GenerationOptions
from saragossa.engine.session import Session, chunks
from saragossa.errors import ContextLengthError, DeviceError, ParameterError, UsageError

Floats = NDArray[np.float32]
FIRST = 8  # values of a hidden state in a fingerprint
MAX_TOKENS = 256
# Logits of a prompt that are kept: of so many bytes, its last positions.
PROMPT_LOGITS_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Trace:
    """One way of running a model over prompt and `forced`, the text behind it.

    greedy: ids that plain decoding drew, on its own. logits: [vocab] by position of the text; those at
    len(prompt) - 1 + s decide about step s. margins: of the greedy steps, where the logits are not all kept.
    first8 [steps, layers, 8], norms [steps, layers]: of the hidden state behind each layer, at the last
    position of the prompt (step 0) and of each forced token; a golden file has step 0 only. hidden: channels,
    0: unknown. failure: why nothing could be drawn.
    """

    prompt: tuple[int, ...]
    greedy: tuple[int, ...]
    logits: dict[int, Floats]
    first8: Floats
    norms: Floats
    hidden: int = 0
    margins: Floats | None = None
    failure: str | None = None

    @property
    def vocab(self) -> int:
        count: int = next(iter(self.logits.values())).shape[0]
        return count

    @property
    def layers(self) -> int:
        count: int = self.norms.shape[1]
        return count

    def at_step(self, step: int) -> Floats | None:
        """The logits that decide about a step, where they are kept."""
        return self.logits.get(len(self.prompt) - 1 + step)


def run(loaded: Loaded, prompt: Sequence[int], count: int, forced: Sequence[int] | None = None) -> Trace:
    """Decode `count` tokens, then run the prompt and `forced`, by default what was decoded, once more for
    logits and hidden states: through the kernels of a prompt, then through those of a token.

    Raises ContextLengthError, ParameterError for a prompt that is empty, UsageError for an id out of range.
    """
    if not prompt:
        raise ParameterError("prompt", "the prompt is empty", cure="give at least one token")
    if len(prompt) + count > loaded.context:
        raise ContextLengthError(len(prompt) + count, loaded.context)
    greedy, failure = _greedy(loaded, prompt, count)
    text = list((greedy if forced is None else forced)[: count - 1])
    first8, norms = _fingerprints(loaded, prompt, text)
    hidden = loaded.spec.decoder.hidden
    return Trace(
        tuple(prompt), tuple(greedy), _logits(loaded, prompt, text), first8, norms, hidden, failure=failure
    )


def _greedy(loaded: Loaded, prompt: Sequence[int], count: int) -> tuple[list[int], str | None]:
    session = Session(loaded.model, loaded.context, loaded.chunk)
    session.configure(GenerationOptions())
    ids: list[int] = []
    try:
        session.prefill(prompt)
        while len(ids) < count:
            ids.append(session.step())
    except DeviceError as error:  # logits that are no numbers: the layers will tell where that begins
        return ids, str(error)
    return ids, None


def _pieces(loaded: Loaded, prompt: Sequence[int], last: int) -> Iterator[tuple[Sequence[int], bool]]:
    """The prompt as a session cuts it, and before its last `last` tokens; whether a piece is of those."""
    cut = len(prompt) - last
    for begin, end in chunks(0, cut, loaded.chunk):
        yield prompt[begin:end], False
    for begin, end in chunks(cut, last, loaded.chunk):
        yield prompt[cut + begin : cut + end], True


def _logits(loaded: Loaded, prompt: Sequence[int], text: Sequence[int]) -> dict[int, Floats]:
    core = _core.Session(loaded.model, 1, loaded.context)
    kept = max(1, PROMPT_LOGITS_BYTES // (4 * loaded.spec.decoder.vocab))
    out: dict[int, Floats] = {}
    for piece, wanted in _pieces(loaded, prompt, min(kept, len(prompt))):
        begin = core.length(0)
        if wanted:
            out |= {begin + i: row for i, row in enumerate(core.logits(0, piece))}
        else:
            core.prefill(0, piece, False)
    for position, token in enumerate(text, start=len(prompt)):
        out[position] = core.logits(0, [token])[0]
    return out


def _fingerprints(loaded: Loaded, prompt: Sequence[int], text: Sequence[int]) -> tuple[Floats, Floats]:
    core = _core.Session(loaded.model, 1, loaded.context)
    pieces = [prompt[begin:end] for begin, end in chunks(0, len(prompt), loaded.chunk)]
    for piece in pieces[:-1]:
        core.prefill(0, piece, False)
    states = [core.hidden(0, piece) for piece in (pieces[-1], *([token] for token in text))]
    return (
        np.stack([state[:, :FIRST] for state in states]),
        np.stack([np.linalg.norm(state, axis=-1) for state in states]).astype(np.float32),
    )


def read_golden(path: Path) -> Trace:
    """What a reference implementation said (tests/golden). Raises UsageError that names what is missing."""
    names = ("prompt", "logits", "greedy", "margins", "hidden_first8", "hidden_norm")
    try:
        with np.load(path, allow_pickle=False) as file:
            found = {name: np.asarray(file[name]) for name in (*names, "decode_logits") if name in file.files}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UsageError(f"{path} is no golden file: {error}", cure="such as tests/golden has") from error
    for name in names:
        if name not in found:
            raise UsageError(
                f"{path} is no golden file: it has no array {name}", cure="such as tests/golden has"
            )
    tokens, steps = found["prompt"].shape[:1], found["greedy"].shape[:1]
    layers = found["hidden_norm"].shape[:1]  # the embedding, then each layer, then the final norm
    fits = (
        found["logits"].ndim == 2
        and found["prompt"].shape == found["logits"].shape[:1] == tokens != (0,)
        and found["greedy"].shape == found["margins"].shape == steps
        and found["hidden_norm"].ndim == 1
        and steps != (0,)
        and layers > (2,)
        and found["hidden_first8"].shape == (*layers, FIRST)
        and found.get("decode_logits", found["logits"][0]).shape == found["logits"].shape[1:]
    )
    if not fits:
        shapes = ", ".join(f"{name} {list(array.shape)}" for name, array in found.items())
        raise UsageError(f"{path} is no golden file: its arrays do not fit each other: {shapes}")
    logits = dict(enumerate(found["logits"].astype(np.float32)))
    if "decode_logits" in found:
        logits[tokens[0] + steps[0] - 2] = found["decode_logits"].astype(np.float32)
    return Trace(
        tuple(found["prompt"].tolist()),
        tuple(found["greedy"].tolist()),
        logits,
        found["hidden_first8"][None, 1:-1].astype(np.float32),
        found["hidden_norm"][None, 1:-1].astype(np.float32),
        margins=found["margins"].astype(np.float32),
    )
