#!/bin/sh
# check_wheel.sh: the wheel as a user meets it: installed by pip into a fresh virtual environment, used without the checkout.
# in -> out: build folder, source folder -> exit 0 if the wheel is what its name says, the package and the program work.
set -eu
build=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

cmake --build "$build" --target standalone >/dev/null
(cd "$source" && .ci/wheel "$build")
python3 -m venv "$scratch/venv"
"$scratch/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index --no-deps "$build"/wheel/*.whl

cd "$scratch"
alone() { env -i HOME="$scratch" FATUNE_CACHE_DIR="$scratch/cache" PATH="$scratch/venv/bin" "$@"; }
cat >use.py <<'END'
import importlib.metadata
import pathlib
import sys

import fatune

assert "torch" not in sys.modules
package = pathlib.Path(fatune.__file__).parent
assert package.is_relative_to(sys.prefix), package
assert fatune.library_path() == str(package / "libfatune.so"), fatune.library_path()
assert fatune.__version__ == importlib.metadata.version("fatune")
assert importlib.metadata.requires("fatune")[0].startswith("nvidia-cuda-nvrtc")
if (package / "_binding.abi3.so").exists():
    assert fatune._prepared.binding().Exchange, "the compiled part cannot be loaded"
text = fatune.Session(memory_only=True).emit("forward bf16 d64 nq1024 causal", gpu="h200")
assert "__global__" in text and "request" in text, text[:200]
END
alone python use.py
alone fatune emit "forward bf16 d64 nq1024 causal" --gpu h200 | grep -q __global__
[ "$(alone fatune --version)" = "fatune $(alone python -c 'import fatune; print(fatune.version())')" ]

# NVRTC's wheel is found beside the package and around the program, where no toolkit comes first.
packages=$(alone python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
if ! alone fatune doctor | grep -q '^NVRTC *ok'; then
  mkdir -p "$packages/nvidia/cu13/lib"
  cp "$build/fake/libfake_nvrtc.so" "$packages/nvidia/cu13/lib/libnvrtc.so.13"
  env -i HOME="$scratch" FATUNE_CACHE_DIR="$scratch/cache" "$scratch/venv/bin/fatune" doctor | grep -q "$packages/nvidia/cu13"
fi
