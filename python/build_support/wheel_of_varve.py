# SPDX-License-Identifier: Apache-2.0
"""Makes wheels of the package, for `pip install ./python`. VARVE_WHEEL_LIBRARY names a libvarve.so that goes into the wheel;
without it the package uses the one that is installed."""
import base64
import hashlib
import os
import pathlib
import re
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).resolve().parent.parent


def _version():
    return re.search(r'__version__ = "(.*)"', (HERE / "varve/_version.py").read_text())[1]


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    library = os.environ.get("VARVE_WHEEL_LIBRARY")
    tag = "py3-none-" + (re.sub(r"[-.]", "_", sysconfig.get_platform()) if library else "any")
    info = f"varve-{_version()}.dist-info"
    files = {str(p.relative_to(HERE)): p.read_bytes() for p in sorted(HERE.glob("varve/**/*")) if p.suffix in (".py", ".typed")}
    if library:
        path = HERE.parent / library  # pip works in HERE, whatever folder it was called from
        if not path.is_file():
            raise FileNotFoundError(f"VARVE_WHEEL_LIBRARY: there is no {path}; a path that is not absolute begins in {HERE.parent}")
        files["varve/libvarve.so.0"] = path.read_bytes()
    files[f"{info}/METADATA"] = (f"Metadata-Version: 2.1\nName: varve\nVersion: {_version()}\nRequires-Python: >=3.9\n"
                                 "License: Apache-2.0\n").encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: varve\nRoot-Is-Purelib: {str(not library).lower()}\n"
                              f"Tag: {tag}\n").encode()
    record = "".join(f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}\n"
                     for name, data in files.items())
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()
    name = f"varve-{_version()}-{tag}.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, name), "w", zipfile.ZIP_DEFLATED) as wheel:
        for path, data in files.items():
            wheel.writestr(path, data)
    return name


def build_sdist(sdist_directory, config_settings=None):
    raise NotImplementedError("the package is a part of Varve's sources: make a wheel")
