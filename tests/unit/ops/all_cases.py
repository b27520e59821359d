"""The op cases of all families, for the tests that hold every op to its truth."""

from __future__ import annotations

from unit.ops import cases, cases_attention, cases_delta

CASES = [*cases.CASES, *cases_attention.CASES, *cases_delta.CASES]
