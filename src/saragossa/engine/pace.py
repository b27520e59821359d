"""How many tokens to draft: as many as are accepted, and none where drafts cost more than they give."""

from __future__ import annotations

from dataclasses import dataclass, field

START = 3  # drafts of the first verification
WINDOW = 12  # verifications that are judged together
SAMPLE = 4  # plain steps that tell what a token costs without drafts
PAUSE = 48  # plain steps after drafts that did not pay; doubled each time
LONGEST_PAUSE = 1536
MARGIN = 1.02  # drafts must be so much faster: figures of a few steps are noisy


@dataclass(slots=True)
class Pace:
    """Counts follow what is accepted; whether drafts pay is measured. It decides about speed alone.

    most: drafts at most. adaptive false: always `most`.
    """

    most: int
    adaptive: bool = True
    _count: int = field(init=False)
    _plain_left: int = field(init=False)  # plain steps before drafts are tried (again)
    _pause: int = field(init=False, default=PAUSE)
    _plain_s: float | None = field(init=False, default=None)  # of a token, smoothed
    _first: bool = field(init=False, default=True)
    _window: list[tuple[int, float]] = field(init=False, default_factory=list)  # (tokens, seconds)

    def __post_init__(self) -> None:
        self._count = min(START, self.most) if self.adaptive else self.most
        self._plain_left = SAMPLE if self.adaptive else 0

    def wanted(self) -> int:
        """Drafts for the next verification; 0: a plain step."""
        return 0 if self._plain_left > 0 else self._count

    def plain(self, seconds: float) -> None:
        """A step without drafts took so long."""
        self._plain_left = max(0, self._plain_left - 1)
        if self._first:  # it warms caches up, and on a GPU it is waited for
            self._first = False
            return
        self._plain_s = seconds if self._plain_s is None else 0.8 * self._plain_s + 0.2 * seconds

    def verified(self, drafted: int, accepted: int, seconds: float) -> None:
        """`seconds`: of drafts and verification together; the tokens are one more than accepted."""
        if not self.adaptive:
            return
        if accepted == drafted:
            self._count = min(self.most, self._count + 1)
        elif 2 * accepted < drafted:
            self._count = max(1, self._count - 1)
        self._window.append((accepted + 1, seconds))
        if len(self._window) < WINDOW:
            return
        tokens = sum(n for n, _ in self._window)
        each = sum(s for _, s in self._window) / tokens
        self._window.clear()
        if tokens > WINDOW and (self._plain_s is None or each * MARGIN < self._plain_s):
            self._pause = PAUSE
            return
        self._plain_left, self._pause = self._pause, min(2 * self._pause, LONGEST_PAUSE)
        self._count = min(START, self.most)
