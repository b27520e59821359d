"""The one bounded reader: what it refuses, in whose error."""

from __future__ import annotations

from pathlib import Path

import pytest

from saragossa.errors import ConfigError, TokenizerError
from saragossa.files import check_file, read_object, read_optional_object, read_text

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:1\n"


def test_what_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(b'\xef\xbb\xbf{"name": "na\xc3\xafve"}')
    assert read_object(file) == {"name": "naïve"}
    assert read_text(file, 25) == '{"name": "naïve"}'
    assert read_optional_object(file) == read_object(file)
    assert read_optional_object(tmp_path / "none.json") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (POINTER, "is a Git LFS pointer, not the file itself"),
        ("x" * 61, "is larger than 60 bytes"),
        ("{", "is not valid JSON"),
        ("[" * 60, "is not valid JSON"),
        ("[1]", "holds a JSON list, an object is expected"),
        (b"{}\xff", "is not UTF-8: byte 2"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    file = tmp_path / "a.json"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    for read in (read_object, read_optional_object):
        with pytest.raises(ConfigError) as error:
            read(file, limit=60, error=ConfigError)
        assert error.value.message.startswith(f"{file} {message}")


def test_a_file_that_cannot_be_read_is_no_absent_one(tmp_path: Path) -> None:
    (tmp_path / "a.json").symlink_to("nowhere")
    with pytest.raises(TokenizerError, match=r"a\.json: cannot be read: No such file"):
        read_optional_object(tmp_path / "a.json", error=TokenizerError)
    with pytest.raises(TokenizerError, match=r"cannot be read"):
        check_file(tmp_path / "a.json", 10, TokenizerError)


def test_a_file_for_a_library_is_looked_at_first(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text(POINTER)
    with pytest.raises(TokenizerError, match=r"Git LFS pointer.*git lfs pull"):
        check_file(file, 1000, TokenizerError)
    file.write_text("x" * 1001)
    with pytest.raises(TokenizerError, match="larger than 1000 bytes"):
        check_file(file, 1000, TokenizerError)
