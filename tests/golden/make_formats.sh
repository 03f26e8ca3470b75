#!/usr/bin/env bash
# Writes tests/golden/VERSION, a file of every format that ripstop reads again, as this version writes them, with the values of
# tests/train/golden_values.h. GoldenFormats in tests/train/golden_formats_test.cpp reads the folders of all versions.
#   tests/golden/make_formats.sh [BUILD]      BUILD (build/cpu-release) has the program train_test
set -euo pipefail
cd "$(dirname "$0")/../.."
version=$(sed -n 's/^project(ripstop VERSION \([0-9.]*\).*/\1/p' CMakeLists.txt)
if git rev-parse -q --verify "refs/tags/v$version" >/dev/null; then
  echo "$version is released: its golden files stay as they are. Raise the version in CMakeLists.txt first."
  exit 1
fi
rm -rf "tests/golden/$version"
"${1:-build/cpu-release}/tests/train/train_test" --gtest_also_run_disabled_tests --gtest_filter=GoldenFormats.DISABLED_Write
