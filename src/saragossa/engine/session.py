"""One sequence on a loaded model: prefill in chunks, then a token a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from saragossa import _core
from saragossa.engine.options import GenerationOptions, TokenLogprobs
from saragossa.errors import ContextLengthError, ParameterError

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
    """

    def __init__(self, model: _core.Model, context: int, chunk: int) -> None:
        self._core = _core.Session(model, 1, context)
        self._chunk = chunk
        self._unread = False  # the last prefill drew a token that no step has returned
        self.context = context

    def configure(self, options: GenerationOptions) -> None:
        """Sampling of the next draws. Raises ParameterError."""
        options.validate()
        self._core.configure(0, **options.session_arguments())

    @property
    def length(self) -> int:
        """Tokens in the cache."""
        return self._core.length(0)

    def prefill(self, ids: Sequence[int], *, progress: Progress | None = None) -> None:
        """Run `ids`, and draw the token after them for the next `step`.

        Raises UsageError on an id that is out of range or a missing prompt, ContextLengthError.
        """
        total = self.length + len(ids)
        if total > self.context:
            raise ContextLengthError(total, self.context)
        if not ids:
            raise ParameterError("prompt", "the prompt is empty", cure="give at least one token")
        start = self.length
        self._core.mark(0)
        try:
            for begin, end in chunks(start, len(ids), self._chunk):
                self._core.prefill(0, ids[begin:end], end == len(ids))
                self._core.mark(0)
                if progress is not None:
                    progress(end, len(ids))
        except BaseException:
            if self.length != start:  # all of the prompt or nothing
                self._unread = False
                self._core.rewind(0, start)
            raise
        self._unread = True

    def step(self) -> int:
        """The next token: the one that `prefill` drew, then one a call."""
        if self._unread:
            self._unread = False
        else:
            self._core.step([0])
        token: int = self._core.drawn(0)[0]
        return token

    def logprobs(self) -> TokenLogprobs | None:
        """Of the last token, where the options asked for them."""
        pairs = self._core.drawn(0)[1]
        if not pairs:
            return None
        (token, logprob), *top = pairs
        return TokenLogprobs(token, logprob, tuple(top))

    def rewindable(self, to: int) -> int:
        """The last position up to `to` that `rewind` takes.

        Any, but for models with recurrent layers or windows: of those the ends of prompts and of their chunks
        are kept, the latest ones densest.
        """
        return self._core.rewindable(0, to)

    def rewind(self, to: int) -> None:
        """Back to the first `to` tokens. Raises UsageError beyond the end, SnapshotNeededError."""
        self._unread = False
        self._core.rewind(0, to)
