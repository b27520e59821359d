"""One sequence on a loaded model: prefill in chunks, then a token a step, several where drafts are right."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Self

from saragossa import _core
from saragossa.engine.arguments import generation_options, position, token_ids
from saragossa.engine.options import MAX_DRAFT_TOKENS, GenerationOptions, TokenLogprobs
from saragossa.engine.pace import Pace
from saragossa.engine.speculation import SpeculationStats, Speculator
from saragossa.errors import ContextLengthError, ParameterError, UsageError

Progress = Callable[[int, int], None]


def chunks(at: int, count: int, size: int) -> Iterator[tuple[int, int]]:
    """Ranges of `count` tokens that come at position `at`, cut at positions that `size` divides."""
    begin = 0
    while begin < count:
        end = min(count, begin + size - (at + begin) % size)
        yield begin, end
        begin = end


class Session:
    """The tokens and the cache of one sequence.

    `prefill` may be called again to go on from where the session stands. Between chunks Python runs, so
    Ctrl-C and `progress(done, total)` get their turn. Not safe for use from several threads at once.
    Tokens that were drawn ahead of the steps that return them are dropped where anything but a step follows.
    """

    def __init__(
        self, model: _core.Model, context: int, chunk: int, speculator: Speculator | None = None
    ) -> None:
        self._model = model
        self._core = _core.Session(model, 1, context)
        self._chunk = chunk
        self.context = context
        self.stats = SpeculationStats()  # since `configure`
        self._speculator = speculator
        self._method = speculator.method if speculator is not None else "off"
        self._drafter = None if speculator is None else speculator.drafter(self._method)
        self._pace = Pace(0 if speculator is None else speculator.most)

    def configure(self, options: GenerationOptions) -> None:
        """Sampling of the next draws. Raises UsageError, ParameterError."""
        generation_options(options).validate()
        self._settle()
        self._configure_drafts(options)
        self._core.configure(0, **options.session_arguments())

    def _configure_drafts(self, options: GenerationOptions) -> None:
        self.stats = SpeculationStats()
        speculator = self._speculator
        if speculator is None:
            speculator = Speculator("off", MAX_DRAFT_TOKENS)
        method = options.speculate or speculator.method
        if method != self._method:
            self._drafter = speculator.drafter(method)
            self._method = method
        self._pace = Pace(options.draft_tokens or speculator.most, speculator.adaptive)

    @property
    def length(self) -> int:
        """Tokens in the cache; of those drawn ahead, the ones that steps have returned."""
        return self._core.length(0)

    def _settle(self) -> None:
        """Drop what was drawn ahead and not returned."""
        self._core.forget_untaken(0)

    def prefill(self, ids: Sequence[int], *, progress: Progress | None = None) -> None:
        """Run `ids`, and draw the token after them for the next `step`.

        Raises UsageError on an id that is out of range or a missing prompt, ContextLengthError.
        """
        ids = token_ids(ids)
        total = self.length + len(ids)
        if total > self.context:
            raise ContextLengthError(total, self.context)
        if not ids:
            raise ParameterError("prompt", "the prompt is empty", cure="give at least one token")
        self._settle()
        start = self.length
        try:
            self._core.mark(0, pin=True)  # chunks may push other marks out, not this one
            for begin, end in chunks(start, len(ids), self._chunk):
                self._core.prefill(0, ids[begin:end], end == len(ids))
                self._core.mark(0)
                if progress is not None:
                    progress(end, len(ids))
        except BaseException:
            if self.length != start:  # all of the prompt or nothing
                self._core.rewind(0, start)
            raise
        finally:
            self._core.unpin(0)

    def step(self, wanted: int | None = None) -> int:
        """The next token: the one that `prefill` drew, then one a call.

        wanted: tokens that this step and those to come will be asked for, where that is known; saves drafts.
        """
        # The core knows what was drawn and what was handed on: Ctrl-C may fall between any two lines here.
        if not self._core.untaken(0):
            self._draw(wanted)
        return self._core.take(0)[0]

    def _draw(self, wanted: int | None) -> None:
        start = time.perf_counter()
        # The drawn token takes a place, and what is drawn behind the last draft needs none.
        room = self.context - self._core.length(0) - 1
        most = min(self._pace.wanted(), room, room if wanted is None else wanted - 1)
        drafts = self._drafter.propose(self._core, 0, most) if self._drafter is not None and most > 0 else []
        if not drafts:
            self._core.step([0])
            if self._drafter is not None:
                self.stats.plain += 1
                self._pace.plain(time.perf_counter() - start)
            return
        drawn = self._core.verify(0, drafts)
        accepted = len(drawn) - 1
        self.stats.add(SpeculationStats(1, len(drafts), accepted))
        self._pace.verified(len(drafts), accepted, time.perf_counter() - start)

    def logprobs(self) -> TokenLogprobs | None:
        """Of the last token, where the options asked for them."""
        taken = self._core.taken(0)
        pairs = [] if taken is None else taken[1]
        if not pairs:
            return None
        (token, logprob), *top = pairs
        return TokenLogprobs(token, logprob, tuple(top))

    def rewindable(self, to: int) -> int:
        """The last position up to `to` that `rewind` takes.

        Any, but for models with recurrent layers or windows: of those the ends of prompts and of their chunks
        are kept, the latest ones densest.
        """
        to = position(to)
        self._settle()
        return self._core.rewindable(0, to)

    def rewind(self, to: int) -> None:
        """Back to the first `to` tokens. Raises UsageError beyond the end, SnapshotNeededError."""
        to = position(to)
        self._settle()
        self._core.rewind(0, to)

    def snapshot(self) -> _core.Snapshot:
        """The tokens in the cache and all that belongs to them, shared, not copied.

        The last drawn token is not in the cache yet, so not in the snapshot. Its blocks and its state stay in
        the model's cache until it is dropped. Raises SnapshotNeededError where a failed step lost the state.
        """
        self._settle()
        return self._core.snapshot(0)

    def restore(self, snapshot: _core.Snapshot) -> None:
        """Become what the snapshot holds; go on with `prefill`. The sampling options stay.

        Raises UsageError for a snapshot of another model, or one longer than the context; the session is then
        what it was.
        """
        if not isinstance(snapshot, _core.Snapshot):
            raise UsageError(f"a snapshot is what snapshot() gives, not {type(snapshot).__name__}")
        self._settle()
        self._core.restore(0, snapshot)

    def fork(self) -> Self:
        """Another session of the same model that holds the same tokens; go on with `prefill`.

        It has options of its own: greedy until `configure`.
        """
        other = type(self)(self._model, self.context, self._chunk, self._speculator)
        other.restore(self.snapshot())
        return other
