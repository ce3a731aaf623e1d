"""Makes the wheel: the package, libfatune.so and the program, which CMake's target `standalone` builds.

in -> out: python/fatune, a configured build folder -> fatune-VERSION-py3-none-manylinux_2_NN_MACHINE.whl
    make wheel                       # or, in a checkout that is built: pip install ./python
    python3 make_wheel.py FOLDER          # the same by hand: writes the wheel there and prints its path

The functions at the end are those that pip calls (PEP 517). The wheel serves every Python from 3.9 on: what is
compiled against Python, _binding.abi3.so, uses its stable ABI alone, and where it cannot be loaded ctypes does the same.
Its tag is the newest glibc that the files ask for.
"""

import base64
import ctypes
import hashlib
import os
import pathlib
import platform
import re
import subprocess
import sys
import zipfile

PYTHON = pathlib.Path(__file__).resolve().parent
ROOT = PYTHON.parent
METADATA = """\
Metadata-Version: 2.1
Name: fatune
Version: {version}
Summary: Exact attention kernels, compiled and tuned for the GPU at hand
License: MIT
Requires-Python: >=3.9
Requires-Dist: nvidia-cuda-nvrtc>=13.0,<14
Provides-Extra: torch
Requires-Dist: torch>=2.4; extra == "torch"
Description-Content-Type: text/markdown

{description}"""
# What is linked in, with the terms that the distribution keeps beside each.
INSIDE = {"lua": "liblua5.4-dev", "sqlite": "libsqlite3-dev", "libsodium": "libsodium-dev", "jansson": "libjansson-dev"}
WHEEL = "Wheel-Version: 1.0\nGenerator: fatune\nRoot-Is-Purelib: false\nTag: {tag}\n"


def build_standalone():
    """The folder with libfatune.so, the program and, where Python.h was there, _binding.abi3.so, up to date."""
    build = pathlib.Path(os.environ.get("FATUNE_BUILD_DIR") or ROOT / "build")
    if not (build / "CMakeCache.txt").exists():
        sys.exit(f"fatune: {build} is not built, and the wheel holds compiled code. Run `make wheel` in {ROOT}, "
                 "which says where it puts the wheel, or name a built folder by FATUNE_BUILD_DIR.")
    made = subprocess.run(["cmake", "--build", str(build), "--target", "standalone"],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if made.returncode != 0:
        sys.exit(f"{made.stdout}\nfatune: cmake --build {build} --target standalone failed. `make wheel` in {ROOT} "
                 "installs what it needs.")
    return build / "standalone"


def oldest_glibc(files):
    """The minor number of the oldest glibc 2 that has all the symbols these files ask for."""
    wanted = [int(number) for file in files for number in re.findall(rb"\0GLIBC_2\.(\d+)", file.read_bytes())]
    return max(wanted)


def contents(folder, name, version, tag):
    """(path in the wheel, bytes, may be executed) of every file but the list of them."""
    for file in sorted((PYTHON / "fatune").rglob("*")):
        if file.suffix == ".py" or file.name == "py.typed":
            yield file.relative_to(PYTHON).as_posix(), file.read_bytes(), False
    yield "fatune/libfatune.so", (folder / "libfatune.so").read_bytes(), True
    binding = folder / "_binding.abi3.so"
    if binding.exists():
        yield "fatune/_binding.abi3.so", binding.read_bytes(), True
    yield f"{name}.data/scripts/fatune", (folder / "fatune").read_bytes(), True
    description = (PYTHON / "README.md").read_text()
    yield f"{name}.dist-info/LICENSE", (ROOT / "LICENSE").read_bytes(), False
    for project, package in INSIDE.items():
        terms = pathlib.Path("/usr/share/doc") / package / "copyright"
        if terms.exists():
            yield f"{name}.dist-info/licenses/{project}", terms.read_bytes(), False
    yield f"{name}.dist-info/METADATA", METADATA.format(version=version, description=description).encode(), False
    yield f"{name}.dist-info/WHEEL", WHEEL.format(tag=tag).encode(), False


def write_wheel(path, record, files):
    lines = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        def add(name, data, executable=False):
            entry = zipfile.ZipInfo(name)  # of 1980: the same files make the same wheel
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            archive.writestr(entry, data)
        for name, data, executable in files:
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(data)}\n")
            add(name, data, executable)
        add(record, "".join([*lines, f"{record},,\n"]))


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    folder = build_standalone()
    library = folder / "libfatune.so"
    version_of = ctypes.CDLL(str(library)).fatune_version
    version_of.restype = ctypes.c_char_p
    version = version_of().decode()
    tag = f"py3-none-manylinux_2_{oldest_glibc([*folder.glob('*.so'), folder / 'fatune'])}_{platform.machine()}"
    name = f"fatune-{version}"
    wheel = f"{name}-{tag}.whl"
    write_wheel(pathlib.Path(wheel_directory) / wheel, f"{name}.dist-info/RECORD",
                contents(folder, name, version, tag))
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    sys.exit(f"fatune: there is no source package of python/ alone; the source is the checkout {ROOT}")


if __name__ == "__main__":
    pathlib.Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    print(os.path.join(sys.argv[1], build_wheel(sys.argv[1])))
