#!/usr/bin/env bash
# Assembles a Rust compiler for wasm32-unknown-unknown from Debian's (or Ubuntu's) packages, for machines where
# `rustup target add` cannot reach its server. Needs no root: packages are downloaded and unpacked, not installed.
#
#   rust-wasm-debian.sh PREFIX      then: RUSTC=PREFIX/rustc cargo build --target wasm32-unknown-unknown
#
# PREFIX/rustc appears as the last step: if it is there, all of it is.
set -euo pipefail
prefix=$(realpath -m "$1")
sysroot=$(rustc --print sysroot)
host=$(rustc -vV | sed -n 's/^host: //p')
linker=$sysroot/lib/rustlib/$host/bin/rust-lld
[ -x "$linker" ] || { echo "rust-lld is missing from $sysroot" >&2; exit 1; }
rm -rf "$prefix/deb" "$prefix/root" "$prefix/std" "$prefix/rustc"
mkdir -p "$prefix/deb" "$prefix/root" "$prefix/std/src"
cd "$prefix/deb"

# Package lists: the system's, or our own if it has none that know the compiler.
apt_options=(-o Acquire::Retries=2 -o Acquire::http::Timeout=60 -o Acquire::https::Timeout=60)
candidate() { apt-cache "${apt_options[@]}" policy rustc-web 2>/dev/null | sed -n 's/^ *Candidate: //p'; }
version=$(candidate)
if [ -z "$version" ] || [ "$version" = "(none)" ]; then
    echo "fetching package lists"
    mkdir -p "$prefix/apt/lists/partial" "$prefix/apt/cache/archives/partial"
    apt_options+=(-o "Dir::State::lists=$prefix/apt/lists" -o "Dir::Cache=$prefix/apt/cache")
    apt-get "${apt_options[@]}" update -q
    version=$(candidate)
fi
if [ -z "$version" ] || [ "$version" = "(none)" ]; then
    echo "this release has no package rustc-web" >&2
    exit 1
fi

echo "fetching rustc-web $version"
short=${version%%+*}          # 1.96.0+dfsg1-1~deb12u1 -> 1.96.0
short=${short%.*}             # -> 1.96
llvm=$(apt-cache "${apt_options[@]}" depends "rustc-web=$version" "libstd-rust-web-$short=$version" |
    sed -n 's/^ *Depends: \(libllvm[0-9]*\)$/\1/p' | sort -u)
# shellcheck disable=SC2086  # several names, or none
apt-get "${apt_options[@]}" download -q "rustc-web=$version" "libstd-rust-web-dev=$version" \
    "libstd-rust-web-$short=$version" "rust-web-src=$version" $llvm
for package in *.deb; do
    echo "unpacking $package"
    dpkg-deb -x "$package" "$prefix/root"
done

libraries=$(dirname "$(find "$prefix/root/usr/lib" -name 'librustc_driver-*.so' -print -quit)")
cat > "$prefix/rustc.new" <<WRAPPER
#!/bin/sh
export LD_LIBRARY_PATH=$libraries\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}
exec $prefix/root/usr/bin/rustc "\$@"
WRAPPER
chmod +x "$prefix/rustc.new"
mkdir -p "$prefix/root/usr/lib/rustlib/$host/bin"
ln -sf "$linker" "$prefix/root/usr/lib/rustlib/$host/bin/rust-lld"

echo "building the standard library"
cd "$prefix/std"
: > src/lib.rs
printf '[package]\nname="stdseed"\nversion="0.0.0"\nedition="2021"\n[workspace]\n[profile.release]\npanic="abort"\n' > Cargo.toml
RUSTFLAGS="-Cembed-bitcode=yes" RUSTC="$prefix/rustc.new" RUSTC_BOOTSTRAP=1 \
    cargo build --release -Zbuild-std=std,panic_abort --target wasm32-unknown-unknown --target-dir target
lib=$prefix/root/usr/lib/rustlib/wasm32-unknown-unknown/lib
mkdir -p "$lib"
rm -f target/wasm32-unknown-unknown/release/deps/libstdseed-*
cp target/wasm32-unknown-unknown/release/deps/*.rlib "$lib/"

rm -rf "$prefix/deb" "$prefix/std"
mv "$prefix/rustc.new" "$prefix/rustc"
echo "ready: $("$prefix/rustc" -V)"
