#!/usr/bin/env bash
# Runs the tests of trellis weights on a CUDA device: tests/run_on_cuda.sh MLX [BUILD]
#   MLX    the folder `mlx` of the CUDA package of MLX (`pip install mlx-cuda-13`) of the version in
#          requirements/build.txt; its libraries from nvidia-* packages lie beside it, or name their
#          folders in LD_LIBRARY_PATH. CUDA_HOME names a toolkit's folder (headers for NVRTC).
#   BUILD  the build folder, by default `build`: built for the CPU package, whose library the other
#          takes the place of.
set -euo pipefail
mlx=$(cd "${1:?usage: tests/run_on_cuda.sh MLX [BUILD]}" && pwd)
build=${2:-build}
export LD_LIBRARY_PATH=$mlx/lib:$mlx/../mlx_cuda_13.libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
"$build/tests/kernels_test" --gtest_filter='TrellisCuda.*:TrellisDevices.*'
"$build/tests/models_test" --gtest_filter='TrellisModel.GivesTheSameBitsOnAGpu'
