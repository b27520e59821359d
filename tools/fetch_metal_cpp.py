"""Fetches Apple's metal-cpp headers: `python tools/fetch_metal_cpp.py DESTINATION [--wheel FILE]`.

The headers (Apache-2.0) are taken out of the mlx-metal wheel of the package index, in one pinned version,
and checked against DIGEST. DESTINATION then holds Foundation/, Metal/, LICENSE.txt. A destination that is
complete is left alone, so a build may call this each time. --wheel takes a wheel from disk.
Needs nothing but the standard library and, without --wheel, pip.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "mlx-metal==0.32.4"
PLATFORM = "macosx_14_0_arm64"  # the headers are the same in every wheel of the version
INSIDE = "mlx/include/metal_cpp/"
# SHA-256 of the headers: see digest(). It changes with REQUIREMENT.
DIGEST = "27f4b6bc9b4331780f5a38cb07ebe7a6836e882c4f2e0558727fdcd3ec187139"


class FetchError(Exception):
    """A message for the builder."""


def digest(headers: dict[str, bytes]) -> str:
    """SHA-256 over what sha256sum would print of the files, in the order of their names."""
    lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(headers.items()))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def read_folder(folder: Path) -> dict[str, bytes]:
    """The files below a folder by their relative names."""
    return {f.relative_to(folder).as_posix(): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def read_wheel(wheel: Path) -> dict[str, bytes]:
    """The headers in a wheel by their names below metal_cpp/."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = [n for n in archive.namelist() if n.startswith(INSIDE) and not n.endswith("/")]
            headers = {n.removeprefix(INSIDE): archive.read(n) for n in names}
    except (OSError, zipfile.BadZipFile) as error:
        raise FetchError(f"{wheel}: not a readable wheel ({error})") from error
    if any(".." in Path(name).parts or Path(name).is_absolute() for name in headers):
        raise FetchError(f"{wheel}: holds names that lead out of its folder")
    return headers


def download(folder: Path) -> Path:
    """The pinned wheel from the configured package index."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--platform", PLATFORM, "--dest", str(folder), REQUIREMENT]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if run.returncode != 0 or not wheels:
        last = (run.stderr.strip() or "no wheel came").splitlines()[-1]
        raise FetchError(
            f"{REQUIREMENT} could not be fetched: {last}\n"
            f"Without network: put the wheel's {INSIDE} into a folder and configure with "
            "-DSARAGOSSA_METAL_CPP=FOLDER, or run this with --wheel FILE."
        )
    return wheels[0]


def check(headers: dict[str, bytes], source: str) -> None:
    found = digest(headers)
    if found != DIGEST:
        raise FetchError(
            f"{source}: its {len(headers)} metal-cpp headers have the SHA-256 {found}, expected {DIGEST}; "
            f"take the wheel of {REQUIREMENT}, or change REQUIREMENT and DIGEST together"
        )


def install(headers: dict[str, bytes], destination: Path) -> None:
    """Writes beside the destination and renames, so that no build sees half of it."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=destination.name + ".", dir=destination.parent))
    try:
        new.chmod(0o755)
        for name, data in headers.items():
            (new / name).parent.mkdir(parents=True, exist_ok=True)
            (new / name).write_bytes(data)
        if destination.exists():
            old = new.with_suffix(".old")
            destination.replace(old)
            shutil.rmtree(old)
        new.replace(destination)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def fetch(destination: Path, wheel: Path | None = None) -> bool:
    """Makes the destination complete; False where it was already."""
    if destination.is_dir() and digest(read_folder(destination)) == DIGEST:
        return False
    with tempfile.TemporaryDirectory() as folder:
        source = wheel or download(Path(folder))
        headers = read_wheel(source)
        check(headers, source.name)
    install(headers, destination)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description="Fetches Apple's metal-cpp headers, pinned and checked.")
    parser.add_argument("destination", type=Path)
    parser.add_argument("--wheel", type=Path, help="a wheel on disk instead of the package index")
    arguments = parser.parse_args()
    try:
        fetched = fetch(arguments.destination, arguments.wheel)
    except (FetchError, OSError) as error:
        print(f"fetch_metal_cpp: {error}", file=sys.stderr)
        return 1
    if fetched:
        print(f"metal-cpp of {REQUIREMENT} is in {arguments.destination}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
