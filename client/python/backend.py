"""Builds the package for pip: wheels of the directory countmill. It is in the tree, so that pip downloads nothing."""
import base64
import hashlib
import io
import re
import tarfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROJECT = dict(re.findall(r'^([a-z-]+) = "(.*)"$', (HERE / "pyproject.toml").read_text(), re.M))
NAME = f"countmill-{PROJECT['version']}"
METADATA = f"""Metadata-Version: 2.1
Name: countmill
Version: {PROJECT['version']}
Summary: {PROJECT['description']}
License: Apache-2.0
Requires-Python: {PROJECT['requires-python']}
Description-Content-Type: text/markdown

{(HERE / "README.md").read_text()}"""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, {f"countmill/{p.name}": p.read_bytes() for p in sorted((HERE / "countmill").iterdir()) if p.is_file()})


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    return _wheel(wheel_directory, {"countmill.pth": str(HERE).encode()})


def build_sdist(sdist_directory, config_settings=None):
    """The archive of a release is made by .ci/release; this one is for other front ends than pip."""
    files = [HERE / name for name in ("pyproject.toml", "backend.py", "README.md")]
    with tarfile.open(Path(sdist_directory, NAME + ".tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for path in files + sorted(p for p in (HERE / "countmill").iterdir() if p.is_file()):
            archive.add(path, f"{NAME}/{path.relative_to(HERE).as_posix()}")
        info = tarfile.TarInfo(NAME + "/PKG-INFO")
        info.size = len(METADATA.encode())
        archive.addfile(info, io.BytesIO(METADATA.encode()))
    return NAME + ".tar.gz"


def _wheel(directory, files):
    folder, name = NAME + ".dist-info", NAME + "-py3-none-any.whl"
    files = {**files, folder + "/METADATA": METADATA.encode(),
             folder + "/WHEEL": b"Wheel-Version: 1.0\nGenerator: countmill\nRoot-Is-Purelib: true\nTag: py3-none-any\n"}
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in files.items())
    files[folder + "/RECORD"] = f"{record}{folder}/RECORD,,\n".encode()
    with zipfile.ZipFile(Path(directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(zipfile.ZipInfo(path), data, zipfile.ZIP_DEFLATED)  # always of 1980, so two wheels are the same
    return name


def _digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
